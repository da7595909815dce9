#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# headers_alone.sh INCLUDE_DIR [CC] [CXX]: compiles every header in INCLUDE_DIR/rdma and
# INCLUDE_DIR/rdma/providers on its own, as C11 and as C++20, with all warnings as errors: a
# program may include any one of them first. Prints a line per header and language that fails and
# the compiler's first complaint; exits 1 if any did, 2 if there was nothing to check.
set -euo pipefail
inc=${1:?usage: headers_alone.sh INCLUDE_DIR [CC] [CXX]}
inc=${inc%/}
cc=${2:-${CC:-cc}}
cxx=${3:-${CXX:-c++}}
shopt -s nullglob
checked=0 failed=0

# Through a file that includes the header twice, so that guards are tried as well and a compiler
# does not take the header for a main file.
check() {  # HEADER LANGUAGE COMPILER FLAGS...
  local header=$1 language=$2
  shift 2
  checked=$((checked + 1))
  local out
  if ! out=$(printf '#include <%s>\n#include <%s>\n' "$header" "$header" |
             "$@" -Wall -Wextra -Werror -I"$inc" -fsyntax-only - 2>&1); then
    failed=$((failed + 1))
    echo "$header ($language): $(grep -m1 -E 'error|not found' <<<"$out" || head -n1 <<<"$out")"
  elif out=$(printf '#include <%s>\n' "$header" | "$@" -I"$inc" -M - | tr -s ' \\' '\n' |
             grep '/rdma/' | grep -vF "$inc/rdma/"); then
    # An installed libfabric must not lend us a header that we do not have.
    failed=$((failed + 1))
    echo "$header ($language): error: found outside $inc: $(head -n1 <<<"$out")"
  fi
}

for path in "$inc"/rdma/*.h "$inc"/rdma/providers/*.h; do
  header=${path#"$inc"/}
  check "$header" C11 "$cc" -std=c11 -xc
  check "$header" C++20 "$cxx" -std=c++20 -xc++
done

if ((checked == 0)); then
  echo "$inc/rdma: no headers there" >&2
  exit 2
fi
((failed == 0))
