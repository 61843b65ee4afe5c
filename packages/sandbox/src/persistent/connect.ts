// The way back to a sandbox that was kept, from another process: it is found on the engine, and must still be what its own
// words, read under the rules of today, come to.

import type { RunRequest } from '../contract/command.ts';
import { AcodeError } from '../contract/errors.ts';
import type { SandboxDetails, SandboxInfo } from '../contract/host.ts';
import { opened } from './create.ts';
import type { Opened } from './create.ts';
import { endForkOf } from '../run/forking.ts';
import type { Host } from '../run/host.ts';
import type { EngineBackend } from '../isolation/backend.ts';
import { Kept } from '../lifecycle/kept.ts';
import { isOwn, isReachable } from '../lifecycle/labels.ts';
import { reportViolation } from '../run/obtaining.ts';
import { plan } from '../run/planning.ts';
import type { Sandbox } from './sandbox.ts';
import { removeSandbox } from '../run/removing.ts';
import type { Judged, Removal } from '../run/removing.ts';
import type { Operation } from '../records/telemetry.ts';

const MIN_LENGTH = 4;

/** Finds a kept sandbox by its id, the beginning of it, its name, or the name that was given to it. */
export async function connectSandbox(
  host: Host,
  reference: string,
  operation: Operation,
  { signal, forks }: { readonly signal: AbortSignal } & Pick<Opened, 'forks'>,
): Promise<Sandbox> {
  const engine = await host.engine();
  const info = await goneOn(host, engine, pick(await engine.list(signal), reference, host.uid), signal);
  const record = isUsable(host, info) ? await new Kept(host).read(info.sandboxId) : null;
  if (!record) throw notHere(info, whyNot(host, info));
  const { policy, risk, workspace } = record;
  if (workspace !== undefined && workspace !== host.workspace)
    throw notHere(info, `it was created for ${workspace}, and this is ${host.workspace}`, thatWorkspace(workspace));
  const request: RunRequest = { ...(policy ? { policy } : {}), ...(risk ? { risk } : {}) };
  // What appeared in the workspace since is not masked in it.
  const again = { created: record.masks, reopens: info.sandboxId };
  const of = { correlationId: operation.correlationId, preview: true, ...again };
  const planned = await plan(host, { command: [], request }, of, signal);
  // What it was made by is in its labels, which cannot be changed; a different plan is a different sandbox.
  if (planned.spec.hash !== info.labels['acode.spec'])
    throw notHere(
      info,
      'its image, its workspace or what your configuration allows has changed since it was created',
      `Most likely a directory that acode protects, such as \`.vscode\`, was created in the workspace since. \`acode sandbox kill ${info.sandboxId}\` ends it; \`acode sandbox create\` makes one as things are now.`,
    );
  const { sandboxId, name, labels } = info;
  const identity = { sandboxId, name, labels, correlationId: operation.correlationId };
  const spec = { ...planned.spec, identity };
  const open = await engine.reopen(spec, info.containerId, signal).catch(async (error: unknown) => {
    if (!isChanged(error)) throw error;
    const outcome = await removeSandbox(host, info, { may: ownersMay(host), operation, signal });
    reportViolation(host, spec, { id: info.containerId }, error, operation);
    throw new AcodeError('ACODE-SBX-010', { ...error.context, remedy: afterChange(info, outcome) }, { cause: error });
  });
  return opened({
    recorded: { host, operation, command: [], request, as: 'create' },
    planned: { ...planned, spec },
    open,
    intent: null,
    release: () => undefined,
    keep: true,
    isReachable: true,
    expiresAt: record.until,
    latest: record.latest,
    env: {},
    forks,
    // Changes since it was created, where no process has scanned yet.
    lookedUntilMs: record.lookedUntil?.getTime() ?? Date.parse(info.createdAt),
  });
}

// acode pauses a sandbox to read its fork: it goes on by itself, or is let go on here if acode was killed meanwhile.
async function goneOn(
  host: Host,
  engine: Pick<EngineBackend, 'list'>,
  info: SandboxInfo,
  signal: AbortSignal,
): Promise<SandboxInfo> {
  if (info.state !== 'paused' || whyNotOwn(host, info) !== null) return info;
  const { resumePaused } = await import('../run/fork-rest.ts');
  await resumePaused(host, info.sandboxId, signal);
  return (await engine.list(signal)).find(({ sandboxId }) => sandboxId === info.sandboxId) ?? info;
}

/** Ends a kept sandbox, whether or not it could still be used. */
export async function killSandbox(
  host: Host,
  reference: string,
  operation: Operation,
  signal: AbortSignal,
): Promise<SandboxInfo> {
  const engine = await host.engine();
  const info = pick(await engine.list(signal), reference, host.uid);
  const why = whyNotOwn(host, info);
  if (why !== null) throw notHere(info, why);
  const outcome = await removeSandbox(host, info, {
    may: ownersMay(host),
    operation,
    signal,
  });
  if (typeof outcome === 'object')
    throw new AcodeError('ACODE-CTN-004', { id: info.containerId, reason: outcome.failed });
  // Also where the engine had none any more.
  await new Kept(host).end(info.sandboxId);
  await endForkOf(host, info.sandboxId);
  return info;
}

/** What an engine knows of a sandbox, by whatever it is called; null where there is none. */
export async function inspectAny(
  engine: Pick<EngineBackend, 'inspect' | 'list'>,
  reference: string,
  uid: number,
  signal: AbortSignal,
): Promise<SandboxDetails | null> {
  const found = await engine.inspect(reference, signal);
  if (found) return found;
  const known = meant(await engine.list(signal), reference, uid);
  return known && engine.inspect(known.containerId, signal);
}

/** The one sandbox of these that a reference means; null if it means none. */
export function meant(all: readonly SandboxInfo[], reference: string, uid: number): SandboxInfo | null {
  const isKnown = all.some(one => isMeant(one, reference) || isCalled(one, reference, uid));
  return isKnown ? pick(all, reference, uid) : null;
}

/** A sandbox with its image as it was asked for, where that is written down: the engine knows only the id. */
export async function withReference(host: Host, details: SandboxDetails): Promise<SandboxDetails> {
  if (details.image !== details.imageId || whyNotOwn(host, details) !== null) return details;
  const image = (await new Kept(host).read(details.sandboxId))?.policy?.image;
  return image === undefined ? details : { ...details, image };
}

function ownersMay(host: Host): (now: Judged) => boolean {
  return ({ thing }) => whyNotOwn(host, thing) === null;
}

// What the kernel shows of it is not what was made, so it must not continue, whichever process uses it. What only the engine’s account says can
// be another version of acode or another setting of the engine: then acode does not use it, and does not remove it.
function isChanged(error: unknown): error is AcodeError<'ACODE-SBX-010'> {
  if (!(error instanceof AcodeError && error.is('ACODE-SBX-010'))) return false;
  return error.context.violation === 'MountMismatch';
}

function afterChange({ sandboxId }: SandboxInfo, outcome: Removal): string {
  return typeof outcome === 'object'
    ? `It could not be ended (${outcome.failed}): end it with \`acode sandbox kill ${sandboxId}\`, then check what it may have written to the workspace.`
    : 'acode removed it with the files inside. Check what it may have written to the workspace, then create another one.';
}

function isMeant({ sandboxId, name, containerId }: SandboxInfo, reference: string): boolean {
  if (name === reference) return true;
  return reference.length >= MIN_LENGTH && (sandboxId.startsWith(reference) || containerId.startsWith(reference));
}

// Only the user’s own: another user may give the same name.
function isCalled(one: SandboxInfo, reference: string, uid: number): boolean {
  return one.givenName === reference && isOwn(one, uid);
}

function pick(found: readonly SandboxInfo[], reference: string, uid: number): SandboxInfo {
  const called = found.filter(one => isCalled(one, reference, uid));
  const matches = called.length > 0 ? called : found.filter(one => isMeant(one, reference));
  const [only] = matches;
  if (matches.length === 1 && only) return only;
  if (matches.length === 0) throw new AcodeError('ACODE-CTN-012', { reference, what: 'sandbox' });
  throw new AcodeError('ACODE-SBX-017', { field: 'sandbox', reason: `${reference} is the beginning of several` });
}

function isUsable(host: Host, info: SandboxInfo): boolean {
  return whyNot(host, info) === NOTHING_WRITTEN;
}

const NOTHING_WRITTEN = 'this host has no record of it';

function whyNot(host: Host, info: SandboxInfo): string {
  const { state } = info;
  return whyNotOwn(host, info) ?? (state === 'running' ? NOTHING_WRITTEN : `its state is ${state}`);
}

function whyNotOwn({ uid, identity }: Host, { labels }: Pick<SandboxInfo, 'labels'>): string | null {
  if (labels['acode.uid'] !== String(uid)) return 'it is another user’s';
  if (labels['acode.host'] !== identity) return 'it was created on another host';
  if (!isReachable(labels)) return 'it was not kept, and belongs to the process that made it';
  return null;
}

function thatWorkspace(workspace: string): string {
  const word = /^[\w@%+=:,./-]+$/.test(workspace) ? workspace : `'${workspace.replaceAll("'", String.raw`'\''`)}'`;
  return `Work there: \`cd ${word}\`; or name it: \`--workspace ${word}\`.`;
}

function notHere({ sandboxId }: SandboxInfo, reason: string, remedy?: string): AcodeError {
  return new AcodeError('ACODE-SBX-026', {
    sandbox: sandboxId,
    reason,
    ...(remedy === undefined ? {} : { remedy }),
  });
}
