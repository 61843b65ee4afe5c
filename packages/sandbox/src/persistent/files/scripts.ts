// The programs that acode runs inside for its files: fixed texts, in which paths occur as positional arguments only. They ask for
// no more than busybox and GNU coreutils have in common.

// What an image sets in its environment must change neither the language of messages nor what tar does. What is missing is said
// before anything is done; `fault` tells the error that no program would, `at` which system call node would have made.
const PRELUDE = `
LC_ALL=C
export LC_ALL
unset POSIXLY_CORRECT TAR_OPTIONS
need() {
  for tool do
    command -v "$tool" >/dev/null 2>&1 || { echo "acode-missing $tool" >&2; exit 127; }
  done
}
fault() { echo "acode-errno $1" >&2; exit 1; }
at() { echo "acode-syscall $1" >&2; exit 1; }
found() { stat -c '' -- "$1" >/dev/null; }
reached() { stat -L -c '' -- "$1" >/dev/null; }
# Looking for what is not there changes nothing, and distinguishes a read-only file system from a directory that this user may not.
admits() {
  [ -w "$1" ] && return
  case $(rmdir -- "$1/.acode-$$-is-not-there" 2>&1) in *'Read-only file system'*) fault EROFS ;; esac
  fault EACCES
}
narrow() { [ -z "$1" ] || umask "$(printf %o "$((0$(umask) | 0$1))")"; }
`;

/** A fixed program, and what it is given. */
export interface Script {
  readonly text: string;
}

/** A script with what all of them have. */
export function script(text: string): Script {
  return { text: PRELUDE + text };
}

/** The argument vector that runs a script. */
export function argvOf({ text }: Script, words: readonly string[]): string[] {
  return ['/bin/sh', '-c', text, 'sh', ...words];
}

// Reported facts of a file: type and mode, size, owner, group, links, inode, and the times with their fractions.
const STAT_FORMAT = '%f %s %u %g %h %i %Y %y';
const ENTRY_FORMAT = '%f %s %i %y %z %n';

/** path */
export const READ = script(`
need cat
exec cat -- "$1"
`);

/** path, bits that the mode does not have, bits to run it. A mode is only for a file that was not there. */
export const WRITE = script(`
need dd chmod
[ -e "$1" ] || fresh=yes
usual=$(umask)
narrow "$2"
dd of="$1" bs=65536 || exit 1
[ -z "$fresh" ] || [ -z "$3" ] || chmod "$(printf %o "$((0$3 & ~0$usual))")" "$1"
`);

// The one redirection makes the file and is refused one that is there, so that nothing can come in between. Shells have words of their
// own for what went wrong then; dd has the system’s.
/** path, bits that the mode does not have, bits to run it. Only for a file that was not there. */
export const WRITE_NEW = script(`
need dd chmod
taken() { [ -e "$1" ] || [ -L "$1" ]; }
case $1 in */) ;; *) ! taken "$1" || fault EEXIST ;; esac
usual=$(umask)
narrow "$2"
( set -C; { dd bs=65536 2>&4 || exit 9; } >"$1" ) 4>&2 2>/dev/null
case $? in
  0) ;;
  9) exit 1 ;;
  *)
    ! taken "$1" || case $1 in */) ;; *) fault EEXIST ;; esac
    dd if=/dev/null of="$1" conv=notrunc count=0 || exit 1
    fault EEXIST ;;
esac
[ -z "$3" ] || chmod "$(printf %o "$((0$3 & ~0$usual))")" "$1"
`);

/** path, bits that the mode does not have, bits to run it. A mode is only for a file that was not there. */
export const APPEND = script(`
need tee chmod
[ -e "$1" ] || fresh=yes
usual=$(umask)
narrow "$2"
tee -a -- "$1" >/dev/null || exit 1
[ -z "$fresh" ] || [ -z "$3" ] || chmod "$(printf %o "$((0$3 & ~0$usual))")" "$1"
`);

/** path, bits that the mode does not have */
export const MKDIR = script(`
need mkdir
narrow "$2"
exec mkdir -- "$1"
`);

// mkdir says that a link to nothing exists, where node says that nothing is there.
/** path, bits that the mode does not have */
export const MKDIR_PARENTS = script(`
need mkdir stat
narrow "$2"
said=$(mkdir -p -- "$1" 2>&1) && exit 0
case $said in
  *'File exists'*)
    [ ! -L "$1" ] || reached "$1" || exit 1
    [ -e "$1" ] || fault ENOTDIR ;;
  *'No such file or directory'*) [ -L "$1" ] || fault ENOTDIR ;;
esac
echo "$said" >&2
exit 1
`);

/** path, whether with its content */
export const REMOVE = script(`
need stat rm unlink rmdir
found "$1" || at lstat
if [ ! -d "$1" ] || [ -L "$1" ]; then exec unlink "$1"; fi
[ -n "$2" ] || { echo acode-directory >&2; exit 1; }
rm -rf -- "$1" && exit 0
case $(rmdir -- "$1" 2>&1) in *'not empty'*) ;; *) at rmdir ;; esac
[ -r "$1" ] || { echo acode-errno EACCES >&2; at scandir; }
exit 1
`);

/** path */
export const RMDIR = script(`
need rmdir
exec rmdir -- "$1"
`);

/** path */
export const UNLINK = script(`
need unlink
exec unlink "$1"
`);

// mv would move into a directory, copy to another file system, and refuse a file that is itself. Errors are reported in the
// order in which the kernel looks.
/** path, new path, the directory of the one, that of the other, whether one of them ends in dots */
export const RENAME = script(`
need mv stat rmdir readlink
directory() { [ -d "$1" ] && [ ! -L "$1" ]; }
identity() { stat -c %d:%i -- "$1" 2>/dev/null; }
found "$3/." || exit 1
found "$4/." || exit 1
[ "$(stat -c %d -- "$3/.")" = "$(stat -c %d -- "$4/.")" ] || fault EXDEV
[ -z "$5" ] || fault EBUSY
found "$1" || exit 1
[ "$(identity "$1")" != "$(identity "$2")" ] || exit 0
if directory "$1"; then
  case "$(readlink -f -- "$4/.")/" in "$(readlink -f -- "$1")"/*) fault EINVAL ;; esac
fi
admits "$3"
admits "$4"
if directory "$1"; then
  if directory "$2"; then rmdir -- "$2" || exit 1
  elif [ -e "$2" ] || [ -L "$2" ]; then fault ENOTDIR
  fi
elif directory "$2"; then fault EISDIR
fi
exec mv -f -T -- "$1" "$2"
`);

// The same file as both would be emptied by dd.
/** path, new path */
export const COPY = script(`
need dd stat chmod
reached "$1" || exit 1
if [ -d "$1" ]; then
  [ -r "$1" ] || fault EACCES
  [ ! -e "$2" ] || dd if=/dev/null of="$2" conv=notrunc count=0 || exit 1
  fault EISDIR
fi
[ ! "$1" -ef "$2" ] || exit 0
dd if="$1" of="$2" bs=65536 || exit 1
exec chmod "$(stat -L -c %a -- "$1")" "$2"
`);

/** path */
export const STAT = script(`
need stat
exec stat -L -c '${STAT_FORMAT}' -- "$1"
`);

/** path */
export const LSTAT = script(`
need stat
exec stat -c '${STAT_FORMAT}' -- "$1"
`);

// A shell can tell that something may not be written, and not why: opening it does.
/** path, then the tests that must hold: -r, -w, -x */
export const ACCESS = script(`
need stat dd rmdir
reached "$1" || exit 1
path=$1
shift
for wanted do
  case $wanted in
    -r) [ -r "$path" ] || fault EACCES ;;
    -x) [ -x "$path" ] || fault EACCES ;;
    -w)
      [ -w "$path" ] && continue
      [ ! -d "$path" ] || admits "$path"
      [ ! -f "$path" ] || dd if=/dev/null of="$path" conv=notrunc count=0 || exit 1
      fault EACCES ;;
  esac
done
`);

/** path, mode */
export const CHMOD = script(`
need chmod
exec chmod "$2" -- "$1"
`);

/** path */
export const READLINK = script(`
need stat readlink
found "$1" || exit 1
[ -L "$1" ] || fault EINVAL
exec readlink -n -- "$1"
`);

/** target, path */
export const SYMLINK = script(`
need ln
if [ -e "$2" ] || [ -L "$2" ]; then fault EEXIST; fi
exec ln -s -n -- "$1" "$2"
`);

/** path, length */
export const TRUNCATE = script(`
need stat truncate
reached "$1" || exit 1
[ -d "$1" ] || [ -r "$1" ] || fault EACCES
exec truncate -c -s "$2" -- "$1"
`);

/** path */
export const REALPATH = script(`
need stat readlink
reached "$1" || exit 1
exec readlink -f -n -- "$1"
`);

/** path, what the names begin with, how deep */
export const NAMES = script(`
need stat find
reached "$1" || exit 1
[ -d "$1" ] || fault ENOTDIR
[ -r "$1" ] || fault EACCES
if [ -n "$3" ]; then exec find "$2" -mindepth 1 -maxdepth "$3" -print0; fi
exec find "$2" -mindepth 1 -print0
`);

// Names in one piece and what is known of them in the next, portion by portion: no name can look like something else then,
// and no program is started for each.
const DESCRIBE = `[ $# -gt 0 ] || exit 0
printf "%s\\0" "$@"
printf "\\0"
stat -c "${ENTRY_FORMAT}" -- "$@" 2>/dev/null
printf "\\0"`;

/** path, what the names begin with, how deep */
export const ENTRIES = script(`
need stat find xargs
reached "$1" || exit 1
[ -d "$1" ] || fault ENOTDIR
[ -r "$1" ] || fault EACCES
deep=\${3:+-maxdepth $3}
{ find "$2" -mindepth 1 $deep -print0 || echo acode-unfinished >&2; } | xargs -0 /bin/sh -c '${DESCRIBE}' sh
printf '\\0'
`);

// Each look is asked for with a line, so that it ends with the one who looks, however that one ends.
/** path, what the names begin with, how deep */
export const WATCH = script(`
need stat find xargs
reached "$1" || exit 1
deep=\${3:+-maxdepth $3}
while read -r look; do
  if [ -d "$1" ]; then find "$2" -mindepth 1 $deep -print0 2>/dev/null </dev/null
  else find "$1" -maxdepth 0 -print0 2>/dev/null </dev/null
  fi | xargs -0 /bin/sh -c '${DESCRIBE}' sh
  printf '\\0'
done
`);
