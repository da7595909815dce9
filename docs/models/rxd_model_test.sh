#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# rxd_model_test.sh: Spin explores every run of rxd_connection.pml in a few sizes. No assertion may
# fail, no run may block or go on for ever, and every statement must be reached. Then Spin must find
# two flaws that the protocol avoids: cookies of the receiver alone, and silence after a useless
# token. This shows that the checks can fail. Exits 77 (not run) without spin or a C compiler.

set -u
model=$(dirname "$(realpath "$0")")/rxd_connection.pml
for program in spin cc; do
  command -v "$program" >/dev/null || { echo "skipped: no $program here"; exit 77; }
done
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2

fail() { echo "FAILED: $1"; cat out; exit 1; }

# verify NAME "MODEL OPTIONS" "COMPILER OPTIONS" [PAN OPTIONS]. With -O2 the compiler takes longer than the search gains.
verify() {
  local name=$1 model_options=$2 compiler_options=$3
  shift 3
  # shellcheck disable=SC2086
  spin $model_options -a "$model" >out 2>&1 || fail "$name: spin"
  # shellcheck disable=SC2086
  cc -Og -w -DCOLLAPSE -DVECTORSZ=2048 $compiler_options pan.c -o pan >out 2>&1 || fail "$name: cc"
  ./pan -m1000000 "$@" >out 2>&1
  grep -q "max search depth too small\|out of memory\|Search not completed" out && ! grep -q "errors: [1-9]" out && fail "$name: not exhaustive"
  grep -q "errors: " out || fail "$name: no result"
}

states() { awk '/states, stored/ { print $1 }' out; }

for size in "-DMISCHIEF=2 -DOPS0=1 -DOPS1=1" "-DMISCHIEF=1 -DOPS0=2 -DOPS1=1"; do
  verify "$size" "$size" -DSAFETY
  grep -q "errors: 0" out || fail "$size"
  awk '/^unreached in/ { inside = 1; next } /^pan:/ { inside = 0 } inside && /state [0-9]+, / && !/"-end-"/ { found = 1; print } END { exit found }' out ||
    fail "$size: statements that nothing reaches"
  echo "ok: $size: $(states) states"
done

# Every run ends: there is no cycle. (-l finds cycles without progress, and the model labels none.)
size="-DMISCHIEF=1 -DOPS0=1 -DOPS1=1"
verify "endless runs" "$size" -DNP -l
grep -q "errors: 0" out || fail "a run that does not end: $size"
echo "ok: every run ends: $(states) states"

verify "one cookie" "-DONE_COOKIE -DMISCHIEF=2 -DOPS0=2 -DOPS1=1" -DSAFETY
grep -q "errors: 1" out || fail "the flaw of cookies of one side was not found: does the model check anything?"
echo "ok: cookies of the receiver alone are refuted"

verify "silence" "-DSILENT -DMISCHIEF=1 -DOPS0=1 -DOPS1=1" -DSAFETY
grep -q "assertion violated.*asked" out || fail "no request in vain was found: does the model check anything?"
echo "ok: silence after a token of an earlier life is refuted"
