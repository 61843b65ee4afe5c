# What up, down, status and as-user share: the names, the paths, and how a process of ours is recognised.
# shellcheck shell=bash

CACHE=/var/lib/acode-engines # survives `down`: packages, roots, image archives
RUN=/run/acode-engines       # exists only while something is up
GROUP=acode-engines
# Names of servers that tests start on the loopback, for the proxy of allow-lists: it asks the resolver of this machine.
TEST_HOSTS='127.0.0.1 one.acode.test two.acode.test api.acode.test a.wild.acode.test b.wild.acode.test # acode test engines'
TEST_USER=acode-test
OTHER_USER=acode-other
DOCKER_ENGINES=(docker20 docker28)
TROUBLE=trouble # an engine to be restarted, stopped and filled up by tests; none that just want an engine see it
TROUBLE_SIZE=400m
PODMAN=podman # Podman's Docker-compatible socket; only tests that mean Podman see it
NEW_SUITE=forky # Docker 28
IMAGES=(busybox debian noshell hostile)
REGISTRY_ADDRESS=127.0.0.1:5000
PKG=$CACHE/packages/root # Debian 12 packages, unpacked and never installed (see packages.sh)
PODMAN_PKG=$CACHE/podman-packages/root
MUSL_ARM64=$CACHE/musl-arm64
SSHD_PKG=$CACHE/sshd/root
NATS_PKG=$CACHE/nats/root # of the suite of Docker 28: Debian 12's own is too old for the fleet

say() { printf '%s\n' "$*" >&2; }
die() {
  say "error: $*"
  exit 1
}

need_root() { [[ $EUID -eq 0 ]] || die "this needs root"; }

# One up or down at a time. Every daemon we start must close fd 9, or it would hold the lock for ever.
take_lock() {
  exec 9>/run/lock/acode-engines.lock
  flock -w 900 9 || die "another up or down has held the lock for 15 minutes"
}

netns_of() { echo "acode-$1"; }
socket_of() { echo "$RUN/$1/docker.sock"; }
pidfile_of() { echo "$RUN/$1/dockerd.pid"; }
cgroup_of() { echo "/acode-engines/$1"; }
control_of() { echo "$RUN/$1/control.sock"; }
# The system that an engine is part of.
root_of() { if [[ $1 == docker20 || $1 == "$PODMAN" ]]; then echo /; else echo "$CACHE/roots/$NEW_SUITE"; fi; }
# The images that an engine is to have.
images_for() { if [[ $1 == "$TROUBLE" ]]; then echo busybox; else printf '%s\n' "${IMAGES[@]}"; fi; }

# /run may be a plain disk directory: after a reboot the file is still there, but no namespace is mounted on it.
netns_exists() { nsenter --net="/run/netns/$1" true 2>/dev/null; }

ensure_netns() {
  netns_exists "$1" && return
  delete_netns "$1"
  ip netns add "$1"
  ip -n "$1" link set lo up
}

delete_netns() {
  [[ -e /run/netns/$1 ]] || return 0
  ip netns del "$1" 2>/dev/null || rm -f "/run/netns/$1"
}

# api NAME METHOD PATH [curl options…]: the engine's HTTP API; fails on an HTTP error.
api() {
  local name=$1 method=$2 path=$3
  shift 3
  curl -fsS --noproxy '*' --unix-socket "$(socket_of "$name")" -X "$method" "$@" "http://engine$path"
}

# pid_if FILE TEXT: the pid in the file, only if that process has the text in its command line: pids are used again.
pid_if() {
  local pid
  pid=$(cat "$1" 2>/dev/null) && [[ -n $pid ]] || return 1
  [[ $(tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline") == *"$2"* ]] && echo "$pid"
}

# `--data-root` of Docker, `--root` of Podman.
daemon_pid() { pid_if "$(pidfile_of "$1")" "root $CACHE/$1/data "; }
registry_pid() { pid_if "$RUN/registry/$1.pid" "docker-registry serve $RUN/registry/$1.yml"; }
control_pid() { pid_if "$RUN/$1/control.pid" "control.mjs --socket $(control_of "$1") "; }

engine_healthy() {
  daemon_pid "$1" >/dev/null && [[ $(api "$1" GET /_ping --max-time 5 2>/dev/null) == OK ]]
}

# The engine for trouble counts only together with the way to make some.
trouble_healthy() {
  engine_healthy "$TROUBLE" && control_pid "$TROUBLE" >/dev/null && [[ -S $(control_of "$TROUBLE") ]]
}

# The names of the test images that the engine has, in exactly the version of the cache. Podman says `localhost/` before
# a name without a registry.
images_of() {
  local have image
  have=$(api "$1" GET /images/json | jq -r '.[] | .Id as $id | .RepoTags // [] | .[] | ltrimstr("localhost/") | "\(.) \($id)"')
  for image in $(images_for "$1"); do
    [[ -e $CACHE/images/$image.id ]] || continue
    if grep -qxF "acode-test/$image:1 $(<"$CACHE/images/$image.id")" <<<"$have"; then echo "$image"; fi
  done
}

# The registry of an engine lives in the engine's network namespace: it is that engine's 127.0.0.1.
registry_healthy() {
  nsenter --net="/run/netns/$(netns_of "$1")" \
    curl -fsS --noproxy '*' --max-time 5 -o /dev/null "http://$REGISTRY_ADDRESS/v2/" 2>/dev/null
}

# Every process of an engine. A bare name or path is not proof (a developer's own dockerd, `tail -f` on our log), so:
# whatever is in the engine's cgroup; a program of an engine's that is in our network namespace or names our paths; and
# what those have started (a container with a cgroup parent of its own).
engine_pids() {
  local name=$1 ours dir pid argv0 args
  ours=$(stat -Lc %i "/run/netns/$(netns_of "$name")" 2>/dev/null || echo none)
  {
    grep -lE ":$(cgroup_of "$name")(/|$)" /proc/[0-9]*/cgroup 2>/dev/null | cut -d/ -f3 || true
    for dir in /proc/[0-9]*; do
      pid=${dir#/proc/}
      args=$(tr '\0' ' ' 2>/dev/null <"$dir/cmdline") || continue
      argv0=${args%% *}
      case ${argv0##*/} in
        dockerd | containerd | containerd-shim* | docker-proxy | podman | conmon | netavark | aardvark-dns | runc | runsc | runsc-*) ;;
        *) continue ;;
      esac
      if [[ "$args " =~ ($RUN|$CACHE)/$name[/\ ] || $(stat -Lc %i "$dir/ns/net" 2>/dev/null) == "$ours" ]]; then
        echo "$pid"
      fi
    done
  } | with_descendants
}

# Reads pids, prints those that live (a zombie is its parent's business) and all that descends from them.
with_descendants() {
  local seeds
  seeds=$(paste -sd' ')
  [[ -n $seeds ]] || return 0
  ps -eo pid=,ppid=,stat= | awk -v seeds="$seeds" '
    BEGIN { n = split(seeds, list, " "); for (i = 1; i <= n; i++) ours[list[i]] }
    $3 !~ /^Z/ { parent[$1] = $2 }
    END {
      do { more = 0; for (p in parent) if (!(p in ours) && parent[p] in ours) { ours[p]; more = 1 } } while (more)
      for (p in parent) if (p in ours) print p
    }'
}

# What programs are told about an engine that is up.
describe_engine() {
  local name=$1
  jq -cn --arg name "$name" --arg socket "$(socket_of "$name")" --arg netns "$(netns_of "$name")" \
    --arg pidfile "$(pidfile_of "$name")" --argjson version "$(api "$name" GET /version)" \
    --argjson info "$(api "$name" GET /info)" \
    '{name: $name, socket: $socket, api: $version.ApiVersion, version: ($version.Version | split("+")[0]),
      runtimes: [$info.Runtimes | keys[] | select(startswith("io.containerd.") | not)], netns: $netns, pidfile: $pidfile}'
}

# What is up, and nothing else. Readers may be ordinary users, and never see half a file.
write_engines_json() {
  local name engines='[]' registries='[]' images='{}' trouble=null podman=null
  for name in "${DOCKER_ENGINES[@]}"; do
    registry_healthy "$name" && registries=$(jq -c --arg a "$REGISTRY_ADDRESS" --arg n "$(netns_of "$name")" \
      '. + [{address: $a, netns: $n}]' <<<"$registries")
    engine_healthy "$name" || continue
    engines=$(jq -c --argjson engine "$(describe_engine "$name")" '. + [$engine]' <<<"$engines")
    images=$(images_of "$name" | jq -cR --argjson images "$images" \
      'reduce (., inputs) as $i ($images; .[$i] = "acode-test/\($i):1")')
  done
  if trouble_healthy; then
    trouble=$(describe_engine "$TROUBLE" | jq -c --arg control "$(control_of "$TROUBLE")" '. + {control: $control}')
  fi
  # Podman names every runtime whose usual place it knows, whether there is one or not.
  if engine_healthy "$PODMAN"; then podman=$(describe_engine "$PODMAN" | jq -c '. + {runtimes: ["runc"]}'); fi
  if [[ $engines == '[]' && $registries == '[]' && $trouble == null && $podman == null ]]; then
    rm -f "$RUN/engines.json"
    return
  fi
  jq -n --argjson engines "$engines" --argjson images "$images" --argjson registries "$registries" \
    --argjson trouble "$trouble" --argjson podman "$podman" --arg user "$TEST_USER" --arg other "$OTHER_USER" \
    '{engines: $engines, images: $images, registry: $registries[0], registries: $registries,
      trouble: $trouble, podman: $podman, user: $user, otherUser: $other}' >"$RUN/engines.json.new"
  chmod 0644 "$RUN/engines.json.new"
  mv "$RUN/engines.json.new" "$RUN/engines.json"
}
