# The steps that .ci/run and .ci/long share.
# shellcheck shell=bash disable=SC2154 # here, engines and work are set by who sources this

# step NAME cmd…: runs one step, says how long it took, remembers which one failed.
step() {
  local name=$1 from=$SECONDS status=0
  shift
  printf '\n── %s\n' "$name"
  "$@" || status=$?
  printf '── %s: %s, %d s\n' "$name" "$([[ $status -eq 0 ]] && echo ok || echo "FAILED ($status)")" $((SECONDS - from))
  [[ $status -eq 0 ]] || failed_step=${failed_step:-$name}
  return "$status"
}

# Only what is tracked, or would be: what a clone would have.
copy_tree() {
  mkdir -p "$2"
  git -C "$1" ls-files -z --cached --others --exclude-standard |
    tar -C "$1" --null --ignore-failed-read -T - -cf - 2>/dev/null | tar -C "$2" -xf -
}

# The CPU time of this machine so far, and how much of it was stolen: given to others by the machine's own host.
cpu_time() { awk '/^cpu / { for (n = 2; n <= 9; n += 1) all += $n; print all, $9 }' /proc/stat; }

# stolen FROM: the CPU steal since then (as cpu_time printed it), in percent.
stolen() { echo "$1 $(cpu_time)" | awk '{ all = $3 - $1; print (all > 0) ? int(100 * ($4 - $2) / all) : 0 }'; }

as_user() {
  "$engines/as-user" -- "$@"
}

# What an engine says it has; a sandbox, network or volume of ours that is left is a failure.
engines_empty() {
  local list=/run/acode-engines/engines.json socket
  while read -r socket; do
    node "$here/leftovers.mjs" "$socket" || return 1
  done < <(node -e 'const { engines, trouble, podman } = JSON.parse(require("fs").readFileSync(process.argv[1])); for (const e of [...engines, trouble, podman]) if (e) console.log(e.socket)' "$list")
}

# After everything is down: no process, namespace, mount or socket of the test engines.
nothing_left() {
  local left=0
  if pgrep -af 'acode-engines/[a-z0-9]+/(data|exec|dockerd)' | grep -v "^$$ "; then left=1; fi
  if ip netns list 2>/dev/null | grep acode-; then left=1; fi
  if grep -E ' /(run|var/lib)/acode-engines' /proc/self/mounts; then left=1; fi
  if find /run/acode-engines -name '*.sock' 2>/dev/null | grep .; then left=1; fi
  return "$left"
}

# totals STATUS: the closing line, counting each failed step as a failure even where no test failed.
totals() {
  local counts
  counts=$(node "$here/count.mjs" "${RESULTS:-/nonexistent}"/*.json 2>/dev/null || echo '0 0')
  local passed=${counts% *} failed=${counts#* }
  if [[ $1 -ne 0 && $failed -eq 0 ]]; then failed=1; fi
  printf '%d passed, %d failed\n' "$passed" "$failed"
}
