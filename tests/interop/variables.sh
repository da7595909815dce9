#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# variables.sh LIB_DIR [STOCK_DIR...]: job scripts set variables for whatever libfabric they get. Each one that a stock libfabric
# lists (Debian's, and those installed in STOCK_DIR) is set, and weft prints no complaint on stderr.

set -u
weft_lib=$(realpath "${1:?usage: variables.sh LIB_DIR [STOCK_DIR...]}") || exit 2
shift
# shellcheck source=tests/interop/programs.sh
. "$(dirname "$(realpath "$0")")/programs.sh"
require_debian fi_info
unset "${!FI_@}"

# listed COMMAND...: NAME=VALUE of each variable, the value one of the type that is named beside it.
listed() {
  "$@" 2>/dev/null | awk '
    /^# FI_[A-Z0-9_]*: / {
      name = substr($2, 1, length($2) - 1)
      # These choose and find providers: their values are checked wherever they come from.
      if (name ~ /^FI_(PROVIDER|PROVIDER_PATH|HOOK|LOG_.*)$/) next
      value = $3 ~ /^String/ ? "lo" : $3 ~ /^Boolean/ ? "1" : "1024"
      # A code of five bits, and an index of eight.
      if (name ~ /^FI_VERBS_(MIN_RNR_TIMER|GID_IDX)$/) value = "2"
      print name "=" value
    }'
}

check() {
  local name=$1
  shift
  local -a variables
  mapfile -t variables < <(listed "$@")
  [ "${#variables[@]}" -gt 50 ] || { fail "$name: lists only ${#variables[@]} variables"; return; }
  if on weft env "${variables[@]}" fi_info -l >"$work/out" 2>"$work/err" && [ ! -s "$work/err" ]; then
    pass "$name: ${#variables[@]} variables"
  else
    fail "$name"
    sed 's/^/    /' "$work/err" "$work/out" | head -n 20
  fi
}

check "Debian's libfabric" on stock fi_info -e
for stock in "$@"; do
  [ -x "$stock/bin/fi_info" ] || skip "no $stock/bin/fi_info"
  check "$stock" env LD_LIBRARY_PATH="$stock/lib" "$stock/bin/fi_info" -e
done
# A wrong value is still reported.
on weft env FI_TCP_DISABLE_AUTO_PROGRES=1 fi_info -l 2>&1 >/dev/null | grep -q FI_TCP_DISABLE_AUTO_PROGRES &&
  pass "a slip is told" || fail "a slip is told"
conclude
