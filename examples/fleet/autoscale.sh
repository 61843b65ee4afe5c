#!/usr/bin/env bash
# Starts and drains workers on a pool of SSH hosts, one step a call: run it every minute from a timer. Arguments: the hosts, in order.
# It starts one more host while tasks wait and no slot is free, and drains the last one while less than half of the slots are in use.
set -euo pipefail

pool=${POOL:-default}
least=${LEAST_HOSTS:-1}
(($# > 0)) || { echo "usage: autoscale.sh <host>…" >&2; exit 2; }

# acode needs Node.js, so that it is there to read JSON.
read -r hosts slots busy unfinished < <(
  acode fleet status --json | node -e '
    const { pools } = JSON.parse(require("fs").readFileSync(0, "utf8"));
    const { hosts = 0, slots = 0, busy = 0, queued = 0 } = pools.find(one => one.pool === process.argv[1]) ?? {};
    console.log(hosts, slots, busy, queued);
  ' "$pool"
)
waiting=$((unfinished > busy ? unfinished - busy : 0))

if ((waiting > 0 && busy >= slots && hosts < $#)); then
  next=${*:hosts+1:1}
  echo "starting $next: $waiting tasks wait, $busy of $slots slots are in use"
  ssh -o BatchMode=yes -o ConnectTimeout=10 "$next" sudo systemctl start acode-worker
elif ((waiting == 0 && hosts > least && busy * 2 < slots)); then
  last=${*:hosts:1}
  echo "draining $last: $busy of $slots slots are in use"
  acode fleet drain "$last"
else
  echo "nothing to do: $waiting tasks wait, $busy of $slots slots are in use, on $hosts hosts"
fi
