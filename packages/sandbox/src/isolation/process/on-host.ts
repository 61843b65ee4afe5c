// Sandboxes that are processes of this host without a wall around them: what levels ulimit and none have in common.

import { chmod, mkdtemp, readdir, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { AcodeError } from '../../contract/errors.ts';
import type { MountSpec, SandboxSpec } from '../../contract/spec.ts';
import type { WaitingSandbox } from '../backend.ts';
import type { Handover } from '../handover/script.ts';
import { Child } from './child.ts';
import { GroupProcesses } from './group.ts';
import { Guard } from './guard.ts';
import { assertInPlace } from './held.ts';
import { MARK } from './survivors.ts';
import { WaitingProcesses } from './waiting.ts';

/** What a sandbox on the host is started from. */
export interface HostStart {
  readonly spec: SandboxSpec;
  /** The program, by its absolute path, and its words; it becomes the shell that waits. */
  readonly argv: readonly [program: string, ...words: string[]];
  /** Further variables; only a control of the doctor’s has any. */
  readonly variables?: Readonly<Record<string, string>>;
  /** Looks at the shell that waits; throws at the first difference from the plan. */
  readonly verify: (child: Child) => Promise<void>;
  /** Called when everything was validated and nothing is made yet. */
  readonly beforeCreate: () => Promise<void>;
}

/** Starts one, waiting. */
export async function prepareOnHost(start: HostStart, signal: AbortSignal): Promise<WaitingSandbox> {
  const { spec } = start;
  const workspace = workspaceOf(spec);
  await start.beforeCreate();
  // The command’s own home: the caller’s has settings and keys that no command should find by chance.
  const directory = await mkdtemp(join(tmpdir(), 'acode-home-'));
  const child = await started(start, directory, workspace.source).catch(async (error: unknown) => {
    await rm(directory, { recursive: true, force: true });
    const reason = error instanceof Error ? error.message : String(error);
    throw new AcodeError('ACODE-SBX-006', { name: spec.identity.name, reason }, { cause: error });
  });
  const guard = Guard.start({ target: -child.pid, directory });
  const processes = new GroupProcesses(child, spec.identity.sandboxId);
  const remove = async (): Promise<void> => {
    processes.signal('SIGKILL');
    await processes.gone();
    child.release();
    // From here on the number may be somebody else’s group.
    guard.dismiss();
    await removeTree(directory);
  };
  const verify = async (): Promise<void> => {
    assertInPlace({ mounts: [workspace] });
    await start.verify(child);
  };
  if (signal.aborted) await remove();
  signal.throwIfAborted();
  return new WaitingProcesses({ spec, processes, verify, remove, translate: handover => onHost(handover, workspace) });
}

// A command can take the right to write from its own directories, as caches of modules do.
async function removeTree(directory: string): Promise<void> {
  const options = { recursive: true, force: true, maxRetries: 5, retryDelay: 20 } as const;
  try {
    await rm(directory, options);
  } catch {
    await makeWritable(directory);
    await rm(directory, options);
  }
}

async function makeWritable(directory: string): Promise<void> {
  await chmod(directory, 0o700);
  for (const entry of await readdir(directory, { withFileTypes: true }))
    if (entry.isDirectory()) await makeWritable(join(directory, entry.name));
}

function started({ spec, argv, variables = {} }: HostStart, directory: string, cwd: string): Promise<Child> {
  const [program, ...words] = argv;
  const own = spec.image.environment.map(variable => {
    const at = variable.indexOf('=');
    return [variable.slice(0, at), variable.slice(at + 1)] as const;
  });
  const environment = {
    ...Object.fromEntries(own),
    HOME: directory,
    TMPDIR: directory,
    [MARK]: spec.identity.sandboxId,
    ...variables,
  };
  return Child.start({ program, argv: words, environment, cwd });
}

function workspaceOf({ mounts }: SandboxSpec): MountSpec {
  const workspace = mounts.find(({ purpose }) => purpose === 'workspace');
  if (workspace) return workspace;
  throw new AcodeError('ACODE-SBX-017', { field: 'workspace', reason: 'there is none to run the command in' });
}

// A directory that is not there, or cannot be entered, the shell finds out itself.
async function onHost(handover: Handover, workspace: MountSpec): Promise<Handover> {
  const cwd = join(workspace.source, relative(workspace.target, handover.cwd));
  const real = await realpath(cwd).catch(() => cwd);
  const root = await realpath(workspace.source);
  if (real === root || real.startsWith(`${root}/`)) return { ...handover, cwd: real };
  throw new AcodeError('ACODE-SBX-017', { field: 'cwd', reason: `${handover.cwd} leads out of the workspace` });
}
