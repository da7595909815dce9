#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# install_test.sh BUILD_DIR CC [CFLAGS...]: installs the library, moves the tree elsewhere, and builds and runs a program against
# it there, by pkg-config and by the CMake package: nothing in the installed tree may name where it was built or first lay.
set -euo pipefail
build=${1:?usage: install_test.sh BUILD_DIR CC [CFLAGS...]} cc=${2:?}
shift 2
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
for component in core dev; do
  cmake --install "$build" --prefix "$tmp/first" --component "$component" >/dev/null
done
mv "$tmp/first" "$tmp/moved"
libdir=$(dirname "$(find "$tmp/moved" -name libfabric.so.1)")

for link in libfabric.so libfabric.so.1; do
  [ -L "$libdir/$link" ] && [ -e "$libdir/$link" ] || { echo "$link is no link to the library"; exit 1; }
done
for header in rdma/fabric.h rdma/providers/fi_log.h rdma/fi_cxi_ext.h weft/diagnosis.h weft/cxi_services.h; do
  [ -f "$tmp/moved/include/$header" ] || { echo "$header is not installed"; exit 1; }
done
if grep -rIl -e "$build" -e "$tmp/first" "$tmp/moved"; then
  echo "the files above name where the library was built"
  exit 1
fi

mkdir "$tmp/program"
cat >"$tmp/program/program.c" <<'C'
#include <rdma/fabric.h>
#include <weft/diagnosis.h>
#include <stdio.h>
int main(void) {
  struct fi_info *info = fi_allocinfo();
  printf("%s %d\n", fi_tostr(info, FI_TYPE_VERSION), fi_version() == FI_VERSION(2, 6));
  fi_freeinfo(info);
  return 0;
}
C
cat >"$tmp/program/CMakeLists.txt" <<'C'
cmake_minimum_required(VERSION 3.25)
project(program C)
find_package(libfabric 2.0 REQUIRED)
add_executable(program program.c)
target_link_libraries(program libfabric::fabric)
C
expect() { # PROGRAM
  local out
  out=$(LD_LIBRARY_PATH="$libdir" "$1") || { echo "$1 failed"; exit 1; }
  [ "$out" = "2.6.0 1" ] || { echo "$1 printed: $out"; exit 1; }
}
export PKG_CONFIG_PATH=$libdir/pkgconfig
pkg-config --exact-version=2.6.0 libfabric
# shellcheck disable=SC2046
"$cc" "$@" "$tmp/program/program.c" -o "$tmp/program/by-pkg-config" $(pkg-config --cflags --libs libfabric)
expect "$tmp/program/by-pkg-config"
cmake -S "$tmp/program" -B "$tmp/program/build" -DCMAKE_PREFIX_PATH="$tmp/moved" -DCMAKE_C_COMPILER="$cc" \
  -DCMAKE_C_FLAGS="$*" >/dev/null
cmake --build "$tmp/program/build" >/dev/null
expect "$tmp/program/build/program"
echo "installed, moved, used by pkg-config and CMake"
