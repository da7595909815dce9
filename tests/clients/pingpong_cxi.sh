#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# pingpong_cxi.sh LIB_DIR: Debian's unmodified fi_pingpong (package libfabric-bin) between two processes on a NIC in software of cxi,
# on the library in LIB_DIR: every size, data checked. Run it in a network of its own (tests/own_network): fi_pingpong meets its peer
# at a port that others may have. Exits 77 (not run) where the program cannot be had.

set -u
[ $# = 1 ] || { echo "usage: pingpong_cxi.sh LIB_DIR"; exit 2; }
weft_lib=$(realpath "$1") || exit 2
here=$(dirname "$(realpath "$0")")
# shellcheck source=tests/interop/programs.sh
. "$here/../interop/programs.sh"
require_debian fi_pingpong
mkdir -m 700 "$work/run"
export WEFT_RUNTIME_DIR=$work/run # processes of other tests would share the NICs
for nic in cxi0 cxi1; do
  pingpong "$nic, all sizes" weft weft 46 127.0.0.1 -p cxi -d $nic -e rdm -S all -c -I 3
  pingpong "$nic, one size, many messages" weft weft 1 127.0.0.1 -p cxi -d $nic -e rdm -S 777 -c -I 500
done
conclude
