#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# interop_test.sh LIB_DIR WEFT_BENCH INTEROP_ACCESS
#
# Tests rxd over udp against stock libfabric 1.17, in both roles. Debian's unmodified fi_pingpong
# sends untagged messages and checks the data, weft-bench sends tagged messages, interop_access uses
# remote memory and atomics. weft-bench and interop_access are linked with the stock library. Stock
# ignores the mark in our RTS, otherwise it would not answer. Exits 77 (not run) without Debian's
# programs or a network namespace.

set -u
weft_lib=$(realpath "${1:?usage: interop_test.sh LIB_DIR WEFT_BENCH INTEROP_ACCESS}") || exit 2
weft_bench=$(realpath "${2:?}") || exit 2
access=$(realpath "${3:?}") || exit 2
if ! [ -x "$weft_bench" ] || ! [ -x "$access" ]; then
  echo "skipped: weft-bench is not built (it needs libfabric-dev)"
  exit 77
fi
here=$(dirname "$(realpath "$0")")
# shellcheck source=tests/interop/network.sh
. "$here/../../tests/interop/network.sh"
own_network "$0" "$@"
# shellcheck source=tests/interop/programs.sh
. "$here/../../tests/interop/programs.sh"
require_debian fi_pingpong
stack="udp;ofi_rxd"

limit=120
# Stock needs a second for a few MiB when the machine is busy, so only weft runs all sizes. (And -v would print a line for each byte.)
pingpong "all sizes" weft weft 46 127.0.0.1 -p "$stack" -e rdm -S all -c -I 3
for pair in "weft stock" "stock weft"; do
  read -r server client <<<"$pair"
  for size in 0 1 64 1456 1457 4096 65536 262144 1048576; do
    pingpong "$size bytes" "$server" "$client" 1 127.0.0.1 -p "$stack" -e rdm -S $size -c -I 3
  done
done

# Stock always uses datagrams of 1472 bytes, also on a link that carries less.
ip link set lo mtu 1400
for pair in "weft stock" "stock weft"; do
  read -r server client <<<"$pair"
  pingpong "4096 bytes over a link of 1400" "$server" "$client" 1 127.0.0.1 -p "$stack" -e rdm -S 4096 -c -I 3
done
ip link set lo mtu 65536

for pair in "stock weft" "weft stock"; do
  read -r server client <<<"$pair"
  measure "weft-bench --tagged" "$server" "$client" -e rdm -p "$stack" --tagged -t lat -S 1,64,1448,1449,4K,200K -n 10
done

# start_target WHICH: starts the process whose memory is accessed; it runs until end_target.
mkfifo "$work/input"
start_target() {
  : >"$work/target" # before it starts: what the one before wrote is not its address
  # shellcheck disable=SC2046
  timeout "$limit" env $(environment "$1") "$access" target <"$work/input" >"$work/target" 2>&1 &
  started+=($!)
  exec 7>"$work/input"
  until [ "$(wc -l <"$work/target")" -gt 0 ] || ! kill -0 "${started[-1]}" 2>/dev/null; do
    sleep 0.02 # between two polls; the result does not depend on it
  done
}
end_target() {
  exec 7>&-
  wait "${started[-1]}"
}
initiate() {
  local name=$1 client=$2
  # shellcheck disable=SC2046
  if on "$client" "$access" $(cat "$work/target") >"$work/out" 2>&1; then
    pass "$name $client"
  else
    fail "$name $client"
    cat "$work/target" "$work/out"
  fi
}

for pair in "weft weft" "stock weft" "weft stock"; do
  read -r server client <<<"$pair"
  start_target "$server"
  initiate "remote memory: target $server, initiator" "$client"
  end_target
done

# A weft, a stock and a weft process use the same address in turn, and end without a close. The
# target keeps running.
start_target weft
INTEROP_PORT=$(free_port)
export INTEROP_PORT
for client in weft stock weft; do
  initiate "remote memory: target weft, at the address of the one before:" "$client"
done
end_target
conclude
