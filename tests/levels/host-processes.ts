// Looks at the processes of this machine from outside every sandbox: what a command started, and whether it still lives.

import { readFileSync, readdirSync } from 'node:fs';
import { until } from '../support/waiting.ts';

/** The living processes whose command line holds a text; the shells and clients that were told it are among them. */
export function processesWith(text: string): number[] {
  return commandLines()
    .filter(([, line]) => line.includes(text))
    .map(([pid]) => pid);
}

/** The living processes of exactly this program and these words. */
export function processesOf(words: string): number[] {
  return commandLines()
    .filter(([, line]) => line === `${words} `)
    .map(([pid]) => pid);
}

/** Waits until no living process has the text in its command line; says how long that took. */
export function untilGone(text: string): Promise<number> {
  return until(() => processesWith(text).length === 0);
}

/** Waits until there is a process of exactly this program and these words. */
export async function untilLives(words: string): Promise<void> {
  await until(() => processesOf(words).length > 0);
}

/** The guards that a client has started. */
export function guardsOf(client: number | undefined): number[] {
  return processesWith('acode-guard').filter(pid => statusField(pid, 'PPid') === String(client));
}

/** Whether a process lives; one that nobody has buried does not. */
export function lives(pid: number): boolean {
  return !['', 'Z', 'X'].includes(statusField(pid, 'State').slice(0, 1));
}

/** How long a process sleeps that no other test started: found again by this number. */
export function oddSeconds(): string {
  return `${3000 + Math.floor(Math.random() * 6000)}.${Math.floor(Math.random() * 1e6)}`;
}

function commandLines(): [pid: number, line: string][] {
  return readdirSync('/proc')
    .filter(name => /^\d+$/.test(name) && Number(name) !== process.pid)
    .map(name => [Number(name), commandLine(Number(name))]);
}

function statusField(pid: number, name: string): string {
  try {
    return new RegExp(`^${name}:\\s*(.*)$`, 'm').exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? '';
  } catch {
    return '';
  }
}

// One that has ended and was not buried has no command line any more.
function commandLine(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ');
  } catch {
    return '';
  }
}
