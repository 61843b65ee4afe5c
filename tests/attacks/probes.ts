// The raw probes of group A: run once in a sandbox and once in a container without the protections.

import { readFileSync, rmSync } from 'node:fs';
import * as z from 'zod';
import { makeWorkspace } from '../support/engines.ts';
import type { TestEngine } from '../support/engines.ts';
import type { Arena } from './arena.ts';
import { TOOLS } from './targets.ts';
import { bind, runWeakened } from './weakened.ts';

const PROGRAM = readFileSync(new URL('fixtures/probes.py', import.meta.url), 'utf8');

const answers = z.record(z.string(), z.tuple([z.enum(['done', 'refused', 'killed', 'broken']), z.string()]));

/** What the kernel answered, by probe: whether it was done, and the errno, signal or gain. */
export type Answers = z.infer<typeof answers>;

// Enough for every twin in the program. Not `Privileged`: an engine that lacks a capability itself refuses that.
const CAPABILITIES = [
  'SYS_ADMIN',
  'SYS_PTRACE',
  'SYS_MODULE',
  'SYS_BOOT',
  'SYSLOG',
  'MKNOD',
  'DAC_READ_SEARCH',
  'NET_ADMIN',
  'NET_RAW',
];

// Everything an engine can be asked to leave out but the namespaces.
const UNPROTECTED = {
  CapAdd: CAPABILITIES,
  SecurityOpt: ['seccomp=unconfined'],
  MaskedPaths: [],
  ReadonlyPaths: [],
} as const;

/** The probes inside a sandbox of the library. */
export async function probeSandbox(arena: Arena): Promise<{ answers: Answers; warm: boolean }> {
  const { stdout, stderr, warm } = await arena.python(PROGRAM, { policy: { timeoutMs: 60_000 } }, '/workspace');
  return { answers: parse(stdout, stderr), warm };
}

/** The same probes as root without filter, masks or dropped capabilities, on a scratch directory and a terminal of its own. */
export async function probeUnprotected(engine: TestEngine): Promise<Answers> {
  const scratch = makeWorkspace();
  // Both remounts stay in the container: its sysfs belongs to its own network namespace, and a bind’s flags to the bind.
  const script =
    'mount -o remount,rw /sys; mount -o remount,bind,rw /sys/fs/cgroup/memory || mount -o remount,bind,rw /sys/fs/cgroup; exec python3 -c "$0" /workspace';
  try {
    const { stdout, stderr } = await runWeakened(engine, {
      image: TOOLS,
      command: ['sh', '-c', script, PROGRAM],
      host: { ...UNPROTECTED, Mounts: [bind(scratch, '/workspace')] },
      config: { Tty: true },
    });
    return parse(stdout, stderr);
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

/** Some of the probes as an ordinary user, under the engine’s defaults: what only `no-new-privileges` would stop. */
export async function probeAsUser(engine: TestEngine, ...names: readonly string[]): Promise<Answers> {
  const { stdout, stderr } = await runWeakened(engine, {
    image: TOOLS,
    command: ['python3', '-c', PROGRAM, '/tmp', ...names],
    config: { User: '4242:4242' },
  });
  return parse(stdout, stderr);
}

function parse(stdout: string, stderr: string): Answers {
  const line = stdout.split('\n').find(text => text.startsWith('{'));
  if (line === undefined) throw new Error(`the probes did not run: ${stdout}${stderr}`);
  return answers.parse(JSON.parse(line));
}
