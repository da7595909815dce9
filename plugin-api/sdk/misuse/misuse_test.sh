#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# misuse_test.sh MISUSE_CC CXX FLAGS...: compiles each case of misuse.cc. Case 0 must compile; every other one must not, and the
# compiler must say the sentence that stands beside it. What misuse.cc includes is compiled once, for all cases.
set -euo pipefail
source=${1:?usage: misuse_test.sh MISUSE_CC CXX FLAGS...} cxx=${2:?}
shift 2
options=(-std=c++20 -Wall -Wextra -Wno-missing-field-initializers -Werror=format)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
grep '^#include ' "$source" >"$folder/headers.h"
"$cxx" "$@" "${options[@]}" -x c++-header "$folder/headers.h" -o "$folder/headers.h.gch"
compile() { # with the number in $case
  LC_ALL=C "$cxx" "$@" "${options[@]}" -fsyntax-only -include "$folder/headers.h" -DCASE="$case" "$source" 2>&1
}
case=0
compile "$@" || { echo "case 0, which is right, does not compile"; exit 1; }
failed=0 count=0
while read -r case text; do
  count=$((count + 1))
  if out=$(compile "$@"); then
    echo "case $case compiles, and should not: $text"
    failed=1
  elif ! grep -qF "$text" <<<"$out"; then
    printf 'case %s: the compiler does not say "%s", but:\n%s\n' "$case" "$text" "$(head -n5 <<<"$out")"
    failed=1
  fi
done < <(sed -n 's/^#elif CASE == \([0-9]*\)  \/\/ \(.*\)$/\1 \2/p' "$source")
((count > 20)) || { echo "only $count cases found in $source"; exit 1; }
exit $failed
