#!/bin/bash
# exports_test.sh LIBRARY: the reader exports one symbol and is linked to yaml-cpp dynamically.
set -euo pipefail
exported=$(nm -D --defined-only "$1" | awk '{print $3}' | grep -v '^__\(asan\|ubsan\|tsan\|sanitizer\|odr\|start\|stop\)' | sort)
if [ "$exported" != weft_config_query ]; then
  echo "$1 exports more or less than weft_config_query:" >&2
  echo "$exported" >&2
  exit 1
fi
if ! readelf -d "$1" | grep -q 'NEEDED.*libyaml-cpp'; then
  echo "$1 is not linked to libyaml-cpp dynamically" >&2
  exit 1
fi
