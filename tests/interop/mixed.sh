#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# fabtests between weft and a stock libfabric of the newest release, where there is one: WEFT_STOCK names its prefix
# (bin/fi_*, lib/libfabric.so.1). The sets that take minutes; `fabtests --mixed $WEFT_STOCK` runs all.
#   mixed.sh LIBDIR
if [ -z "${WEFT_STOCK:-}" ]; then
  echo "skipped: name a prefix with a stock libfabric and its fabtests in WEFT_STOCK"
  exit 77
fi
exec "$(dirname "$0")/fabtests" --mixed "$WEFT_STOCK" --library "$1" --set functional --set short --set sizes
