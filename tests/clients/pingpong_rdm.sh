#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# pingpong_rdm.sh LIB_DIR PROVIDER [STOCK_PROVIDER]: Debian's unmodified fi_pingpong (package libfabric-bin) over reliable datagram
# endpoints, on the library in LIB_DIR with itself, and against the same program on Debian's libfabric1, in both roles; every size (of
# stock's rxd, which is slow, a few), data checked, IPv4 and IPv6. Stock 1.17 has the tcp provider with FI_EP_RDM under the name net. LIB_DIR may be stock.
#
# fi_pingpong takes the first address that it is offered, so each family has a network of its own in which there is no other:
# a new network namespace. Exits 77 (not run) where that, or the program, cannot be had.

set -u
[ $# -ge 2 ] || { echo "usage: pingpong_rdm.sh LIB_DIR PROVIDER [STOCK_PROVIDER]"; exit 2; }
here=$(dirname "$(realpath "$0")")
provider=$2
stock_provider=${3:-$provider}
if [ "$1" = stock ]; then
  weft_lib=$(dirname "$(/sbin/ldconfig -p | awk '$1 == "libfabric.so.1" { print $NF; exit }')")
else
  weft_lib=$(realpath "$1") || exit 2
fi

# The second time, inside of the namespace, with the family as the fourth word.
if [ $# -lt 4 ]; then
  unshare=(unshare --net)
  "${unshare[@]}" true 2>/dev/null || unshare=(unshare --user --map-root-user --net)
  "${unshare[@]}" true 2>/dev/null || { echo "skipped: no network namespace can be made here"; exit 77; }
  status=0
  for family in 4 6; do
    "${unshare[@]}" bash "$0" "$1" "$provider" "$stock_provider" $family
    case $? in
      0) ;;
      77) [ $status = 0 ] && status=77 ;;
      *) status=1 ;;
    esac
  done
  exit $status
fi

# shellcheck source=tests/interop/programs.sh
. "$here/../interop/programs.sh"
require_debian fi_pingpong
ip link set lo up
if [ "$4" = 6 ]; then
  grep -qs 00000000000000000000000000000001 /proc/net/if_inet6 || skip "this kernel has no IPv6"
  ip -4 addr flush dev lo
  # Stock libfabric leaves out the loopback interface where it has only IPv6: a link with both ends here.
  ip link add end0 type veth peer name end1 2>"$work/why" || skip "no link can be made here: $(cat "$work/why")"
  # Nor an address of the link alone, which would be first and not be usable at once.
  ip link set end0 addrgenmode none && ip link set end1 addrgenmode none && ip link set end0 up && ip link set end1 up && ip addr add fd77::1/64 dev end0 nodad
  address=fd77::1 family=(-6)
else
  ip -6 addr flush dev lo 2>/dev/null
  address=127.0.0.1 family=()
fi

# The two sides may want different names for the same provider, so each side's program is a wrapper that adds its own.
mkdir "$work/bin"
cat >"$work/bin/fi_pingpong" <<WRAPPER
#!/bin/sh
if [ "\${LD_LIBRARY_PATH:-}" = "$weft_lib" ]; then
  exec /usr/bin/fi_pingpong -p "$provider" "\$@"
fi
exec /usr/bin/fi_pingpong -p "$stock_provider" "\$@"
WRAPPER
chmod +x "$work/bin/fi_pingpong"
PATH=$work/bin:$PATH

for pair in "weft weft" "weft stock" "stock weft"; do
  read -r server client <<<"$pair"
  if [[ $provider == *ofi_rxd && "$pair" == *stock* ]]; then
    # Stock's rxd takes a second and more for a few MiB when the machine is busy: sizes around its limits in place of all.
    for size in 0 1 1456 1457 65536 262144; do
      pingpong "$provider, IPv$4, $size bytes" "$server" "$client" 1 "$address" -e rdm -S $size -c -I 3 "${family[@]}"
    done
  else
    pingpong "$provider, IPv$4, all sizes" "$server" "$client" 46 "$address" -e rdm -S all -c -I 3 "${family[@]}"
  fi
  pingpong "$provider, IPv$4, one size, many messages" "$server" "$client" 1 "$address" -e rdm -S 777 -c -I 500 "${family[@]}"
done
conclude
