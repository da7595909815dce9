#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# interop_test.sh LIB_DIR: Debian's unmodified fi_pingpong over datagrams, on the library in LIB_DIR with itself and against the same
# program on Debian's libfabric1, in both roles; every size, data checked, IPv4 and IPv6.
#
# Each address family has a network namespace of its own, so that fi_pingpong takes the intended address. Exits 77 (not run) if
# that or the program is missing.

set -u
weft_lib=$(realpath "${1:?usage: interop_test.sh LIB_DIR}") || exit 2
here=$(dirname "$(realpath "$0")")

if [ $# = 1 ]; then
  unshare=(unshare --net)
  "${unshare[@]}" true 2>/dev/null || unshare=(unshare --user --map-root-user --net)
  "${unshare[@]}" true 2>/dev/null || { echo "skipped: no network namespace can be made here"; exit 77; }
  status=0
  for family in 4 6; do
    "${unshare[@]}" bash "$0" "$weft_lib" $family
    case $? in
      0) ;;
      77) [ $status = 0 ] && status=77 ;;
      *) status=1 ;;
    esac
  done
  exit $status
fi

# shellcheck source=tests/interop/programs.sh
. "$here/../../tests/interop/programs.sh"
require_debian fi_pingpong
ip link set lo up
if [ "$2" = 4 ]; then
  ip -6 addr flush dev lo 2>/dev/null
  address=127.0.0.1 options=()
else
  grep -qs 00000000000000000000000000000001 /proc/net/if_inet6 || skip "this kernel has no IPv6"
  ip -4 addr flush dev lo
  # Stock libfabric leaves out a loopback interface that has only IPv6. So make a link with both ends here. It has no link-local
  # address, which would come first and not be usable at once.
  ip link add end0 type veth peer name end1 2>"$work/why" || skip "no link can be made here: $(cat "$work/why")"
  ip link set end0 addrgenmode none && ip link set end1 addrgenmode none && ip link set end0 up && ip link set end1 up &&
    ip addr add fd77::1/64 dev end0 nodad
  address=fd77::1 options=(-6)
fi

for pair in "weft weft" "weft stock" "stock weft"; do
  read -r server client <<<"$pair"
  # Sizes up to max_msg_size: 1472, or 1452 for IPv6. No tested size lies between them.
  pingpong "IPv$2, all sizes" "$server" "$client" 21 $address -p udp -e dgram -S all -c -I 20 "${options[@]}"
  pingpong "IPv$2, many messages" "$server" "$client" 1 $address -p udp -e dgram -S 777 -c -I 2000 "${options[@]}"
done
conclude
