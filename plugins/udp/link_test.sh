#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# link_test.sh PROGRAM: runs link_test in a network namespace of its own, with a link on which no host answers. Exits 77 (not
# run) if that is not possible.

set -u
program=$(realpath "${1:?usage: link_test.sh PROGRAM}") || exit 2
if [ $# = 1 ]; then
  unshare=(unshare --net)
  "${unshare[@]}" true 2>/dev/null || unshare=(unshare --user --map-root-user --net)
  "${unshare[@]}" true 2>/dev/null || { echo "skipped: no network namespace can be made here"; exit 77; }
  exec "${unshare[@]}" bash "$0" "$program" inside
fi
ip link set lo up
ip link add end0 type veth peer name end1 || { echo "skipped: no link can be made here"; exit 77; }
ip link set end0 up && ip link set end1 up && ip addr add 10.99.0.1/24 dev end0 || exit 1
ip addr add fd99::1/64 dev end0 nodad 2>/dev/null # if the kernel has IPv6
# Address resolution does not time out while the test runs.
ip ntable change name arp_cache dev end0 retrans 100000 || { echo "skipped: the neighbour table cannot be set"; exit 77; }
# The smallest send buffer, and each datagram by itself on the wire.
exec env WEFT_TEST_LINK=1 FI_UDP_SENDBUF_SIZE=1 FI_UDP_OFFLOAD=0 WEFT_TEST_STACK=udp "$program"
