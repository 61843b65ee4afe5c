# Makes the test images as archives in the cache, without an engine, so that all engines get the very same images.
# shellcheck shell=bash

# pack_image NAME LAYER CONFIG: an archive as `docker save` writes it. The id is the digest of the configuration.
pack_image() {
  local name=$1 layer=$2 config=$3 dir=$CACHE/images/$1.new id
  jq -cnS --argjson config "$config" --arg diff "sha256:$(sha256sum <"$layer" | cut -d' ' -f1)" \
    --arg arch "$(dpkg --print-architecture)" \
    '{architecture: $arch, os: "linux", created: "2024-01-01T00:00:00Z", config: $config,
      rootfs: {type: "layers", diff_ids: [$diff]},
      history: [{created: "2024-01-01T00:00:00Z", created_by: "acode engines"}]}' >"$dir/config.json"
  id=$(sha256sum <"$dir/config.json" | cut -d' ' -f1)
  mv "$dir/config.json" "$dir/$id.json"
  [[ $layer -ef $dir/layer.tar ]] || ln "$layer" "$dir/layer.tar"
  jq -cn --arg id "$id" --arg name "$name" \
    '[{Config: "\($id).json", RepoTags: ["acode-test/\($name):1"], Layers: ["layer.tar"]}]' >"$dir/manifest.json"
  tar -C "$dir" -cf "$dir.tar" "$id.json" manifest.json layer.tar
  mv "$dir.tar" "$CACHE/images/$name.tar"
  # Last, because this file is what says that the image is complete.
  echo "sha256:$id" >"$CACHE/images/$name.id"
  rm -rf "$dir"
}

pack_tree() {
  tar -C "$1" --sort=name --mtime=@1704067200 --owner=0 --group=0 --numeric-owner -cf "$2" .
}

BUSYBOX_PATH='"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"'

busybox_layer() {
  local tree=$1/tree applet
  mkdir -p "$tree"/{bin,sbin,usr/bin,usr/sbin,usr/local/bin,etc,dev,proc,sys,root,home,run,tmp,var/tmp}
  chmod 1777 "$tree/tmp" "$tree/var/tmp"
  chmod 0700 "$tree/root"
  cp "$PKG/bin/busybox" "$tree/bin/busybox"
  # The applet named busybox would be a link to itself.
  "$PKG/bin/busybox" --list-full | while read -r applet; do
    [[ ${applet##*/} == busybox ]] || ln -s /bin/busybox "$tree/$applet"
  done
  echo 'root:x:0:0:root:/root:/bin/sh' >"$tree/etc/passwd"
  echo 'root:x:0:' >"$tree/etc/group"
  pack_tree "$tree" "$1/layer.tar"
}

make_busybox() {
  busybox_layer "$1"
  pack_image busybox "$1/layer.tar" "{\"Env\": [$BUSYBOX_PATH], \"Cmd\": [\"/bin/sh\"]}"
}

# Everything an image can say about how it is to be run, said in the worst way.
make_hostile() {
  busybox_layer "$1"
  pack_image hostile "$1/layer.tar" '{
    "Entrypoint": ["/bin/echo", "hijacked"],
    "Healthcheck": {
      "Test": ["CMD-SHELL", "touch /tmp/healthcheck-ran /data/healthcheck-ran"],
      "Interval": 1000000000, "Timeout": 1000000000, "Retries": 1
    },
    "Env": ["LD_PRELOAD=/evil.so", "NODE_OPTIONS=--inspect", "FOO=bar", "PATH=/usr/local/bin:/usr/bin:/bin:/sbin"],
    "User": "root",
    "Volumes": {"/data": {}},
    "WorkingDir": "/proc/self/fd/7",
    "StopSignal": "SIGKILL",
    "OnBuild": ["RUN true"],
    "ExposedPorts": {"80/tcp": {}}
  }'
}

# No shell: busybox under names that are applets, so that each does what its name says, and no other.
make_noshell() {
  local name
  mkdir "$1/tree"
  cp "$PKG/bin/busybox" "$1/tree/echo"
  for name in cat env false id ls sleep true; do ln "$1/tree/echo" "$1/tree/$name"; done
  pack_tree "$1/tree" "$1/layer.tar"
  pack_image noshell "$1/layer.tar" '{"Cmd": ["/echo", "hello"]}'
}

# Debian's npm is hundreds of packages; npm's own archive, which brings its dependencies, is one.
NPM_VERSION=10.9.4

make_debian() {
  local npm
  npm=$(cd "$1" && npm pack --silent "npm@$NPM_VERSION")
  # shellcheck disable=SC2016 # $1 is the hook's: the new root
  TMPDIR=/var/tmp SOURCE_DATE_EPOCH=1704067200 mmdebstrap --quiet --variant=minbase --skip=output/dev \
    --aptopt='Acquire::Check-Valid-Until "false"' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/info/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/doc-base/*' \
    --include=nodejs,python3,git,gcc,libc6-dev,make,ca-certificates \
    --customize-hook="mkdir -p \"\$1/usr/local/lib/node_modules/npm\" &&
      tar -xzf '$1/$npm' -C \"\$1/usr/local/lib/node_modules/npm\" --strip-components=1 --no-same-owner" \
    --customize-hook='ln -s ../lib/node_modules/npm/bin/npm-cli.js "$1/usr/local/bin/npm"' \
    --customize-hook='ln -s ../lib/node_modules/npm/bin/npx-cli.js "$1/usr/local/bin/npx"' \
    --customize-hook='rm -rf "$1/usr/local/lib/node_modules/npm/"{docs,man} "$1/etc/hostname" "$1/etc/resolv.conf"' \
    "$SUITE" "$1/layer.tar" "$(mirror)" >&2
  pack_image debian "$1/layer.tar" "{\"Env\": [$BUSYBOX_PATH], \"Cmd\": [\"/bin/bash\"]}"
}

make_image() {
  local name=$1 dir=$CACHE/images/$1.new
  [[ -e $CACHE/images/$name.id ]] && return
  say "making the image acode-test/$name:1"
  rm -rf "$dir"
  mkdir -p "$dir"
  "make_$name" "$dir"
}

has_all_images() { [[ $(images_of "$1") == "$(images_for "$1")" ]]; }

load_images() {
  local engine=$1 image have
  have=" $(images_of "$engine" | paste -sd' ') "
  for image in $(images_for "$engine"); do
    if [[ $have == *" $image "* ]]; then continue; fi
    say "$engine: loading acode-test/$image:1"
    api "$engine" POST '/images/load?quiet=1' -T "$CACHE/images/$image.tar" -H 'Content-Type: application/x-tar' \
      -o /dev/null
  done
  # The engine reports a failed load inside a reply that says 200.
  has_all_images "$engine" || die "$engine did not take all images"
}

# An engine starts with nothing of an earlier run, but loading the big image again takes up to 25 s. So its image store
# is kept as hard links: an engine replaces these files and never writes into them, so that both sides stay whole.
keep_store() {
  local name=$1 store=$CACHE/stores/$1 ids parts
  if [[ $name == "$TROUBLE" ]]; then return; fi # its small image takes no time, and its disk takes no hard links
  ids=$(cat "$CACHE"/images/*.id)
  if [[ -e $store/ids && $(<"$store/ids") == "$ids" ]]; then return; fi
  # What tests have made does not belong in it; there will be a better moment.
  if [[ $(api "$name" GET '/containers/json?all=1' | jq length) != 0 ||
    $(api "$name" GET /images/json | jq length) != "${#IMAGES[@]}" ]]; then return; fi
  rm -rf "$store" "$store.new"
  mkdir -p "$store.new"
  # Someone may be using the engine already, and a file may vanish under cp.
  mapfile -t parts < <(store_parts "$name")
  if ! cp -al "${parts[@]/#/$CACHE/$name/data/}" "$store.new/" 2>/dev/null; then
    rm -rf "$store.new"
    return
  fi
  echo "$ids" >"$store.new/ids"
  mv "$store.new" "$store"
}

# Where an engine keeps its images.
store_parts() {
  if [[ $1 == "$PODMAN" ]]; then printf '%s\n' overlay overlay-images overlay-layers; else printf '%s\n' image overlay2; fi
}

restore_store() {
  local data=$CACHE/$1/data store=$CACHE/stores/$1 parts
  [[ -e $store/ids && ! -e $data ]] || return 0
  mkdir -p "$data"
  mapfile -t parts < <(store_parts "$1")
  cp -al "${parts[@]/#/$store/}" "$data/"
}
