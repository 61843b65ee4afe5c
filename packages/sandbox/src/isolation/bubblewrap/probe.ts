// The functional probe: makes a sandbox and has it try what it must not do, rather than asking whether it could be made.

import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { AcodeError } from '../../contract/errors.ts';
import type { SandboxSpec } from '../../contract/spec.ts';
import type { WaitingSandbox } from '../backend.ts';
import { Child } from '../process/child.ts';
import { ControlGroup, type Delegation } from './control-group.ts';

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
    const output = await tryInside(await make(probeSpec(), patience), CHECK, patience);
    return output === EXPECTED ? null : 'a sandbox was made and does not hold what it should';
  } catch (error) {
    if (signal.aborted) throw error;
    // Not remembered: a host that was busy for a moment is asked again.
    if (patience.aborted)
      throw new AcodeError('ACODE-SBX-018', {
        operation: 'trying bubblewrap',
        reason: `a trial sandbox was not ready within ${PROBE_MS / 1000} s; this machine is busy, or bubblewrap hangs`,
      });
    const forbidden = await whyForbidden();
    return forbidden.length > 0 ? forbidden.join('; ') : reasonOf(error);
  }
}

/** Runs a trial command in a sandbox, and removes the sandbox; what the command printed. */
export async function tryInside(sandbox: WaitingSandbox, command: string, signal: AbortSignal): Promise<string> {
  try {
    await sandbox.verify(signal);
    let output = '';
    const io = { stdout: (data: Buffer) => void (output += data.toString('utf8')), stderr: () => undefined };
    const handover = { command, cwd: '/tmp', env: {}, nonce: randomBytes(16).toString('hex') };
    const execution = await sandbox.execute(handover, io, signal);
    await execution.closeStdin();
    await execution.ended;
    return output;
  } finally {
    await sandbox[Symbol.asyncDispose]();
  }
}

/** Why a trial sandbox was not made, in words. */
export function reasonOf(error: unknown): string {
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
export function probeSpec(): SandboxSpec {
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

// Why a host forbids user namespaces to ordinary users, and what its administrator would change.

interface Rule {
  readonly file: string;
  readonly forbids: (value: string) => boolean;
  readonly remedy: string;
}

const RULES: readonly Rule[] = [
  {
    file: '/proc/sys/kernel/unprivileged_userns_clone',
    forbids: value => value === '0',
    remedy:
      'kernel.unprivileged_userns_clone is 0, which forbids user namespaces to ordinary users; `sudo sysctl -w kernel.unprivileged_userns_clone=1` allows them (and the same line in /etc/sysctl.d/ keeps it)',
  },
  {
    file: '/proc/sys/user/max_user_namespaces',
    forbids: value => value === '0',
    remedy:
      'user.max_user_namespaces is 0, so nobody can make a user namespace; `sudo sysctl -w user.max_user_namespaces=15000` allows them (and the same line in /etc/sysctl.d/ keeps it)',
  },
  {
    file: '/proc/sys/kernel/apparmor_restrict_unprivileged_userns',
    forbids: value => value === '1',
    remedy:
      'kernel.apparmor_restrict_unprivileged_userns is 1, so a program needs an AppArmor profile that allows user namespaces; give /usr/bin/bwrap one (Ubuntu’s package apparmor-profiles has it as bwrap-userns-restrict), or set that to 0 with `sudo sysctl -w`',
  },
];

/** The files that say whether it does. */
export const DECIDING_FILES: readonly string[] = RULES.map(({ file }) => file);

/** The settings that forbid user namespaces here, in words; empty where none does. */
export async function whyForbidden(
  read: (file: string) => Promise<string | null> = contentOf,
): Promise<readonly string[]> {
  const values = await Promise.all(RULES.map(({ file }) => read(file)));
  return RULES.filter(({ forbids }, index) => forbids((values[index] ?? '').trim())).map(({ remedy }) => remedy);
}

async function contentOf(file: string): Promise<string | null> {
  try {
    return await readFile(file, 'utf8');
  } catch {
    return null;
  }
}
