#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# manual.sh MANIFEST PAGE: checks that the manual page of a plugin lists exactly the parameters of its manifest, with
# their defaults. Run by the CMakeLists.txt of the plugins that have such a page.

set -u
manifest=${1:?usage: manual.sh MANIFEST PAGE}
page=${2:?}
has=$(awk '$2 == "name:" { gsub(/"/, "", $3); name = $3 } $1 == "default:" { gsub(/"/, "", $2); print name, $2 }' "$manifest" | sort)
says=$(sed -n 's/^\.It Cm \([a-z_]*\) Pq \(.*\)$/\1 \2/p' "$page" | sort)
[ -n "$has" ] || { echo "no parameter in $manifest"; exit 1; }
diff <(echo "$has") <(echo "$says") || { echo "the parameters (<) and $page (>) differ"; exit 1; }
