#!/bin/bash
# tools_test.sh FI_INFO WEFT TWO_FACED
# Plugins that pass their probe, and hang, crash or exit when they are asked for their offers. Each command of weft that asks names
# the culprit and answers for all others; a program that waits for one is told so.
set -uo pipefail
fi_info=$1 weft=$2 two_faced=$3
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0
printf 'version: 1\nplugins: {probe_budget_ms: 1000}\n' >"$scratch/impatient.yaml"
export HOME="$scratch" XDG_CACHE_HOME="$scratch/cache" FI_CONFIG="$scratch/impatient.yaml"

fail() {
  echo "FAILED: $1"
  sed 's/^/  out: /' "$scratch/out"
  sed 's/^/  err: /' "$scratch/err"
  failed=1
}

# expect NAME STATUS PATTERN COMMAND...: the status, a line of stdout, and the culprit with its file on stderr
expect() {
  local name=$1 status=$2 pattern=$3 got
  shift 3
  timeout 120 "$weft" "$@" >"$scratch/out" 2>"$scratch/err"
  got=$?
  [ $got = "$status" ] || fail "weft $* beside $name: status $got"
  grep -Eq "$pattern" "$scratch/out" || fail "weft $* beside $name: no line has $pattern"
  grep -q "hostile (.*/$name.so) is left out: when it was asked, it " "$scratch/err" ||
    fail "weft $* beside $name: no culprit is named"
}

for how in hangs:'did not return from getinfo within' crashes:'was killed in getinfo by signal (6|11)' \
  exits:'ended the process in getinfo with status 0'; do
  name=later_${how%%:*} words=${how#*:}
  export FI_PROVIDER_PATH="$two_faced/$name"
  # It is good, and has all the time that it needs to show it.
  "$weft" plugin check --budget 120000 "$two_faced/$name/$name.so" >"$scratch/out" 2>"$scratch/err" || fail "$name is no good plugin"
  expect $name 0 'tcp' info
  expect $name 0 "reason +when it was asked, it $words" why hostile
  expect $name 0 'stage +getinfo' why hostile
  expect $name 0 '^tcp .* selected' why
  expect $name 0 "^hostile-package .* rejected .*/$name.so" plugin list
  expect $name 2 "^FAIL +plugins +.*/$name.so stops every program" doctor
  echo "done   $name"
done

# weft plugin test: it is good when it is tried out, and each trial that it ends is a row that failed.
for how in crashes:'killed by signal (6|11)' exits:'ended with status'; do
  name=later_${how%%:*}
  export FI_PROVIDER_PATH="$two_faced/$name"
  timeout 300 "$weft" plugin test --budget 120000 "$two_faced/$name/$name.so" >"$scratch/out" 2>"$scratch/err"
  got=$?
  [ $got = 1 ] && grep -Eq "^  file +probe +passed" "$scratch/out" &&
    grep -Eq "weft takes the unit from this file +failed +${how#*:}" "$scratch/out" &&
    grep -Eq "everything else +not checked" "$scratch/out" || fail "weft plugin test $name: status $got"
  echo "done   $name, weft plugin test"
done

# A program that waits is told what for.
export FI_PROVIDER_PATH="$two_faced/later_hangs"
mkfifo "$scratch/errors"
"$fi_info" >"$scratch/out" 2>"$scratch/errors" &
program=$!
read -r -t 120 line <"$scratch/errors"
kill $program
wait $program 2>/dev/null
: >"$scratch/err"
case $line in
  *'fi_getinfo waits for hostile ('*'/later_hangs.so), which has not returned from getinfo for 1000 ms'*) ;;
  *) fail "a program that waits for a plugin was told: $line" ;;
esac

exit $failed
