# SPDX-License-Identifier: BSD-2-Clause
# Two hosts that have nothing in common but the disk, for the tests here; sourced behind interop/programs.sh. Each is a network
# namespace with one end of a link, wire0; its processes have a PID namespace, a hostname and a /dev/shm of their own.
#
#   make_hosts 10.82.0.1/12 10.82.0.2/12     the hosts $left and $right
#   on_host HOST NAME COMMAND...             with NAME as hostname; COMMAND is process 1. The machine-id is the same everywhere.
#   on_host_with_shm HOST NAME COMMAND...    the same, with the /dev/shm of the real host

left=weft-left-$$ right=weft-right-$$
clean_up_hosts() {
  ip netns del $left 2>/dev/null
  ip netns del $right 2>/dev/null
  finish
}

make_hosts() {
  trap clean_up_hosts EXIT
  ip netns add $left 2>"$work/why" && ip netns add $right 2>>"$work/why" ||
    skip "no network namespace can be made here: $(cat "$work/why")"
  ip -n $left link add wire0 type veth peer name wire0 netns $right 2>"$work/why" || skip "no link can be made here: $(cat "$work/why")"
  for host in $left $right; do
    ip -n $host link set lo up
    ip -n $host link set wire0 up
  done
  ip -n $left addr add "$1" dev wire0 && ip -n $right addr add "$2" dev wire0 || skip "no address for a link"
  ip netns exec $left unshare --uts --pid --fork --mount --mount-proc true 2>"$work/why" ||
    skip "no namespace of processes can be made here: $(cat "$work/why")"
  echo 0123456789abcdef0123456789abcdef >"$work/machine-id"
}

# shellcheck disable=SC2016
on_host_with_shm() {
  timeout $((2 * limit)) ip netns exec "$1" unshare --uts --pid --fork --kill-child --mount --mount-proc sh -c '
    hostname "$1" && { [ ! -e /etc/machine-id ] || mount --bind "$2" /etc/machine-id; } && shift 2 && exec "$@"' \
    sh "$2" "$work/machine-id" "${@:3}"
}
# shellcheck disable=SC2016
on_host() { on_host_with_shm "$1" "$2" sh -c 'mount -t tmpfs shm /dev/shm && exec "$@"' sh "${@:3}"; }
