#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Tests the command weft as a user runs it.
#
#   weft_test.sh BIN_DIR LIB_DIR ODD_PLUGINS
#
# BIN_DIR holds weft and fi_info, LIB_DIR libfabric.so.1 with weft/tcp.so, ODD_PLUGINS what testdata/odd_plugin.c makes.
# Home, cache and configuration are those of a temporary folder; /etc/weft of this machine counts as on any other.

set -u

bin=$(cd "${1:?usage: weft_test.sh BIN_DIR LIB_DIR ODD_PLUGINS}" && pwd) || exit 2
lib=$(cd "${2:?no LIB_DIR}" && pwd) || exit 2
odd=$(cd "${3:?no ODD_PLUGINS}" && pwd) || exit 2
limit=120 # seconds for any one program: far more than it needs, so that nothing can hang
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

unset "${!FI_@}"
export HOME=$work/home XDG_CONFIG_HOME=$work/config XDG_CACHE_HOME=$work/cache LD_LIBRARY_PATH=$lib
mkdir -p "$HOME" "$XDG_CONFIG_HOME/weft" "$XDG_CACHE_HOME"

pass() { echo "passed: $*"; }
fail() {
  failures=$((failures + 1))
  echo "FAILED: $*"
}

weft() { timeout "$limit" "$bin/weft" "$@"; }

# run STATUS NAME COMMAND...: leaves stdout in $work/out, stderr in $work/err.
run() {
  local want=$1 name=$2 got=0
  shift 2
  "$@" >"$work/out" 2>"$work/err" </dev/null || got=$?
  if [[ $got =~ ^($want)$ ]]; then
    return 0
  fi
  fail "$name: exit status $got, expected $want"
  sed 's/^/    /' "$work/out" "$work/err"
  return 1
}

# says STATUS TEXT NAME COMMAND...: a line of stdout or stderr matches the extended regular expression TEXT.
says() {
  local text=$2 name=$3
  run "$1" "$name" "${@:4}" || return
  if grep -Eq -- "$text" "$work/out" "$work/err"; then
    pass "$name"
  else
    fail "$name: no '$text'"
    sed 's/^/    /' "$work/out" "$work/err"
  fi
}

# json STATUS EXPRESSION NAME COMMAND...: stdout is JSON, and the Python expression holds for it as `j`.
json() {
  local expression=$2 name=$3
  run "$1" "$name" "${@:4}" || return
  if python3 -c 'import json, sys
j = json.load(open(sys.argv[1]))
sys.exit(0 if eval("(" + sys.argv[2] + ")") else 1)' "$work/out" "$expression" 2>"$work/python"; then
    pass "$name"
  else
    fail "$name: not so: $expression"
    sed 's/^/    /' "$work/out" "$work/python"
  fi
}

# --- the command line ------------------------------------------------------------------------------

says 0 "^weft [0-9]+\.[0-9]+" "version" weft --version
for word in trace stats top exporter; do
  says 0 "^weft $word [0-9]+\.[0-9]+" "version of '$word'" weft "$word" --version
  says 2 "weft $word: unknown option '--verison': did you mean '--version'" "slip in an option of '$word'" "$bin/weft-$word" --verison
done
for words in "" info why explain plugin "plugin list" "plugin check" "plugin new" "plugin test" "plugin refresh" "plugin quarantine" config \
  "config show" "config lint" policy "policy test" "policy diff" cxi "cxi service" "cxi service list" "cxi service show" "cxi service create" "cxi service enable" \
  "cxi service disable" "cxi service destroy" doctor; do
  # shellcheck disable=SC2086
  says 0 "^Usage: " "help of '$words'" weft $words --help
done
for words in info why explain "plugin list" "plugin check" "plugin new" "plugin test" "plugin refresh" "plugin quarantine" "config show" \
  "config lint" "policy test" "policy diff" "cxi service list" "cxi service show" "cxi service create" "cxi service destroy" doctor; do
  # shellcheck disable=SC2086
  says 0 "--json" "'$words' knows --json" weft $words --help
done
says 2 "unknown subcommand 'wyh': did you mean 'why'" "slip in a subcommand" weft wyh
says 2 "unknown subcommand 'lst': did you mean 'list'" "slip in a subcommand of plugin" weft plugin lst
says 2 "unknown option '--jsno': did you mean '--json'" "slip in an option" weft info --jsno
says 2 "unknown option '--orgin': did you mean '--origin'" "slip in an option of config" weft config show --orgin=1
says 2 "weft: unknown option '--json'; options of .weft info. go behind these words" "an option before its command" weft --json info
says 2 "weft: unknown option '--json'; options of .weft stats. go behind" "an option before a program" weft --json stats
says 2 "weft plugin: unknown option '--json'; options of .weft plugin list. go" "an option between two words" weft plugin --json list
says 2 "unknown option '--verison': did you mean '--version'" "a slip before a command" weft --verison info
says 2 "unknown subcommand 'banana'; known: info why" "no word is close" weft banana
says 2 "a subcommand is missing: info, why" "no subcommand" weft
says 2 "a subcommand is missing: show, lint" "no subcommand of config" weft config
says 2 "one name, or -- before a command: weft why -- x" "stray argument" weft why x y
says 2 "-- and no command" "no command" weft why --
says 2 "FILE is required" "missing argument" weft plugin check

# The programs that are words of weft, wherever it is started from.
ln -s "$bin/weft" "$work/linked"
says 0 "^Usage: weft stats" "'weft stats' through a link" "$work/linked" stats --help
says 0 "^Usage: weft top" "'weft top' by PATH, in another folder" env -C / PATH="$bin:$PATH" weft top --help
mkdir "$work/alone" && cp "$bin/weft" "$work/alone" && printf '#!/bin/sh\necho "of the working directory"\n' >"$work/weft-stats" &&
  chmod +x "$work/weft-stats"
says 2 "weft stats: $work/alone/weft-stats: No such file.*built as the target weft-stats" "no weft-stats beside weft" \
  env -C "$work" "$work/alone/weft" stats
if unshare --mount true 2>/dev/null; then
  # A sanitizer looks for leaks by means of /proc.
  # shellcheck disable=SC2016
  says 2 "weft stats: /proc/self/exe: .*is /proc mounted" "'weft stats' without /proc" \
    env -C "$work" ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0" unshare --mount sh -c 'umount -l /proc && exec "$1" stats' sh "$bin/weft"
fi

# --- info ------------------------------------------------------------------------------------------

says 0 "^chosen +tcp \(msg\) on " "info: the chosen stack" weft info --ep msg
says 0 "^library +$lib/libfabric\.so\.1" "info: the library" weft info
says 0 "^tcp +msg +lo +FI_PROTO_SOCK_TCP .*127\.0\.0\.1" "info: the table" weft info -d lo
json 0 'j["chosen"]["stack"] == "tcp" and j["chosen"]["type"] == "msg" and j["offers"][0]["domain"] == j["chosen"]["domain"]
  and "127.0.0.1" in sum((o["addresses"] for o in j["offers"]), []) and j["error"] is None' \
  "info: JSON" weft info --json -t FI_EP_MSG -c 'msg|rma' -p tcp
json 1 'j["offers"] == [] and j["chosen"] is None and j["error"]' "info: nothing matches, JSON" \
  weft info --json -d no-such-domain
says 1 "^chosen +nothing" "info: nothing matches" weft info -d no-such-domain
says 1 "^tcp +hints +rejected" "info: why nothing matches" weft info -d no-such-domain
says 2 "unknown endpoint type 'mgs': did you mean 'msg'" "info: unknown endpoint type" weft info --ep mgs
says 2 "unknown capability 'frobnicate'; known: .*rma" "info: unknown capability" weft info -c 'msg|frobnicate'
says 2 "unknown address format" "info: unknown address format" weft info -a carrier_pigeon

# --- why -------------------------------------------------------------------------------------------

says 0 "^tcp +selected +selected " "why: table" weft why
says 0 "^tcp: selected" "why: one unit" weft why tcp
json 0 'any(d["candidate"] == "tcp" and d["stage"] == "selected" and d["accepted"] for d in j)' "why: JSON" weft why tcp --json
json 0 '[d["candidate"] for d in j] == ["sockets(" + part + ")" for part in ("tcp", "udp", "tcp;ofi_rxm")] and "ask for this name" in j[0]["reason"]' \
  "why: a stack that nobody asked for, JSON" weft why sockets --json
says 0 "^sockets\(udp\): selected" "why: a stack of several parts" weft why sockets -p sockets --ep dgram
run 0 "why: absent provider" weft why psm3 && {
  if grep -q "^psm3: rejected" "$work/out" && grep -q "stage *manifest" "$work/out" &&
    grep -q "remedy *install a plugin" "$work/out" && grep -q "searched *$lib/weft" "$work/out"; then
    pass "why: absent provider"
  else
    fail "why: absent provider"
    sed 's/^/    /' "$work/out"
  fi
}
json 0 'len(j) == 1 and j[0]["candidate"] == "psm3" and not j[0]["accepted"] and j[0]["remedy"] and j[0]["searched"]' \
  "why: absent provider, JSON" weft why psm3 --json
says 0 "^tcp +hints +rejected +.*FI_EP_DGRAM" "why: hints" weft why --ep dgram -p tcp

cat >"$work/off.yaml" <<'YAML'
version: 1
providers:
  disable: [tcp, psm3]
YAML
json 0 'any(not d["accepted"] and d["stage"] == "policy" and d["rule"].endswith("off.yaml:3:13") and d["remedy"] for d in j)' \
  "why: disabled by a file" env FI_CONFIG="$work/off.yaml" "$bin/weft" why tcp --json
says 0 "providers.disable names it at .*off.yaml:3:18" "why: absent and disabled" \
  env FI_CONFIG="$work/off.yaml" "$bin/weft" why psm3
# A command, and what it starts, as it is installed.
why_json() { # EXPRESSION NAME COMMAND...: whatever the command's exit status, which is ours
  json "[0-9]+" "$1" "$2" weft why --json -- "${@:3}"
}
why_json 'len(j["processes"]) == 1 and j["status"] != 0 and [c["call"] for c in j["processes"][0]["calls"]] == ["getinfo"]
  and j["processes"][0]["calls"][0]["hints"]["fabric_attr.prov_name"] == "\"tpc\""
  and j["processes"][0]["calls"][0]["answers"] == [] and "did you mean \"tcp\"" in j["processes"][0]["calls"][0]["misses"][0]["remedy"]' \
  "why: a command with a slip, JSON" timeout "$limit" "$bin/fi_pingpong" -p tpc
says "[1-9][0-9]*" "misses +tpc: no provider or layer is called .tpc.: did you mean .tcp.\?" "why: a command with a slip" \
  weft why -- timeout "$limit" "$bin/fi_pingpong" -p tpc
grep -q "hints .*prov_name \"tpc\"" "$work/out" || fail "why: a command with a slip: the hints are not told"
grep -q "opened nothing" "$work/out" || fail "why: a command with a slip: that it opened nothing is not told"
why_json 'j["status"] == 0 and j["processes"][0]["calls"][0]["answer_count"] > 0 and j["note"] is None' \
  "why: a command that finds something" "$bin/fi_info" -p tcp
why_json 'len([p for p in j["processes"] if p["calls"]]) == 3' "why: processes that a command starts" \
  bash -c '"$0" -p tcp >/dev/null & "$0" -p udp >/dev/null; wait; exec "$0" -p tcp' "$bin/fi_info"
says 7 "nothing was recorded: .*bash is not linked with libfabric" "why: a command that asks nothing" weft why -- bash -c 'exit 7'
says 127 "no-such-program: No such file" "why: no such command" weft why -- no-such-program
printf '#!/bin/sh\nexit 3\n' >"$work/script" && chmod +x "$work/script"
says 3 "nothing was recorded: .*script is a script" "why: a script that asks nothing" weft why -- "$work/script"
says 0 "nothing was recorded: .*elsewhere runs on another libfabric, .*/libfabric.so.1" "why: another libfabric" \
  weft why -- "$odd/elsewhere"
[ -z "$(find "${WEFT_RUNTIME_DIR:-/dev/shm/weft-$(id -u)}" -maxdepth 1 -name 'why-*' -newer "$work/script" 2>/dev/null)" ] ||
  fail "why: a folder is left behind"
# Without it nothing is written, and a program with raised privileges is not told what to do by a variable.
says 0 "^provider: tcp" "WEFT_WHY: a folder that is not there" env WEFT_WHY="$work/absent" "$bin/fi_info" -p tcp
[ ! -e "$work/absent" ] || fail "WEFT_WHY: it makes a folder"
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
  mkdir -m 777 "$work/open" && mkdir -m 755 "$work/suid" && chmod 755 "$work"
  cp "$bin/fi_info" "$work/suid/" && chmod 4755 "$work/suid/fi_info" && mkdir "$work/lib"
  cp -L "$lib/libfabric.so.1" "$work/lib/" && cp -rL "$lib/weft" "$work/lib/"
  for mode in 4755 755; do
    chmod $mode "$work/suid/fi_info"
    # The program finds the library by its RUNPATH, ../lib, also where LD_LIBRARY_PATH does not count.
    setpriv --reuid=54321 --regid=54321 --clear-groups env WEFT_WHY="$work/open" HOME=/nonexistent \
      "$work/suid/fi_info" -l >"$work/out" 2>&1
    found=$(find "$work/open" -type f | wc -l)
    [ "$found" = $((mode == 755)) ] && pass "WEFT_WHY: mode $mode" || fail "WEFT_WHY: mode $mode: $found files; $(cat "$work/out")"
  done
fi

# The log of a fi_getinfo that finds nothing: one line at warn, and at info one for each candidate.
env FI_LOG_LEVEL=warn timeout "$limit" "$bin/fi_pingpong" -p tpc >/dev/null 2>"$work/err"
[ "$(grep -c 'fi_getinfo.*<warn> nothing fits; the nearest: tpc: ' "$work/err")" = 1 ] && pass "log: one line" ||
  fail "log: one line: $(cat "$work/err")"
env FI_LOG_LEVEL=info timeout "$limit" "$bin/fi_pingpong" -p tpc >/dev/null 2>"$work/err"
[ "$(grep -c 'fi_getinfo.*<info> ' "$work/err")" -ge 4 ] && pass "log: each candidate" || fail "log: each candidate: $(cat "$work/err")"
timeout "$limit" "$bin/fi_pingpong" -p tpc >/dev/null 2>"$work/err"
grep -q '^libfabric:' "$work/err" && fail "log: nobody asked: $(cat "$work/err")" || pass "log: nobody asked"

says 0 "FI_PROVIDER" "why: left out by the environment" env FI_PROVIDER=^tcp "$bin/weft" why tcp
says 61 'tpc.*did you mean "tcp"' "FI_PROVIDER with a slip: fi_info" env FI_PROVIDER=tpc timeout "$limit" "$bin/fi_info"
grep -q '"tcp"' "$work/err" || fail "FI_PROVIDER with a slip: the hint is not on stderr"
says 0 'remedy.*did you mean "tcp"' "FI_PROVIDER with a slip: why" env FI_PROVIDER=tpc "$bin/weft" why tpc

# A provider whose device this machine lacks.
mkdir -p "$work/ghosts/plugins.d"
cp "$lib/weft/tcp.so" "$work/ghosts/ghost.so"
sed -e 's/name: "tcp"/name: "ghost"/; s/name: "tcp"$/name: "ghost"/; s|\.\./tcp\.so|../ghost.so|' \
  -e 's|devices: \[\]|devices: ["path:/dev/no-such-device*"]\n    device_remedy: "plug it in"|' \
  "$lib/weft/plugins.d/tcp.yaml" >"$work/ghosts/plugins.d/ghost.yaml"
json 0 'any(d["stage"] == "device" and not d["accepted"] and "no-such-device" in d["reason"]
  and d["remedy"] == "plug it in" for d in j)' \
  "why: no device" env FI_PROVIDER_PATH="$work/ghosts" "$bin/weft" why ghost --json
says 0 "without +plug it in" "plugin list: what to do without the device" \
  env FI_PROVIDER_PATH="$work/ghosts" "$bin/weft" plugin list --verbose

# --- explain ---------------------------------------------------------------------------------------

says 0 "lo 127\.0\.0\.1/8: loopback" "explain: ranking of interfaces" weft explain tcp
says 0 "^  provider tcp" "explain: default" weft explain
json 0 'j["stack"] == "tcp" and j["elements"][0]["unit"] == "tcp" and j["elements"][0]["kind"] == "provider"
  and any("127.0.0.1" in l for l in j["elements"][0]["lines"])' "explain: JSON" weft explain tcp --json
json 0 'j["elements"][0]["unit"] == "tcp" and [p["elements"][0]["unit"] for p in j["parts"]] == ["udp", "rxm"]
  and j["parts"][0]["elements"][0]["kind"] == "provider"' "explain: a stack of several parts, JSON" weft explain sockets --json
says 0 "^  provider udp" "explain: a stack of several parts" weft explain sockets
says 1 'did you mean "tcp"' "explain: unknown stack" weft explain tpc
json 1 'j["error"]' "explain: unknown stack, JSON" weft explain "tcp;nosuch" --json
printf 'version: 1\nstacks: {mine: [{provider: tcp}]}\nuse: [mine]\nparams: {tcp: {interfaces: [lo]}}\n' >"$work/mine.yaml"
json 0 'j["stack"] == "tcp" and "mine" in j["origin"]' "explain: stack of the configuration" \
  env FI_CONFIG="$work/mine.yaml" "$bin/weft" explain mine --json

# --- a layer over several providers ----------------------------------------------------------------

printf 'version: 1\nstacks:\n  fast:\n  - layer: link\n    over:\n    - [{provider: shm}]\n    - [{layer: rxm}, {provider: tcp}]\nuse: [fast]\n' \
  >"$work/tree.yaml"
tree=(env FI_CONFIG="$work/tree.yaml")
says 0 '^ +\+- branch 2 of 2$' "explain: branches" "${tree[@]}" "$bin/weft" explain fast
says 0 '^      layer rxm \(ofi_rxm\)$' "explain: what stands in a branch" "${tree[@]}" "$bin/weft" explain fast
json 0 'j["stack"] == "(shm+tcp;ofi_rxm);link" and [[e["unit"] for e in b] for b in j["elements"][0]["branches"]] == [["shm"], ["rxm", "tcp"]]
  and j["elements"][0]["branches"][1][0]["kind"] == "layer"' "explain: branches, JSON" "${tree[@]}" "$bin/weft" explain fast --json
says 0 '\(shm\+tcp;ofi_rxm\);link' "why: a stack with branches" "${tree[@]}" "$bin/weft" why link
says 0 'stacks\.fast +.*"over":\[\[\{"provider":"shm"\}\],\[\{"layer":"rxm"\},\{"provider":"tcp"\}\]\]' \
  "config show: branches" "${tree[@]}" "$bin/weft" config show
says 0 'provider: \(shm\+tcp;ofi_rxm\);link$' "fi_info: a stack with branches" "${tree[@]}" "$bin/fi_info" -p link
says 0 'stands on  +2 providers' "plugin list: a layer over several" "${tree[@]}" "$bin/weft" plugin list -v
sed -i 's/provider: shm/provider: shm}, {layer: rxm/' "$work/tree.yaml"
says 1 'tree\.yaml:6:25: error: layer .rxm. stands below the provider .shm.' "config lint: in a branch" \
  "$bin/weft" config lint "$work/tree.yaml"

# --- config ----------------------------------------------------------------------------------------

says 0 "^plugins\.probe_budget_ms +2000" "config show" weft config show
says 0 "^use .*mine.*mine\.yaml:3:7$" "config show: origin" env FI_CONFIG="$work/mine.yaml" "$bin/weft" config show --origin
json 0 'any(v["key"] == "params.tcp.interfaces" and v["value"] == "lo" and v["origin"].endswith("mine.yaml:4:16") for v in j["values"])' \
  "config show: JSON" env FI_CONFIG="$work/mine.yaml" "$bin/weft" config show --json
json 0 'any(v["key"] == "params.tcp.backlog" and v["value"] == "99" and v["origin"] == "environment FI_TCP_BACKLOG" for v in j["values"])' \
  "config show: environment" env FI_TCP_BACKLOG=99 "$bin/weft" config show --json
for tool in "fi_info -p tcp" "weft info -p tcp"; do
  # shellcheck disable=SC2086
  says 0 '^libfabric: FI_TCP_BACKLOG: "99999" is out of range: 1 to 65535; the default, "4096", is used$' "a wrong variable: $tool" \
    env FI_TCP_BACKLOG=99999 "$bin"/$tool
  grep -q "provider: tcp\|^chosen *tcp" "$work/out" || fail "a wrong variable: $tool: no tcp"
done
says 0 '^libfabric: FI_PROVIDERR is not known and has no effect: did you mean FI_PROVIDER\?$' "a misspelt variable" \
  env FI_PROVIDERR=udp "$bin/fi_info" -p tcp
says 0 '^libfabric: FI_LOG_LEVEL=none: unknown level; known are warn, trace, info, debug; ' "a level that is none" \
  env FI_LOG_LEVEL=none "$bin/fi_info" -p tcp
[ "$(grep -c libfabric: "$work/err")" = 1 ] || fail "a level that is none: more than one line"
says 0 "^params\.tcp\.backlog +4096 +default" "config show: defaults" weft config show --origin --defaults

says 0 "0 errors, 0 warnings in 1 file" "config lint: a good file" weft config lint "$work/mine.yaml"
cat >"$work/bad.yaml" <<'YAML'
version: 1
providrs: {}
stacks: {s: [{provder: tcp}]}
YAML
says 1 "bad\.yaml:2:1: error: .*did you mean 'providers'" "config lint: an unknown key" weft config lint "$work/bad.yaml"
json 1 'j["errors"] == len(j["diagnostics"]) and {(d["line"], d["column"]) for d in j["diagnostics"]} >= {(2, 1), (3, 15)}
  and all(d["file"].endswith("bad.yaml") for d in j["diagnostics"])' "config lint: every error, JSON" \
  weft config lint --json "$work/bad.yaml"
says 0 "weft config show: 3 problems in $work/bad.yaml: see .weft config lint --as /etc/weft/bad.yaml $work/bad.yaml.$" \
  "config show: a file with errors" weft config show "$work/bad.yaml"
cat >"$work/names.yaml" <<'YAML'
version: 1
providrs: {}
providers: {disable: [upd]}
use: [rdn]
stacks: {rdm: [{hook: tarce}, {layer: rxm, params: {eager_sise: 4}}, {provider: tcp}]}
params: {tcp: {backlgo: 5}}
YAML
json 1 'all(any(what in d["text"] and d["line"] == line for d in j["diagnostics"]) for what, line in
  [("providrs", 2), ("upd", 3), ("rdn", 4), ("tarce", 5), ("eager_sise", 5), ("backlgo", 6)])' \
  "config lint: names and form in one run" weft config lint --json "$work/names.yaml"
says 1 "error" "config lint: one good, one bad" weft config lint "$work/mine.yaml" "$work/bad.yaml"
cp "$work/bad.yaml" "$XDG_CONFIG_HOME/weft/weft.yaml"
says 1 "weft/weft\.yaml:2:1: error" "config lint: the user's file" weft config lint
says 1 "weft/weft\.yaml:2:1: error" "config lint: the user's file by name" weft config lint "$XDG_CONFIG_HOME/weft/weft.yaml"
json 2 'j["worst"] == "FAIL" and any(f["check"] == "configuration" and f["state"] == "FAIL" for f in j["findings"])' \
  "doctor: a file with errors" weft doctor --json
rm "$XDG_CONFIG_HOME/weft/weft.yaml"
says 1 "environment FI_PROVIDER: error" "config lint: the environment" env FI_PROVIDER="tcp,^udp" "$bin/weft" config lint
says 2 "no-such.yaml: No such file" "config lint: no file" weft config lint "$work/no-such.yaml"
says 2 "is no file" "config lint: a folder" weft config lint "$work"

# --- policy ----------------------------------------------------------------------------------------

cat >"$work/site.yaml" <<'YAML'
version: 1
providers:
  disable: [udp]
  rank:
    - {match: {provider: "tcp*", hostname: "login*"}, enable: false}
    - {match: {provider: "tcp;ofi_rxm", executable: solver}, rank: 950}
    - {match: {provider: tcp, netdev: hsn0}, rank: 900}
    - {match: {provider: tcp, subnet: 10.77.0.0/16}, enable: false}
params: {tcp: {backlog: 99}}
final: [providers.disable]
YAML
test_site=(weft policy test "$work/site.yaml" --json)
json 0 'j["file"].endswith("/site.yaml") and j["as"] == "/etc/weft/site.yaml" and j["errors"] == 0 and j["diagnostics"] == [] and
  [p["hints"] for p in j["programs"]] == ["--ep msg", ""] and j["programs"][0]["chosen"]["stack"] == "tcp" and
  j["programs"][0]["chosen"]["type"] == "msg" and j["programs"][0]["chosen"]["reason"]' \
  "policy test: two programs, JSON" "${test_site[@]}" --as "--ep msg" --as ""
json 1 '[(d["stage"], d["rule"].endswith("site.yaml:3:13")) for d in j["programs"][0]["decisions"] if d["candidate"] == "udp"] == [("policy", True)]
  and j["programs"][0]["chosen"] is None and j["programs"][0]["error"]' "policy test: nothing matches, JSON" \
  "${test_site[@]}" --as "--ep dgram -p udp"
says 1 "^udp +policy +rejected +udp is disabled" "policy test: why nothing matches" weft policy test "$work/site.yaml" --as "-t dgram"
says 0 "^policy +$work/site.yaml, read as /etc/weft/site.yaml$" "policy test: where the file is read" weft policy test "$work/site.yaml"
says 0 "^policy +as it is installed" "policy test: no file" weft policy test --as "-t dgram"
for empty in "policy test" "policy test $work/site.yaml --as-file" "config show" "config lint $work/site.yaml --as"; do
  # shellcheck disable=SC2086
  says 2 "the name of a file is empty" "$empty: an empty name" weft $empty ""
done
says 0 "^chosen +tcp " "policy test: options end" weft policy test --as "-t msg" -- "$work/site.yaml"
says 1 "^udp +policy +rejected +udp is disabled" "policy test: a final key stands against FI_PROVIDER" \
  env FI_PROVIDER=udp "$bin/weft" policy test "$work/site.yaml"
site_rule() { echo "any(d['candidate'] == '$1' and d['accepted'] == $2 and d['rule'].endswith('site.yaml:$3') for d in j['programs'][0]['decisions'])"; }
json 1 "$(site_rule tcp False 5:7)" "policy test: another host" "${test_site[@]}" --as "-t msg" --host login7
json 0 "$(site_rule 'tcp;ofi_rxm' True 6:7) and j['programs'][0]['chosen']['stack'] == 'tcp;ofi_rxm'" "policy test: another program" \
  "${test_site[@]}" --as "-t rdm" --executable /opt/solver
json 0 "$(site_rule tcp True 7:7) and j['programs'][0]['chosen']['domain'] == 'lo'" "policy test: another interface" \
  "${test_site[@]}" --as "-t msg" --netdev lo=hsn0
json "[01]" "'lo' not in [o['domain'] for o in j['programs'][0]['offers'] if o['addresses'] != ['::1']]" "policy test: another network" \
  "${test_site[@]}" --as "-t msg -a sockaddr_in" --netdev lo=hsn0,10.77.0.1
says 2 "write it like eth0=ib0" "policy test: half an interface" weft policy test --netdev lo
says 2 '"10\.1" is no address: write it like' "policy test: no address" weft policy test --netdev lo=hsn0,10.1
says 2 "no file is read at $work/10.yaml: give one of /usr/share/weft/NAME.yaml, /etc/weft/NAME.yaml, $XDG_CONFIG_HOME/weft/weft.yaml" \
  "policy test: no place" weft policy test "$work/site.yaml" --as-file "$work/10.yaml"
says 2 "and no FILE: give the file" "policy test: a place and no file" weft policy test --as-file /etc/weft/10.yaml
says 2 "nothing.yaml: No such file" "policy test: no such file" weft policy test "$work/nothing.yaml"
says 2 "unknown endpoint type 'mgs': did you mean 'msg'" "policy test: a slip in hints" weft policy test --as "--ep mgs"
says 2 "hints 'rdm': .*write them as for .weft info.: --ep rdm" "policy test: no hints" weft policy test --as rdm
says 1 "3 errors: see .weft config lint --as /etc/weft/bad.yaml $work/bad.yaml." "policy test: a file with errors" weft policy test "$work/bad.yaml"
json 1 'j["errors"] == 3 and {d["line"] for d in j["diagnostics"]} == {2, 3}' "policy test: a file with errors, JSON" \
  weft policy test --json "$work/bad.yaml"

says 0 "warning: --netdev no-such0=hsn0: this machine has no interface no-such0" "policy test: an interface that is not here" \
  weft policy test "$work/site.yaml" --netdev no-such0=hsn0 --netdev lo=hsn1
[ "$(grep -c 'warning: --netdev' "$work/err")" = 1 ] || fail "policy test: an interface that is here: $(cat "$work/err")"
says "[01]" "weft policy diff: warning: --netdev no-such0=hsn0" "policy diff: an interface that is not here" \
  weft policy diff "$work/site.yaml" "$work/site.yaml" --netdev no-such0=hsn0

# The user's file is read behind the site's.
mine=$XDG_CONFIG_HOME/weft/weft.yaml
printf 'version: 1\nproviders: {enable: [tcp, udp]}\nparams: {tcp: {backlog: 77}}\n' >"$mine"
says 0 "^params\.tcp\.backlog +77 +$mine:3:16" "config show: a file that is not installed" weft config show --origin "$work/site.yaml"
says 0 "^  $work/site.yaml, read as /etc/weft/site.yaml$" "config show: where the file is read" weft config show --origin "$work/site.yaml"
says 0 "^params\.tcp\.backlog +99 +$work/site.yaml:9:16 +replaced at $mine:3:16" "config show: what has no effect" \
  weft config show --all "$work/site.yaml"
json 0 'any(v["key"] == "params.tcp.backlog" and v["value"] == "77" and v["origin"].endswith("weft.yaml:3:16") and v["how"] == "replaced" and
  v["by"] == "environment FI_TCP_BACKLOG" for v in j["overridden"])' "config show: what has no effect, JSON" \
  env FI_TCP_BACKLOG=55 "$bin/weft" config show --all --json
json 0 '"overridden" not in j' "config show: only with --all" weft config show --json
says 0 "^params\.tcp\.backlog +99999 +environment FI_TCP_BACKLOG +no value of this parameter: the value of $mine:3:16 counts" \
  "config show: what a declaration refuses" env FI_TCP_BACKLOG=99999 "$bin/weft" config show --all
says 0 "$mine:2:27: warning: udp stays disabled: $work/site.yaml:3:13 disables it, and providers.disable is final in $work/site.yaml:10:9" \
  "config lint: what a final key forbids to a later file" weft config lint --as /etc/weft/10-site.yaml "$work/site.yaml"
sed 's/^final.*/final: [params.tcp.backlgo, params.tcp, stacks.rdm]/' "$work/site.yaml" >"$work/finals.yaml"
json 1 '[(d["severity"], d["line"], d["column"]) for d in j["diagnostics"] if d["file"].endswith("finals.yaml")] == [("error", 10, 9), ("warning", 10, 41)]
  and "did you mean \"backlog\"" in str(j) and any("params.tcp.backlog is final" in d["text"] and d["line"] == 3 for d in j["diagnostics"])' \
  "config lint: final keys, JSON" weft config lint --json --as /etc/weft/10-site.yaml "$work/finals.yaml"
says 2 "^weft config lint: no file is read at /etc/10-site.yaml" "config lint: no place" weft config lint --as /etc/10-site.yaml "$work/site.yaml"
says 2 "and 2 files: give the one" "config lint: two files at one place" weft config lint --as /etc/weft/a.yaml "$work/site.yaml" "$work/mine.yaml"
rm "$mine"
# An /etc/weft of ours, with a file before and one behind the new one.
etc=()
if unshare --mount true 2>/dev/null; then
  mkdir -p "$work/etc" && cp -a /etc/. "$work/etc" 2>"$work/err" && rm -rf "$work/etc/weft" && mkdir "$work/etc/weft"
  printf 'version: 1\nplugins: {probe_budget_ms: 4000}\nfinal: [control]\n' >"$work/etc/weft/00-first.yaml"
  printf 'version: 1\nparams: {tcp: {backlog: 77}}\nproviders: {rank: [{match: {provider: tcp, netdev: hsn0}, rank: 1}]}\n' \
    >"$work/etc/weft/90-last.yaml"
  # shellcheck disable=SC2016
  etc=(unshare --mount sh -c 'mount --bind "$0" /etc && exec "$@"' "$work/etc")
  says 0 "site.yaml:9:16: warning: params.tcp.backlog has no effect: replaced at /etc/weft/90-last.yaml:2:16" \
    "config lint: what a later file overrides" "${etc[@]}" "$bin/weft" config lint --as /etc/weft/10-site.yaml "$work/site.yaml"
  grep -q "site.yaml:7:7: warning: providers.rank has no effect: the later rule at /etc/weft/90-last.yaml:3:20 has the same match" "$work/out" &&
    grep -q "^0 errors, 2 warnings in 1 file" "$work/out" && pass "config lint: a rule that has no effect" ||
    fail "config lint: a rule that has no effect: $(cat "$work/out")"
  says 0 "^0 errors, 0 warnings" "config lint: behind the others" \
    "${etc[@]}" "$bin/weft" config lint --as /etc/weft/99-site.yaml "$work/site.yaml"
  printf 'version: 1\ncontrol: allow\n' >"$work/control.yaml"
  says 0 "control.yaml:2:1: warning: control is final in /etc/weft/00-first.yaml:3:9" "config lint: what an earlier file forbids" \
    "${etc[@]}" "$bin/weft" config lint --as /etc/weft/99-site.yaml "$work/control.yaml"
  says 0 "^policy +$work/site.yaml, read as /etc/weft/90-last.yaml, in its place" "policy test: in the place of a file" \
    "${etc[@]}" "$bin/weft" policy test --as-file /etc/weft/90-last.yaml "$work/site.yaml"
  says 1 "^  - 77  \(/etc/weft/90-last.yaml:2:16\)" "policy diff: an installed file and the next" \
    "${etc[@]}" "$bin/weft" policy diff /etc/weft/90-last.yaml "$work/site.yaml"
  grep -q "^--- /etc/weft/90-last.yaml$" "$work/out" && grep -q "^+++ $work/site.yaml, read as /etc/weft/90-last.yaml$" "$work/out" ||
    fail "policy diff: an installed file and the next: $(cat "$work/out")"
else
  echo "skipped: an /etc/weft of ours"
fi

sed 's/disable: \[udp\]/disable: [tcp]/; s/backlog: 99/backlog: 4096/; s/, rank: 900/, rank: 901/' "$work/site.yaml" >"$work/other.yaml"
same_effect() { printf 'version: 1\n# Another place, the same effect.\n%s\n' "$(tail -n +2 "$work/site.yaml")"; }
same_effect >"$work/same.yaml"
says 0 "^no key has another value" "policy diff: the same effect" weft policy diff "$work/site.yaml" "$work/same.yaml"
says 1 "^  - 99  \($work/site.yaml:9:16\)" "policy diff: a value" weft policy diff "$work/site.yaml" "$work/other.yaml"
json 1 'not j["same"] and [(k["key"], [v["value"] for v in k["a"]], [v["value"] for v in k["b"]]) for k in j["keys"] if k["key"] != "providers.rank"] ==
  [("providers.disable", ["udp"], ["tcp"]), ("params.tcp.backlog", ["99"], ["4096"])] and j["keys"][1]["a"][0]["value"]["rank"] == 900' \
  "policy diff: JSON" weft policy diff --json "$work/site.yaml" "$work/other.yaml"
json 1 'j["a"] is None and j["as"] == "/etc/weft/site.yaml" and {"providers.disable", "final"} <= {k["key"] for k in j["keys"]} and
  all(k["a"] == [] for k in j["keys"] if k["key"] == "providers.disable")' "policy diff: with what is installed, JSON" weft policy diff --json "$work/site.yaml"
json 1 '[p["same"] for p in j["programs"]] == [False, True] and j["programs"][0]["a"]["chosen"]["stack"] == "tcp" and
  j["programs"][0]["b"]["chosen"] is None' "policy diff: programs, JSON" \
  weft policy diff --json "$work/site.yaml" "$work/other.yaml" --as "--ep msg -p tcp" --as "-p cxi --ep msg"
says 1 "^  now:    nothing: " "policy diff: programs" weft policy diff "$work/site.yaml" "$work/other.yaml" --as "--ep msg -p tcp"
cp "$work/bad.yaml" "$work/bad2.yaml"
says 2 "bad.yaml: unknown key .*see .weft config lint --as /etc/weft/bad.yaml" "policy diff: a file with errors" \
  weft policy diff "$work/site.yaml" "$work/bad.yaml"
says 2 "^$work/bad2.yaml: unknown key" "policy diff: two files with errors" weft policy diff "$work/bad.yaml" "$work/bad2.yaml"
grep -q "^weft policy diff: $work/bad.yaml: unknown key" "$work/err" || fail "policy diff: two files with errors: $(cat "$work/err")"
says 2 "FILE is required" "policy diff: no file" weft policy diff
says 2 "^weft policy diff: no file is read at" "policy diff: no place" weft policy diff --as-file /a.yaml "$work/site.yaml"

# Other words for the same: types, either name of a unit, an order that means nothing, a rule that has no effect.
cat >"$work/words.yaml" <<'YAML'
version: 1
providers:
  enable: [tcp, udp]
  disable: [rxd, cxi]
  rank:
    - {match: {provider: "tcp;rxm", subnet: "fd00::/8"}, rank: 7}
params: {rxm: {buffer_size: 8K, use_rndv_write: yes}, tcp: {backlog: 99}}
stacks: {mine: [{layer: rxm, params: {buffer_size: 4K}}, {provider: tcp}]}
plugins: {path: [/opt/none]}
final: [params.rxm.buffer_size, control]
YAML
cat >"$work/more-words.yaml" <<'YAML'
version: 1
providers:
  enable: [udp, tcp]
  disable: [cxi, ofi_rxd]
  rank:
    - {match: {provider: "tcp;ofi_rxm", subnet: "fd00:0::/8"}, rank: 3}
    - {match: {provider: "tcp;ofi_rxm", subnet: "fd00:0::/8"}, rank: 7}
params: {ofi_rxm: {buffer_size: 8192, use_rndv_write: on, sar_limit: 64K}, tcp: {backlog: 0x63}}
stacks: {mine: [{layer: ofi_rxm, params: {buffer_size: 4096}, on_unavailable: fail}, {provider: tcp}]}
plugins: {path: [/opt/none/]}
final: [control, params.ofi_rxm.buffer_size]
YAML
says 0 "^no key has another value" "policy diff: other words for the same" weft policy diff "$work/words.yaml" "$work/more-words.yaml"
sed 's/rank: 7}/rank: 7}\n    - {match: {provider: udp}, rank: 1}/' "$work/words.yaml" >"$work/order.yaml"
sed 's/^    - {match: {provider: "tcp/    - {match: {provider: udp}, rank: 1}\n&/' "$work/words.yaml" >"$work/order2.yaml"
says 1 "the same, in another order" "policy diff: an order that counts" weft policy diff "$work/order.yaml" "$work/order2.yaml"
sed 's/backlog: 99/backlog: 99999/' "$work/words.yaml" >"$work/refused.yaml"
says 1 "weft policy diff: $work/refused.yaml: 1 error: see .weft config lint --as /etc/weft/refused.yaml $work/refused.yaml." \
  "policy diff: errors in values" weft policy diff "$work/refused.yaml" "$work/refused.yaml"
json 1 'j["same"] and j["errors"] == 2 and ["99999" in str(j["diagnostics"][side]) for side in "ab"] == [True, True]' \
  "policy diff: errors in values, JSON" weft policy diff --json "$work/refused.yaml" "$work/refused.yaml"

# Text of a variable or a file makes no line of the log.
run 0 "a newline in a variable" env FI_CONFIG=$'/gone\nlibfabric: a lie' "$bin/fi_info" -p tcp
grep -q "there is no file /gone libfabric: a lie" "$work/err" && pass "a newline in a variable" ||
  fail "a newline in a variable: $(cat "$work/err")"

# A command that is ended takes its children with it. They cannot end by themselves here.
{
  printf 'version: 1\nproviders:\n  rank:\n'
  for ((i = 0; i < 20000; i++)); do echo "    - {match: {provider: nm$i}, rank: 1}"; done
} >"$work/long.yaml"
for words in "policy diff" "config lint"; do
  # shellcheck disable=SC2086
  run 0 "'$words' ends with its children" env FI_CONFIG="$work/long.yaml" \
    python3 "$(dirname "$0")/testdata/end_command.py" "$bin/weft" $words "$work/site.yaml" &&
    pass "'$words' ends with its children"
done

# --- plugin ----------------------------------------------------------------------------------------

says 0 "^tcp .*1\.0 +tcp +provider +stable +robust +selected +$lib/weft/tcp\.so" "plugin list" weft plugin list
says 0 "connect_timeout_ms \(int 0\.\.86400000, default 30000\)" "plugin list: parameters" weft plugin list -v
json 0 'j["plugins"][0]["units"] and any(u["name"] == "tcp" and u["state"] == "selected" and u["params"]
  for p in j["plugins"] for u in p["units"])' "plugin list: JSON" weft plugin list --json
json 0 'any(u["name"] == "tcp" and u["state"] == "disabled" and "off.yaml" in u["state_reason"]
  for p in j["plugins"] for u in p["units"])' "plugin list: disabled" env FI_CONFIG="$work/off.yaml" "$bin/weft" plugin list --json

# With clang's sanitizers a plugin needs symbols of the program that loads it, which is a fault in any other build.
if grep -qa __asan_init "$lib/weft/tcp.so" && ! ldd "$lib/weft/tcp.so" | grep -q asan; then
  echo "skipped: plugin check of a plugin with a sanitizer in the program"
else
  says 0 "^a good plugin" "plugin check: a good one" weft plugin check "$lib/weft/tcp.so"
  json 0 'j["good"] and j["plugin"]["abi"] == "1.0" and j["plugin"]["units"][0]["name"] == "tcp"
    and {f["check"] for f in j["findings"]} == {"symbols", "libraries", "linking", "descriptor", "probe"}' \
    "plugin check: JSON" weft plugin check "$lib/weft/tcp.so" --json
fi
json 1 'not j["good"] and {f["check"] for f in j["findings"] if not f["good"]} == {"symbols", "libraries", "linking", "probe"}
  and "an_extra_symbol" in str(j) and "defined_nowhere" in str(j) and "libprotobuf.so.99" in str(j)
  and all(f["remedy"] for f in j["findings"] if not f["good"])' "plugin check: wrong in four ways" \
  weft plugin check --json "$odd/extra.so"
echo "not a library" >"$work/text.so"
says 1 "is no ELF file" "plugin check: a text" weft plugin check "$work/text.so"
head -c 5000 "$lib/weft/tcp.so" >"$work/short.so"
says 1 "not a good plugin" "plugin check: a file cut short" weft plugin check "$work/short.so"
says 2 "there is no such file" "plugin check: no file" weft plugin check "$work/nothing.so"
says 1 "file +FAIL" "plugin check: a folder" weft plugin check "$work"

# What a plugin passes and fails. examples/vendor_test.sh has a provider with faults.
if grep -qa __asan_init "$lib/weft/tcp.so" && ! ldd "$lib/weft/tcp.so" | grep -q asan; then
  echo "skipped: plugin test of a plugin with a sanitizer in the program"
else
  printf 'version: 1\nproviders: {rank: [{match: {provider: tcp}, enable: false}]}\n' >"$work/no-tcp.yaml"
  says 0 "^  provider tcp +messages go both ways +passed +msg up to 65536 bytes; rdm" "plugin test: a good one" \
    env FI_PROVIDER=^tcp FI_CONFIG="$work/no-tcp.yaml" "$bin/weft" plugin test "$lib/weft/tcp.so"
  # FI_PROVIDER lifts a disable, but no rule.
  cp "$work/no-tcp.yaml" "$XDG_CONFIG_HOME/weft/weft.yaml"
  says 1 "^  provider tcp +at least one trial +failed +nothing of this unit could be tried" "plugin test: nothing was tried" \
    weft plugin test "$lib/weft/tcp.so"
  rm "$XDG_CONFIG_HOME/weft/weft.yaml"
  json 0 'j["good"] and j["failed"] == 0 and j["passed"] > 15 and all(r["remedy"] == "" for r in j["rows"])
    and any(r["subject"] == "layer rxm over tcp" and r["check"] == "remote writes and reads" and r["result"] == "passed" for r in j["rows"])
    and any(r["subject"].endswith(" beneath") for r in j["rows"])' \
    "plugin test: a layer, JSON" weft plugin test "$lib/weft/rxm.so" --json -
  run 0 "plugin test: a hook" weft plugin test "$lib/weft/hook-trace.so" --junit "$work/trace.xml" && {
    if grep -q '<testsuite name="[^"]*hook-trace.so" tests="[0-9]*" failures="0"' "$work/trace.xml" &&
      grep -q 'classname="hook trace on tcp beneath profile" name="messages go under the hook"/>' "$work/trace.xml"; then
      pass "plugin test: a hook, JUnit"
    else
      fail "plugin test: a hook, JUnit: $(cat "$work/trace.xml")"
    fi
  }
fi
json 1 'not j["good"] and [r["check"] for r in j["rows"] if r["result"] == "failed"] == ["probe"] and j["not_checked"] == 1' \
  "plugin test: one that aborts" weft plugin test "$odd/aborts.so" --json -
says 0 "tried again" "plugin test: out of the quarantine" weft plugin quarantine --clear "$odd/aborts.so"
says 1 "^  file +file +failed +.*is no ELF file" "plugin test: a text" weft plugin test "$work/text.so"
says 2 "there is no such file" "plugin test: no file" weft plugin test "$work/nothing.so"
says 2 "FILE is required" "plugin test: the file for JSON in place of the plugin" weft plugin test --json "$work/text.so"
says 2 "^weft plugin test: --over: no provider .tpc.: did you mean 'tcp'" "plugin test: a slip in --over" \
  weft plugin test "$lib/weft/rxm.so" --over tpc
cp "$lib/weft/tcp.so" "$work/copy.so"
says 2 "$work/copy.so is a program or a library: give another file" "plugin test: the file for JSON is a plugin" \
  weft plugin test --json "$work/copy.so" "$lib/weft/tcp.so"
cmp -s "$lib/weft/tcp.so" "$work/copy.so" || fail "plugin test: it wrote JSON into a plugin"
says 2 "cannot both go to stdout" "plugin test: two reports to stdout" weft plugin test "$lib/weft/tcp.so" --json - --junit -
mkdir "$work/a:b" && cp "$work/copy.so" "$work/a:b/tcp.so"
says 2 "a folder with a colon: copy the plugin" "plugin test: a folder with a colon" weft plugin test "$work/a:b/tcp.so"
says 2 "/dev/full cannot be written" "plugin test: a report into a full disk" weft plugin test "$work/text.so" --json /dev/full

# A new plugin. examples/vendor_test.sh builds what is written here.
for kind in provider layer hook; do
  says 0 "^wrote $work/new-$kind: " "plugin new: $kind" weft plugin new $kind frob --folder "$work/new-$kind"
done
json 0 'j["folder"].endswith("/below/x") and "src/hook_x.cc" in j["files"]' "plugin new: JSON" \
  weft plugin new hook x --folder "$work/below/x" --json
says 0 "^  cd '$work/below/it'.''s'" "plugin new: a slash at the end, and a folder that a shell would read" \
  weft plugin new hook x --folder "$work/below/it's/"
says 2 "$work/new-hook is there already: choose another folder with --folder" "plugin new: a folder that is there" \
  weft plugin new hook frob --folder "$work/new-hook"
says 2 "no template for a 'hok': did you mean 'hook'" "plugin new: a slip in the kind" weft plugin new hok frob
says 2 "no template for a 'banana': there are provider, layer, hook" "plugin new: an unknown kind" weft plugin new banana frob
says 2 "'Frob' can be no name of a unit: take a-z" "plugin new: a name that no unit can have" weft plugin new hook Frob
says 2 "$lib/weft/tcp\.so has a unit of the name tcp already" "plugin new: a name that is taken" weft plugin new provider tcp
says 2 "can be no name of a vendor" "plugin new: a vendor that no package can have" weft plugin new hook frob --vendor 'a"b'
mkdir -p "$work/forms/common" "$work/forms/example"
# form REASON JSON...: a template that is wrong writes nothing.
form() {
  local reason=$1
  shift
  [ $# = 0 ] || printf '%s' "$1" >"$work/forms/hook.json"
  says 2 "$reason" "plugin new: a template: $reason" weft plugin new hook frob --templates "$work/forms" --folder "$work/never"
  [ ! -e "$work/never" ] || fail "plugin new: a template: $reason: it left a folder"
}
form "there is no $work/forms/hook.json: install the SDK"
form "is no object in JSON" '['
form 'has no "files"' '{"plugin": "x"}'
form "no value for the placeholder @nmae@" '{"plugin": "@nmae@", "files": {}, "words": {}}'
form "the template leaves its folder" '{"plugin": "x", "folder": "example", "files": {"../../text.so": "x"}, "words": {}}'
form "the template leaves its folder" '{"plugin": "x", "folder": "example", "files": {"x": "/tmp/x"}, "words": {}}'
form "example/x cannot be read" '{"plugin": "x", "folder": "example", "files": {"x": "y"}, "words": {}}'
form "which is no text" '{"plugin": "x", "folder": "example", "files": {"x": 1}, "words": {}}'

says 0 "no plugin is in quarantine" "quarantine: empty" weft plugin quarantine
json 1 'j["plugin"]["verdict"] == "quarantined" and j["plugin"]["stage"] == "dlopen"' "plugin check: one that aborts" \
  weft plugin check --json "$odd/aborts.so"
says 0 "^$odd/aborts\.so +dlopen " "quarantine: list" weft plugin quarantine
json 0 'len(j) == 1 and j[0]["library"].endswith("aborts.so") and "signal 6" in j[0]["reason"]' "quarantine: JSON" \
  weft plugin quarantine --json
says 2 "did you mean '$odd/aborts.so'" "quarantine: clear with a slip" weft plugin quarantine --clear "$odd/abort.so"
says 0 "tried again" "quarantine: clear" weft plugin quarantine --clear "$odd/aborts.so"
json 0 'j == []' "quarantine: cleared" weft plugin quarantine --json
says 2 "is not in quarantine" "quarantine: clear again" weft plugin quarantine --clear "$odd/aborts.so"

# The application goes on while a folder holds a plugin that aborts. The list and the doctor report it.
mkdir "$work/more"
cp "$odd/aborts.so" "$work/more"
export FI_PROVIDER_PATH=$work/more
says 0 "^tcp +selected" "a plugin that aborts: tcp goes on" weft why
json 0 'any(p["library"].endswith("aborts.so") and p["state"] == "quarantined" for p in j["plugins"]) or
  any("aborts.so" in t["rule"] for t in j["troubles"])' "a plugin that aborts: plugin list" weft plugin list --json
says 0 "$work/more/aborts\.so" "a plugin that aborts: quarantine" weft plugin quarantine
json "1|2" 'any(f["check"] == "quarantine" and f["state"] == "WARN" and "aborts.so" in f["finding"] for f in j["findings"])' \
  "a plugin that aborts: doctor" weft doctor --json
unset FI_PROVIDER_PATH

# --- refresh ---------------------------------------------------------------------------------------

mkdir -p "$work/site/plugins.d"
cp "$lib/weft/tcp.so" "$work/site"
cp "$lib/weft/plugins.d/tcp.yaml" "$work/site/plugins.d"
export FI_PROVIDER_PATH=$work/site
site_finding() { echo "next(f for f in j['findings'] if f['finding'].startswith('$work/site'))"; }
json "1|2" "$(site_finding)['state'] == 'WARN' and 'weft plugin refresh' in $(site_finding)['remedy']" \
  "doctor: no index" weft doctor --json
says 0 "^wrote $work/site/plugins\.idx" "refresh" weft plugin refresh "$work/site"
json "[012]" "$(site_finding)['state'] == 'OK'" "doctor: fresh index" weft doctor --json
cp "$lib/weft/plugins.d/tcp.yaml" "$work/site/plugins.d/another.yaml"
touch -d '2001-01-01' "$work/site/plugins.d"
json "1|2" "$(site_finding)['state'] == 'WARN' and 'older' in $(site_finding)['finding']" "doctor: stale index" weft doctor --json
rm "$work/site/plugins.d/another.yaml"
echo nonsense >"$work/site/plugins.idx"
json "1|2" "$(site_finding)['state'] == 'WARN' and 'damaged' in $(site_finding)['finding']" "doctor: damaged index" \
  weft doctor --json
json 0 'j == [{"folder": "'"$work/site"'", "written": True, "troubles": ""}]' "refresh: JSON" \
  weft plugin refresh --json "$work/site"
chmod o+w "$work/site"
json 2 "$(site_finding)['state'] == 'FAIL' and $(site_finding)['remedy'].startswith('chmod o-w')" \
  "doctor: a folder that everybody can write to" weft doctor --json
says 0 "the folder $work/site was refused: .*everybody can write" "why: a name that may be in a refused folder" weft why frob
unset FI_PROVIDER_PATH
says 1 "is not a folder" "refresh: no folder" weft plugin refresh "$work/nowhere"

# --- doctor ----------------------------------------------------------------------------------------

json "[012]" 'j["worst"] == max((f["state"] for f in j["findings"]), key=["OK", "WARN", "FAIL"].index)
  and {"open files", "net.core.somaxconn", "net.ipv4.tcp_max_syn_backlog", "net.ipv4.ip_local_port_range", "interfaces",
       "plugin folder", "quarantine", "configuration"} <= {f["check"] for f in j["findings"]}
  and all(f["state"] == "OK" or f["remedy"] for f in j["findings"])' "doctor: JSON" weft doctor --json
# The site's file of README.md, on a host without such interfaces: whatever else answers, that is told once, and the doctor fails.
# shellcheck disable=SC2016
sed -n '/^# .*10-site.yaml/,/^```/p' "$(dirname "$0")/../../README.md" | grep -v '```' >"$work/readme.yaml"
if ! ls -d /sys/class/net/hsn* >"$work/out" 2>&1; then
  for setting in LANG=C FI_PROVIDER=tcp FI_PROVIDER=^udp; do
    run "0|61" "a site without its interfaces" env FI_CONFIG="$work/readme.yaml" "$setting" "$bin/fi_info"
    if [ "$(grep -c "tcp: the filter hsn\*,!docker\* matches no interface .*readme.yaml:[0-9]*:[0-9]*): tcp is left out" "$work/err")" = 1 ] &&
      [ "$(grep -c tcp "$work/err")" = 1 ]; then
      pass "a site without its interfaces is told once, $setting"
    else
      fail "a site without its interfaces, $setting: $(cat "$work/err")"
    fi
  done
  json 2 'any(f["state"] == "FAIL" and f["check"] == "provider tcp" and "hsn" in f["cause"] for f in j["findings"])' \
    "doctor: a site without its interfaces" env FI_CONFIG="$work/readme.yaml" "$bin/weft" doctor --json
fi
few_files() { (ulimit -n "$1" && weft doctor "${@:2}"); }
json "1|2" 'any(f["check"] == "open files" and f["state"] == "FAIL" and "nofile" in f["remedy"] for f in j["findings"])' \
  "doctor: few descriptors" few_files 128 --json --ranks 1000
says "1|2" "remedy: ulimit -n|remedy: as root: echo '\* - nofile" "doctor: text" few_files 128 --ranks 1000
says 2 "ranks" "doctor: nonsense" weft doctor --ranks 0

# --- plain where there is no terminal, emphasized where there is one -----------------------------------

for words in info why "why tcp" explain "plugin list" "config show" doctor; do
  # shellcheck disable=SC2086
  run "[012]" "plain: $words" env TERM=xterm "$bin/weft" $words || continue
  if grep -q $'\033' "$work/out"; then fail "plain: $words"; else pass "plain: $words"; fi
done
run 0 "terminal" env TERM=xterm python3 -c 'import pty, sys; sys.exit(pty.spawn([sys.argv[1], "why"]) >> 8)' "$bin/weft" && {
  if grep -q $'\033\[1m' "$work/out"; then pass "terminal"; else fail "terminal: nothing is emphasized"; fi
}

# An answer that cannot be written whole is none.
for command in "info --json" why explain "config show" doctor "plugin list" "hook ls" stats "plugin list --help" "top --version" "exporter --help"; do
  # shellcheck disable=SC2086
  says 2 "weft $(grep -o "^[a-z ]*[a-z]" <<<"$command"): the output is not complete: No space left" "'$command' into a full disk" \
    bash -c 'exec "$@" >/dev/full' bash "$bin/weft" $command
done
# One that nobody reads ends the command as it does any program, in silence.
run 0 "'info' into a pipe without a reader" python3 -c 'import os, subprocess, sys
reader, writer = os.pipe()
os.close(reader)
done = subprocess.run(sys.argv[1:], stdout=writer, stderr=subprocess.PIPE)
sys.exit((done.returncode, done.stderr) != (-13, b"") and f"{done.returncode}: {done.stderr}")' "$bin/weft" info &&
  pass "'info' into a pipe without a reader"
says 2 "PID: Value -5 not in range" "a PID below 1" weft hook ls -- -5

# A libfabric that is not weft is reported.
stock=$(ldconfig -p | awk '$1 == "libfabric.so.1" { print $NF; exit }')
if [ -n "$stock" ]; then
  # One that is too old for the program is refused by the dynamic linker, and in as clear words.
  says "[12]" "that is not weft's.*LD_LIBRARY_PATH|$stock: version .FABRIC_.* not found" "a stock libfabric" \
    env LD_LIBRARY_PATH="$(dirname "$stock")" "$bin/weft" explain
else
  echo "skipped: there is no stock libfabric"
fi

if [ $failures != 0 ]; then
  echo "$failures failed"
  exit 1
fi
echo "all passed"
