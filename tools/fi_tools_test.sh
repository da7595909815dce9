#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Tests fi_strerror, fi_info and fi_pingpong as a user runs them.
#
#   fi_tools_test.sh BIN_DIR [LIB_DIR [STOCK]]
#
# BIN_DIR holds the three programs; LIB_DIR the libfabric.so.1 that they are to use, otherwise they find one themselves.
# STOCK, or else Debian's fi_pingpong (package libfabric-bin), on its own libfabric is the peer, where there is such a file.
# What the library under test lacks (rdm, dgram) is reported and left out; tcp with msg endpoints must be there.

set -u

bin=$(cd "${1:?usage: fi_tools_test.sh BIN_DIR [LIB_DIR]}" && pwd) || exit 2
lib=${2:+$(cd "$2" && pwd)} || exit 2
stock=${3-/usr/bin/fi_pingpong}
limit=60 # seconds for any one program: far more than it needs, so that nothing can hang
work=$(mktemp -d)
failures=0
started=() # what runs in the background and must not outlive this script

cleanup() {
  for pid in "${started[@]}"; do kill "$pid" 2>/dev/null; done
  rm -rf "$work"
}
trap cleanup EXIT

fail() {
  failures=$((failures + 1))
  echo "FAILED: $*"
}

pass() { echo "passed: $*"; }

# Runs one of our programs on the library under test; any other program with the environment as it was without it.
ours() { timeout "$limit" env ${lib:+LD_LIBRARY_PATH="$lib"} "$bin/$1" "${@:2}"; }
theirs() { timeout "$limit" env -u LD_LIBRARY_PATH "$@"; }

# The same for "&": $! is then timeout(1), which passes a signal on; for the last one the program itself.
ours_background() { exec timeout "$limit" env ${lib:+LD_LIBRARY_PATH="$lib"} "$bin/$1" "${@:2}"; }
theirs_background() { exec timeout "$limit" env -u LD_LIBRARY_PATH "$@"; }
ours_bare() { exec env ${lib:+LD_LIBRARY_PATH="$lib"} "$bin/$1" "${@:2}"; }

# expect STATUS TEXT DESCRIPTION COMMAND...: extended regular expressions for the whole exit status and for a line of the output.
expect() {
  local want=$1 text=$2 name=$3 got=0
  "${@:4}" >"$work/out" 2>&1 || got=$?
  if ! [[ $got =~ ^($want)$ ]]; then
    fail "$name: exit status $got, expected $want"
    sed 's/^/    /' "$work/out"
  elif ! grep -Eq -- "$text" "$work/out"; then
    fail "$name: the output does not match '$text'"
    sed 's/^/    /' "$work/out"
  else
    pass "$name"
  fi
}

# poll_until COMMAND...: asks again and again until it is true; false when $limit is over.
poll_until() {
  local deadline=$((SECONDS + limit))
  until "$@"; do
    [ $SECONDS -lt $deadline ] || return 1
    sleep 0.02 # between two questions, nothing depends on it
  done
}

# --- fi_strerror -------------------------------------------------------------------------------

test_strerror() {
  local numbers texts
  mapfile -t numbers < <(seq 0 133; seq 256 269)
  mapfile -t texts < <(ours fi_strerror "${numbers[@]}")
  [ "${#texts[@]}" = "${#numbers[@]}" ] ||
    fail "fi_strerror: ${#texts[@]} texts for ${#numbers[@]} numbers"
  # System error numbers have the system's texts; those of libfabric have one each.
  python3 - "${texts[@]}" <<'PY' && pass "fi_strerror: every error number" || fail "fi_strerror: texts"
import os, sys
texts = sys.argv[1:]
# Numbers that the system does not know (41, 58) are as unknown to fi_strerror, in its own words.
bad = [n for n in range(134) if texts[n] != os.strerror(n) and not os.strerror(n).startswith('Unknown error')]
own = texts[134:]
if bad:
    print("differ from strerror:", bad)
if len(set(own)) != len(own) or not all(own):
    print("libfabric's own texts are not distinct:", own)
sys.exit(1 if bad or len(set(own)) != len(own) or not all(own) else 0)
PY
  local hex octal negative
  hex=$(ours fi_strerror 0x16) octal=$(ours fi_strerror 026) negative=$(ours fi_strerror -22)
  if [ "$hex" = "Invalid argument" ] && [ "$octal" = "$hex" ] && [ "$negative" = "$hex" ]; then
    pass "fi_strerror: hexadecimal, octal, negative"
  else
    fail "fi_strerror: 0x16 '$hex', 026 '$octal', -22 '$negative'"
  fi
  expect 1 "'abc' is not an error number" "fi_strerror: not a number" ours fi_strerror abc
  # shellcheck disable=SC2016
  expect 2 "fi_strerror: the output is not complete: No space left" "fi_strerror: a full disk" bash -c '"$@" >/dev/full' bash "$bin/fi_strerror" 1
  expect 1 "is not an error number" "fi_strerror: too large" ours fi_strerror 99999999999999999999
  expect 1 "Usage" "fi_strerror: no argument" ours fi_strerror
  expect 0 "Usage" "fi_strerror: help" ours fi_strerror --help
}

# --- fi_info -----------------------------------------------------------------------------------

test_info() {
  expect 0 "^provider: tcp" "fi_info: lists tcp" ours fi_info -p tcp -t FI_EP_MSG
  python3 - "$work/out" <<'PY' && pass "fi_info: form of the summary" || fail "fi_info: form of the summary"
import re, sys
keys = ["provider", "    fabric", "    domain", "    version", "    type", "    protocol"]
lines = open(sys.argv[1]).read().splitlines()
good = lines and len(lines) % len(keys) == 0
for number, line in enumerate(lines):
    if not line.startswith(keys[number % len(keys)] + ": "):
        print("line", number + 1, "is", repr(line))
        good = False
types = {l.split()[-1] for l in lines if l.startswith("    type")}
good = good and types == {"FI_EP_MSG"}
good = good and all(re.fullmatch(r"    version: \d+\.\d+", l) for l in lines[3::6])
sys.exit(0 if good else 1)
PY
  cp "$work/out" "$work/summary"
  expect 0 "^fi_info:" "fi_info: verbose" ours fi_info -p tcp -v
  grep -Eq '^ +prov_name: tcp' "$work/out" || fail "fi_info -v: no prov_name"
  expect 0 "^tcp:" "fi_info: list of providers" ours fi_info -l
  expect 0 "^libfabric api: [0-9]+\.[0-9]+$" "fi_info: version" ours fi_info --version
  expect 0 "^Usage" "fi_info: help" ours fi_info --help

  ours fi_info -p tcp -t FI_EP_MSG --json >"$work/json" || fail "fi_info --json: exit status $?"
  python3 - "$work/json" "$work/summary" <<'PY' && pass "fi_info: JSON says what the summary says" || fail "fi_info --json"
import json, sys
infos = json.load(open(sys.argv[1]))
lines = []
for info in infos:
    lines += ["provider: " + info["fabric_attr"]["prov_name"],
              "    fabric: " + info["fabric_attr"]["name"],
              "    domain: " + info["domain_attr"]["name"],
              "    version: " + info["fabric_attr"]["prov_version"],
              "    type: " + info["ep_attr"]["type"],
              "    protocol: " + info["ep_attr"]["protocol"]]
    assert "FI_MSG" in info["caps"], info["caps"]
    assert info["tx_attr"]["size"] > 0 and info["rx_attr"]["size"] > 0
    assert info["src_addr"].startswith("fi_sockaddr_in"), info["src_addr"]
sys.exit(0 if lines == open(sys.argv[2]).read().splitlines() else 1)
PY
  for option in -l -e; do
    ours fi_info "$option" --json >"$work/json" || fail "fi_info $option --json: exit status $?"
    if python3 -c 'import json,sys; assert all(i["name"] for i in json.load(open(sys.argv[1])))' "$work/json"; then
      pass "fi_info: $option as JSON"
    else
      fail "fi_info: $option as JSON"
    fi
  done
  expect 0 "^# FI_LOG_LEVEL: String" "fi_info: environment" ours fi_info -e
  expect 0 "^# FI_LOG_LEVEL: String" "fi_info: part of the environment" ours fi_info -g log_lev
  [ "$(grep -c '^# FI_' "$work/out")" = 1 ] || fail "fi_info -g: more than what was asked for"
  expect 0 "^FI_LOG_LEVEL=warn$" "fi_info: value of a variable" \
    env FI_LOG_LEVEL=warn LD_LIBRARY_PATH="$lib" "$bin/fi_info" -g log_level

  expect 0 "dest_addr: fi_sockaddr_in://127.0.0.1:7000" "fi_info: node and port" \
    ours fi_info -p tcp -n 127.0.0.1 -P 7000 -t FI_EP_MSG -v
  expect 0 "src_addr: fi_sockaddr_in://127.0.0.1:0" "fi_info: source" \
    ours fi_info -p tcp -s 127.0.0.1 -t FI_EP_MSG -v
  expect 0 "domain: lo" "fi_info: domain, capabilities, mode, address format" \
    ours fi_info -p tcp -d lo -c 'FI_MSG|FI_RMA' -m 'FI_CONTEXT' -a FI_SOCKADDR_IN
  expect 0 "FI_EP_MSG" "fi_info: structures that contain a text" ours fi_info -p tcp -i FI_EP_MSG

  expect 61 "fi_getinfo: -61 \(No data available\)" "fi_info: nothing matches" ours fi_info -p no-such-provider
  expect 61 "^\[\]$" "fi_info: nothing matches, JSON" ours fi_info -p no-such-provider --json
  expect 61 "no fi_info structure contains" "fi_info: no such text" ours fi_info -p tcp -i no-such-text
  expect 61 "no environment variable" "fi_info: no such variable" ours fi_info -g no_such_variable
  expect 22 "Unrecognized capability: FI_FOO" "fi_info: unknown capability" ours fi_info -c 'FI_MSG|FI_FOO'
  expect 22 "Unrecognized mode: FI_FOO" "fi_info: unknown mode" ours fi_info -m FI_FOO
  expect 22 "Unrecognized endpoint type: msg" "fi_info: unknown endpoint type" ours fi_info -t msg
  expect 22 "Unrecognized address format: x" "fi_info: unknown address format" ours fi_info -a x
  expect 1 "Usage" "fi_info: unknown option" ours fi_info --frobnicate
  expect 1 "unexpected argument 'tcp'" "fi_info: stray argument" ours fi_info tcp
}

# --- fi_pingpong -------------------------------------------------------------------------------

free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])'
}

# listening PORT: whether a socket listens there. It does not connect, because the server takes one client.
listening() {
  local hex
  hex=$(printf '%04X' "$1")
  awk -v port=":$hex\$" '$2 ~ port && $4 == "0A" { found = 1 } END { exit !found }' \
    /proc/net/tcp $([ -e /proc/net/tcp6 ] && echo /proc/net/tcp6)
}

listening_or_gone() { listening "$port" || ! kill -0 "$server_pid" 2>/dev/null; }

# start_server OUTPUT COMMAND...: sets server_pid and port once it listens. COMMAND gets "-B PORT" appended.
start_server() {
  local output=$1 attempt
  shift
  for attempt in 1 2 3; do
    port=$(free_port)
    "$@" -B "$port" >"$output" 2>&1 &
    server_pid=$!
    started+=("$server_pid")
    poll_until listening_or_gone
    listening "$port" && return 0
    # Another process may have taken the port in the meantime; every other error is final.
    grep -q "Address already in use" "$output" || break
  done
  return 1
}

results() { grep -cE '^[0-9.]+[kmg]? +[0-9]+[kmb]? +=[0-9]+[kmb]? ' "$1"; }

has_results() { [ "$(results "$1")" -gt 0 ]; }

# pair NAME SERVER CLIENT LINES ADDRESS OPTIONS...: SERVER and CLIENT are "ours" or "theirs"; both must end well and print
# as many result lines as sizes were to be tested.
pair() {
  local name="fi_pingpong: $1" server=$2 client=$3 lines=$4 address=$5 client_status=0 server_status=0
  shift 5
  local program_server=fi_pingpong program_client=fi_pingpong
  [ "$server" = theirs ] && program_server=$stock
  [ "$client" = theirs ] && program_client=$stock
  if ! start_server "$work/server" "${server}_background" "$program_server" "$@"; then
    fail "$name: the server did not start"
    sed 's/^/    /' "$work/server"
    return
  fi
  "$client" "$program_client" -P "$port" "$@" "$address" >"$work/client" 2>&1 || client_status=$?
  wait "$server_pid" || server_status=$?
  if [ $client_status = 0 ] && [ $server_status = 0 ] &&
    [ "$(results "$work/client")" = "$lines" ] && [ "$(results "$work/server")" = "$lines" ]; then
    pass "$name"
  else
    fail "$name: server's status $server_status, client's $client_status, expected $lines results"
    sed 's/^/    server: /' "$work/server"
    sed 's/^/    client: /' "$work/client"
  fi
}

# both_ways NAME LINES ADDRESS OPTIONS...: alone, and with the stock program in either place.
both_ways() {
  local name=$1 lines=$2 address=$3
  shift 3
  pair "$name" ours ours "$lines" "$address" "$@"
  if [ -x "$stock" ]; then
    pair "$name, stock client" ours theirs "$lines" "$address" "$@"
    pair "$name, stock server" theirs ours "$lines" "$address" "$@"
  fi
}

have_loopback6() { grep -qs 00000000000000000000000000000001 /proc/net/if_inet6; }

test_pingpong() {
  [ -x "$stock" ] || echo "skipped: no $stock (package libfabric-bin), so no stock peer"
  both_ways "msg, default sizes, verified" 6 127.0.0.1 -p tcp -e msg -c -I 50
  both_ways "msg, all sizes, verified" 46 127.0.0.1 -p tcp -e msg -S all -c -I 3
  both_ways "msg, no bytes" 1 127.0.0.1 -p tcp -e msg -S 0 -I 7
  both_ways "msg, one size, many messages" 1 localhost -p tcp -e msg -S 1000 -I 2000
  if have_loopback6; then
    both_ways "msg, control over IPv6" 1 ::1 -6 -p tcp -e msg -S 64
  fi
  local entry provider type more
  # (Stock 1.17 has no RDM of tcp's own: its tcp with rdm is tcp;ofi_rxm.)
  for entry in "tcp;ofi_rxm rdm" "udp dgram" "tcp;ofi_rxm rdm -m tagged"; do
    read -r provider type more <<<"$entry"
    if ours fi_info -p "$provider" -t "FI_EP_${type^^}" >/dev/null 2>&1; then
      local lines=6
      [ "$type" = dgram ] && lines=3
      # shellcheck disable=SC2086
      both_ways "$entry, verified" "$lines" 127.0.0.1 -p "$provider" -e "$type" $more -c
    else
      echo "skipped: $provider has no $type endpoints here"
    fi
  done

  # The numbers of a line agree with each other.
  pair "one line" ours ours 1 127.0.0.1 -p tcp -e msg -S 1500 -I 1500
  if grep -Eq '^1\.4k +1k +=1k +4\.2m +[0-9]+\.[0-9]{2}s +[0-9.]+ +[0-9.]+ +[0-9.]+$' "$work/client" &&
    head -1 "$work/client" | grep -Eq '^bytes +#sent +#ack +total +time +MB/sec +usec/xfer +Mxfers/sec$'; then
    pass "fi_pingpong: form of the table"
  else
    fail "fi_pingpong: form of the table"
    sed 's/^/    /' "$work/client"
  fi
}

# mismatch NAME SERVER_OPTIONS CLIENT_OPTIONS TEXT: both must end by themselves, with an error, one of them with TEXT.
mismatch() {
  local name="fi_pingpong: $1" client_status=0 server_status=0
  # shellcheck disable=SC2086
  start_server "$work/server" ours_background fi_pingpong -p tcp -e msg $2 ||
    fail "$name: the server did not start"
  # shellcheck disable=SC2086
  ours fi_pingpong -P "$port" -p tcp -e msg $3 127.0.0.1 >"$work/client" 2>&1 || client_status=$?
  wait "$server_pid" || server_status=$?
  case "$client_status $server_status" in
    0\ * | *\ 0 | *124* | *13[0-9]*) fail "$name: statuses $client_status and $server_status" ;;
    *)
      if grep -Eq -- "$4" "$work/server" "$work/client"; then pass "$name"; else fail "$name: no '$4'"; fi
      ;;
  esac
}

# killed_peer VICTIM SERVER CLIENT: one side is killed in the middle of the test; the other must notice and end with an error.
killed_peer() {
  local name="fi_pingpong: the $1 is killed" options=(-p tcp -e msg -I 20000 --timeout 20) status=0
  if ! start_server "$work/server" "$2" fi_pingpong "${options[@]}"; then
    fail "$name: the server did not start"
    return
  fi
  "$3" fi_pingpong "${options[@]}" -P "$port" 127.0.0.1 >"$work/client" 2>&1 &
  local client_pid=$!
  started+=("$client_pid")
  # The first result proves that messages are under way; five larger sizes are still to come.
  poll_until has_results "$work/client" || fail "$name: no result within $limit s"
  local victim=$server_pid survivor=$client_pid log=$work/client
  [ "$1" = client ] && victim=$client_pid survivor=$server_pid log=$work/server
  kill -9 "$victim"
  { wait "$victim"; } 2>/dev/null
  wait "$survivor" || status=$?
  # Neither 0 nor the status of timeout(1) nor of a signal.
  case "$status" in
    0 | 124 | 13[0-9]) fail "$name: the other's exit status is $status" ;;
    *)
      if grep -q "fi_pingpong: error:" "$log"; then pass "$name"; else fail "$name: no error text"; fi
      ;;
  esac
}

# A control peer that is not fi_pingpong: listens, says on stdout where, sends MESSAGE to the first that comes, and closes
# or stays silent.
fake_server() {
  exec python3 - "$1" "$2" <<'PY'
import socket, sys
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
peer, _ = listener.accept()
peer.sendall(bytes.fromhex(sys.argv[1]))
if sys.argv[2] == "close":
    peer.shutdown(socket.SHUT_RDWR)
else:
    peer.settimeout(60)
    try:
        while peer.recv(4096):
            pass
    except OSError:
        pass
PY
}

# odd_server NAME HEX close|stay STATUS TEXT
odd_server() {
  local fake fake_port
  exec 9< <(fake_server "$2" "$3")
  fake=$!
  started+=("$fake")
  read -rt "$limit" -u 9 fake_port
  expect "$4" "$5" "fi_pingpong: $1" \
    ours fi_pingpong -p tcp -e msg --timeout 2 -P "$fake_port" 127.0.0.1
  exec 9<&-
}

test_pingpong_failures() {
  mismatch "server expects fewer messages" "-S 64 -I 5" "-S 64 -I 10" "both sides need the same -I"
  mismatch "server expects more messages" "-S 64 -I 10" "-S 64 -I 5" "both sides need the same -I"
  mismatch "different sizes" "-S 128" "-S 64" "both sides need the same -S"
  mismatch "data that are not what they should be" "-S 64 -c" "-S 64" "data integrity: byte 0"

  killed_peer server ours_bare ours_background
  killed_peer client ours_background ours_bare

  odd_server "the server closes at once" "" close 103 "closed the connection before it sent the length"
  odd_server "the server is silent" "" stay 110 "was silent for 2 s"
  odd_server "the server is something else" "5353482d322e30" stay 71 "it is not fi_pingpong"
  odd_server "the address is cut off" "00000010020000000200" close 103 "before it sent its address"
  odd_server "the address is nonsense" "0000000402000000ffffffff" stay "[1-9][0-9]*" "fi_pingpong: error:"

  expect 111 "cannot connect to the server's control port" "fi_pingpong: no server" \
    ours fi_pingpong -p tcp -e msg -P "$(free_port)" 127.0.0.1
  expect 110 "no client connected within 1 s" "fi_pingpong: no client" \
    ours fi_pingpong -p tcp -e msg --timeout 1 -B "$(free_port)"
  expect 113 "cannot resolve the server's name" "fi_pingpong: unknown host" \
    ours fi_pingpong -p tcp -e msg no-such-host.invalid
  expect 61 "No data available: no interface for provider no-such" "fi_pingpong: no such provider" \
    ours fi_pingpong -p no-such -e msg
  for bad in "-I 0" "-I x" "-S x" "-S -1" "-e stream" "-m rma" "-P 70000" "-B 0" "--timeout 0"; do
    # shellcheck disable=SC2086
    expect 22 "expected" "fi_pingpong: $bad" ours fi_pingpong $bad
  done
  expect 22 "unexpected argument 'b'" "fi_pingpong: two addresses" ours fi_pingpong a b
  expect 1 "Usage" "fi_pingpong: unknown option" ours fi_pingpong -Z
  expect 0 "Usage" "fi_pingpong: help" ours fi_pingpong -h
}

test_strerror
test_info
test_pingpong
test_pingpong_failures

if [ $failures != 0 ]; then
  echo "$failures failed"
  exit 1
fi
echo "all passed"
