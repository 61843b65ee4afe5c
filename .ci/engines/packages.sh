# Fetches what the engines are made of from Debian, once, into the cache.
# shellcheck shell=bash

# Docker's packages are unpacked and not installed: apt would remove a developer's docker-ce to install docker.io, and
# would enable a system service. Only ordinary tools and libraries without a service are installed.

SUITE=bookworm # Debian 12: Docker 20.10
KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg

# The mirror this machine is set up to use: as apt knows it, or, before the first update, as its sources say.
mirror() {
  local uri
  # shellcheck disable=SC2016 # apt's own $(…) placeholders
  uri=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' 'Origin: Debian' 2>/dev/null |
    awk '$2 !~ /-/ && !n++ { print $1 }')
  [[ -n $uri ]] || uri=$(written_mirrors | sed -n 1p)
  [[ -n $uri ]] || die 'the apt sources of this machine name no Debian mirror'
  echo "$uri"
}

written_mirrors() {
  find /etc/apt/sources.list /etc/apt/sources.list.d -type f \( -name '*.list' -o -name '*.sources' \) -print0 2>/dev/null |
    xargs -0 -r sed -nE 's/^URIs:[[:space:]]*([^[:space:]]+).*/\1/p; s/^deb[[:space:]]+(\[[^]]*\][[:space:]]+)?([^[:space:]]+).*/\2/p' |
    sed -nE '/\/debian\/?$/p'
}

install_tools() {
  # gcc, git and python3: what commands of levels without images find is the host's. musl-dev and the cross compiler: the forwarder
  # is compared with its source. postgresql: a server behind an allow-list. openssh-client: Git over SSH.
  install_packages bubblewrap ca-certificates curl debian-archive-keyring gcc gcc-12-aarch64-linux-gnu git iproute2 iptables \
    jq libc6-dev libdevmapper1.02.1 libgpgme11 libseccomp2 libsubid4 libsystemd0 libwrap0 mmdebstrap musl-dev openssh-client \
    postgresql python3 util-linux xz-utils
}

# install_packages PACKAGE…: installs those that are not there.
install_packages() {
  local missing=() package
  for package in "$@"; do
    [[ $(dpkg-query -Wf '${db:Status-Abbrev}' "$package" 2>/dev/null) == ii* ]] || missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  say "installing ${missing[*]}"
  # A source that cannot be reached is no reason to stop: what is needed may come from another.
  apt-get -qq update || say "apt-get update had errors"
  mkdir -p "$CACHE"
  DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${missing[@]}" \
    </dev/null >"$CACHE/install.log" 2>&1 || { cat "$CACHE/install.log" >&2 && die "apt-get install failed"; }
}

# apt with lists and sources of its own: the machine's apt configuration stays as it is.
private_apt() {
  local dir=$1 tool=$2
  shift 2
  "$tool" -qq -o Dir::Etc::SourceList="$dir/sources.list" -o Dir::Etc::SourceParts=/dev/null \
    -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null \
    -o Dir::State="$dir/state" -o Dir::State::status="$dir/status" -o Dir::Cache="$dir/cache" \
    -o APT::Sandbox::User=root -o Acquire::Check-Valid-Until=false "$@"
}

# unpack ROOT PACKAGE…: fetches packages and unpacks them into a directory, once. Of another suite: `FROM=… unpack …`.
unpack() {
  local root=$1 dir=${1%/*}/apt deb uri
  shift
  [[ -e ${root%/*}/complete ]] && return
  say "fetching $*"
  rm -rf "${root%/*}"
  mkdir -p "$dir/state/lists/partial" "$dir/cache/archives/partial" "$dir/debs" "$root"
  : >"$dir/status"
  uri=$(mirror)
  if [[ -n ${FROM:-} ]]; then
    printf 'deb [signed-by=%s] %s %s main\n' "$KEYRING" "$uri" "$FROM" >"$dir/sources.list"
  else
    printf 'deb [signed-by=%s] %s %s main\n' "$KEYRING" "$uri" "$SUITE" "$KEYRING" "$uri" "$SUITE-backports" \
      >"$dir/sources.list"
  fi
  private_apt "$dir" apt-get update >&2
  (cd "$dir/debs" && private_apt "$dir" apt-get download "$@" >&2)
  for deb in "$dir"/debs/*.deb; do dpkg -x "$deb" "$root"; done
  rm -rf "$dir"
  touch "${root%/*}/complete"
}

# The C library of the forwarder for arm64, which Debian has as a package of that architecture only. It never runs here.
fetch_musl_arm64() {
  local deb=pool/main/m/musl/musl-dev_1.2.3-1_arm64.deb sum=55c2ca4bc3041c8ed8ac7dc3ef6080d9551a21650568b2fd7610b59eaf98a4f4 uri
  [[ -e $MUSL_ARM64/complete ]] && return
  say "fetching ${deb##*/}"
  rm -rf "$MUSL_ARM64" && mkdir -p "$MUSL_ARM64"
  uri=$(mirror) && uri=${uri%/}
  curl -fsSL --retry 3 -o "$MUSL_ARM64.deb" "$uri/$deb"
  sha256sum --quiet -c <<<"$sum  $MUSL_ARM64.deb" >&2 || die "${deb##*/} is not the package that was expected"
  dpkg -x "$MUSL_ARM64.deb" "$MUSL_ARM64" && rm "$MUSL_ARM64.deb"
  touch "$MUSL_ARM64/complete"
}

# Debian 12's own runsc is of 2022 and does not know systrap.
fetch_packages() {
  unpack "$PKG" docker.io containerd runc tini docker-registry busybox-static "runsc/$SUITE-backports"
}

# Only its server, which tests start with keys and a port of their own: the package would start a service.
fetch_sshd() {
  unpack "$SSHD_PKG" openssh-server
}

# A static program that tests start by hand. The package would start a service.
fetch_nats() {
  FROM=$NEW_SUITE unpack "$NATS_PKG" nats-server
}

# Its runtime is Docker's runc: crun, which Debian prefers, refuses a machine with both versions of control groups.
fetch_podman() {
  unpack "$PODMAN_PKG" podman conmon catatonit golang-github-containers-common golang-github-containers-image netavark \
    aardvark-dns
}

# A whole system for Docker 28: its libraries are newer than this machine's.
fetch_new_root() {
  local root=$CACHE/roots/$NEW_SUITE
  [[ -e $root.complete ]] && return
  say "making a Debian $NEW_SUITE root for Docker 28"
  rm -rf "$root"
  mkdir -p "${root%/*}"
  TMPDIR=/var/tmp mmdebstrap --quiet --variant=minbase --aptopt='Acquire::Check-Valid-Until "false"' \
    --include=docker.io,containerd,runc,iptables,ca-certificates,tini "$NEW_SUITE" "$root" "$(mirror)" >&2
  touch "$root.complete"
}
