#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# mpi_hosts.sh LIB_DIR MPI_SUM MPI_CLIENT: Debian's Open MPI with a rank on each of two hosts, over the library in LIB_DIR: with weft's
# defaults, and with what README.md says an MPI user has to set. A run is right, or it is refused; it never ends well with wrong sums.
# And with two ranks on each host, of which those of one host talk through memory (FI_LINK=shm).
# Exits 77 (not run) where there are no namespaces, or no Open MPI.

set -u
# What Open MPI starts in place of ssh: AGENT HOST COMMAND... The other host reads commands from a pipe.
if [ "${1:-}" = --agent ]; then
  shift 2
  printf '%s\n' "$*" >"$MPI_HOSTS_PIPE"
  exit
fi
self=$(realpath "$0")
weft_lib=$(realpath "${1:?usage: mpi_hosts.sh LIB_DIR MPI_SUM}") || exit 2
program=$(realpath "${2:?}") || exit 2
client=$(realpath "${3:?}") || exit 2
here=$(dirname "$self")
# shellcheck source=tests/interop/programs.sh
. "$here/../interop/programs.sh"
# shellcheck source=tests/hosts/hosts.sh
. "$here/hosts.sh"
command -v mpirun >/dev/null || skip "no mpirun (package openmpi-bin)"
make_hosts 10.83.0.1/24 10.83.0.2/24

mkfifo "$work/pipe" && exec 9<>"$work/pipe"
mkdir "$work/tmp-h1" "$work/tmp-h2" "$work/home"
common=(-u LD_LIBRARY_PATH PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME="$work/home" XDG_CONFIG_HOME="$work/home"
  XDG_CACHE_HOME="$work/home" MPI_HOSTS_PIPE="$work/pipe")
# shellcheck disable=SC2016
on_host $right h2 env "${common[@]}" TMPDIR="$work/tmp-h2" sh -c 'while read -r line; do sh -c "$line" </dev/null & done' <"$work/pipe" >"$work/h2" 2>&1 &
started+=($!)

# mpi OPTIONS...: sets status; what is printed is in $work/out.
hosts=10.83.0.1,10.83.0.2 ranks=2 command=("$program")
mpi() {
  status=0
  on_host $left h1 env "${common[@]}" TMPDIR="$work/tmp-h1" mpirun --allow-run-as-root --mca plm_rsh_agent "$self --agent" \
    --mca oob_tcp_if_include wire0 --mca btl_tcp_if_include wire0 --mca btl_base_warn_component_unused 0 \
    --host "$hosts" -np "$ranks" -x LD_LIBRARY_PATH="$weft_lib" -x PATH -x HOME -x XDG_CONFIG_HOME -x XDG_CACHE_HOME "$@" \
    "${command[@]}" >"$work/out" 2>&1 </dev/null || status=$?
}
show() { grep -v '^ *$' "$work/out" | sed 's/^/    /' | tail -25; }
is_right() { [ $status = 0 ] && [ "$(grep -c 'rank . of 2 right' "$work/out")" = 2 ]; }
is_wrong() { grep -q wrong "$work/out" || { [ $status = 0 ] && ! is_right; }; }

# right NAME OPTIONS...
right() {
  mpi "${@:2}"
  if is_right; then pass "$1: right sums"; else fail "$1: status $status"; show; fi
}
# refused NAME TEXT OPTIONS...: and the user hears why.
refused() {
  mpi "${@:3}"
  if is_wrong || is_right || ! grep -q -- "$2" "$work/out"; then
    fail "$1: status $status"
    show
  else
    pass "$1: refused, status $status"
  fi
}
# never_wrong NAME OPTIONS...
never_wrong() {
  mpi "${@:2}"
  if is_wrong; then
    fail "$1: wrong sums, status $status"
    show
  elif is_right; then
    pass "$1: right sums"
  else
    pass "$1: refused, status $status"
  fi
}
# near NAME OPTIONS...: all data are right, and plugins on the first host count messages of both ways.
cat >"$work/counts" <<COUNTS
#!/bin/sh
LD_LIBRARY_PATH='$weft_lib' exec '$weft_lib/../bin/weft-stats' --all --json
COUNTS
chmod +x "$work/counts"
near() {
  local ways
  rm -rf "$work/accounts" && mkdir "$work/accounts"
  hosts=10.83.0.1:2,10.83.0.2:2 ranks=4 command=("$client" p2p collectives --quick)
  mpi "${@:2}" -x FI_LINK=shm -x WEFT_CLIENTS_ACCOUNTS="$work/accounts" -x WEFT_CLIENTS_COUNTS="$work/counts"
  hosts=10.83.0.1,10.83.0.2 ranks=2 command=("$program")
  ways=$(python3 - "$work/accounts/counts" <<'PYTHON'
import json, sys
sent = {"sent_local": 0, "sent_network": 0}
for fabric in json.load(open(sys.argv[1]))["counters"]:
    for counter in fabric["counters"] if fabric["element"] == "link" else []:
        if counter["name"] in sent:
            sent[counter["name"]] += counter["value"]
print(f"{sent['sent_local']} messages through memory, {sent['sent_network']} by the network")
sys.exit(0 in sent.values())
PYTHON
  ) 2>"$work/python" && [ $status = 0 ] && pass "$1: $ways" || { fail "$1: status $status: $ways"; show; }
}
ofi=(--mca pml cm --mca mtl ofi)
right "mpirun, without an option"
never_wrong "pml cm, mtl ofi" "${ofi[@]}"
right "tcp" "${ofi[@]}" --mca mtl_ofi_provider_include tcp
right "tcp, from the environment" "${ofi[@]}" --mca mtl_ofi_provider_exclude none -x FI_PROVIDER=tcp
near "tcp, four ranks" "${ofi[@]}" --mca mtl_ofi_provider_include tcp -x FI_PROVIDER=^ofi_rxm
near "tcp;ofi_rxm, four ranks" "${ofi[@]}" --mca mtl_ofi_provider_include "tcp;ofi_rxm"
right "tcp;ofi_rxm" "${ofi[@]}" --mca mtl_ofi_provider_include "tcp;ofi_rxm"
right "udp;ofi_rxd" "${ofi[@]}" --mca mtl_ofi_provider_include "udp;ofi_rxd"
refused "cxi within a host" "reaches this one alone" "${ofi[@]}" -x FI_PROVIDER=cxi
right "cxi in a network" "${ofi[@]}" -x FI_PROVIDER=cxi -x FI_CXI_SOFT_DEVICES=cxi0=wire0
exec 9>&-
conclude
