#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# equal_hosts.sh LIB_DIR EQUAL_HOSTS: two hosts with the same hostname, machine-id, process numbers and ports, on each stack: an
# endpoint never delivers to itself what was sent to the other, and never reports success for it. Where the two could not be told
# apart, both refuse. Exits 77 (not run) where there are no namespaces.

set -u
weft_lib=$(realpath "${1:?usage: equal_hosts.sh LIB_DIR EQUAL_HOSTS}") || exit 2
program=$(realpath "${2:?}") || exit 2
here=$(dirname "$(realpath "$0")")
# shellcheck source=tests/interop/programs.sh
. "$here/../interop/programs.sh"
# shellcheck source=tests/hosts/hosts.sh
. "$here/hosts.sh"
# The low 20 bits of 10.82.0.9 and 10.98.0.9 are the same.
make_hosts 10.82.0.1/8 10.82.0.2/8
ip -n $left addr add 10.82.0.9/8 dev wire0 && ip -n $right addr add 10.98.0.9/8 dev wire0

# both OPTIONS... -- LEFT_ARGUMENTS -- RIGHT_ARGUMENTS: runs both, each by the function `place`, with the environment `variables`.
place=on_host
both() {
  local options=() of_left=() of_right=()
  while [ "$1" != -- ]; do options+=("$1"); shift; done
  shift
  while [ "$1" != -- ]; do of_left+=("$1"); shift; done
  shift
  of_right=("$@")
  rm -rf "$work/meet" && mkdir "$work/meet"
  $place $left twin env "${variables[@]}" LD_LIBRARY_PATH="$weft_lib" FI_LOG_LEVEL=warn "$program" --meet "$work/meet" \
    --self left "${options[@]}" "${of_left[@]}" >"$work/left" 2>"$work/left-said" &
  local first=$! status_left=0 status_right=0
  $place $right twin env "${variables[@]}" LD_LIBRARY_PATH="$weft_lib" FI_LOG_LEVEL=warn "$program" --meet "$work/meet" \
    --self right "${options[@]}" "${of_right[@]}" >"$work/right" 2>"$work/right-said" || status_right=$?
  wait $first || status_left=$?
  statuses="$status_left $status_right"
}
complain() {
  fail "$1: status $statuses"
  for side in left right; do sed "s/^/    $side: /" "$work/$side" "$work/$side-said"; done
}
# exchanges NAME COUNT ARGUMENTS...: each receives what the other has sent.
exchanges() {
  both "${@:3}"
  local want="sent $2, failed 0, got $2, own 0"
  if [ "$statuses" = "0 0" ] && [ "$(cat "$work/left")" = "$want" ] && [ "$(cat "$work/right")" = "$want" ]; then
    pass "$1: $want"
  else
    complain "$1"
  fi
}
# refuses NAME TEXT ARGUMENTS...: both do, and say why.
refuses() {
  both "${@:3}"
  if [ "$statuses" = "3 3" ] && grep -q -- "$2" "$work/left-said" && grep -q -- "$2" "$work/right-said"; then
    pass "$1: $(cat "$work/left")"
  else
    complain "$1"
  fi
}
variables=()
at=(--service 7471 -- --node 10.82.0.1 -- --node 10.82.0.2)
exchanges "tcp, connected" 9 --stack tcp --type msg "${at[@]}"
exchanges "tcp" 9 --stack tcp "${at[@]}"
exchanges "tcp;ofi_rxm" 9 --stack "tcp;ofi_rxm" "${at[@]}"
exchanges "udp" 8 --stack udp --type dgram "${at[@]}"
exchanges "udp;ofi_rxd" 9 --stack "udp;ofi_rxd" "${at[@]}"
exchanges "sockets" 9 --stack sockets "${at[@]}"
exchanges "tcp;off_coll" 9 --stack "tcp;off_coll" --collective "${at[@]}"
# Ports and numbers as the kernel gives them, which are often the same on a host that has just begun.
exchanges "tcp;ofi_rxm, any port" 9 --stack "tcp;ofi_rxm" --service 0 -- --node 10.82.0.1 -- --node 10.82.0.2

nics=(--stack cxi --service 5 -- --node cxi0 -- --node cxi0)
refuses "cxi within a host" "reaches this one alone" "${nics[@]}"
variables=(FI_CXI_SOFT_DEVICES=cxi0=wire0)
exchanges "cxi in a network" 9 "${nics[@]}"
# Two hosts whose addresses differ in the high bits only.
place=place_by_side
place_by_side() {
  local address=10.82.0.9
  [ "$1" = $left ] || address=10.98.0.9
  on_host "$1" "$2" env FI_CXI_SOFT_DEVICES=cxi0=$address "${@:3}"
}
variables=()
refuses "cxi, equal NIC addresses" "which a NIC of this host has, too" "${nics[@]}"

# Containers may share the /dev/shm of their host, and their processes have the same numbers.
place=on_host_with_shm
mkdir -m 700 "$work/run"
variables=(WEFT_RUNTIME_DIR="$work/run")
refuses "cxi, one folder" "reaches this one alone" "${nics[@]}"
variables+=(FI_CXI_SOFT_DEVICES=cxi0=wire0)
exchanges "cxi in a network, one folder" 9 "${nics[@]}"
exchanges "tcp, one folder" 9 --stack tcp "${at[@]}"
exchanges "udp;ofi_rxd, one folder" 9 --stack "udp;ofi_rxd" "${at[@]}"
conclude
