#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# cxi_mpi.sh LIB_DIR RUN_MPI MPI_CLIENT PARTS...: Open MPI over cxi with four ranks, two on each of two hosts: ranks of a host share a
# runtime folder and a NIC, and reach those of the other one by TCP. Both hosts are in one network namespace, so that one mpirun can
# start them. Exits 77 (not run) where there is no namespace, no link, or no Open MPI.

set -u
self=$(realpath "$0")
case ${1:-} in
--rank) # of mpirun: which host is this
  host=$((OMPI_COMM_WORLD_RANK % 2))
  export WEFT_RUNTIME_DIR=$CXI_MPI_WORK/$host FI_CXI_SOFT_DEVICES=cxi0=10.80.0.$((host + 1))
  exec "${@:2}"
  ;;
--inside) # of the namespace
  ip link set lo up && ip link add wire0 type veth peer name wire1 || exit 77
  ip link set wire0 up && ip link set wire1 up && ip addr add 10.80.0.1/24 dev wire0 && ip addr add 10.80.0.2/24 dev wire0 || exit 77
  exec "$3" --lib "$2" --prov cxi --ranks 4 --env CXI_MPI_WORK="$CXI_MPI_WORK" "$self" -- --rank "${@:4}" --quick
  ;;
esac
[ $# -ge 4 ] || { echo "usage: cxi_mpi.sh LIB_DIR RUN_MPI MPI_CLIENT PARTS..."; exit 2; }
unshare --net true 2>/dev/null || { echo "skipped: no network namespace can be made here"; exit 77; }
CXI_MPI_WORK=$(mktemp -d)
export CXI_MPI_WORK
trap 'rm -rf "$CXI_MPI_WORK"' EXIT
mkdir -m 700 "$CXI_MPI_WORK/0" "$CXI_MPI_WORK/1"
unshare --net "$self" --inside "$@"
