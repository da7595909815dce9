#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# stats_test.sh BIN_DIR LIB_DIR: the commands on a program that runs under the hook, and the exporter. The parser of
# Prometheus' client library must accept the exporter's text.
set -euo pipefail
bin=${1:?usage: stats_test.sh BIN_DIR LIB_DIR} lib=${2:?}
tmp=$(mktemp -d)
pids=()
finish() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  rm -rf "$tmp"
}
trap finish EXIT
export WEFT_RUNTIME_DIR=$tmp/run LD_LIBRARY_PATH=$lib FI_PROVIDER=tcp
fail() { echo "stats_test: $*"; exit 1; }
# says TEXT COMMAND...: checks that a command prints a text. Not a pipe: the command may write on after grep has ended.
says() {
  local text=$1
  shift
  "$@" >"$tmp/out" || fail "$* ended with $?"
  grep -q -- "$text" "$tmp/out" || fail "$*: no \"$text\" in: $(cat "$tmp/out")"
}

"$bin/weft" stats >"$tmp/out" && fail "no process counts, but stats says 0"
grep -q "no process counts" "$tmp/out" || fail "stats without processes: $(cat "$tmp/out")"
"$bin/weft" stats 999999 2>"$tmp/out" && fail "a process that is not there"
grep -q "FI_HOOK=profile" "$tmp/out" || fail "no remedy: $(cat "$tmp/out")"
mkdir -m 755 "$tmp/open"
WEFT_RUNTIME_DIR=$tmp/open "$bin/weft" stats 1 2>"$tmp/out" && fail "a folder that all users can read"
[ "$(grep -o "is no folder of user" "$tmp/out")" = "is no folder of user" ] || fail "not once: $(cat "$tmp/out")"

# Without the hook profile, a process still tells what its plugins count: of each element of the stack, and of hooks.
FI_PROVIDER="tcp;ofi_rxm" FI_HOOK=fault FI_FAULT_RULES="recv:nth=1000000000:error=EIO" \
  "$bin/fi_pingpong" -p "tcp;ofi_rxm" -e rdm -I 100000000 -S 64 >"$tmp/quiet" 2>&1 &
pids+=($!)
quiet=$!
for _ in $(seq 200); do
  "$bin/weft" stats "$quiet" >"$tmp/out" 2>/dev/null && break
  read -rt 0.1 <> <(:) || true
done
grep -q "all counters of plugins are 0" "$tmp/out" || fail "a server without a client: $(cat "$tmp/out" "$tmp/quiet")"
says "tcp;ofi_rxm *rxm .*connections_lost *0  *connections that" "$bin/weft" stats --all "$quiet"
says "tcp;ofi_rxm *tcp .*connections_accepted" "$bin/weft" stats --all
says "hook fault on rxm .*rule 1: recv:nth=1000000000:error=EIO *0" "$bin/weft" stats --all "$quiet"
FI_PROVIDER="tcp;ofi_rxm" "$bin/fi_pingpong" -p "tcp;ofi_rxm" -e rdm -I 100000000 -S 64 127.0.0.1 >"$tmp/client" 2>&1 &
pids+=($!)
client=$!
for _ in $(seq 200); do
  "$bin/weft" stats "$quiet" | grep -q "rxm .*connections_made *1 " && break
  read -rt 0.1 <> <(:) || true
done
says "tcp .*connections_accepted *1 " "$bin/weft" stats "$quiet"
says "rxm .*connections_made *1 " "$bin/weft" top --once
"$bin/weft" stats "$quiet" --json | python3 -c '
import json, sys
seen = json.load(sys.stdin)
assert not seen["processes"], "no hook profile"
tcp, rxm, fault = seen["counters"]
assert [tcp["element"], rxm["element"], fault["hook"]] == ["tcp", "rxm", "fault"], seen
assert {c["name"]: c["value"] for c in rxm["counters"]}["connections_made"] == 1
assert all(c["what"] for f in seen["counters"] for c in f["counters"])' || fail "stats --json"
kill -STOP "$quiet"
"$bin/weft" stats "$quiet" 2>"$tmp/out" && fail "a stopped process tells nothing"
grep -q "did not answer within 2 s" "$tmp/out" || fail "of a stopped process: $(cat "$tmp/out")"
kill -CONT "$quiet"
kill -9 "$client" "$quiet"
wait "$client" "$quiet" 2>/dev/null || true

# A ping-pong server waits for its client, with its objects open and counted.
FI_HOOK=profile "$bin/fi_pingpong" -p tcp -e rdm -I 100000000 -S 64 >"$tmp/server" 2>&1 &
pids+=($!)
server=$!
for _ in $(seq 200); do
  FI_HOOK=profile "$bin/fi_pingpong" -p tcp -e rdm -I 100000000 -S 64 127.0.0.1 >"$tmp/client" 2>&1 &
  client=$!
  pids+=($client)
  for _ in $(seq 50); do
    kill -0 "$client" 2>/dev/null || break
    "$bin/weft" stats "$client" --json >"$tmp/json" 2>/dev/null && grep -q '"operation": "recv"' "$tmp/json" && break 2
    read -rt 0.1 <> <(:) || true
  done
done
grep -q '"element": "tcp"' "$tmp/json" || fail "nothing of tcp in $(cat "$tmp/json") $(cat "$tmp/client" "$tmp/server")"
says fi_pingpong "$bin/weft" stats
says CALLS/S "$bin/weft" top "$server" --interval 0.2 --count 2
says cq_read "$bin/weft" top --once
"$bin/weft" top --interval 0.1 --count 1 --json | python3 -c 'import json,sys; assert json.load(sys.stdin)["lines"]' || fail "top --json"
"$bin/weft" top --interval nonsense 2>/dev/null && fail "--interval takes anything"

"$bin/weft" exporter --port 0 >"$tmp/url" &
pids+=($!)
for _ in $(seq 100); do
  [ -s "$tmp/url" ] && break
  read -rt 0.1 <> <(:) || true
done
# Clients that hold on and say nothing make room.
python3 - "$(cat "$tmp/url")" >"$tmp/metrics" <<'PYTHON'
import socket, sys, urllib.parse, urllib.request
place = urllib.parse.urlsplit(sys.argv[1])
silent = [socket.create_connection((place.hostname, place.port)) for _ in range(40)]
with urllib.request.urlopen(sys.argv[1], timeout=20) as answer:
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4"), answer.headers
    sys.stdout.write(answer.read().decode("utf-8"))
PYTHON
grep -q '^weft_operation_calls_total{.*program="fi_pingpong"' "$tmp/metrics" || fail "metrics: $(head "$tmp/metrics")"
/usr/bin/python3 - "$tmp/metrics" <<'PYTHON' || fail "Prometheus' own parser does not take the metrics, or a histogram is none"
import sys
from prometheus_client.parser import text_string_to_metric_families

histograms = 0
for family in text_string_to_metric_families(open(sys.argv[1], encoding="utf-8").read()):
    if not family.documentation or family.type == "unknown":
        sys.exit(f"{family.name}: no help or no type")
    buckets, counts = {}, {}
    for sample in family.samples:
        labels = tuple(sorted((k, v) for k, v in sample.labels.items() if k != "le"))
        if sample.name.endswith("_bucket"):
            buckets.setdefault(labels, []).append((float(sample.labels["le"]), sample.value))
        elif sample.name.endswith("_count"):
            counts[labels] = sample.value
    for labels, steps in buckets.items():
        histograms += 1
        values = [value for _, value in sorted(steps)]
        if values != sorted(values) or sorted(steps)[-1][0] != float("inf") or values[-1] != counts[labels]:
            sys.exit(f"{family.name}: {labels}: {steps}, count {counts.get(labels)}")
if histograms == 0:
    sys.exit("no histogram")
PYTHON
grep -q '^weft_tcp_connections_accepted_total{.*program="fi_pingpong",stack="tcp"' "$tmp/metrics" || fail "no counters of tcp"
says "^# TYPE weft_operation_size_bytes histogram" "$bin/weft" exporter --once
"$bin/weft" exporter --port 99999 2>/dev/null && fail "there is no such port"
# refuses STATUS TEXT COMMAND...: into a full disk.
refuses() {
  local status=0
  timeout 60 "${@:3}" >/dev/full 2>"$tmp/out" || status=$?
  [ $status = "$1" ] && grep -q -- "$2" "$tmp/out" || fail "${*:3}: $status, $(cat "$tmp/out")"
}
refuses 2 "weft exporter: the output is not complete" "$bin/weft" exporter --once
refuses 2 "weft exporter: the address cannot be printed: No space left" "$bin/weft" exporter --port 0
refuses 2 "weft exporter: port [0-9]* of 127.0.0.1 is not to be had" "$bin/weft" exporter --port "$(sed 's/.*:\([0-9]*\).*/\1/' "$tmp/url")"

kill -9 "$client" "$server"
wait "$client" "$server" 2>/dev/null || true
"$bin/weft" stats >/dev/null && fail "the processes are gone"
"$bin/weft" exporter --once >"$tmp/out" 2>&1 && fail "exporter --once without processes"
grep -q "weft exporter: no process counts" "$tmp/out" || fail "exporter --once without processes: $(cat "$tmp/out")"
[ -z "$(find "$WEFT_RUNTIME_DIR" -name '*.profile')" ] || fail "what killed processes left is still there"
echo "stats_test: good"
