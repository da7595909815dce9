#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# debian_tools_test.sh LIBDIR DOUBLE: Debian's own programs, linked against release 1.17, start on the library in LIBDIR, and on
# DOUBLE, the same exports over a Front that always offers something. Exits 77 (not run) where package libfabric-bin is absent.
set -euo pipefail
libdir=${1:?usage: debian_tools_test.sh LIBDIR DOUBLE} double=${2:?}
for tool in fi_info fi_strerror; do
  [ -x "/usr/bin/$tool" ] || { echo "package libfabric-bin is not installed"; exit 77; }
done
export LD_LIBRARY_PATH=$libdir
fail() { echo "$1"; exit 1; }

loaded=$(ldd /usr/bin/fi_info | awk '$1 == "libfabric.so.1" {print $3}')
[ "$(realpath "$loaded")" = "$(realpath "$libdir/libfabric.so.1")" ] || fail "fi_info loads $loaded"
unresolved=$(LD_BIND_NOW=1 ldd -r /usr/bin/fi_info 2>&1 | grep -E 'undefined|no version' || true)
[ -z "$unresolved" ] || fail "$unresolved"

out=$(timeout 20 fi_strerror 265)
[[ $out == *truncated* ]] || fail "fi_strerror 265 printed: $out"
# Lists what there is; without a provider that is nothing, said by an error and not by a crash.
code=0
timeout 20 fi_info -v >/dev/null 2>&1 || code=$?
((code < 124)) || fail "fi_info -v ended with $code"

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
ln -s "$(realpath "$double")" "$tmp/libfabric.so.1"
export LD_LIBRARY_PATH=$tmp
out=$(timeout 20 fi_info --version)
[[ $out == *"libfabric: 2.6.0"* ]] || fail "fi_info --version printed: $out"
out=$(timeout 20 fi_info -e)
[[ $out == *"FI_PROVIDER: String"* && $out == *"FI_DOUBLE_SIZE: size_t"* ]] || fail "fi_info -e printed: $out"
out=$(timeout 20 fi_info -v)
[[ $out == *$'    fi_ep_attr:\n        type: FI_EP_UNSPEC\n'* && $out == *"name: double"* ]] || fail "fi_info -v printed: $out"
echo "Debian's fi_info and fi_strerror run"
