#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# fi_info.sh LIB_DIR: Debian's unmodified fi_info (package libfabric-bin) on the library in LIB_DIR.

set -u
weft_lib=$(realpath "${1:?usage: fi_info.sh LIB_DIR}") || exit 2
# shellcheck source=tests/interop/programs.sh
. "$(dirname "$(realpath "$0")")/programs.sh"
require_debian fi_info
unset FI_PROVIDER FI_CONFIG

# expect STATUS TEXT NAME COMMAND...: the exit status, and a line of what it prints, as extended regular expressions.
expect() {
  local want=$1 text=$2 name=$3 got=0
  on weft "${@:4}" >"$work/out" 2>&1 || got=$?
  if [[ $got =~ ^($want)$ ]] && grep -Eq -- "$text" "$work/out"; then
    pass "$name"
  else
    fail "$name: exit status $got, expected $want and '$text'"
    sed 's/^/    /' "$work/out"
  fi
}

expect 0 '^provider: tcp$' "lists tcp" fi_info
expect 0 '^provider: tcp$' "lists tcp by name" fi_info -p tcp
expect 0 '^    type: FI_EP_MSG$' "with message endpoints" fi_info -p tcp -t FI_EP_MSG
expect 0 '^    type: FI_EP_SOCK_STREAM$' "with byte streams" fi_info -p tcp -t FI_EP_SOCK_STREAM
expect 0 '^    type: FI_EP_SOCK_DGRAM$' "with datagram sockets" fi_info -p udp -t FI_EP_SOCK_DGRAM
expect 0 'prov_name: tcp$' "in all detail" fi_info -p tcp -v
expect 0 '^tcp:$' "in the list of providers" fi_info -l
expect 0 'src_addr: fi_sockaddr_in://127.0.0.1:7000' "with an address" fi_info -p tcp -s 127.0.0.1 -P 7000 -v
expect 0 'FI_TCP_CONNECT_TIMEOUT_MS' "with its parameters" fi_info -e
expect '[1-9][0-9]*' 'tpc.*tcp' "a wrong name in FI_PROVIDER has a reason and the nearest right one" env FI_PROVIDER=tpc fi_info
expect '[1-9][0-9]*' . "a wrong name on the command line is an error" fi_info -p tpc
expect 0 '^provider: tcp$' "FI_PROVIDER=tcp" env FI_PROVIDER=tcp fi_info
conclude
