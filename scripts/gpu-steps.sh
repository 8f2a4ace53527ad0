# What gpu-check and gpu-check-python share: steps, each with a log, and what they came to. Sourced, with `logs` set to a
# folder.
mkdir -p "$logs"
failed=()

# step LINES NAME COMMAND...: runs the command, keeps its output in a log, prints the last LINES of it, more where it
# failed.
step() {
    local lines=$1 name=$2 start=$SECONDS
    shift 2
    if "$@" >"$logs/$name.log" 2>&1; then
        echo "=== $name: ok, $((SECONDS - start)) s"
        tail -n "$lines" "$logs/$name.log"
    else
        echo "=== $name: FAILED, $((SECONDS - start)) s"
        tail -n "$((lines + 40))" "$logs/$name.log"
        failed+=("$name")
    fi
}

# tested TEXT COMMAND...: the command, which has failed also where its output has TEXT, by which tests say that they skip for
# want of a GPU: what skips has not been tested.
tested() {
    local text=$1 status
    shift
    "$@" 2>&1 | tee "$logs/tested.tmp"
    status=${PIPESTATUS[0]}
    ! grep -q "$text" "$logs/tested.tmp" && return "$status"
}

# The last line, and the status of the script.
finish() {
    rm -f "$logs/tested.tmp"
    if ((${#failed[@]})); then
        echo "failed: ${failed[*]}"
        exit 1
    fi
    echo "all passed"
}
