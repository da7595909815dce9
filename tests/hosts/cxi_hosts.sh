#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# cxi_hosts.sh LIB_DIR CXI_EXCHANGE: the NIC in software of cxi between two hosts (network namespaces, each with a runtime folder of its
# own): messages, remote accesses and atomics; several processes of a host, of which some are killed or stopped; a link that drops
# packets silently, or is down; Debian's fi_pingpong. And what listens where.
# Exits 77 (not run) where namespaces, links, or the program cannot be had.

set -u
weft_lib=$(realpath "${1:?usage: cxi_hosts.sh LIB_DIR CXI_EXCHANGE}") || exit 2
exchange=$(realpath "${2:?}") || exit 2
# shellcheck source=tests/interop/programs.sh
. "$(dirname "$(realpath "$0")")/../interop/programs.sh"

left=weft-cxi-left-$$ right=weft-cxi-right-$$
clean_up() {
  exec 9>&-
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
left_ip=10.79.0.1 right_ip=10.79.0.2
ip -n $left addr add $left_ip/24 dev wire0 && ip -n $right addr add $right_ip/24 dev wire0
mkdir -m 700 "$work/$left" "$work/$right"

# in_host HOST ADDRESS COMMAND...: with its NIC cxi0 at the address; "": the usual NICs.
in_host() {
  ip netns exec "$1" timeout $limit env LD_LIBRARY_PATH="$weft_lib" WEFT_RUNTIME_DIR="$work/$1" FI_CXI_SOFT_TIMEOUT_MS=1500 \
    FI_CXI_SOFT_DEVICES="${2:+cxi0=$2}" "${@:3}"
}
# Their input, which does not end before the test.
mkfifo "$work/hold" && exec 9<>"$work/hold"

# await FILE: the process that writes it is ready.
await() {
  local deadline=$((SECONDS + limit))
  until grep -q ready "$1" 2>/dev/null; do
    [ $SECONDS -lt $deadline ] || { fail "$1: not ready"; cat "$1"; return 1; }
    sleep 0.02 # between two questions; nothing depends on it
  done
}
# serve PID PEER_PID: one at the right; sets server to its process.
serve() {
  in_host $right $right_ip "$exchange" serve --node $right_ip --pid "$1" --peer $left_ip --peer-pid "$2" \
    <"$work/hold" >"$work/serve-$1" 2>&1 &
  started+=($!)
  await "$work/serve-$1" && server=$(sed -n 's/^ready //p' "$work/serve-$1") && started+=("$server")
}

# ask NAME PID PEER_PID OPTIONS...: one at the left, which must end well.
ask() {
  local name=$1 pid=$2 peer_pid=$3
  shift 3
  if in_host $left $left_ip "$exchange" ask --node $left_ip --pid "$pid" --peer $right_ip --peer-pid "$peer_pid" "$@" >"$work/ask" 2>&1; then
    pass "$name: $(tail -1 "$work/ask")"
  else
    fail "$name: $(cat "$work/ask")"
  fi
}
# begin_until_error PID PEER_PID; end_until_error NAME SECONDS: it ends within that.
begin_until_error() {
  : >"$work/until"
  in_host $left $left_ip "$exchange" ask --node $left_ip --pid "$1" --peer $right_ip --peer-pid "$2" --until-error >"$work/until" 2>&1 &
  until=$!
  started+=("$until")
  await "$work/until"
}
end_until_error() {
  local name=$1 most=$2 took
  if wait "$until" && took=$(sed -n 's/.* after \([0-9]*\)\..*/\1/p' "$work/until") && [ "${took:-99}" -lt "$most" ]; then
    pass "$name: $(tail -1 "$work/until")"
  else
    fail "$name: $(cat "$work/until")"
  fi
}

# listeners HOST: the addresses where something listens.
listeners() { ip netns exec "$1" awk 'FNR > 1 && $4 == "0A" { split($2, at, ":"); print at[1] }' /proc/net/tcp | sort -u; }

# ---- what listens ----
in_host $right "" "$exchange" serve --node cxi0 --pid 1 --peer cxi1 --peer-pid 2 <"$work/hold" >"$work/usual" 2>&1 &
started+=($!)
await "$work/usual"
if [ -z "$(listeners $right)" ]; then pass "the usual NICs do not listen"; else fail "the usual NICs listen: $(listeners $right)"; fi
serve 5 6
first=$server
if [ "$(listeners $right)" = 02004F0A ]; then pass "a NIC of the network listens at its address"; else fail "listeners: $(listeners $right)"; fi

# ---- what is carried ----
ask "one process of each host" 6 5
serve 15 16
second=$server
serve 25 26
third=$server
ask "a second one" 16 15
ask "a third one" 26 25 --rounds 1
FI_CXI_RX_MATCH_MODE=software ask "matched by software" 6 5 --rounds 1
FI_CXI_RDZV_PROTO=alt_read ask "alt_read" 6 5 --rounds 1

# A NIC that this host once had, with the address that the other host has now.
ip -n $left addr add $right_ip/32 dev lo
in_host $left $right_ip "$exchange" serve --node $right_ip --pid 1 --peer $right_ip --peer-pid 1 </dev/null >"$work/once" 2>&1
ip -n $left addr del $right_ip/32 dev lo
grep -q ready "$work/once" && ask "in spite of an old registry" 6 5 --rounds 1

# ---- who is lost ----
begin_until_error 16 15
kill -KILL "$second"
end_until_error "a process is killed" 3
ask "and another one is not" 26 25 --rounds 1
kill -STOP "$third"
ask "a process is stopped, and another one is not" 6 5 --rounds 1
kill -CONT "$third"

drop() { ip netns exec $right nft -f - 2>"$work/why" <<<'table inet silence { chain in { type filter hook input priority 0; drop; }; }'; }
if drop; then
  ip netns exec $right nft delete table inet silence
  begin_until_error 6 5
  drop
  end_until_error "packets are dropped silently" 6
  begin=$SECONDS
  if in_host $left $left_ip "$exchange" ask --node $left_ip --pid 6 --peer $right_ip --peer-pid 5 --until-error >"$work/ask" 2>&1 &&
    [ $((SECONDS - begin)) -lt 6 ]; then
    pass "so is who calls: $(tail -1 "$work/ask")"
  else
    fail "who calls a silent host: $(cat "$work/ask")"
  fi
  ip netns exec $right nft delete table inet silence
  ask "the host is back" 6 5 --rounds 1
else
  echo "left out: packets that are dropped, $(cat "$work/why")"
fi
begin_until_error 6 5
ip -n $right link set wire0 down
end_until_error "the link is down" 6
ip -n $right link set wire0 up
ask "the link is up" 6 5 --rounds 1
kill "$first" "$third" 2>/dev/null

# ---- an unmodified program ----
if [ -x /usr/bin/fi_pingpong ]; then
  settings() { echo env WEFT_RUNTIME_DIR="$work/$1" FI_CXI_SOFT_DEVICES="cxi0=$2"; }
  # shellcheck disable=SC2207
  server_in=(ip netns exec $right $(settings $right $right_ip)) client_in=(ip netns exec $left $(settings $left $left_ip))
  pingpong "all sizes" weft weft 46 $right_ip -p cxi -d cxi0 -e rdm -S all -c -I 3
  pingpong "one size, many messages" weft weft 1 $right_ip -p cxi -d cxi0 -e rdm -S 777 -c -I 500
else
  echo "left out: fi_pingpong (package libfabric-bin)"
fi
conclude
