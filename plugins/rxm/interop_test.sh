#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# interop_test.sh LIB_DIR WEFT_BENCH: rxm over tcp against stock libfabric 1.17, in both roles. Debian's unmodified fi_pingpong does
# untagged messages of every size; weft-bench, linked with the stock library, tagged ones and remote memory, every byte checked:
# toward us stock's tagged messages have no rxm header. Exits 77 (not run) without Debian's programs or a network namespace.

set -u
weft_lib=$(realpath "${1:?usage: interop_test.sh LIB_DIR WEFT_BENCH}") || exit 2
bench=$(realpath "${2:?}") || exit 2
[ -x "$bench" ] || { echo "skipped: weft-bench is not built (it needs libfabric-dev)"; exit 77; }
here=$(dirname "$(realpath "$0")")

# A network of its own: fi_pingpong takes the first address that it is offered.
if [ $# = 2 ]; then
  unshare=(unshare --net)
  "${unshare[@]}" true 2>/dev/null || unshare=(unshare --user --map-root-user --net)
  "${unshare[@]}" true 2>/dev/null || { echo "skipped: no network namespace can be made here"; exit 77; }
  exec "${unshare[@]}" bash "$0" "$weft_lib" "$bench" inside
fi

# shellcheck source=tests/interop/programs.sh
. "$here/../../tests/interop/programs.sh"
require_debian fi_pingpong
ip link set lo up
ip -6 addr flush dev lo 2>/dev/null
stack="tcp;ofi_rxm"

for pair in "weft weft" "weft stock" "stock weft"; do
  read -r server client <<<"$pair"
  pingpong "all sizes" "$server" "$client" 46 127.0.0.1 -p "$stack" -e rdm -S all -c -I 3
done

stock_lib=$(ldconfig -p | awk '$1 == "libfabric.so.1" && $2 ~ /x86-64|AArch64/ { print $NF; exit }')
[ -n "$stock_lib" ] || skip "no stock libfabric.so.1"
stock_lib=$(dirname "$stock_lib")
folder() { if [ "$1" = weft ]; then echo "$weft_lib"; else echo "$stock_lib"; fi; }

for pair in "stock weft" "weft stock"; do
  read -r server client <<<"$pair"
  for kind in "--tagged -t lat,bw -S 1,64,65,4K,16K,16385,64K,200K,1M" "--tagged --inject -t rate -S 8,64" \
    "-t write_bw,read_bw -S 1,4K,1M"; do
    # shellcheck disable=SC2086
    if LD_LIBRARY_PATH=$(folder "$client") timeout "$limit" "$bench" --local --server-library-path "$(folder "$server")" \
      -e rdm -p "$stack" $kind -n 10 --check --timeout 50 >"$work/out" 2>&1; then
      pass "weft-bench $kind: server on $server, client on $client"
    else
      fail "weft-bench $kind: server on $server, client on $client"
      tail -5 "$work/out"
    fi
  done
done
conclude
