#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# pingpong_alone.sh LIB_DIR PROVIDER DOMAIN...: Debian's unmodified fi_pingpong (package libfabric-bin) between two processes in each
# domain of the provider, on the library in LIB_DIR, for which stock libfabric is no peer: every size, data checked. Run it in a network of
# its own (tests/own_network): fi_pingpong meets its peer at a port that others may have. Exits 77 (not run) where the program cannot be had.

set -u
[ $# -ge 3 ] || { echo "usage: pingpong_alone.sh LIB_DIR PROVIDER DOMAIN..."; exit 2; }
weft_lib=$(realpath "$1") || exit 2
provider=$2
shift 2
here=$(dirname "$(realpath "$0")")
# shellcheck source=tests/interop/programs.sh
. "$here/../interop/programs.sh"
require_debian fi_pingpong
mkdir -m 700 "$work/run"
export WEFT_RUNTIME_DIR=$work/run # processes of other tests would share the NICs of cxi
for domain in "$@"; do
  options=(127.0.0.1 -p "$provider" -d "$domain" -e rdm -c)
  pingpong "$provider, $domain, all sizes" weft weft 46 "${options[@]}" -S all -I 3
  pingpong "$provider, $domain, one size, many messages" weft weft 1 "${options[@]}" -S 777 -I 500
done
conclude
