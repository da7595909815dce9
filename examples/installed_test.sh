#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# installed_test.sh BUILD_DIR EXAMPLES_DIR CXX EXAMPLE...: installs what a plugin author gets, moves it elsewhere, builds each
# example alone against it, and asks the installed probe to open the plugin that came out.
set -euo pipefail
build=${1:?usage: installed_test.sh BUILD_DIR EXAMPLES_DIR CXX EXAMPLE...} examples=${2:?} cxx=${3:?}
shift 3
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
for component in core dev plugin-sdk; do
  cmake --install "$build" --prefix "$tmp/first" --component "$component" >/dev/null
done
mv "$tmp/first" "$tmp/sdk"
if grep -rIl -e "$build" -e "$tmp/first" "$tmp/sdk"; then
  echo "the files above name where weft was built or first installed"
  exit 1
fi
if [ -e "$tmp/sdk/include/weft/config.h" ]; then
  echo "include/weft/config.h is private to weft, but installed"
  exit 1
fi
flags="-Wall -Wextra -Wno-missing-field-initializers -Werror"
probe=$(find "$tmp/sdk" -name weft-probe)

for example in "$@"; do
  # A copy, so that nothing of weft's tree is within reach.
  cp -r "$examples/$example" "$tmp/$example"
  if ! cmake -S "$tmp/$example" -B "$tmp/$example/build" -DCMAKE_PREFIX_PATH="$tmp/sdk" -DCMAKE_BUILD_TYPE=Release \
      -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_CXX_FLAGS="$flags" >"$tmp/log" 2>&1 ||
      ! cmake --build "$tmp/$example/build" >>"$tmp/log" 2>&1; then
    cat "$tmp/log"
    echo "$example does not build against the installed SDK"
    exit 1
  fi
  plugin=$tmp/$example/build/examples/$example.so
  # What the build wrote is what the installed probe says, and nothing but the one symbol is visible.
  mkdir -p "$tmp/$example/again/plugins.d"
  cp "$plugin" "$tmp/$example/again/"
  "$probe" --manifest "$tmp/$example/again/$example.so" --output "$tmp/$example/again/plugins.d/$example.yaml"
  cmp "$tmp/$example/again/plugins.d/$example.yaml" "$tmp/$example/build/examples/plugins.d/$example.yaml"
  symbols=$(nm -D --defined-only "$plugin" | awk '{print $3}')
  [ "$symbols" = weft_plugin_query ] || { echo "$example exports: $symbols"; exit 1; }
  echo "$example: built, probed"
done

# As the guide has it, with installation: below the prefix of the SDK the plugin lies beside weft's own.
cp -r "$examples/hook-count" "$tmp/vendor"
rm -rf "$tmp/vendor/build"
cat >"$tmp/vendor/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(vendor LANGUAGES CXX)
find_package(weft-plugin-sdk 1.0 REQUIRED)
weft_add_plugin(vendor SOURCES hook_count.cc)
END
vendor() {
  cmake -S "$tmp/vendor" -B "$tmp/vendor/build" -DCMAKE_PREFIX_PATH="$tmp/sdk" -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_CXX_COMPILER="$cxx" "$@" >"$tmp/log" 2>&1
}
vendor && cmake --build "$tmp/vendor/build" >>"$tmp/log" 2>&1 &&
  cmake --install "$tmp/vendor/build" --prefix "$tmp/sdk" >>"$tmp/log" 2>&1 || {
  cat "$tmp/log"
  echo "weft_add_plugin() without NO_INSTALL does not build and install against the installed SDK"
  exit 1
}
[ "$(dirname "$(find "$tmp/sdk" -name vendor.so)")" = "$(dirname "$probe")" ] &&
  [ "$(find "$tmp/sdk" -path '*/plugins.d/vendor.yaml' | wc -l)" = 1 ] || {
  find "$tmp/sdk" -name 'vendor*'
  echo "the plugin was not installed beside weft's own"
  exit 1
}
echo "installed: beside weft's own plugins"

# Without tl::expected the error names the package.
rm -rf "$tmp/vendor/build"
if vendor -DCMAKE_DISABLE_FIND_PACKAGE_tl-expected=ON || ! grep -q libexpected-dev "$tmp/log"; then
  cat "$tmp/log"
  echo "without tl::expected the error names no package to install"
  exit 1
fi
