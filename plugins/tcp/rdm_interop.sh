#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# rdm_interop.sh LIB_DIR: Debian's unmodified fi_pingpong over FI_EP_RDM of tcp, on the library in LIB_DIR with itself (protocol 1),
# and against the same program on Debian's libfabric1, whose provider `net` speaks protocol 0, in both roles; every size, data checked.
#
# In a network namespace of its own, so that fi_pingpong takes the intended address. Exits 77 (not run) if that or the program is
# missing.

set -u
weft_lib=$(realpath "${1:?usage: rdm_interop.sh LIB_DIR}") || exit 2
here=$(dirname "$(realpath "$0")")

if [ $# = 1 ]; then
  unshare=(unshare --net)
  "${unshare[@]}" true 2>/dev/null || unshare=(unshare --user --map-root-user --net)
  "${unshare[@]}" true 2>/dev/null || { echo "skipped: no network namespace can be made here"; exit 77; }
  exec "${unshare[@]}" bash "$0" "$weft_lib" inside
fi

# shellcheck source=tests/interop/programs.sh
. "$here/../../tests/interop/programs.sh"
# Each side has its own provider, which no option of the program can choose.
environment() {
  if [ "$1" = weft ]; then
    echo "LD_LIBRARY_PATH=$weft_lib FI_PROVIDER=tcp"
  else
    echo "-u LD_LIBRARY_PATH FI_PROVIDER=net"
  fi
}
require_debian fi_pingpong
ip link set lo up
ip -6 addr flush dev lo 2>/dev/null
on stock fi_info -t FI_EP_RDM >/dev/null 2>&1 || skip "Debian's libfabric1 has no provider net"

for pair in "weft weft" "weft stock" "stock weft"; do
  read -r server client <<<"$pair"
  pingpong "all sizes" "$server" "$client" 46 127.0.0.1 -e rdm -S all -c -I 3
  pingpong "one size, many messages" "$server" "$client" 1 127.0.0.1 -e rdm -S 777 -c -I 500
done
conclude
