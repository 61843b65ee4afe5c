// The functional probe: makes a sandbox and has it try what it must not do, rather than asking whether it could be made.

import { randomBytes } from 'node:crypto';
import { AcodeError } from '../../contract/errors.ts';
import type { SandboxSpec } from '../../contract/spec.ts';
import type { WaitingSandbox } from '../backend.ts';
import { Child } from '../process/child.ts';
import { ControlGroup } from './control-group.ts';
import type { Delegation } from './control-group.ts';
import { whyForbidden } from './forbidden.ts';

const PROBE_MS = 2000;
const MIB = 1024 ** 2;

// Ordinary modes can be set, and the setuid bit cannot: only the filter forbids that, to anybody, on a file of their own.
const CHECK = `: >file && chmod 0711 file && ! chmod 4711 file 2>/dev/null && ! (: >/usr/acode-probe) 2>/dev/null && echo held
if command -v unshare >/dev/null; then ! unshare -U true 2>/dev/null && echo alone; else echo alone; fi`;

const EXPECTED = 'held\nalone\n';

/** Makes a sandbox by way of `make` and tries it; says why the level cannot be used, null where it can. */
export async function probeSandbox(
  make: (spec: SandboxSpec, signal: AbortSignal) => Promise<WaitingSandbox>,
  signal: AbortSignal,
): Promise<string | null> {
  const patience = AbortSignal.any([signal, AbortSignal.timeout(PROBE_MS)]);
  try {
    const output = await tried(await make(probeSpec(), patience), patience);
    return output === EXPECTED ? null : 'a sandbox was made and does not hold what it should';
  } catch (error) {
    if (signal.aborted) throw error;
    // Not remembered: a host that was busy for a moment is asked again.
    if (patience.aborted)
      throw new AcodeError('ACODE-SBX-018', {
        operation: 'trying bubblewrap',
        reason: `a sandbox was not made and tried within ${PROBE_MS / 1000} s`,
      });
    const forbidden = await whyForbidden();
    return forbidden.length > 0 ? forbidden.join('; ') : reasonOf(error);
  }
}

async function tried(sandbox: WaitingSandbox, signal: AbortSignal): Promise<string> {
  try {
    await sandbox.verify(signal);
    let output = '';
    const io = { stdout: (data: Buffer) => void (output += data.toString('utf8')), stderr: () => undefined };
    const handover = { command: CHECK, cwd: '/tmp', env: {}, nonce: randomBytes(16).toString('hex') };
    const execution = await sandbox.execute(handover, io, signal);
    await execution.closeStdin();
    await execution.ended;
    return output;
  } finally {
    await sandbox[Symbol.asyncDispose]();
  }
}

function reasonOf(error: unknown): string {
  if (error instanceof AcodeError && error.is('ACODE-SBX-006')) return error.context.reason;
  return error instanceof Error ? error.message : String(error);
}

/** Whether a process can join a group made there: who may make one cannot always move a process into it. */
export async function mayJoin(delegation: Delegation): Promise<boolean> {
  const group = await ControlGroup.make(delegation, probeSpec().limits).catch(() => null);
  if (!group) return false;
  try {
    const script = 'for door; do echo $$ >"$door" || exit 1; done';
    const shell = { program: '/bin/sh', argv: ['-c', script, 'sh', ...group.doors], environment: {}, cwd: '/' };
    const child = await Child.start(shell);
    const { exitCode } = await child.exit;
    child.release();
    return exitCode === 0;
  } catch {
    return false;
  } finally {
    await group.remove();
  }
}

/** The smallest sandbox there is: it gets nothing of anybody’s. */
function probeSpec(): SandboxSpec {
  return {
    identity: { sandboxId: 'probe', name: 'acode-probe', labels: {}, correlationId: '' },
    level: 'bubblewrap',
    image: {
      reference: 'host',
      id: 'host',
      digest: 'host',
      environment: ['PATH=/usr/bin:/bin'],
      removed: [],
    },
    user: { uid: process.getuid?.() ?? -1, gid: process.getgid?.() ?? -1 },
    limits: {
      memoryBytes: 64 * MIB,
      swapBytes: 0,
      cpus: 1,
      pids: 16,
      openFiles: 64,
      tmpBytes: MIB,
      outputBytes: MIB,
    },
    runtime: null,
    network: { kind: 'none' },
    dns: [],
    ports: [],
    workdir: '/tmp',
    home: '/tmp',
    mounts: [],
    caches: [],
    tmpfs: [{ target: '/tmp', bytes: MIB, mode: '1777' }],
    hash: 'probe',
  };
}
