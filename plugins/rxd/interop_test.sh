#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# interop_test.sh LIB_DIR WEFT_BENCH INTEROP_ACCESS: rxd over udp against stock libfabric 1.17, in both roles. Debian's unmodified fi_pingpong does
# untagged messages with a check of the data, weft-bench tagged ones, interop_access remote memory and atomics; both are linked with
# the stock library. That stock answers at all shows that it ignores the mark in our RTS. Exits 77 (not run) without Debian's programs
# or a network namespace.

set -u
weft_lib=$(realpath "${1:?usage: interop_test.sh LIB_DIR WEFT_BENCH INTEROP_ACCESS}") || exit 2
bench=$(realpath "${2:?}") || exit 2
access=$(realpath "${3:?}") || exit 2
if ! [ -x "$bench" ] || ! [ -x "$access" ]; then
  echo "skipped: weft-bench is not built (it needs libfabric-dev)"
  exit 77
fi
here=$(dirname "$(realpath "$0")")

# A network of its own: fi_pingpong takes the first address that it is offered.
if [ $# = 3 ]; then
  unshare=(unshare --net)
  "${unshare[@]}" true 2>/dev/null || unshare=(unshare --user --map-root-user --net)
  "${unshare[@]}" true 2>/dev/null || { echo "skipped: no network namespace can be made here"; exit 77; }
  exec "${unshare[@]}" bash "$0" "$weft_lib" "$bench" "$access" inside
fi

# shellcheck source=tests/interop/programs.sh
. "$here/../../tests/interop/programs.sh"
require_debian fi_pingpong
ip link set lo up
ip -6 addr flush dev lo 2>/dev/null
stack="udp;ofi_rxd"

limit=120
# Stock takes a second for a few MiB when the machine is busy: all sizes only among weft.
pingpong "all sizes" weft weft 46 127.0.0.1 -p "$stack" -e rdm -S all -c -I 3
for pair in "weft stock" "stock weft"; do
  read -r server client <<<"$pair"
  for size in 0 1 64 1456 1457 4096 65536 262144 1048576; do
    pingpong "$size bytes" "$server" "$client" 1 127.0.0.1 -p "$stack" -e rdm -S $size -c -v -I 3
  done
done

stock_lib=$(ldconfig -p | awk '$1 == "libfabric.so.1" && $2 ~ /x86-64|AArch64/ { print $NF; exit }')
[ -n "$stock_lib" ] || skip "no stock libfabric.so.1"
stock_lib=$(dirname "$stock_lib")
folder() { if [ "$1" = weft ]; then echo "$weft_lib"; else echo "$stock_lib"; fi; }

for pair in "stock weft" "weft stock"; do
  read -r server client <<<"$pair"
  if LD_LIBRARY_PATH=$(folder "$client") timeout "$limit" "$bench" --local --server-library-path "$(folder "$server")" \
    -e rdm -p "$stack" --tagged -t lat -S 1,64,1448,1449,4K,200K -n 10 --check --timeout 110 >"$work/out" 2>&1; then
    pass "weft-bench --tagged: server on $server, client on $client"
  else
    fail "weft-bench --tagged: server on $server, client on $client"
    tail -5 "$work/out"
  fi
done

# Remote memory: the target runs until its input ends.
mkfifo "$work/input"
for pair in "weft weft" "stock weft" "weft stock"; do
  read -r server client <<<"$pair"
  # shellcheck disable=SC2046
  timeout "$limit" env $(environment "$server") "$access" target <"$work/input" >"$work/target" 2>&1 &
  started+=($!)
  exec 7>"$work/input"
  until [ "$(wc -l <"$work/target")" -gt 0 ] || ! kill -0 "${started[-1]}" 2>/dev/null; do
    sleep 0.02 # between two questions; nothing depends on it
  done
  # shellcheck disable=SC2046
  if on "$client" "$access" $(cat "$work/target") >"$work/out" 2>&1; then
    pass "remote memory: target $server, initiator $client"
  else
    fail "remote memory: target $server, initiator $client"
    cat "$work/target" "$work/out"
  fi
  exec 7>&-
  wait "${started[-1]}"
done

# At one address there are one after the other a weft process, a stock one and a weft one, none of which says good-bye. The target lives on.
# shellcheck disable=SC2046
timeout "$limit" env $(environment weft) "$access" target <"$work/input" >"$work/target" 2>&1 &
started+=($!)
exec 7>"$work/input"
until [ "$(wc -l <"$work/target")" -gt 0 ] || ! kill -0 "${started[-1]}" 2>/dev/null; do
  sleep 0.02 # between two questions; nothing depends on it
done
port=$(free_port)
for client in weft stock weft; do
  # shellcheck disable=SC2046
  if INTEROP_PORT=$port on "$client" "$access" $(cat "$work/target") >"$work/out" 2>&1; then
    pass "remote memory: target weft, at the address of the one before: $client"
  else
    fail "remote memory: target weft, at the address of the one before: $client"
    cat "$work/target" "$work/out"
  fi
done
exec 7>&-
wait "${started[-1]}"
conclude
