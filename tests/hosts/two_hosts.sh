#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# two_hosts.sh LIB_DIR: two hosts (network namespaces) with a link between them, and on one of them a bridge of containers that leads
# nowhere. Debian's fi_pingpong must find the link by itself, on the library in LIB_DIR, over IPv4 and IPv6.
# Exits 77 (not run) where namespaces, links, or the program cannot be had.

set -u
weft_lib=$(realpath "${1:?usage: two_hosts.sh LIB_DIR}") || exit 2
# shellcheck source=tests/interop/programs.sh
. "$(dirname "$(realpath "$0")")/../interop/programs.sh"
require_debian fi_pingpong fi_info

left=weft-left-$$ right=weft-right-$$
clean_up() {
  ip netns del $left 2>/dev/null
  ip netns del $right 2>/dev/null
  finish
}
trap clean_up EXIT

ip netns add $left 2>"$work/why" && ip netns add $right 2>>"$work/why" ||
  skip "no network namespace can be made here: $(cat "$work/why")"
left_ip() { ip -n $left "$@"; }
right_ip() { ip -n $right "$@"; }

# The bridge comes first, so that only weft's ranking can put the link before it. It has a port, and with it a carrier.
left_ip link set lo up && right_ip link set lo up
left_ip link add docker0 type bridge 2>"$work/why" || skip "no bridge can be made here: $(cat "$work/why")"
left_ip link add port0 type veth peer name port1 && left_ip link set port0 master docker0 &&
  left_ip link set port0 up && left_ip link set port1 up && left_ip link set docker0 up &&
  left_ip addr add 172.17.0.1/16 dev docker0 && left_ip addr add fd17::1/64 dev docker0 nodad
left_ip link add wire0 type veth peer name wire0 netns $right 2>"$work/why" || skip "no link can be made here: $(cat "$work/why")"
left_ip link set wire0 up && right_ip link set wire0 up

first_domain() { ip netns exec $left env LD_LIBRARY_PATH="$weft_lib" "$@" fi_info -p tcp -t FI_EP_MSG | sed -n 's/^    domain: //p' | head -1; }

# try FAMILY LEFT_ADDRESS RIGHT_ADDRESS OPTIONS...
try() {
  local family=$1 left_address=$2 right_address=$3 first
  shift 3
  # The left host, which has the choice, is on weft; the other one on either.
  first=$(first_domain env)
  if [ "$first" = wire0 ]; then pass "$family: wire0 comes first"; else fail "$family: $first comes first, not wire0"; fi
  server_in=(ip netns exec $left) client_in=(ip netns exec $right)
  pingpong "$family, the server has the choice" weft weft 6 "$left_address" -p tcp -e msg -c -I 20 "$@"
  pingpong "$family, the server has the choice" weft stock 6 "$left_address" -p tcp -e msg -c -I 20 "$@"
  server_in=(ip netns exec $right) client_in=(ip netns exec $left)
  pingpong "$family, the client has the choice" weft weft 6 "$right_address" -p tcp -e msg -c -I 20 "$@"
  pingpong "$family, the client has the choice" stock weft 6 "$right_address" -p tcp -e msg -c -I 20 "$@"
}

left_ip addr add 10.77.0.1/24 dev wire0 && right_ip addr add 10.77.0.2/24 dev wire0
# One family at a time: fi_pingpong takes the first address it is offered.
left_ip -6 addr flush dev wire0 2>/dev/null
right_ip -6 addr flush dev wire0 2>/dev/null
right_ip -6 addr flush dev lo 2>/dev/null
try IPv4 10.77.0.1 10.77.0.2

# The user's setting goes before weft's ranking.
first=$(first_domain env FI_TCP_INTERFACES=docker0)
if [ "$first" = docker0 ]; then pass "FI_TCP_INTERFACES chooses"; else fail "FI_TCP_INTERFACES=docker0 gives $first"; fi
first=$(first_domain env FI_TCP_IFACE=docker0)
if [ "$first" = docker0 ]; then pass "FI_TCP_IFACE chooses"; else fail "FI_TCP_IFACE=docker0 gives $first"; fi
if ip netns exec $left env LD_LIBRARY_PATH="$weft_lib" FI_PROVIDER=tcp FI_TCP_IFACE=wire9 fi_info >"$work/out" 2>&1; then
  fail "an interface that does not exist gives something else"
elif grep -q wire9 "$work/out"; then
  pass "an interface that does not exist is said by name"
else
  fail "an interface that does not exist is not said by name"
  sed 's/^/    /' "$work/out"
fi

if [ -e /proc/net/if_inet6 ]; then
  for host in left right; do
    ip -n "$(eval echo "\$$host")" -4 addr flush dev wire0
    ip -n "$(eval echo "\$$host")" -4 addr flush dev lo
  done
  left_ip addr add fd77::1/64 dev wire0 nodad && right_ip addr add fd77::2/64 dev wire0 nodad
  right_ip addr add ::1/128 dev lo nodad 2>/dev/null
  try IPv6 fd77::1 fd77::2 -6
else
  echo "left out: this kernel has no IPv6"
fi
conclude
