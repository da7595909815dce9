#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# pingpong.sh LIB_DIR: Debian's unmodified fi_pingpong (package libfabric-bin) over tcp message endpoints, on the library in LIB_DIR
# with itself, and against the same program on Debian's libfabric1, in both roles; every size, data checked, IPv4 and IPv6.
#
# fi_pingpong takes the first address that it is offered, so each family has a network of its own in which there is no other:
# a new network namespace. Exits 77 (not run) where that, or the program, cannot be had.

set -u
weft_lib=$(realpath "${1:?usage: pingpong.sh LIB_DIR}") || exit 2
here=$(dirname "$(realpath "$0")")

# The second time, inside of the namespace: pingpong.sh LIB_DIR FAMILY
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
. "$here/programs.sh"
require_debian fi_pingpong
ip link set lo up
if [ "$2" = 6 ]; then
  grep -qs 00000000000000000000000000000001 /proc/net/if_inet6 || skip "this kernel has no IPv6"
  ip -4 addr flush dev lo
  # Stock libfabric leaves out the loopback interface where it has only IPv6: a link with both ends here.
  ip link add end0 type veth peer name end1 2>"$work/why" || skip "no link can be made here: $(cat "$work/why")"
  ip link set end0 up && ip link set end1 up && ip addr add fd77::1/64 dev end0 nodad
  address=fd77::1 family=(-6)
else
  ip -6 addr flush dev lo 2>/dev/null
  address=127.0.0.1 family=()
fi

for pair in "weft weft" "weft stock" "stock weft"; do
  read -r server client <<<"$pair"
  pingpong "IPv$2, all sizes" "$server" "$client" 46 "$address" -p tcp -e msg -S all -c -I 3 "${family[@]}"
  pingpong "IPv$2, one size, many messages" "$server" "$client" 1 "$address" -p tcp -e msg -S 777 -c -I 500 "${family[@]}"
done
conclude
