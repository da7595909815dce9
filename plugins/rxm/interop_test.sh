#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# interop_test.sh LIB_DIR WEFT_BENCH: rxm over tcp against stock libfabric 1.17, in both roles. Debian's unmodified fi_pingpong sends
# untagged messages of every size. weft-bench, linked with the stock library, sends tagged messages (stock sends them to us without an
# rxm header) and accesses remote memory; it checks every byte. Exits 77 (not run) without Debian's programs or a network namespace.

set -u
weft_lib=$(realpath "${1:?usage: interop_test.sh LIB_DIR WEFT_BENCH}") || exit 2
weft_bench=$(realpath "${2:?}") || exit 2
[ -x "$weft_bench" ] || { echo "skipped: weft-bench is not built (it needs libfabric-dev)"; exit 77; }
here=$(dirname "$(realpath "$0")")
# shellcheck source=tests/interop/network.sh
. "$here/../../tests/interop/network.sh"
own_network "$0" "$@"
# shellcheck source=tests/interop/programs.sh
. "$here/../../tests/interop/programs.sh"
require_debian fi_pingpong
stack="tcp;ofi_rxm"

for pair in "weft weft" "weft stock" "stock weft"; do
  read -r server client <<<"$pair"
  pingpong "all sizes" "$server" "$client" 46 127.0.0.1 -p "$stack" -e rdm -S all -c -I 3
done

for pair in "stock weft" "weft stock"; do
  read -r server client <<<"$pair"
  for kind in "--tagged -t lat,bw -S 1,64,65,4K,16K,16385,64K,200K,1M" "--tagged --inject -t rate -S 8,64" \
    "-t write_bw,read_bw -S 1,4K,1M"; do
    # shellcheck disable=SC2086
    measure "weft-bench $kind" "$server" "$client" -e rdm -p "$stack" $kind -n 10
  done
done
conclude
