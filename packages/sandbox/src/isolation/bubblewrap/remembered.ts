// That a sandbox was made and held, remembered for a few minutes: trying one takes longer than most of a status, and every
// sandbox that is used is looked at before its command anyway. Failures are never remembered.

import { createHash } from 'node:crypto';
import { readFile, readlink, stat } from 'node:fs/promises';
import { release } from 'node:os';
import { join } from 'node:path';
import type { Clock } from '../../contract/ports.ts';
import { readPrivateFile, writePrivateFile } from '../../lifecycle/private-file.ts';
import { DECIDING_FILES } from './forbidden.ts';

const FILE = 'bubblewrap-held';
const MINUTES_MS = 10 * 60_000;
const BOOT = '/proc/sys/kernel/random/boot_id';
const NAMESPACES = ['user', 'mnt', 'pid', 'net'];
const OWN = /^(?:Uid|Gid|Groups|CapBnd|NoNewPrivs|Seccomp(?:_filters)?):/;

/** Where it is remembered, and for whom. */
export interface Memory {
  /** The user’s own directory, which may not be there. */
  readonly directory: string;
  readonly uid: number;
  readonly clock: Clock;
}

/**
 * What the outcome depends on, as one word: the program, the kernel and its settings, what this process itself may do and
 * sees, and what the caller knows besides.
 */
export async function circumstances(program: string, others: unknown): Promise<string> {
  const { ino, size, mtimeMs, mode, uid } = await stat(program);
  const [status, ...settings] = await Promise.all(
    ['/proc/self/status', BOOT, ...DECIDING_FILES].map(file => readFile(file, 'utf8').catch(() => '')),
  );
  const spaces = await Promise.all(NAMESPACES.map(name => readlink(`/proc/self/ns/${name}`).catch(() => null)));
  const own = status?.split('\n').filter(line => OWN.test(line));
  const all = [program, ino, size, mtimeMs, mode, uid, release(), settings, spaces, own, others];
  return createHash('sha256').update(JSON.stringify(all)).digest('hex');
}

/** Whether a sandbox held under the same circumstances a moment ago. */
export function heldLately({ directory, uid, clock }: Memory, word: string): boolean {
  const file = readPrivateFile(join(directory, FILE), { maxBytes: word.length, uid });
  // Kernels tell the time of a file more exactly than clocks of programs do, which would be the future.
  const age = file ? clock.now() - Math.floor(file.mtimeMs) : -1;
  return age >= 0 && age <= MINUTES_MS && file?.text === word;
}

/** Remembers that it held. Where there is no directory yet, nothing is remembered. */
export function rememberHeld({ directory }: Memory, word: string): void {
  try {
    writePrivateFile(join(directory, FILE), word, { durable: false });
  } catch {
    // It is tried again next time.
  }
}
