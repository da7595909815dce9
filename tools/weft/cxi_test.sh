#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# cxi_test.sh BIN_DIR LIB_DIR: `weft cxi service` as a launcher uses it, with a job of two processes: each command, what it
# refuses, and what `weft doctor` says of the NICs.
set -euo pipefail
bin=${1:?usage: cxi_test.sh BIN_DIR LIB_DIR} lib=${2:?}
tmp=$(mktemp -d)
pids=()
finish() {
  for pid in "${pids[@]}"; do kill -9 "$pid" 2>/dev/null || true; done
  rm -rf "$tmp"
}
trap finish EXIT
unset "${!FI_@}" "${!SLINGSHOT_@}"
mkdir -m 700 "$tmp/run"
export WEFT_RUNTIME_DIR=$tmp/run LD_LIBRARY_PATH=$lib HOME=$tmp XDG_CONFIG_HOME=$tmp XDG_CACHE_HOME=$tmp
fail() { echo "cxi_test: $*"; exit 1; }
weft() { timeout 60 "$bin/weft" "$@"; }
doctor() { weft doctor "$@" || true; } # whatever it says of the rest of this host
# says STATUS TEXT COMMAND...: how a command ends, and a line of what it prints.
says() {
  local want=$1 text=$2 got=0
  shift 2
  "$@" >"$tmp/out" 2>&1 || got=$?
  [[ $got == "$want" ]] || fail "$* ended with $got: $(cat "$tmp/out")"
  grep -Eq -- "$text" "$tmp/out" || fail "$*: no \"$text\" in: $(cat "$tmp/out")"
}
# json EXPRESSION COMMAND...: the Python expression holds for the JSON `j` that the command prints.
json() {
  local expression=$1
  shift
  "$@" >"$tmp/out" || fail "$* ended with $?"
  python3 -c 'import json, sys
sys.exit(0 if eval("(" + sys.argv[2] + ")", {"j": json.load(open(sys.argv[1]))}) else 1)' "$tmp/out" "$expression" ||
    fail "$*: not so: $expression: $(cat "$tmp/out")"
}
eventually() {
  for _ in $(seq 300); do
    "$@" >/dev/null 2>&1 && return
    read -rt 0.1 <> <(:) || true
  done
  fail "never: $*; the processes say: $(cat "$tmp/server" "$tmp/client" 2>/dev/null)"
}

# --- looking leaves nothing behind ---
says 0 "^cxi0 +1 +enabled +everybody +1,10 +all +0 of 16384 +0 of 512 +0" weft cxi service list
says 0 "^cxi1 +1 " weft cxi service list
json 'j["id"] == 1 and j["enabled"] and j["usable"] and j["members"] == [] and j["processes"] == []' weft cxi service show 1 --json
[[ -z $(find "$tmp/run" -name "cxi-nic-*") ]] || fail "a file of a NIC that nobody has used"

# --- a wrong word takes no provider away ---
says 0 "FI_CXI_RX_MATCH_MODE: cxi: rx_match_mode is \"HYBRID\" .*did you mean \"hybrid\"\?; the default, \"hardware\", is used" \
  env FI_PROVIDER=cxi FI_CXI_RX_MATCH_MODE=HYBRID "$bin/fi_info" -p cxi
grep -q "provider: cxi" "$tmp/out" || fail "FI_CXI_RX_MATCH_MODE=HYBRID: no cxi"
says 0 "FI_CXI_RDZV_THRESHOLD: cxi: .* are more than oflow_buf_size .*; the default, \"16384\", is used" \
  env FI_PROVIDER=cxi FI_CXI_RDZV_THRESHOLD=64M "$bin/fi_info" -p cxi

# --- what a launcher does ---
says 0 "^service 2 of cxi0: SLINGSHOT_VNIS=234 SLINGSHOT_DEVICES=cxi0 SLINGSHOT_SVC_IDS=2" \
  weft cxi service create --user "$(id -u)" --vni 234 --list-entries 2000 --triggered 64 --class best_effort
json 'j == {"device": "cxi1", "id": 2}' weft cxi service create --device cxi1 --group 4294967294 --json
json 'len(j) == 4 and [s["usable"] for s in j] == [True, True, True, False]' weft cxi service list --json
json '[s["id"] for s in j] == [1, 2] and j[1]["vnis"] == [{"first": 234, "last": 234}] and j[1]["max_list_entries"] == 2000 and
  j[1]["classes"] == "best_effort" and j[1]["members"][0]["kind"] == "user"' weft cxi service list --device cxi0 --json

# --- a job ---
export SLINGSHOT_VNIS=234 SLINGSHOT_DEVICES=cxi0 SLINGSHOT_SVC_IDS=2
"$bin/fi_pingpong" -p cxi -e rdm -I 100000000 -S 64 >"$tmp/server" 2>&1 &
server=$!
pids+=("$server")
uses() { [[ $(weft cxi service show "$1" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["process_count"])') == "$2" ]]; }
eventually uses 2 1
"$bin/fi_pingpong" -p cxi -e rdm -I 100000000 -S 64 127.0.0.1 >"$tmp/client" 2>&1 &
client=$!
pids+=("$client")
eventually uses 2 2
says 0 "^ *$server +[0-9]+ " weft cxi service show 2
json "{p['pid'] for p in j['processes']} == {$server, $client} and j['list_entries'] > 0" weft cxi service show 2 --json
json 'any(f["check"] == "cxi cxi0" and "services 1, 2 for this user, 2 processes" in f["finding"] for f in j["findings"])' \
  doctor --json
says 2 "process [0-9]+ uses service 2: end it first" weft cxi service destroy 2
says 0 "service 2 of cxi0 is disabled" weft cxi service disable 2
says 0 "^cxi0 +2 +disabled" weft cxi service list
says 22 "service 2 of cxi0 is disabled: .weft cxi service enable 2" \
  env FI_LOG_LEVEL=warn timeout 60 "$bin/fi_pingpong" -p cxi -e rdm -I 1
kill -9 "$server" "$client"
wait "$server" "$client" 2>/dev/null || true
uses 2 0 || fail "killed processes still count"
says 0 "service 2 of cxi0 is destroyed" weft cxi service destroy 2 --device cxi0
unset SLINGSHOT_VNIS SLINGSHOT_DEVICES SLINGSHOT_SVC_IDS

# --- what is refused ---
says 2 "there is no service 2" weft cxi service destroy 2
says 2 "cxi0 has no service 77" weft cxi service show 77
says 2 "disable it instead" weft cxi service destroy 1
says 2 "there is no NIC cxi7" weft cxi service list --device cxi7
says 2 "did you mean 'bulk_data'" weft cxi service create --class bulk_dta
says 2 "1 to 65535" weft cxi service create --vni 70000
says 2 "more than 2 members" weft cxi service create --user 1 --user 2 --group 3
says 2 "the NIC has 16384 and 512" weft cxi service create --list-entries 20000
says 2 "ID is required" weft cxi service show
says 2 "did you mean 'create'" weft cxi service crate
says 2 "weft why cxi" env FI_CXI_SOFT=0 "$bin/weft" cxi service list

# --- a host without a service for this user ---
says 0 "disabled" weft cxi service disable 1 --json
says 0 "^WARN +cxi cxi0 .*no service for this user" doctor
grep -q "weft cxi service list --device cxi0" "$tmp/out" || fail "no remedy: $(cat "$tmp/out")"
says 0 "enabled" weft cxi service enable 1
echo "cxi_test: passed"
