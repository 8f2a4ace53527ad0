#!/bin/sh
# with_report.sh COMPILER ARGUMENT...: compiles, and keeps what the compiler said, ptxas's report on each kernel in it, beside
# the object as <object>.report. Passes on what is no such report.
object= previous=
for argument; do
    [ "$previous" = -o ] && object=$argument
    previous=$argument
done
[ -n "$object" ] || exec "$@"
"$@" >"$object.report" 2>&1
status=$?
grep -vE "^ptxas info|bytes stack frame, .* spill (stores|loads)|^ *$" "$object.report" >&2
exit "$status"
