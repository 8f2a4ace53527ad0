# What gpu-check, gpu-racecheck and gpu-check-python share: steps, each with a log, and what they came to. Sourced, with `logs`
# set to a folder.
mkdir -p "$logs"
failed=()
queued=()
slots=${TCONV_GPU_JOBS:-$(nproc)} # steps that run at once

# timed NAME COMMAND...: runs the command and keeps its output, its status and its seconds.
timed() {
    local name=$1 start=$SECONDS status=0
    shift
    "$@" >"$logs/$name.log" 2>&1 || status=$?
    echo "$status $((SECONDS - start))" >"$logs/$name.end"
}

# tell LINES NAME: says how a command ended that was timed, and prints the last LINES of its output, more where it failed.
tell() {
    local lines=$1 name=$2 status seconds
    read -r status seconds <"$logs/$name.end"
    rm -f "$logs/$name.end"
    if [ "$status" -eq 0 ]; then
        echo "=== $name: ok, $seconds s"
        tail -n "$lines" "$logs/$name.log"
    else
        echo "=== $name: FAILED, $seconds s"
        tail -n "$((lines + 40))" "$logs/$name.log"
        failed+=("$name")
    fi
}

# step LINES NAME COMMAND...: runs the command by itself.
step() {
    timed "${@:2}"
    tell "$1" "$2"
}

# queue LINES NAME COMMAND...: starts the command as soon as a slot is free. join_queue waits for all of them and tells.
queue() {
    while (($(jobs -rp | wc -l) >= slots)); do
        wait -n
    done
    timed "${@:2}" &
    queued+=("$1 $2")
}

join_queue() {
    local entry
    wait
    for entry in "${queued[@]}"; do
        tell "${entry% *}" "${entry#* }"
    done
    queued=()
}

# tested TEXT COMMAND...: the command, which has failed also where its output has TEXT, by which tests say that they skip for
# want of a GPU: what skips has not been tested.
tested() {
    local text=$1 output status=0
    shift
    output=$("$@" 2>&1) || status=$?
    printf '%s\n' "$output"
    [[ $output != *"$text"* ]] && return "$status"
}

# The last line, and the status of the script.
finish() {
    if ((${#failed[@]})); then
        echo "failed: ${failed[*]}"
        exit 1
    fi
    echo "all passed in $SECONDS s"
}
