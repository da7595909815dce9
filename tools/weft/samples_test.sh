#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# samples_test.sh BIN_DIR LIB_DIR SAMPLES: each file of SAMPLES passes `weft config lint` at its place without a word, and `weft
# policy test` says what its comments say. Run it in a network namespace of its own (tests/own_network): it makes interfaces there.
set -euo pipefail
bin=${1:?usage: samples_test.sh BIN_DIR LIB_DIR SAMPLES} lib=${2:?} samples=${3:?}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
unset "${!FI_@}"
mkdir "$tmp/runtime" && chmod 700 "$tmp/runtime"
export LD_LIBRARY_PATH=$lib HOME=$tmp XDG_CONFIG_HOME=$tmp/config XDG_CACHE_HOME=$tmp WEFT_RUNTIME_DIR=$tmp/runtime
fail() { echo "samples_test: $*"; exit 1; }

# The interfaces of all the sites, where there are no others.
if [ -n "$(ip -o addr show | awk '$2 != "lo"')" ]; then
  echo "skipped: this is no network namespace of ours"
  exit 77
fi
subnet=0
for name in eth0 eth1 ib0 hsn0 wl0 docker0 br-1; do
  subnet=$((subnet + 1))
  if ! { ip link add "$name" type veth peer name "peer$subnet" && ip link set "$name" addrgenmode none &&
    ip link set "peer$subnet" addrgenmode none up && ip addr add "10.250.$subnet.2/24" dev "$name" && ip link set "$name" up; } \
    >"$tmp/out" 2>&1; then
    echo "skipped: no interfaces can be made: $(cat "$tmp/out")"
    exit 77
  fi
done

# sample FILE PLACE EXPRESSION ARGUMENTS...: for what `weft policy test FILE --json ARGUMENTS` prints, the Python expression holds. In it
# `domains` are those that the first program gets, best first, and why(NAME) is what stopped a candidate.
tested=" "
sample() {
  local file=$1 place=$2 expression=$3 status=0
  shift 3
  tested+="$file "
  timeout 60 "$bin/weft" config lint --as "$place" "$samples/$file" >"$tmp/out" 2>&1 || fail "$file: $(cat "$tmp/out")"
  [ "$(cat "$tmp/out")" = "0 errors, 0 warnings in 1 file" ] || fail "$file: $(cat "$tmp/out")"
  timeout 60 "$bin/weft" policy test "$samples/$file" --as-file "$place" --json "$@" >"$tmp/out" 2>"$tmp/err" || status=$?
  [ $status -le 1 ] && [ ! -s "$tmp/err" ] || fail "$file $*: status $status: $(cat "$tmp/err")"
  python3 - "$tmp/out" "$expression" "$place" <<'PYTHON' || fail "$file $*: not so: $expression: $(cat "$tmp/out")"
import json, sys
j = json.load(open(sys.argv[1]))
first = j["programs"][0]
chosen, offers = first["chosen"], first["offers"]
domains = list(dict.fromkeys(o["domain"] for o in offers))
def why(name):
    return [d for d in first["decisions"] if d["candidate"] == name and not d["accepted"]][-1]
sys.exit(not (j["as"] == sys.argv[3] and j["errors"] == 0 and eval("(" + sys.argv[2] + ")", globals())))
PYTHON
  echo "passed: $file $*"
}

site=/etc/weft/10-site.yaml user=$tmp/config/weft/weft.yaml
sample laptop.yaml "$user" 'domains[0] == "lo" and [o["domain"] for o in offers if o["stack"] == "tcp"][-1] == "wl0" and "docker0" not in domains and chosen["reason"].endswith("peers of this host through memory, rank 700")' \
  --as "--ep rdm"
sample laptop.yaml "$site" '"not in providers.enable" in why("cxi")["reason"] and offers == []' --as "--ep rdm -p cxi"
sample ethernet.yaml "$site" 'domains[0] == "eth1" and "eth0" in domains and "docker0" not in domains and ":15:" in chosen["rule"]' --as "--ep rdm"
sample ethernet.yaml "$site" 'offers == [] and "udp is disabled" in why("udp")["reason"]' --as "--ep dgram"
sample infiniband.yaml "$site" 'chosen["stack"] == "tcp;ofi_rxm" and domains == ["ib0", "eth0", "eth1", "shm"] and why("verbs;ofi_rxm")["stage"] in ("policy", "device", "dlopen", "getinfo", "hints")' \
  --as "--ep rdm"
sample infiniband.yaml "$site" 'why("verbs")["stage"] != "manifest" and "docker0" not in domains' --host login3
sample slingshot.yaml "$site" 'domains[0] == "hsn0" and "eth0" in domains and offers[0]["stack"] == "tcp" and why("cxi")' --as "--ep rdm"
sample slingshot.yaml "$site" 'domains[0] == "hsn0" and ":18:" in chosen["rule"]' --as "--ep msg"
sample slingshot.yaml "$site" 'why("cxi")["stage"] == "policy" and ":21:" in why("cxi")["rule"]' --host login2
sample containers.yaml "$site" '{"eth0", "lo"} <= set(domains) and not {"docker0", "br-1"} & set(domains)' --as "--ep rdm"
# As FI_CONFIG of one user, for one run.
sample debug.yaml "$user" 'chosen["stack"] == "tcp;ofi_rxm" and chosen["rule"] == "stack traced"' --as "--ep rdm"
sample debug.yaml "$user" 'chosen["reason"].endswith("rank 1000") and ":27:" in chosen["rule"]' --as "--ep msg" --executable /home/me/solver

for path in "$samples"/*.yaml; do
  [[ $tested == *" ${path##*/} "* ]] || fail "${path##*/} is not tested"
done
echo "all passed"
