# What scripts/nightly has seen, step by step. Sourced by bash after scripts/checks.sh; .ci/run asks this record too.
#
# scripts/nightly.txt has a line for each step that has passed on a tree without changes: the step, the commit, the date, the seconds,
# kept or cold (checks_cache has both), the cores and the processor. A line holds as long as the files that its step reads are as they
# were at that commit. The scripts of the night (scripts/night*, this record too) are not counted, because a change of one step would
# undo the lines of all.

NIGHT_RECORD=scripts/nightly.txt

# reads PATHS...: what the steps that follow read, as git's pathspecs; everything where nothing is said.
declare -A NIGHT_READS
NIGHT_FILES=(.)
reads() {
    NIGHT_FILES=("$@")
}

# night NAME COMMAND...: enters a step.
night() {
    check "$@"
    NIGHT_READS[$1]=${NIGHT_FILES[*]}
}

# night_field STEP NUMBER: a word of the step's line, the step itself being the first; nothing where there is no line.
night_field() {
    [ ! -e "$NIGHT_RECORD" ] || awk -v step="$1" -v number="$2" '$1 == step { print $number }' "$NIGHT_RECORD"
}

# night_commit STEP: the commit at which the step passed last; nothing where there is none, or HEAD does not come from it.
night_commit() {
    local commit
    commit=$(night_field "$1" 2)
    [ -z "$commit" ] || ! git merge-base --is-ancestor "$commit" HEAD 2>/dev/null || echo "$commit"
}

# night_changed STEP PATH...: whether a path has changed since the step passed, or nobody knows. What the night has seen .ci/run
# need not repeat.
night_changed() {
    local commit
    commit=$(night_commit "$1")
    [ -z "$commit" ] || ! git diff --quiet "$commit" -- "${@:2}" ":!scripts/night*"
}

# night_stale STEP: whether its line does not hold.
night_stale() {
    local files
    read -ra files <<<"${NIGHT_READS[$1]}"
    night_changed "$1" "${files[@]}"
}

# night_missing KIND: the steps that have no line which holds, with KIND cold none of a cold run. First those that have never passed,
# then those that passed longest ago, so that short sessions between changes come round to all.
night_missing() {
    local name commit
    for name in "${CHECKS_NAMES[@]}"; do
        if ! night_stale "$name" && { [ "$1" = kept ] || [ "$(night_field "$name" 5)" = cold ]; }; then
            continue
        fi
        commit=$(night_commit "$name")
        echo "$([ -n "$commit" ] && git log -1 --format=%ct "$commit" || echo 0) $name"
    done | sort -s -n -k 1,1 | cut -d ' ' -f 2
}

# night_status: a line for each step, and one for all.
night_status() {
    local name commit state hold=0 stale=0 never=0
    for name in "${CHECKS_NAMES[@]}"; do
        commit=$(night_commit "$name")
        if [ -z "$commit" ]; then
            state="never passed in this history"
            never=$((never + 1))
        else
            state="passed on $(night_field "$name" 3) at $commit, $(git rev-list --count "$commit..HEAD") commits ago,"
            state+=" in $(night_field "$name" 4) s, $(night_field "$name" 5)"
            if night_stale "$name"; then
                state+="; what it reads has changed since"
                stale=$((stale + 1))
            else
                hold=$((hold + 1))
            fi
        fi
        printf '%-15s %s\n' "$name" "$state"
    done
    echo "=== scripts/nightly: of ${#CHECKS_NAMES[@]} steps $hold have passed on the files as they are, $stale on older files, $never never"
}

# The commit that is checked out; nothing where the tree differs from it in anything but the record.
night_clean_commit() {
    [ -n "$(git status --porcelain -- . ":!$NIGHT_RECORD" 2>&1)" ] || git rev-parse --short=12 HEAD
}

# night_record STEP COMMIT SECONDS: writes the line of a step that has passed, and began on a clean COMMIT. A run that ends meanwhile
# leaves the old record or the new one.
night_record() {
    local new=build/checks/nightly.txt
    if [ -z "$2" ] || [ "$(night_clean_commit)" != "$2" ]; then
        echo "=== $1: not recorded, because the tree has changes or another commit was checked out meanwhile"
        return
    fi
    {
        [ ! -e "$NIGHT_RECORD" ] || awk -v step="$1" '$1 != step' "$NIGHT_RECORD"
        printf '%-15s %s %s %6d %s %3d cores, %s\n' "$1" "$2" "$(date -u +%F)" "$3" "$CHECKS_KIND" "$TCONV_JOBS" \
            "$(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -n 1)"
    } | LC_ALL=C sort >"$new"
    mv "$new" "$NIGHT_RECORD"
    echo "=== $1: recorded in $NIGHT_RECORD; commit it"
}

# night_main "$@": all that scripts/nightly does with its arguments.
night_main() {
    local name commit start failed=()
    if [ "$*" = --status ]; then
        night_status
        return
    fi
    checks_start "$@"
    [ -z "$CHECKS_WHOLE" ] || mapfile -t CHECKS_CHOSEN < <(night_missing "$CHECKS_KIND")
    trap 'echo "=== interrupted; what had passed is recorded"; exit 130' INT
    for name in "${CHECKS_CHOSEN[@]}"; do
        start=$SECONDS
        commit=$(night_clean_commit)
        if (step "$name"); then
            night_record "$name" "$commit" $((SECONDS - start))
        else
            failed+=("$name")
        fi
    done
    checks_summary
    night_status
    [ ${#failed[@]} -eq 0 ] || tconv_die "failed: ${failed[*]}"
}
