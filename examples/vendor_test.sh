#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# vendor_test.sh BUILD_DIR CXX layer|hook|broken|GUIDE: what a vendor does, on an SDK that was installed and moved: `weft plugin new`,
# build, tests, packages, and the plugin of the package among weft's own. With `broken`, a provider with faults, and the rows of
# `weft plugin test` that they fail. With GUIDE (docs/vendors.md) it runs each command of the guide; apt-get
# and dpkg there are functions of this script, which look whether the packages exist, and unpack into the SDK.
set -euo pipefail
build=$(realpath "${1:?usage: vendor_test.sh BUILD_DIR CXX KIND|GUIDE}") cxx=${2:?no CXX} what=${3:?no KIND}
here=$(dirname "$(realpath "$0")")
[ -e "$what" ] && what=$(realpath "$what")
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
unset "${!FI_@}"
if command -v ccache >/dev/null; then  # of another run, in another folder, too
  export CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_BASEDIR=$tmp CCACHE_NOHASHDIR=1
  export CCACHE_DIR=${CCACHE_DIR:-$(ccache --get-config cache_dir)}
fi
export HOME=$tmp/home XDG_CONFIG_HOME=$tmp/config XDG_CACHE_HOME=$tmp/cache
mkdir "$HOME" "$tmp/work"

fail() {
  echo "FAILED: $*"
  [ -e "$tmp/log" ] && tail -n 40 "$tmp/log"
  exit 1
}

for component in core dev plugin-sdk plugin-tcp hooks; do
  cmake --install "$build" --prefix "$tmp/first" --component "$component" >/dev/null
done
mkdir -p "$tmp/first/bin"
cp "$build/bin/weft" "$tmp/first/bin/"
mv "$tmp/first" "$tmp/sdk"
library=$(dirname "$(find "$tmp/sdk" -name libfabric.so.1)")
export PATH=$tmp/sdk/bin:$PATH LD_LIBRARY_PATH=$library CMAKE_PREFIX_PATH=$tmp/sdk CXX=$cxx CXXFLAGS=-Werror
cd "$tmp/work"

# unpack DEB: as dpkg would, and the plugin is one of weft's own from then on.
unpack() {
  dpkg-deb -x "$1" "$tmp/root"
  cp -a "$tmp/root$tmp/sdk/." "$tmp/sdk/"
}
is_listed() { weft plugin list | grep -Eq "^$1 .* (installed|loadable|usable|selected) +$library/weft/$1\.so"; }

if [ -f "$what" ]; then
  apt-get() {
    for word in "$@"; do
      case $word in
        *weft*) grep -q "^Package: $word\$" "$here/../debian/control" || fail "there is no package $word" ;;
      esac
    done
  }
  dpkg() {
    [ "$1" = -i ] || fail "dpkg $*"
    unpack "$2"
  }
  export -f apt-get dpkg unpack fail
  export tmp here
  sed -n '/^```sh$/,/^```$/{/^```/d;p}' "$what" >"$tmp/commands"
  [ "$(wc -l <"$tmp/commands")" -gt 10 ] || fail "$what has only $(wc -l <"$tmp/commands") lines of commands"
  bash -euxo pipefail "$tmp/commands" >"$tmp/log" 2>&1 || fail "a command of $what, the last of these:"
  is_listed frob-provider || fail "the plugin of the package is not among weft's own: $(weft plugin list)"
  echo "passed: each command of $(basename "$what")"
  exit 0
fi

if [ "$what" = broken ]; then
  weft plugin new provider frob >"$tmp/log"
  source=frob-provider/src/frob_provider.cc
  # Closing says yes and does nothing; messages lose their bytes; a send to nobody ends the process.
  sed -i -e 's/return -FI_EBUSY;/return 0;/' -e 's/^ *scatter(.*;$/(void)receive; (void)bytes;/' \
    -e 's/if (!address) return -FI_EINVAL;/if (!address) std::abort();/' "$source"
  grep -q FI_EBUSY "$source" && fail "FI_EBUSY is still there"
  grep -q '(void)receive' "$source" && grep -q 'std::abort' "$source" || fail "the source of the provider has changed: fit the faults"
  (cmake -S frob-provider -B build -DCMAKE_BUILD_TYPE=Debug -DBUILD_TESTING=OFF && cmake --build build) >"$tmp/log" 2>&1 || fail "no build"
  got=0
  weft plugin test build/plugins/frob-provider.so >"$tmp/log" 2>&1 || got=$?
  [ $got = 1 ] || fail "weft plugin test of a provider with faults: status $got"
  # failed CHECK TEXT: the row of this check failed, with this text.
  failed() { grep -Eq "^  provider frob +$1 +failed +$2" "$tmp/log" || fail "no row '$1' that failed with '$2'"; }
  failed "objects closed in the wrong order" "rdm: fi_close of a fabric with a domain returned 0, where an error is due"
  failed "messages go both ways" "rdm: a message of 1 bytes arrived with other bytes"
  failed "messages with tags go both ways" "rdm: a message of 1 bytes"
  failed "transfers to nobody" "killed by signal 6 \(SIGABRT\)"
  grep -Eq "^  provider frob +what fi_getinfo answers +passed" "$tmp/log" || fail "what is right is not a row that passed"
  grep -Eq "^  provider frob +remote writes and reads +not checked +not offered" "$tmp/log" || fail "what is not offered is a row with a result"
  echo "passed: $(tail -n 1 "$tmp/log")"
  exit 0
fi

# The name has a dash, so the names of classes and files differ from it; the vendor has what is special in other languages.
vendor="Frob & Sons' (1)"
weft plugin new "$what" frob-net --vendor "$vendor" --folder project >"$tmp/log" || fail "weft plugin new"
cd project
grep -rnE '@[A-Za-z]+@' . && fail "the lines above have placeholders"
grep -rniE '"(crc|loop|count|weft)[":]|crc-?_?layer|loop-?_?provider|hook-?_?count|examples' src CMakeLists.txt && fail "the lines above have names of the example"
[ "$(grep -rlF ".vendor = \"$vendor\"" src | wc -l)" = 1 ] || fail "no source has the vendor"
ci/build >"$tmp/log" 2>&1 || fail "ci/build"
grep -q '100% tests passed' "$tmp/log" || fail "the tests of the project"
name=$(basename build/plugins/*.so .so)
cd build
if command -v rpmbuild >/dev/null; then
  rpm -qpl ./*.rpm >"$tmp/log"
  grep -qx "$library/weft/plugins.d/$name.yaml" "$tmp/log" || fail "the package for RPM has no manifest"
fi
unpack ./*.deb
cd /
is_listed "$name" || fail "the plugin of the package is not among weft's own: $(weft plugin list)"
echo "passed: $what: project, tests, packages"
