#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# runner_test.sh MPI_CLIENT: what run-mpi promises, on Debian's libfabric: it passes what is right, and refuses messages that went another
# way, another library than the one that was named, and a program that does not end.

set -u
here=$(dirname "$(realpath "$0")")
program=${1:?usage: runner_test.sh MPI_CLIENT}
command -v mpirun >/dev/null || { echo "skipped: no mpirun (package openmpi-bin)"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# expect STATUS TEXT NAME COMMAND...
expect() {
  local got=0
  "${@:4}" >"$work/out" 2>&1 || got=$?
  if [ "$got" = "$1" ] && grep -Eq -- "$2" "$work/out"; then
    echo "passed: $3"
  else
    echo "FAILED: $3: status $got, expected $1 and '$2'"
    sed 's/^/    /' "$work/out"
    failures=$((failures + 1))
  fi
}

system=$(/sbin/ldconfig -p | awk '$1 == "libfabric.so.1" { print $NF; exit }')
mkdir "$work/other" && cp "$(realpath "$system")" "$work/other/libfabric.so.1"
run=("$here/run-mpi" --prov 'tcp;ofi_rxm' --ranks 2)
expect 0 'stack: tcp;ofi_rxm by .*libfabric.* MB over' "a run on stock" "${run[@]}" --lib stock "$program" -- comm --quick
expect 0 "by .*$work/other/libfabric.so.1" "two libraries, half and half" "${run[@]}" --lib "$work/other" --mixed stock "$program" -- comm --quick
expect 1 'FAILED: .*(vader|pml_cm)' "messages that went through shared memory" \
  "${run[@]}" --lib stock --mca pml ob1 --mca btl self,vader "$program" -- comm --quick
expect 1 'has mapped .*, not ' "another library" "${run[@]}" --lib "$work/other" --env "LD_PRELOAD=$system" "$program" -- comm --quick
expect 1 'ran out of its 3 s' "a program that does not end" "${run[@]}" --lib stock --timeout 3 /bin/sleep -- 600.25
for cmdline in /proc/[0-9]*/cmdline; do
  if tr '\0' ' ' <"$cmdline" 2>/dev/null | grep -q '^/bin/sleep 600.25\|^/usr/bin/sleep 600.25'; then
    echo "FAILED: the program that did not end is still there: $cmdline"
    failures=$((failures + 1))
  fi
done
[ $failures = 0 ] || { echo "$failures failed"; exit 1; }
echo "all passed"
