#!/usr/bin/env bash
# The record of scripts/nightly (scripts/night.sh), tried with steps of its own in a repository of its own: what is recorded, what is
# made again after a change, and that neither a failure nor an interruption loses a line.
#     nightly.sh SCRATCH
set -euo pipefail
scripts=$(cd "$(dirname "$0")/../../scripts" && pwd)
command -v git >/dev/null || {
    echo "skipped: this needs git"
    exit
}
rm -rf "$1"
mkdir -p "$1/scripts"
cd "$1"
export XDG_CACHE_HOME=$PWD/build TCONV_CCACHE=$PWD/build/ccache
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE

fail() {
    echo "nightly.sh: $*" >&2
    cat log >&2
    exit 1
}

# ------------------------------------------------------------------------------------ a repository and three steps that say they ran
cp "$scripts"/{setup,checks,night}.sh scripts
cat >scripts/nightly <<'END'
#!/usr/bin/env bash
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
source scripts/checks.sh
source scripts/night.sh
set_up() { :; }
ran() {
    echo "ran $1"
    [ ! -e "build/fails-$1" ] || tconv_die "$1 is made to fail"
    # This stands for programs that clean up when they are interrupted, and do not die of the signal.
    [ ! -e "build/waits-$1" ] || (trap "exit 1" INT && touch build/waiting && sleep 60)
}
reads a ":!a/*.log"
night first ran first
reads b
night second ran second
reads .
night third ran third
night_main "$@"
END
chmod +x scripts/nightly
mkdir a b
touch a/file b/file
printf '/build/\n/log\n' >.gitignore
git init -q
commit() {
    git add -A
    git -c user.name=tests -c user.email=tests@localhost -c commit.gpgsign=false commit -q "${@:2}" -m "$1"
}
commit "the beginning"

# night ARGUMENTS...: a run, whose exit code is in `code`. steps: what ran in it. recorded: the steps that have a line.
night() {
    code=0
    scripts/nightly "$@" >log 2>&1 || code=$?
}
steps() {
    sed -n 's/^ran //p' log | xargs
}
recorded() {
    cut -d ' ' -f 1 scripts/nightly.txt 2>/dev/null | xargs
}
expect() {
    [ "$2" = "$3" ] || fail "$1: \"$2\" instead of \"$3\""
}

# --------------------------------------------------------------------------------------------------------------------- the promises
touch build-not-ignored
night --only first
expect "what a tree with changes records" "$(recorded)" ""
rm build-not-ignored

mkdir -p build
touch build/fails-second
night
expect "steps of a run in which one fails" "$(steps)" "first second third"
expect "its exit code" $code 1
expect "what it records" "$(recorded)" "first third"
grep -q "failed: second$" log || fail "the failure is not reported at the end"
rm build/fails-second

night
expect "steps that are made where one is missing" "$(steps)" "second"
expect "the exit code of a run that passes" $code 0
night
expect "steps that are made where all have passed" "$(steps)" ""
commit "the record"
night --status
grep -q "^=== .*of 3 steps 3 have passed on the files as they are, 0 on older files, 0 never" log || fail "the state of all"

echo change >b/file
night
expect "steps that are made after a change that is not committed" "$(steps)" "second third"
commit "a change"
echo change >a/one.log
commit "a change that the first step does not read"
night --status
grep -Eq "^first .*, 3 commits ago, in [0-9]+ s, kept$" log || fail "the state of a step that has passed"
grep -Eq "^second .*; what it reads has changed since$" log || fail "the state of a step whose files have changed"
night
expect "steps that are made after that" "$(steps)" "second third"

# The one that passed longest ago is the first.
sed -i 's/^second .*/#/' scripts/nightly.txt
commit "a record that lost a line"
echo change >a/file
commit "a change of what the first and the third read"
night
expect "the order" "$(steps)" "second first third"

echo another >b/file
commit "one more change"
touch build/waits-third
set -m
scripts/nightly >log 2>&1 &
process=$!
set +m
for ((i = 0; i < 300; i++)); do
    [ ! -e build/waiting ] || break
    sleep .1
done
kill -INT -- "-$process"
code=0
wait "$process" || code=$?
expect "the exit code of a run that is interrupted" $code 130
rm build/waits-third
night
expect "steps that are made after it" "$(steps)" "third"

night --cold
expect "steps of a cold run where all that passed was kept" "$(steps)" "first second third"
night --cold
expect "steps of the next" "$(steps)" ""
echo "one more" >b/file
commit "a change after the cold run"
night
expect "steps that are made after it" "$(steps)" "second third"

commit "a history without the commit of the record" --amend
night --status
grep -q "^second *never passed in this history" log || fail "a commit that is not in this history counts"
echo "the record of scripts/nightly holds what it promises"
