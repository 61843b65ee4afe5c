// The programs that bring files in and out, fixed texts as the others.

import { script } from './scripts.ts';

/** path: takes an archive on standard input */
export const UNPACK = script(`
need mkdir tar
mkdir -p -- "$1" || at mkdir
exec tar -x -o -f - -C "$1"
`);

// It arrives beside and takes its name when all of it is there. What has several names, is a link or lies where nothing can be made is
// written in place. Whoever sends it may be gone in the middle: so it is told how much comes, and removes what is less.
/** path, the directory it is in, bits that the mode does not have, bits to run it, the path beside, how much comes */
export const PLACE_FILE = script(`
need mkdir dd chmod stat mv rm
mkdir -p -- "$2" || at mkdir
usual=$(umask)
runnable() { chmod "$(printf %o "$((0$1 & ~0$usual))")" "$2"; }
beside() {
  case $1 in */) return 1 ;; esac
  [ -w "$2" ] || return 1
  if [ -f "$1" ] && [ ! -L "$1" ]; then
    [ -w "$1" ] && [ -O "$1" ] && [ "$(stat -c %h -- "$1")" = 1 ]
    return
  fi
  case $(stat -c '' -- "$1" 2>&1) in *': No such file or directory') ;; *) return 1 ;; esac
}
if ! beside "$1" "$2"; then
  narrow "$3"
  dd of="$1" bs=65536 || exit 1
  [ -z "$4" ] || runnable "$4" "$1"
  exit
fi
bits=
[ ! -e "$1" ] || bits=$(stat -c %a -- "$1")
part=$5
trap 'rm -f -- "$part"' EXIT
narrow "$3"
dd of="$part" bs=65536 || exit 1
[ "$(stat -c %s -- "$part")" = "$6" ] || fault EIO
if [ -n "$4" ]; then runnable "$4" "$part"
elif [ -n "$bits" ]; then chmod "$(printf %o "$((0$bits & 0777))")" "$part"
fi || exit 1
mv -f -T -- "$part" "$1" 2>/dev/null || dd if="$part" of="$1" bs=65536 || exit 1
`);

/** path of a part that whoever brought it was ended in the middle of */
export const REMOVE_PART = script(`
need rm
exec rm -f -- "$1"
`);

// Says first what it is: a directory comes as an archive, a file as it is. An engine passes on each piece that is written by
// itself, and busybox’s tar writes several of a few hundred bytes for each file: so they are gathered.
/** path */
export const PACK = script(`
need stat cat
reached "$1" || exit 1
if [ -d "$1" ]; then
  need tar
  [ -r "$1" ] || at scandir
  gnu=
  if tar --hard-dereference --version >/dev/null 2>&1; then gnu=yes; else need dd; fi
  echo directory
  [ -z "$gnu" ] || exec tar -c --hard-dereference -b 128 -f - -C "$1" .
  { ended=$({ { tar -c -f - -C "$1" . 3>&- 4>&-; echo $? >&4; } | dd ibs=65536 obs=65536 2>/dev/null >&3; } 4>&1); } 3>&1
  exit "$ended"
fi
[ -f "$1" ] || { echo special; exit 0; }
[ -r "$1" ] || fault EACCES
echo "file $(stat -L -c '%a %s' -- "$1")"
exec cat -- "$1"
`);
