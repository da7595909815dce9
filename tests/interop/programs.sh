# SPDX-License-Identifier: BSD-2-Clause
# Debian's own programs on a library of one's choice; sourced by the tests here and in hosts/.
#
#   weft_lib=DIR              the folder of the library under test
#   on weft fi_info -p tcp    runs a program on it; `on stock` on Debian's libfabric1
#   pingpong NAME SERVER CLIENT LINES ADDRESS OPTIONS...   SERVER and CLIENT are weft or stock
#   measure NAME SERVER CLIENT OPTIONS...                  weft-bench ($weft_bench), both ends here, every byte checked

limit=60 # seconds for any one program: far more than it needs, so that nothing can hang
work=$(mktemp -d)
failures=0
server_in=() client_in=() # what each side is started with: ip netns exec NAME
started=()

finish() {
  for pid in "${started[@]}"; do kill "$pid" 2>/dev/null; done
  rm -rf "$work"
}
trap finish EXIT

fail() {
  failures=$((failures + 1))
  echo "FAILED: $*"
}
pass() { echo "passed: $*"; }
skip() {
  echo "skipped: $*"
  exit 77 # what ctest takes for "not run"
}
conclude() {
  [ $failures = 0 ] || { echo "$failures failed"; exit 1; }
  echo "all passed"
}

# environment WHICH: the words that choose the library for a program.
environment() {
  if [ "$1" = weft ]; then echo "LD_LIBRARY_PATH=$weft_lib"; else echo "-u LD_LIBRARY_PATH"; fi
}
# shellcheck disable=SC2046
on() { timeout "$limit" env $(environment "$1") "${@:2}"; }

require_debian() {
  for program in "$@"; do
    [ -x "/usr/bin/$program" ] || skip "no /usr/bin/$program (package libfabric-bin)"
  done
  # Unmodified programs, and nothing but the library exchanged.
  local loaded
  loaded=$(LD_LIBRARY_PATH=$weft_lib ldd "/usr/bin/$1" | awk '$1 == "libfabric.so.1" { print $3 }')
  [ "$(realpath "$loaded")" = "$(realpath "$weft_lib/libfabric.so.1")" ] ||
    { echo "FAILED: $1 loads $loaded, not the library in $weft_lib"; exit 1; }
}

# listening PORT: whether a socket listens there (in the server's network). It does not connect, because the server takes one client.
listening() {
  local hex
  hex=$(printf '%04X' "$1")
  "${server_in[@]}" cat /proc/net/tcp /proc/net/tcp6 2>/dev/null |
    awk -v port=":$hex\$" '$2 ~ port && $4 == "0A" { found = 1 } END { exit !found }'
}

free_port() {
  "${server_in[@]}" python3 -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])'
}

# start_server WHICH OPTIONS...: sets server_pid and port when it listens.
start_server() {
  local which=$1 deadline=$((SECONDS + limit))
  shift
  port=$(free_port)
  # shellcheck disable=SC2046
  "${server_in[@]}" timeout "$limit" env $(environment "$which") fi_pingpong "$@" -B "$port" >"$work/server" 2>&1 &
  server_pid=$!
  started+=("$server_pid")
  until listening "$port"; do
    kill -0 "$server_pid" 2>/dev/null && [ $SECONDS -lt $deadline ] || return 1
    sleep 0.02 # between two questions; nothing depends on it
  done
}

results() { grep -cE '^[0-9.]+[kmg]? +[0-9]+[kmb]? +=[0-9]+[kmb]? ' "$1"; }

# Both sides must end well and print one line for each size.
pingpong() {
  local name=$1 server=$2 client=$3 lines=$4 address=$5 server_status=0 client_status=0
  shift 5
  if ! start_server "$server" "$@"; then
    fail "$name: the server ($server) did not start"
    sed 's/^/    /' "$work/server"
    return
  fi
  # shellcheck disable=SC2046
  "${client_in[@]}" timeout "$limit" env $(environment "$client") fi_pingpong "$@" -P "$port" "$address" >"$work/client" 2>&1 ||
    client_status=$?
  [ $client_status = 0 ] || kill "$server_pid" 2>/dev/null # it would wait for ever
  wait "$server_pid" || server_status=$?
  if [ $client_status = 0 ] && [ $server_status = 0 ] &&
    [ "$(results "$work/client")" = "$lines" ] && [ "$(results "$work/server")" = "$lines" ]; then
    pass "$name: server $server, client $client"
  else
    fail "$name: server $server ended with $server_status, client $client with $client_status; expected $lines results"
    sed 's/^/    server: /' "$work/server"
    sed 's/^/    client: /' "$work/client"
  fi
}

# folder WHICH: the folder of the library.
folder() {
  if [ "$1" = weft ]; then echo "$weft_lib"; else dirname "$stock_lib"; fi
}
stock_lib=$(ldconfig -p | awk '$1 == "libfabric.so.1" && $2 ~ /x86-64|AArch64/ { print $NF; exit }')

measure() {
  local name=$1 server=$2 client=$3
  shift 3
  [ -n "$stock_lib" ] || skip "no stock libfabric.so.1"
  if LD_LIBRARY_PATH=$(folder "$client") timeout "$limit" "$weft_bench" --local --server-library-path "$(folder "$server")" \
    "$@" --check --timeout $((limit - 10)) >"$work/out" 2>&1; then
    pass "$name: server on $server, client on $client"
  else
    fail "$name: server on $server, client on $client"
    tail -5 "$work/out"
  fi
}
