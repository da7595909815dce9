#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# fabtests_cxi.sh FABTESTS_BIN LIB_DIR: the RDM benchmarks of an installed fabtests over a NIC in software, as fi_cxi(7) says that they are
# run: with PIDs (-B, -P) and the name of a NIC. tests/interop/fabtests is for providers with IP addresses.

set -u
[ $# = 2 ] || { echo "usage: fabtests_cxi.sh FABTESTS_BIN LIB_DIR"; exit 2; }
bin=$(realpath "$1") && lib=$(realpath "$2") || exit 2
[ -x "$bin/fi_rdm_tagged_pingpong" ] || { echo "no fi_rdm_tagged_pingpong in $bin: install fabtests"; exit 77; }
work=$(mktemp -d) && mkdir -m 700 "$work/run" || exit 2
trap 'rm -rf "$work"' EXIT
export LD_LIBRARY_PATH=$lib WEFT_RUNTIME_DIR=$work/run
failed=0

# run PROGRAM [ARGUMENT...]: a server at PID 10 of cxi0, and a client that says the NIC and the PID.
run() {
  local program=$1 server client=1 result
  shift
  [ -x "$bin/$program" ] || { echo "skip $program: it is not there"; return; }
  timeout 120 "$bin/$program" -p cxi -I 20 "$@" -B 10 -s cxi0 >"$work/server" 2>&1 &
  server=$!
  # A client that finds no server yet fails, and nothing has reached anybody.
  for _ in $(seq 50); do
    timeout 120 "$bin/$program" -p cxi -I 20 "$@" -P 10 cxi0 >"$work/client" 2>&1
    client=$?
    if [ $client = 0 ] || ! kill -0 $server 2>"$work/none"; then
      break
    fi
  done
  wait $server
  result=$?
  if [ $client = 0 ] && [ $result = 0 ]; then
    echo "ok   $program $*"
  else
    echo "FAIL $program $*: server $result, client $client"
    sed 's/^/    /' "$work/server" "$work/client"
    failed=1
  fi
}

for program in fi_rdm_pingpong fi_rdm_tagged_pingpong fi_rdm_cntr_pingpong fi_rdm_tagged_bw fi_rdm_bw; do
  run $program
done
for operation in write read writedata; do
  run fi_rma_bw -e rdm -o $operation
done
run fi_rma_pingpong -e rdm -o writedata
exit $failed
