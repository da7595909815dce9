#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# rxd_hosts.sh LIB_DIR RXD_EXCHANGE RXD_FLOOD: udp;ofi_rxd between two hosts (network namespaces) whose link loses 5 % of what goes through it,
# each way: by nftables, else tc, else the hook fault beneath rxd. 2, 8 and 32 endpoints, every byte checked; IPv6 too. Then the same
# exchange while rxd_flood attacks one of the endpoints: the exchange goes on, and the memory stays bounded.
# Exits 77 (not run) where there are no namespaces or links.

set -u
weft_lib=$(realpath "${1:?usage: rxd_hosts.sh LIB_DIR RXD_EXCHANGE RXD_FLOOD}") || exit 2
exchange=$(realpath "${2:?}") || exit 2
flood=$(realpath "${3:?}") || exit 2
# shellcheck source=tests/interop/programs.sh
. "$(dirname "$(realpath "$0")")/../interop/programs.sh"

left=weft-rxd-left-$$ right=weft-rxd-right-$$
clean_up() {
  ip netns del $left 2>/dev/null
  ip netns del $right 2>/dev/null
  finish
}
trap clean_up EXIT

ip netns add $left 2>"$work/why" && ip netns add $right 2>>"$work/why" ||
  skip "no network namespace can be made here: $(cat "$work/why")"
ip -n $left link add wire0 type veth peer name wire0 netns $right 2>"$work/why" || skip "no link can be made here: $(cat "$work/why")"
for host in $left $right; do
  ip -n $host link set lo up
  ip -n $host link set wire0 up
done
ip -n $left addr add 10.78.0.1/24 dev wire0 && ip -n $right addr add 10.78.0.2/24 dev wire0
[ ! -e /proc/net/if_inet6 ] || {
  ip -n $left addr add fd78::1/64 dev wire0 nodad
  ip -n $right addr add fd78::2/64 dev wire0 nodad
}

drop_nft() {
  ip netns exec "$1" nft -f - 2>>"$work/why" <<'RULES'
table inet loss {
  chain in {
    type filter hook input priority 0;
    meta l4proto udp numgen random mod 100 < 5 counter drop
  }
}
RULES
}
drop_tc() { ip netns exec "$1" tc qdisc add dev wire0 root netem loss 5% 2>>"$work/why"; }
settings=()
if drop_nft $left && drop_nft $right; then
  how="nftables drops 5 %"
elif drop_tc $left && drop_tc $right; then
  how="netem drops 5 %"
else
  how="the hook fault drops 5 %"
  cat >"$work/lossy.yaml" <<'STACK'
version: 1
stacks:
  lossy: [{layer: rxd}, {hook: fault, params: {rules: "message:p=0.05:drop"}}, {provider: udp}]
use: [lossy]
STACK
  settings+=("FI_CONFIG=$work/lossy.yaml")
fi
echo "$how"

# try NAME LEFT RIGHT ENDPOINTS MESSAGES: both halves, at once.
try() {
  local name=$1 here=$2 there=$3 endpoints=$4 messages=$5 pid
  ip netns exec $right timeout 100 env LD_LIBRARY_PATH="$weft_lib" "${settings[@]}" "$exchange" --node "$there" --peer "$here" \
    --endpoints "$endpoints" --messages "$messages" --seconds 90 >"$work/right" 2>&1 &
  pid=$!
  started+=("$pid")
  if ip netns exec $left timeout 100 env LD_LIBRARY_PATH="$weft_lib" "${settings[@]}" "$exchange" --node "$here" --peer "$there" \
    --endpoints "$endpoints" --messages "$messages" --seconds 90 >"$work/left" 2>&1; then
    left_rc=0
  else
    left_rc=$?
  fi
  wait "$pid"
  right_rc=$?
  if [ $left_rc = 0 ] && [ $right_rc = 0 ]; then
    pass "$name, $endpoints endpoints: $(tail -1 "$work/left")"
  else
    fail "$name, $endpoints endpoints: $left_rc and $right_rc"
    sed 's/^/    left: /' "$work/left"
    sed 's/^/    right: /' "$work/right"
  fi
}

try "IPv4" 10.78.0.1 10.78.0.2 1 40
try "IPv4" 10.78.0.1 10.78.0.2 4 20
try "IPv4" 10.78.0.1 10.78.0.2 16 4
if [ -e /proc/net/if_inet6 ]; then
  try "IPv6" fd78::1 fd78::2 1 20
else
  echo "left out: this kernel has no IPv6"
fi
if [ ${#settings[@]} = 0 ] && command -v nft >/dev/null; then
  dropped=$(ip netns exec $left nft list ruleset 2>/dev/null | sed -n 's/.*counter packets \([0-9]*\).*/\1/p')
  if [ "${dropped:-1}" -gt 0 ]; then pass "${dropped:-some} packets to the left host were dropped"; else fail "no packet was dropped"; fi
fi

# beside NAME FLOOD...: an exchange while FLOOD sends to the endpoint at the left, port 20000; then the peak of its memory, in KiB.
beside() {
  local name=$1 flooder=0 here flooding there
  shift
  : >"$work/flood"
  mkfifo "$work/hold"
  ip netns exec $left timeout 100 env LD_LIBRARY_PATH="$weft_lib" FI_OFI_RXD_MAX_UNNAMED_PEERS=$limit_of_peers \
    FI_OFI_RXD_UNEXPECTED_LIMIT=1M "$exchange" --hold --node 10.78.0.1 --peer 10.78.0.2 --messages 200 --seconds 90 \
    <"$work/hold" >"$work/left" 2>&1 &
  here=$!
  exec 8>"$work/hold"
  rm "$work/hold"
  ip netns exec $right timeout 100 env LD_LIBRARY_PATH="$weft_lib" "$exchange" --node 10.78.0.2 --peer 10.78.0.1 \
    --messages 200 --seconds 90 >"$work/right" 2>&1 8>&- &
  there=$!
  started+=("$here" "$there")
  if [ $# != 0 ]; then
    ip netns exec $right timeout 80 "$flood" --from 10.78.0.2 --target 10.78.0.1 "$@" >"$work/flood" 2>&1 8>&- &
    flooding=$!
    started+=("$flooding")
    wait "$flooding"
    flooder=$?
  fi
  exec 8>&-
  wait "$here"
  left_rc=$?
  wait "$there"
  right_rc=$?
  peak=$(sed -n 's/.*wrong; \([0-9]*\) KiB.*/\1/p' "$work/left")
  if [ $left_rc = 0 ] && [ $right_rc = 0 ] && [ $flooder = 0 ] && [ -n "$peak" ]; then
    pass "$name: $(tail -1 "$work/left") $(tail -1 "$work/flood")"
  else
    fail "$name: $left_rc, $right_rc and $flooder"
    sed 's/^/    left: /' "$work/left"
    sed 's/^/    right: /' "$work/right"
    sed 's/^/    flood: /' "$work/flood"
  fi
}

# Sends that the left host's sockets had no room for, so far.
refused() { ip netns exec $left awk '$1 == "Udp:" && ++n == 2 {print $7}' /proc/net/snmp; }

limit_of_peers=1000 visitors=15000
if [ "$(ulimit -Hn)" = unlimited ] || [ "$(ulimit -Hn)" -gt $((visitors + 100)) ]; then
  beside "undisturbed"
  before=${peak:-0}
  refused_before=$(refused)
  beside "flooded" --visitors $visitors --forged 30000
  # A thousand peers take 2 MiB, and 15,000 would take 25.
  if [ "${peak:-0}" -gt 0 ] && [ "$peak" -lt $((before + 10240)) ]; then
    pass "memory at most: $before KiB undisturbed, $peak KiB flooded"
  else
    fail "memory at most: $before KiB undisturbed, ${peak:-?} KiB flooded"
  fi
  # Answers to forged addresses, which no host has, wait for ARP. What goes to the peer must not wait behind them.
  if [ "$(refused)" = "$refused_before" ]; then
    pass "the way out had room for all"
  else
    fail "$(($(refused) - refused_before)) sends of the left host found no room beside answers to forged addresses"
  fi
else
  echo "left out: the flood, which needs $visitors open files; $(ulimit -Hn) are allowed"
fi
conclude
