#!/bin/bash
# application_test.sh FI_INFO HOSTILE_DIR TCP_PLUGIN WEFT CONFIG    CONFIG, which reads weft.yaml, lies where the library looks
# An application that selected tcp runs on beside each hostile file: fi_info lists tcp, ends with status 0, in time; and `weft why`,
# beside fi_info, names stage, reason and remedy.
set -uo pipefail
fi_info=$1 hostile=$2 tcp=$3 weft=$4
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0
# A file that hangs uses up all the time that its probe has, so it gets less.
printf 'version: 1\nplugins: {probe_budget_ms: 500}\n' >"$scratch/impatient.yaml"

# One case: the folder $scratch/NAME holds the hostile file. Once where the user chose tcp, which runs nothing unknown; once where
# everything may be used, so that the file is probed; once more with what was remembered of it.
try() {
  local name=$1 home="$scratch/home-$1" out status how environment
  mkdir -p "$home"
  for how in chosen probed remembered; do
    environment=(FI_PROVIDER_PATH="$scratch/$name" HOME="$home" XDG_CACHE_HOME="$home/cache")
    [ $how = chosen ] && environment+=(FI_PROVIDER=tcp)
    case $name in *hangs | leaves_process | all) environment+=(FI_CONFIG="$scratch/impatient.yaml") ;; esac
    out=$(env "${environment[@]}" timeout 60 "$fi_info" -p tcp 2>"$scratch/$name.err")
    status=$?
    if [ $status -ne 0 ] || ! grep -q 'provider: tcp' <<<"$out"; then
      echo "FAILED $name, $how: status $status"
      sed 's/^/  out: /' <<<"$out"
      sed 's/^/  err: /' "$scratch/$name.err"
      failed=1
    else
      echo "ok     $name, $how"
    fi
  done
  # weft why explains why the file is not used.
  case $name in
    good | all) return ;;         # nothing is wrong with it; many are
    init_fails) name=hostile ;;   # may fail without misbehaving: its unit is known
    *) name=$name.so ;;
  esac
  out=$(env "${environment[@]}" timeout 60 "$weft" why "$name" 2>&1)
  for what in stage reason remedy; do
    if ! grep -Eq "^ *$what +[^ ]" <<<"$out"; then
      echo "FAILED: weft why $name names no $what:"
      sed 's/^/  /' <<<"$out"
      failed=1
    fi
  done
}

for file in "$hostile"/*.so; do
  name=$(basename "$file" .so)
  mkdir "$scratch/$name" && cp "$file" "$scratch/$name/"
  try "$name"
done

mkdir "$scratch"/{truncated,wrong_machine,text,empty,folder,pipe,all}
head -c 3000 "$tcp" >"$scratch/truncated/truncated.so"
cp "$tcp" "$scratch/wrong_machine/wrong_machine.so"
printf '\x28\x00' | dd of="$scratch/wrong_machine/wrong_machine.so" bs=1 seek=18 conv=notrunc status=none
echo "not a library" >"$scratch/text/text.so"
: >"$scratch/empty/empty.so"
mkdir "$scratch/folder/folder.so"
mkfifo "$scratch/pipe/pipe.so"
cp "$hostile"/*.so "$scratch/all/" # and all of them at once
for name in truncated wrong_machine text empty folder pipe all; do try "$name"; done

exit $failed
