// Scan process of a workspace: runs at low priority, with none of its starter’s files open.

import { closeSync, readFileSync, readdirSync } from 'node:fs';
import { constants, setPriority } from 'node:os';
import type { Call } from '../call.ts';
import { tellCallers } from './pending.ts';
import { scanStored } from './scanner.ts';
import { ScanStore } from './store.ts';

const DESCRIPTORS = '/proc/self/fd';
const LAST_STANDARD = 2;
// O_CLOEXEC, as the kernel shows it.
const CLOSED_ON_EXEC = 0o2000000;

/** Does every scan that is written down for the workspace of a call. */
export async function scanWorkspace(call: Call): Promise<number> {
  closeInherited();
  // Whatever the user does meanwhile comes first.
  setPriority(constants.priority.PRIORITY_BELOW_NORMAL);
  const uid = process.getuid?.() ?? 0;
  const { root } = await call.place();
  const { Acode } = await import('@acode/sandbox');
  const store = ScanStore.of(root, uid);
  if (!store) return 0;
  const told: Promise<void>[] = [];
  await scanStored(store, {
    scan: (jobs, signal) => Acode.scan(jobs, { signal }),
    found: (report, jobs) => void told.push(tellCallers(report, jobs, uid, call.interruption.signal)),
    signal: call.interruption.signal,
  });
  await Promise.all(told);
  return 0;
}

// What the caller was given by its own caller, such as a lock of the shell, must not stay open for as long as this goes on. Node
// closes what it opened itself when it starts a program, and nothing here reads the rest.
function closeInherited(): void {
  for (const name of names()) {
    if (Number(name) <= LAST_STANDARD || isClosedOnExec(name)) continue;
    try {
      closeSync(Number(name));
    } catch {
      // It was that of the directory that is being listed.
    }
  }
}

function names(): string[] {
  try {
    return readdirSync(DESCRIPTORS);
  } catch {
    return [];
  }
}

function isClosedOnExec(name: string): boolean {
  try {
    const [, flags = '0'] = /^flags:\s+([0-7]+)$/m.exec(readFileSync(`/proc/self/fdinfo/${name}`, 'utf8')) ?? [];
    return (Number.parseInt(flags, 8) & CLOSED_ON_EXEC) !== 0;
  } catch {
    return true;
  }
}
