# SPDX-License-Identifier: BSD-2-Clause
# A network in which there is nothing but the test; sourced before anything else, because the script begins a second time in it.
#
#   . network.sh
#   own_network "$0" "$@"    comes back in a new network namespace whose only address is 127.0.0.1; ends with 77 (what ctest takes for
#                            "not run") where none can be made
#
# Programs like fi_pingpong take the first address that they are offered.

own_network() {
  if [ "${WEFT_TEST_NETWORK:-}" != own ]; then
    local unshare=(unshare --net)
    "${unshare[@]}" true 2>/dev/null || unshare=(unshare --user --map-root-user --net)
    "${unshare[@]}" true 2>/dev/null || { echo "skipped: no network namespace can be made here"; exit 77; }
    WEFT_TEST_NETWORK=own exec "${unshare[@]}" bash "$@"
  fi
  ip link set lo up
  ip -6 addr flush dev lo 2>/dev/null
}
