// The program that starts an agent inside its sandbox: it writes acode’s settings over whatever an earlier run left in the state
// directory, and becomes the agent. A shell script, because every image that agents can use has a shell.

import { createHash } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Acode, ProgramRequest } from '@acode/sandbox';

const TARGET = '/opt/acode-agent';

/** The program inside. */
export const START = `${TARGET}/start`;

/** A file to be written inside. */
export interface SeededFile {
  /** Absolute, or in the home directory inside: `~/.gitconfig`. */
  readonly path: string;
  readonly text: string;
  /** Whether words in braces are replaced. */
  readonly isTemplate: boolean;
}

/** What a start needs besides its command. */
export interface Seeds {
  readonly files: readonly SeededFile[];
  /** Directories whose entries acode writes: nothing else stays in them. */
  readonly cleared: readonly string[];
  /** The variable of the base URL, and that of the placeholder. */
  readonly baseUrlVariable?: string | undefined;
  readonly keyVariable?: string | undefined;
  /** Directories at the end of PATH. */
  readonly path: readonly string[];
}

// A variable holds at most 128 KiB.
const PIECE = 90 * 1024;

/** The variables that carry the files to the program that starts an agent, which removes them before it becomes the agent. */
export function seedVariables({ files, cleared, baseUrlVariable, keyVariable, path }: Seeds): Record<string, string> {
  const parts = files.flatMap(file =>
    pieces(file.text).map((text, at) => ({
      ...file,
      text,
      isFirst: at === 0,
      directories: at === 0 ? above(file.path) : [],
    })),
  );
  return {
    ACODE_SEEDS: String(parts.length),
    ACODE_SEED_CLEAR: cleared.join('\n'),
    ACODE_SEED_PATH: path.join(':'),
    ACODE_SEED_URL: baseUrlVariable ?? '',
    ACODE_SEED_KEY: keyVariable ?? '',
    ...Object.fromEntries(
      parts.flatMap(({ path: file, text, isTemplate, isFirst, directories }, at) => [
        [`ACODE_SEED_FILE_${at}`, file],
        [`ACODE_SEED_DIRS_${at}`, directories.join('\n')],
        [`ACODE_SEED_TEXT_${at}`, text],
        [`ACODE_SEED_KIND_${at}`, `${isFirst ? 'new' : 'more'}${isTemplate ? ' template' : ''}`],
      ]),
    ),
  };
}

// A piece never ends within a character.
function pieces(text: string): string[] {
  const bytes = Buffer.from(text);
  const found: string[] = [];
  for (let from = 0; ;) {
    let to = Math.min(bytes.length, from + PIECE);
    while (to < bytes.length && ((bytes[to] ?? 0) & 0xc0) === 0x80) to -= 1;
    found.push(bytes.toString('utf8', from, to));
    if (to === bytes.length) return found;
    from = to;
  }
}

// The directories above a file that are made, those nearest to the root first. What the sandbox has is left as it is.
function above(path: string): string[] {
  const [root = '', ...names] = path.split('/');
  // `/state/…` and `/tmp/…` are there, and so is the home directory.
  const base = root === '~' ? '~' : `/${names.shift() ?? ''}`;
  return names.slice(0, -1).map((_, at) => [base, ...names.slice(0, at + 1)].join('/'));
}

const SCRIPT = `#!/bin/sh
# Writes the settings that acode gives a coding agent, and becomes the agent. Written by acode.
set -eu
umask 077
nl='
'
inside() { case $1 in "~/"*) path=$HOME/\${1#"~/"} ;; *) path=$1 ;; esac; }
# Whatever an earlier run left in its place, a link or a FIFO too, is removed.
gone() { rm -rf "$1" 2>/dev/null || { chmod -R u+rwx "$1"; rm -rf "$1"; }; }
directory() {
  if [ -L "$1" ] || ! [ -d "$1" ]; then gone "$1"; mkdir "$1"; fi
  chmod u+rwx "$1"
}
each() {
  rest=$2
  while [ -n "$rest" ]; do
    line=\${rest%%"$nl"*}
    case $rest in *"$nl"*) rest=\${rest#*"$nl"} ;; *) rest= ;; esac
    inside "$line"
    "$1" "$path"
  done
}
fill() {
  done=
  while :; do
    case $text in *"$1"*) done=$done\${text%%"$1"*}$2; text=\${text#*"$1"} ;; *) text=$done$text; return 0 ;; esac
  done
}
url= key=
[ -z "$ACODE_SEED_URL" ] || eval "url=\\\${$ACODE_SEED_URL-}"
[ -z "$ACODE_SEED_KEY" ] || eval "key=\\\${$ACODE_SEED_KEY-}"
case $url in http://*) scheme=\${url%%://*}; url=\${url#*://}; url=$scheme://\${url%%/*} ;; esac
tail=\${key#"\${key%????????????????????}"}
each gone "$ACODE_SEED_CLEAR"
n=0
while [ "$n" -lt "$ACODE_SEEDS" ]; do
  eval "file=\\$ACODE_SEED_FILE_$n dirs=\\$ACODE_SEED_DIRS_$n text=\\$ACODE_SEED_TEXT_$n kind=\\$ACODE_SEED_KIND_$n"
  unset "ACODE_SEED_FILE_$n" "ACODE_SEED_DIRS_$n" "ACODE_SEED_TEXT_$n" "ACODE_SEED_KIND_$n"
  case $kind in *template) fill '{base-url}' "$url"; fill '{key-end}' "$tail" ;; esac
  each directory "$dirs"
  inside "$file"
  case $kind in new*) gone "$path" ;; esac
  printf %s "$text" >>"$path"
  n=$((n + 1))
done
[ -z "$ACODE_SEED_PATH" ] || export PATH="$PATH:$ACODE_SEED_PATH"
unset ACODE_SEEDS ACODE_SEED_CLEAR ACODE_SEED_PATH ACODE_SEED_URL ACODE_SEED_KEY
umask 022
exec "$@"
`;

const ID = `agent-start-${createHash('sha256').update(SCRIPT).digest('hex').slice(0, 16)}`;

/** Puts the program that starts agents into the store; returns where sandboxes have it. */
export async function addStart({ programs }: Pick<Acode, 'programs'>, signal?: AbortSignal): Promise<ProgramRequest> {
  await programs.add(
    ID,
    directory => writeFile(join(directory, 'start'), SCRIPT, { mode: 0o755 }),
    signal === undefined ? {} : { signal },
  );
  return { id: ID, target: TARGET };
}
