#!/bin/sh
# Takes from a root file system what no sandbox needs and an attacker would use first; adds the user that is not root.
# harden.sh ROOT: `/` in a Dockerfile, the new root in .ci/images/build.
set -eu

root=${1%/}

# A program that changes its user, or has capabilities of its own, is a way out of being nobody.
find "${root:-/}" -xdev -type f -perm /6000 -exec chmod ug-s {} +
find "${root:-/}" -xdev -type d -perm /6000 -exec chmod ug-s {} +
if command -v getcap >/dev/null 2>&1; then
  getcap -r "${root:-/}" 2>/dev/null | while read -r file _; do setcap -r "$file"; done
fi

# A sandbox has a file system of its own wherever it may write; what else anybody can write to would be shared.
find "${root:-/}" -xdev ! -type l -perm -0002 -exec chmod o-w {} +
chmod -t "$root/tmp" "$root/var/tmp" 2>/dev/null || true

grep -q '^agent:' "$root/etc/passwd" || echo 'agent:x:1000:1000:agent:/home/agent:/bin/sh' >>"$root/etc/passwd"
grep -q '^agent:' "$root/etc/group" || echo 'agent:x:1000:' >>"$root/etc/group"
mkdir -p "$root/home/agent" "$root/workspace"
chown 1000:1000 "$root/home/agent"
chmod 0700 "$root/home/agent"
