// Starts bubblewrap and waits until the shell inside waits: from then on there is something to verify.

import type { Readable } from 'node:stream';
import * as z from 'zod';
import { AcodeError } from '../../contract/errors.ts';
import type { SandboxSpec } from '../../contract/spec.ts';
import { Child } from '../process/child.ts';
import { identify, onlyChild } from '../process/identity.ts';
import type { ProcessIdentity } from '../process/identity.ts';
import { DESCRIPTORS } from './arguments.ts';
import type { ControlGroup } from './control-group.ts';
import { madeFiles } from './made-files.ts';
import { WAITING_INSIDE } from './resource-limits.ts';

/** What a sandbox is started from. */
export interface Start {
  readonly spec: SandboxSpec;
  /** Bubblewrap’s own path. */
  readonly program: string;
  readonly words: readonly string[];
  /** The system call filter as the kernel wants it. */
  readonly seccomp: Uint8Array;
  /** What holds it to its limits; null where each process carries them itself. */
  readonly group: ControlGroup | null;
}

/** A sandbox whose shell waits. */
export interface Started {
  /** Bubblewrap’s process outside; when it ends, the sandbox does. */
  readonly child: Child;
  /** The first process inside: when it ends, the kernel ends all others. */
  readonly first: ProcessIdentity;
  /** The shell that waits. */
  readonly shell: number;
}

const SHELL = '/bin/sh';
const START_MS = 5000;
const MAX_REASON = 600;
const MAX_STATUS = 4096;

// What becomes bubblewrap. A pipe of ours is a socket to the program, and a socket cannot be opened by the names that
// scripts have for it (/dev/stderr), nor should the inside hold one end of a socket to the host; so real pipes stand
// between, each with a program that passes on. A shell makes a pipe for a text of its own (<<), and the kernel opens its
// other end by name; a shell that makes a file instead leaves the sockets as they are.
//
// Then it joins each control group before anything else is started, with none of the variables that a shell makes for
// itself. The words after -- are the program it becomes.
const ENTER = `unset PWD OLDPWD SHLVL _
exec 3<<E 4<<E 5<<E
.
E
.
E
.
E
if [ -x /bin/cat ] && [ -p /proc/self/fd/3 ] && [ -p /proc/self/fd/4 ] && [ -p /proc/self/fd/5 ]; then
read -r line <&3 && read -r line <&4 && read -r line <&5 && unset line || exit 125
exec 6<&0 7>/proc/self/fd/3
/bin/cat <&6 >&7 2>/dev/null 3<&- 4<&- 5<&- 6<&- 7>&- &
exec <&3 3<&- 6<&- 7>&-
exec 6>/proc/self/fd/4 7>/proc/self/fd/5
/bin/cat <&4 2>/dev/null 4<&- 5<&- 6>&- 7>&- &
/bin/cat <&5 >&2 4<&- 5<&- 6>&- 7>&- &
exec >&6 2>&7 4<&- 5<&- 6>&- 7>&-
else
exec 3<&- 4<&- 5<&-
fi
while [ "$1" != -- ]; do echo $$ >"$1" || exit 125; shift; done
shift
exec "$@"`;

const STATUS = 0;
const READY = 1;
const statusSchema = z.looseObject({ 'child-pid': z.int().positive() });

/** Starts a sandbox; rejects with why it did not start, and leaves nothing then. */
export async function startBubblewrap(start: Start, signal: AbortSignal): Promise<Started> {
  const { spec } = start;
  const child = await Child.start(programOf(start)).catch((error: unknown) => {
    throw failed(spec, error instanceof Error ? error.message : String(error), error);
  });
  try {
    const patience = AbortSignal.any([signal, AbortSignal.timeout(START_MS)]);
    const ready = await untilReady(child, patience);
    signal.throwIfAborted();
    if (!ready) throw failed(spec, await reasonOf(child));
    return await processesOf(spec, child);
  } catch (error) {
    // Not the program alone: it may have made its first process, and not told it yet to go on and to end with its parent.
    child.killGroup();
    child.release();
    throw error;
  }
}

function programOf({ spec, program, words, seccomp, group }: Start): Parameters<typeof Child.start>[0] {
  const sandbox = [program, '--args', String(DESCRIPTORS.words), '--', ...WAITING_INSIDE];
  return {
    program: SHELL,
    argv: ['-c', ENTER, 'sh', ...(group?.doors ?? []), '--', ...sandbox],
    // Bubblewrap’s own environment can be read inside, through /proc/1.
    environment: {},
    cwd: '/',
    first: DESCRIPTORS.status,
    outputs: 2,
    inputs: [words.map(word => `${word}\0`).join(''), seccomp, ...madeFiles(spec).map(({ content }) => content)],
  };
}

// Whether the inside said that it waits; false where it ended, or the time was up.
async function untilReady(child: Child, patience: AbortSignal): Promise<boolean> {
  const stream = child.output(READY);
  return new Promise(resolve => {
    const settle = (ready: boolean) => (): void => {
      patience.removeEventListener('abort', late);
      resolve(ready);
    };
    const late = settle(false);
    stream.once('data', settle(true));
    stream.once('close', late);
    patience.addEventListener('abort', late, { once: true });
  });
}

async function processesOf(spec: SandboxSpec, child: Child): Promise<Started> {
  const status = statusSchema.safeParse(parsed(await firstLine(child.output(STATUS))));
  const first = status.success ? identify(status.data['child-pid']) : null;
  const shell = first && (await onlyChild(first.pid));
  if (!first || shell === null) throw failed(spec, 'its first process cannot be found');
  return { child, first, shell };
}

// Written before the inside is set up, so it is there by now. What comes later, the exit status, is known from the process.
function firstLine(stream: Readable): Promise<string> {
  return new Promise(resolve => {
    let text = '';
    stream.on('data', (chunk: Buffer) => {
      if (text.length < MAX_STATUS) text += chunk.toString('utf8');
      if (text.includes('\n')) resolve(text.slice(0, text.indexOf('\n')));
    });
    stream.once('close', () => resolve(''));
  });
}

function parsed(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return null;
  }
}

// Bubblewrap says on its standard error what it could not do; nothing untrusted has run that could say it instead.
async function reasonOf(child: Child): Promise<string> {
  child.kill('SIGKILL');
  let text = '';
  for await (const chunk of child.stderr as AsyncIterable<Buffer>) {
    text += chunk.toString('utf8');
    if (text.length > MAX_REASON) break;
  }
  const said = text.trim().replaceAll(/\s+/g, ' ').slice(0, MAX_REASON);
  return said === '' ? `it was not ready within ${START_MS / 1000} s` : said;
}

function failed(spec: SandboxSpec, reason: string, cause?: unknown): AcodeError {
  return new AcodeError('ACODE-SBX-006', { name: spec.identity.name, reason }, { cause });
}
