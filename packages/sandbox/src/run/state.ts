// State directories: what commands of a project keep from one sandbox to the next. Only sandboxes open files in them, one at a time.
//
// `<state>/states/<project>/<name>/` holds `data`, which is mounted, and `use.json`, which names the sandbox that has it.

import { createHash } from 'node:crypto';
import { lstatSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import * as z from 'zod';
import { AcodeError } from '../contract/errors.ts';
import { usesEngine } from '../contract/levels.ts';
import type { Level } from '../contract/levels.ts';
import { STATE_NAME, STATE_TARGET } from '../contract/policy.ts';
import type { EffectivePolicy, StateRequest } from '../contract/policy.ts';
import type { MountSpec, SandboxSpec } from '../contract/spec.ts';
import { text } from '../contract/wording.ts';
import { ensurePrivateDirectory, readPrivateFile, writePrivateFile } from '../lifecycle/directories.ts';
import { holderText, isProvablyGone, parseHolder, thisHolder } from '../lifecycle/lock.ts';
import { comparable, identityOf, isInPlace } from '../workspace/file-identity.ts';
import type { Workspace } from '../workspace/locate.ts';
import { removeTree } from '../workspace/removal.ts';
import { diskUse } from './disk.ts';
import type { Host } from './host.ts';

const STATES = 'states';
const DATA = 'data';
const USE = 'use.json';
const OLD = '.old-';
const SHORT = { durable: false };
const MAX_BYTES = 64 * 1024;
const LOCK_MS = 10_000;
// The sandbox of a command that has just ended, or was killed, is removed within this time.
const REMOVAL_MS = 2500;
const PAUSE_MS = 100;

/** The size that a state directory may have unless its request says so. */
export const STATE_BYTES = 2 * 1024 ** 3;

const useSchema = z.strictObject({ sandboxId: z.string(), holder: z.string() });

type StateHost = Pick<Host, 'engine' | 'locks' | 'telemetry' | 'directories' | 'uid'>;

/** What a state directory is planned from. */
export interface StateFor {
  readonly level: Level;
  readonly policy: Pick<EffectivePolicy, 'state' | 'user'>;
  readonly workspace: Workspace;
}

/**
 * The mount of the state directory that a policy names; none where it names none. Makes the directory, unless this is a preview. Refused
 * while another sandbox has it, and where it is larger than its limit.
 */
export async function stateMounts(
  host: StateHost,
  { level, policy: { state, user }, workspace }: StateFor,
  preview: boolean,
  signal: AbortSignal,
): Promise<readonly MountSpec[]> {
  if (state.value === null) return [];
  const { value } = state;
  if (!usesEngine(level))
    throw new AcodeError('ACODE-SBX-016', {
      what: text`${[{ field: 'policy.state' }]} at level ${level}`,
      instead: 'Leave it out, or use level docker or stronger.',
    });
  if (user.value.uid !== host.uid)
    throw new AcodeError('ACODE-SBX-017', {
      field: 'policy.state',
      reason: 'belongs to you, and the user inside would be another one',
      remedy: text`Leave ${{ field: 'policy.user' }} out.`,
    });
  const directory = stateDirectory(host, workspace, value);
  const source = join(directory, DATA);
  if (!preview)
    await whenFree(host, directory, signal, async () => {
      await ensurePrivateDirectory(source, host.uid);
      if (value.fresh === true) await empty(host, directory);
      await refuseFull(source, value);
    });
  const found = lstatSync(source, { throwIfNoEntry: false });
  const identity = found ? comparable(identityOf(found), false) : { device: 0, inode: 0 };
  return [{ purpose: 'state', source, target: STATE_TARGET, readOnly: false, identity }];
}

/** Removes the state directory of a name in a workspace, if there is one. Refused while a sandbox has it. */
export async function removeState(
  host: StateHost,
  workspace: Workspace,
  name: string,
  signal: AbortSignal,
): Promise<void> {
  if (!STATE_NAME.test(name))
    throw new AcodeError('ACODE-SBX-017', {
      field: 'policy.state.name',
      reason: 'is not the name of a state directory',
      remedy: text`Names have small letters, digits and hyphens, at most 40.`,
    });
  const directory = stateDirectory(host, workspace, { name });
  if (!lstatSync(directory, { throwIfNoEntry: false })) return;
  await whenFree(host, directory, signal, () => removeTree(directory));
}

// A directory that was put in the place of the workspace is another project: what its sandboxes kept is not for this one.
function stateDirectory(
  { directories }: Pick<StateHost, 'directories'>,
  { root, identity }: Workspace,
  { name }: StateRequest,
): string {
  const project = createHash('sha256').update(`${root}\n${identity.device}:${identity.inode}`).digest('hex');
  return join(directories.state, STATES, project.slice(0, 32), name);
}

/** Takes the state directory of a plan for its sandbox; refused while another one has it. */
export async function claimState(
  host: StateHost,
  { mounts, identity: { sandboxId } }: SandboxSpec,
  preview: boolean,
  signal: AbortSignal,
): Promise<void> {
  const mount = stateIn(mounts);
  if (!mount || preview) return;
  const directory = dirname(mount.source);
  await whenFree(host, directory, signal, () => {
    // Another command may have emptied it since this one was planned.
    if (!isInPlace(mount)) throw new AcodeError('ACODE-SBX-027', { state: basename(directory), problem: 'in-use' });
    writePrivateFile(join(directory, USE), JSON.stringify({ sandboxId, holder: holderText(thisHolder()) }), SHORT);
    return Promise.resolve();
  });
}

function stateIn(mounts: readonly MountSpec[]): MountSpec | undefined {
  return mounts.find(({ purpose }) => purpose === 'state');
}

// Its sandbox may be a moment from being removed. Nobody waits for that with the lock: several sessions may begin at once.
async function whenFree(
  host: StateHost,
  directory: string,
  signal: AbortSignal,
  work: () => Promise<void>,
): Promise<void> {
  const { clock } = host.telemetry;
  const until = clock.monotonic() + REMOVAL_MS;
  for (;;) {
    const sandbox = await host.locks.during(`state ${directory}`, { deadlineMs: LOCK_MS, signal }, async () => {
      const user = await userOf(host, directory, signal);
      if (user === null) await work();
      return user;
    });
    if (sandbox === null) return;
    if (clock.monotonic() >= until)
      throw new AcodeError('ACODE-SBX-027', { state: basename(directory), problem: 'in-use', sandbox });
    await new Promise<void>(resolve => void clock.after(PAUSE_MS, resolve));
  }
}

// The sandbox that has a state directory; null where none has.
async function userOf(host: StateHost, directory: string, signal: AbortSignal): Promise<string | null> {
  const use = useIn(join(directory, USE), host.uid);
  if (!use) return null;
  const owner = parseHolder(use.holder);
  // A process that lives may be about to create its sandbox.
  if (owner === null || !isProvablyGone(owner, thisHolder())) return use.sandboxId;
  const sandboxes = await (await host.engine()).list(signal);
  return sandboxes.some(({ sandboxId }) => sandboxId === use.sandboxId) ? use.sandboxId : null;
}

async function empty(host: StateHost, directory: string): Promise<void> {
  renameSync(join(directory, DATA), join(directory, `${OLD}${Date.now()}`));
  await ensurePrivateDirectory(join(directory, DATA), host.uid);
  for (const name of readdirSync(directory)) if (name.startsWith(OLD)) await removeTree(join(directory, name));
}

async function refuseFull(source: string, { name, bytes = STATE_BYTES }: StateRequest): Promise<void> {
  const use = await diskUse([source], { enough: bytes });
  if (use.bytes >= bytes)
    throw new AcodeError('ACODE-SBX-027', { state: name, problem: 'full', bytes: use.bytes, limitBytes: bytes });
}

/** The sandbox of a plan is gone, or was never made: another one may have its state directory. */
export function releaseState({ uid }: Pick<Host, 'uid'>, { mounts, identity }: SandboxSpec): void {
  const mount = stateIn(mounts);
  if (!mount) return;
  const file = join(dirname(mount.source), USE);
  if (useIn(file, uid)?.sandboxId === identity.sandboxId) rmSync(file, { force: true });
}

function useIn(file: string, uid: number): z.infer<typeof useSchema> | null {
  const found = readPrivateFile(file, { maxBytes: MAX_BYTES, uid });
  if (!found) return null;
  try {
    return useSchema.parse(JSON.parse(found.text));
  } catch {
    // acode writes it whole: what is not a record names nobody.
    return null;
  }
}
