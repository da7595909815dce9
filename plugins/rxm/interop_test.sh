#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# interop_test.sh LIB_DIR WEFT_BENCH INTEROP_REFUSED: rxm over tcp against stock libfabric 1.17, in both roles. Debian's unmodified
# fi_pingpong sends untagged messages of every size. weft-bench, linked with the stock library, sends tagged messages (stock sends them to
# us without an rxm header) and accesses remote memory; it checks every byte. interop_refused tells what becomes of messages behind an
# access that the target refuses. Exits 77 (not run) without Debian's programs or a network namespace.

set -u
weft_lib=$(realpath "${1:?usage: interop_test.sh LIB_DIR WEFT_BENCH INTEROP_REFUSED}") || exit 2
weft_bench=$(realpath "${2:?}") || exit 2
refused=$(realpath "${3:?}") || exit 2
[ -x "$weft_bench" ] && [ -x "$refused" ] || { echo "skipped: weft-bench is not built (it needs libfabric-dev)"; exit 77; }
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

# behind SERVER CLIENT KIND TOLD: nine messages, an access among them that SERVER refuses. Each message arrives, or CLIENT is told that it
# did not; TOLD: whether it is told of the access.
mkfifo "$work/input"
behind() {
  local server=$1 client=$2 kind=$3 told=$4 target failed access_failed received
  : >"$work/target"
  # shellcheck disable=SC2046
  timeout "$limit" env $(environment "$server") "$refused" "$stack" target <"$work/input" >"$work/target" 2>"$work/log" &
  target=$!
  started+=("$target")
  exec 7>"$work/input"
  until [ "$(wc -l <"$work/target")" -gt 0 ] || ! kill -0 "$target" 2>/dev/null; do
    sleep 0.02 # between two polls; the result does not depend on it
  done
  # shellcheck disable=SC2046
  read -r failed access_failed <<<"$(on "$client" "$refused" "$stack" $(cat "$work/target") "$kind" 2>>"$work/log" | tail -1)"
  exec 7>&-
  wait "$target"
  received=$(tail -1 "$work/target")
  if [ "$access_failed" = "$told" ] && [ $((received + failed)) -ge 9 ] && [ "$received" -le 9 ]; then
    pass "behind a refused $kind: server $server, client $client: $received came, $failed failed"
  else
    fail "behind a refused $kind: server $server, client $client: $received came, $failed failed; access told: $access_failed"
    cat "$work/log"
  fi
}
for kind in write delivery read; do
  behind weft weft $kind 1
  behind stock weft $kind 1
  behind weft stock $kind $([ $kind = write ] && echo 0 || echo 1)
done
conclude
