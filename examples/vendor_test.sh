#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# vendor_test.sh BUILD_DIR CXX layer|hook|broken|GUIDE [CRC_LAYER]: what a vendor does, on an SDK that was installed and moved: `weft plugin new`,
# build, tests, packages, and the plugin of the package among weft's own. With `broken`, a provider with faults, and the rows of
# `weft plugin test` that they fail, and what is no fault. With GUIDE (docs/vendors.md) it runs each command of the guide; apt-get
# and dpkg there are functions of this script, which look whether the packages exist, and unpack into the SDK.
set -euo pipefail
build=$(realpath "${1:?usage: vendor_test.sh BUILD_DIR CXX KIND|GUIDE}") cxx=${2:?no CXX} what=${3:?no KIND}
here=$(dirname "$(realpath "$0")")
[ -e "$what" ] && what=$(realpath "$what")
[ "$what" != broken ] || crc=$(realpath "${4:?no CRC_LAYER}")
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
  # FROB_FAULT names the faults that it has.
  cat >"$tmp/faults.h" <<'END'
#include <cstdio>
#include <cstdlib>
#include <cstring>
inline bool has(const char *fault) {
  const char *faults = std::getenv("FROB_FAULT");
  return faults != nullptr && std::strstr(faults, fault) != nullptr;
}
// A line of its own, without an end, from the beginning, and one when the process ends.
struct Talk {
  Talk() { if (has("talks")) std::printf("frob is here"); }
  ~Talk() { if (has("talks")) std::printf("{\"result\": \"failed\"}\n"); }
};
inline const Talk kTalk;
template <class Endpoint>
void break_calls(Endpoint *endpoint) {
  static fi_ops_msg own, broken;
  own = broken = *endpoint->c()->msg;
  if (has("state"))  // an address that there is will do
    broken.send = [](fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t to, void *context) -> ssize_t {
      const ssize_t rc = own.send(ep, buf, len, desc, to, context);
      auto *av = Endpoint::from(ep)->av();
      return rc != -FI_EOPBADSTATE ? rc : av->address(av->index_of(to)) ? 0 : -FI_EINVAL;
    };
  if (has("again"))  // for the first times, and then any size will do
    broken.inject = [](fid_ep *ep, const void *buf, size_t len, fi_addr_t to) -> ssize_t {
      static int times = 0;
      return len <= 4096 ? own.inject(ep, buf, len, to) : times++ < 3 ? -FI_EAGAIN : 0;
    };
  endpoint->c()->msg = &broken;
}
END
  cp "$tmp/faults.h" frob-provider/src/faults.h
  sed -i -e 's/^#include "wire.h"$/&\n#include "faults.h"/' \
    -e 's/return -FI_EBUSY;/return has("busy") ? 0 : -FI_EBUSY;/' \
    -e 's/if (!address) return -FI_EINVAL;/if (!address \&\& has("abort")) std::abort();\n    &/' \
    -e 's/^ *scatter(receive.iov, receive.count, 0, bytes.data(), length);$/    const std::string turned = bytes.substr(length \/ 2) + bytes.substr(0, length \/ 2);\n    if (!has("bytes"))\n      scatter(receive.iov, receive.count, 0, (has("turned") ? turned : bytes).data(), length);/' \
    -e 's/receiver().complete(receive, message, length, 0);/receiver().complete(receive, message, has("length") ? length - 1 : length, 0);/' \
    -e 's/^    WEFT_CHECK(endpoint->publish/    break_calls(endpoint.get());\n&/' \
    -e 's/^    InfoList list(instance_->core);$/&\n    if (has("nodata")) return fail(FI_ENODATA, "frob: nothing");/' \
    -e 's/^    entry.addr_format = FI_SOCKADDR_IN;$/    entry.addr_format = has("text") ? FI_ADDR_STR : FI_SOCKADDR_IN;/' \
    -e 's/^    WEFT_CHECK(set_address(entry.src_addr, entry.src_addrlen, &source, sizeof source));$/    char text[64];\n    size_t text_length = sizeof text;\n    (void)write_address(parsed_address_of(own ? uint16_t(port) : 0), FI_ADDR_STR, text, \&text_length);\n    if (has("text")) {\n      WEFT_CHECK(set_address(entry.src_addr, entry.src_addrlen, text, text_length));\n    } else {\n  &\n    }/' \
    "$source"
  for fault in busy abort bytes turned length nodata text; do
    grep -q "has(\"$fault\")" "$source" || fail "the source of the provider has changed: fit the fault '$fault'"
  done
  grep -q break_calls "$source" || fail "the source of the provider has changed: fit break_calls()"
  (cmake -S frob-provider -B build -DCMAKE_BUILD_TYPE=Debug && cmake --build build) >"$tmp/log" 2>&1 || fail "no build"
  # trial FAULTS STATUS: what weft plugin test says of the provider with these.
  trial() {
    local got=0
    FROB_FAULT=$1 weft plugin test build/plugins/frob-provider.so >"$tmp/log" 2>&1 || got=$?
    [ $got = "$2" ] || fail "weft plugin test of a provider with the faults '$1': status $got"
  }
  # failed CHECK TEXT: the row of this check failed, with this text.
  failed() { grep -Eq "^  provider frob +$1 +failed +$2" "$tmp/log" || fail "no row '$1' that failed with '$2'"; }
  trial "busy bytes abort" 1
  failed "objects closed in the wrong order" "rdm: fi_close of a domain with an endpoint returned 0, where an error is due"
  failed "messages go both ways" "rdm: a message of 1 bytes arrived with other bytes"
  failed "messages with tags go both ways" "rdm: a message of 1 bytes"
  failed "transfers to nobody" "killed by signal 6 \(SIGABRT\)"
  grep -Eq "^  provider frob +what fi_getinfo answers +passed" "$tmp/log" || fail "what is right is not a row that passed"
  grep -Eq "^  provider frob +remote writes and reads +not checked +not offered" "$tmp/log" || fail "what is not offered is a row with a result"
  trial turned 1
  failed "messages go both ways" "rdm: a message of 4096 bytes arrived with other bytes"
  trial length 1
  failed "messages go both ways" "rdm: the completion of a message of 1 bytes has the length 0"
  trial "state again" 1
  failed "calls on an endpoint that is not enabled" "rdm: fi_send returned 0, where an error is due"
  failed "transfers beyond the limits" "rdm: fi_inject of more than inject_size returned 0, where an error is due"
  trial nodata 1
  failed "at least one trial" "nothing of this unit could be tried"
  trial "talks text" 0
  grep -Eq "^  provider frob +messages go both ways +passed" "$tmp/log" || fail "what a plugin prints is taken for the verdict"
  export FI_PROVIDER_PATH=@$PWD/build/plugins FI_PROVIDER=frob
  weft plugin test "$library/weft/hook-trace.so" --over frob >"$tmp/log" 2>&1 || fail "the hook trace on frob"
  FROB_FAULT=text weft plugin test "$crc" --over frob >"$tmp/log" 2>&1 || fail "the layer crc over addresses in text"
  FROB_FAULT=text build/test/exchange frob >"$tmp/log" 2>&1 || fail "exchange with addresses in text"
  for fault in turned length; do
    FROB_FAULT=$fault build/test/exchange frob >"$tmp/log" 2>&1 && fail "exchange with the fault '$fault'"
  done
  unset FI_PROVIDER_PATH FI_PROVIDER
  # Where weft has its plugins outside of its prefix, the package has them there.
  (cmake -S frob-provider -B build -DWEFT_PLUGIN_INSTALL_DIR="$tmp/elsewhere/weft" && cd build && cpack -G DEB) >"$tmp/log" 2>&1 || fail "a package with whole paths"
  dpkg-deb -c build/*.deb >"$tmp/log"
  for file in "$tmp/elsewhere/weft/plugins.d/frob-provider.yaml" "$tmp/sdk/share/doc/weft-frob-provider/NOTICE"; do
    grep -q " \.$file\$" "$tmp/log" || fail "the package has no $file"
  done
  tail -n +4 frob-provider/NOTICE | cmp - "$here/../LICENSE" || fail "NOTICE has another licence than weft"
  echo "passed: each fault is a row"
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
