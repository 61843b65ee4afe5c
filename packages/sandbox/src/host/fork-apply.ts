// Ways out of a fork: its changes are applied to the workspace, or printed as a patch. Each passes the gate for risky changes, and is
// in the audit log before it begins.

import { lstatSync, readFileSync, readdirSync } from 'node:fs';
import type { AuditEvent } from '../contract/audit.ts';
import { chooseChanges } from '../contract/changes.ts';
import { AcodeError } from '../contract/errors.ts';
import type { ApplyReport, PendingApply } from '../contract/fork.ts';
import type {
  ForkApplied,
  ForkApplyEnded,
  ForkApplyRequest,
  ForkConsent,
  ForkPatch,
  ForkPatchRequest,
  PatchOmission,
} from '../contract/forks.ts';
import type { SandboxDetails } from '../contract/host.ts';
import type { RiskyChange, RiskyKind } from '../contract/result.ts';
import { locate, parseMountinfo } from '../isolation/kernel.ts';
import type { KernelMount } from '../isolation/kernel.ts';
import { KEEP } from '../lifecycle/labels.ts';
import { findingsOf } from '../records/audit/files.ts';
import type { Operation } from '../records/telemetry.ts';
import type { Host } from '../run/host.ts';
import { identityOf, isSameNumber, isWithin } from '../workspace/file-identity.ts';
import { applyChanges, pendingApply, resumeApply, rollBackApply } from '../workspace/fork/apply.ts';
import { settleBase } from '../workspace/fork/base.ts';
import type { SettledPath } from '../workspace/fork/base.ts';
import type { ForkDiff, ForkDiffEntry } from '../workspace/fork/diff.ts';
import { gitPatch } from '../workspace/fork/patch.ts';
import { selected } from '../workspace/fork/plan.ts';
import { ForkRisks } from '../workspace/fork/risk.ts';
import { hasRepositoryChanges } from '../workspace/fork/record.ts';
import type { ForkRecord } from '../workspace/fork/record.ts';
import type { ForkStore } from '../workspace/fork/store.ts';

/** The fork whose changes are applied, printed or added as a branch. The caller holds its lock, and nothing writes its layers. */
export interface Leaving {
  readonly host: Host;
  readonly store: ForkStore;
  readonly record: ForkRecord;
  /** Whether a persistent sandbox, paused now, goes on writing it afterwards. */
  readonly isLive: boolean;
  /** Reads its changes. */
  readonly openDiff: () => Promise<ForkDiff>;
  /** Removes the fork. */
  readonly remove: () => Promise<void>;
}

// The shortest beginning of a diff’s id that stands for it.
const MIN_DIFF_ID = 12;
const MAX_PATHS = 20;
const MAX_NAMED = 50;

/** Applies the changes of a fork to its workspace. */
export async function applyFork(leaving: Leaving, request: ForkApplyRequest): Promise<ForkApplied> {
  const { host, record } = leaving;
  const { only, check = false, diffId } = request;
  refuseReplaced(record);
  refusePending(host, record.workspace);
  if (!check) await refuseWriters(host, record.workspace);
  using diff = await leaving.openDiff();
  const entries = await entriesOf(diff);
  const { id, counts, masked } = diff.summary;
  if (diffId !== undefined && !isSameDiff(diffId, id))
    throw new AcodeError('ACODE-FRK-015', { fork: nameOf(record), shown: diffId, now: id });
  const offered = offeredOf(entries, only);
  const { chosen } = selected(offered, only);
  const riskyChanges = risksOf(diff, chosen);
  const way = new WayOut(leaving, 'apply', { id, counts, riskyChanges, only });
  if (!check) await way.pass(request);
  const report = await way.during(() =>
    applyChanges(offered, {
      ...placeOf(host, record.workspace),
      forkId: record.id,
      diffId: id,
      startedAt: host.telemetry.clock.now(),
      signal: host.closing,
      check,
      ...(only === undefined ? {} : { only }),
    }),
  );
  const isLeft = chosen.length < entries.length || masked.length > 0;
  const removed = report.outcome === 'applied' && (await settle(leaving, chosen, isLeft));
  if (!check) await way.ended(report, removed);
  return {
    ...report,
    forkId: record.id,
    diffId: id,
    counts,
    riskyChanges,
    removed,
    gitChanges: entries.length - offered.length,
  };
}

/** Prints the changes of a fork as a patch. */
export async function printPatch(leaving: Leaving, request: ForkPatchRequest): Promise<ForkPatch> {
  const { host, record } = leaving;
  const { riskyChanges, id, counts } = await risksOfAll(leaving);
  const way = new WayOut(leaving, 'patch', { id, counts, riskyChanges });
  await way.pass(request);
  using diff = await leaving.openDiff();
  const omitted: PatchOmission[] = [];
  const omit = (path: string, reason: PatchOmission['reason']): void => void omitted.push({ path, reason });
  const pieces = gitPatch(withoutGit(diff, omit), { signal: host.closing, omitted: omit });
  for await (const piece of pieces) await request.write(piece);
  return { forkId: record.id, ...diff.summary, omitted };
}

async function entriesOf(diff: ForkDiff): Promise<ForkDiffEntry[]> {
  const entries: ForkDiffEntry[] = [];
  for await (const entry of diff) entries.push(entry);
  return entries;
}

// Every command of git writes its own directory. What is in there goes with commits, or where it is named; `git apply` takes none of it.
function isOfGit({ change: { path } }: ForkDiffEntry): boolean {
  return gitDirectoryOf(path) !== null;
}

function gitDirectoryOf(path: string): string | null {
  const names = path.split('/');
  const at = names.indexOf('.git');
  return at < 0 ? null : names.slice(0, at + 1).join('/');
}

async function* withoutGit(
  diff: AsyncIterable<ForkDiffEntry>,
  omit: (path: string, reason: 'git') => void,
): AsyncGenerator<ForkDiffEntry> {
  const seen = new Set<string>();
  for await (const entry of diff) {
    const directory = gitDirectoryOf(entry.change.path);
    if (directory === null) yield entry;
    else if (!seen.has(directory)) {
      seen.add(directory);
      omit(directory, 'git');
    }
  }
}

async function risksOfAll({
  openDiff,
}: Leaving): Promise<Pick<ForkPatch, 'id' | 'counts'> & { riskyChanges: readonly RiskyChange[] }> {
  using diff = await openDiff();
  const risks = new ForkRisks(diff.layers);
  for await (const entry of diff) if (!isOfGit(entry)) risks.add(entry);
  return { ...diff.summary, riskyChanges: risks.finish() };
}

/** The interrupted apply of a workspace; null where there is none. */
export function pendingIn(host: Pick<Host, 'directories'>, workspace: string): PendingApply | null {
  return pendingApply(placeOf(host, workspace));
}

/** Ends the interrupted apply of a workspace, one way or the other. */
export async function endApply(host: Host, workspace: string, how: 'resume' | 'rollback'): Promise<ForkApplyEnded> {
  const place = placeOf(host, workspace);
  const pending = pendingApply(place);
  const report = await (how === 'resume' ? resumeApply(place) : rollBackApply(place));
  const forkId = pending?.forkId ?? '';
  const operation = host.telemetry.begin('forks.apply');
  const event = how === 'resume' ? 'interrupted apply finished' : 'interrupted apply undone';
  const detail = { fork: forkId, diff: pending?.diffId ?? null, outcome: report.outcome, applied: report.applied };
  await host.audit.append(eventOf(operation, 'apply', { event, workspace, detail }));
  operation.succeed(detail);
  return { ...report, forkId };
}

/** After an interrupted apply was finished: what it applied is no longer among the changes of the fork, if the fork is what it was. */
export async function settleResumed(leaving: Leaving, { diffId, only }: PendingApply): Promise<void> {
  using diff = await leaving.openDiff();
  const entries = await entriesOf(diff);
  const { id, masked } = diff.summary;
  if (id !== diffId) return;
  const { chosen } = selected(offeredOf(entries, only), only);
  await settle(leaving, chosen, chosen.length < entries.length || masked.length > 0);
}

function offeredOf(entries: ForkDiffEntry[], only: readonly string[] | undefined): ForkDiffEntry[] {
  return only === undefined ? entries.filter(entry => !isOfGit(entry)) : entries;
}

function placeOf(
  { directories }: Pick<Host, 'directories'>,
  workspace: string,
): { stateDirectory: string; workspace: string } {
  return { stateDirectory: directories.state, workspace };
}

function refusePending(host: Host, workspace: string): void {
  const pending = pendingIn(host, workspace);
  if (pending) throw new AcodeError('ACODE-FRK-010', { workspace, fork: pending.forkId });
}

// A directory that was put in the place of the workspace is another one.
/** Refuses a fork whose workspace was replaced. */
export function refuseReplaced(record: ForkRecord): void {
  const found = lstatSync(record.workspace, { throwIfNoEntry: false });
  if (found?.isDirectory() && isSameNumber(record.identity, identityOf(found))) return;
  throw new AcodeError('ACODE-FRK-002', { fork: nameOf(record), workspace: record.workspace });
}

function isSameDiff(shown: string, now: string): boolean {
  return shown === now || (shown.length >= MIN_DIFF_ID && now.startsWith(shown));
}

function risksOf(diff: ForkDiff, chosen: readonly ForkDiffEntry[]): readonly RiskyChange[] {
  const risks = new ForkRisks(diff.layers);
  for (const entry of chosen) risks.add(entry);
  return risks.finish();
}

// After a successful apply: removes the fork if nothing is left in it and nothing uses it. Otherwise what was applied becomes the base, so that later diffs
// do not list it.
async function settle(
  { host, store, record, isLive, remove }: Leaving,
  chosen: readonly ForkDiffEntry[],
  isLeft: boolean,
): Promise<boolean> {
  // Commits of a linked worktree are no part of the diff.
  if (!isLive && !isLeft && Object.keys(record.snapshots).length === 0 && !hasRepositoryChanges(record)) {
    // What only an engine can remove is left for the next sweep; the changes are applied either way.
    await remove().catch((error: unknown) =>
      host.telemetry.log('warn', 'an applied fork could not be removed completely', { reason: String(error) }),
    );
    return true;
  }
  settleBase(store.baseOf(record.id), {
    workspace: record.workspace,
    paths: chosen.map(settledPath),
    layer: record.active?.layer ?? record.layers.at(-1)?.number ?? 1,
    atMs: host.telemetry.clock.now(),
    isLive,
  });
  return false;
}

function settledPath({ change, bytes: path, mode, target, source }: ForkDiffEntry): SettledPath {
  if (change.change === 'deleted') return { path, after: null };
  const { kind } = change;
  const file = kind === 'file' ? source : null;
  return { path, after: { kind, mode: mode ?? 0, size: change.bytes?.after ?? 0, link: target, file } };
}

// Refuses an apply while a sandbox can write the same tree. Of single-use sandboxes, those that wait for a command do not count.
async function refuseWriters(host: Host, workspace: string): Promise<void> {
  const sandboxes = await sandboxesOn(host);
  const known = new Set(sandboxes.map(({ sandboxId }) => sandboxId));
  const holders = host.memory.holders();
  const busy = new Set(holders.map(({ sandboxId }) => sandboxId));
  // A sandbox of the warm pool has another id than the command that it was given to.
  const isWarmUsed = holders.some(({ sandboxId }) => !known.has(sandboxId));
  const writer = sandboxes.find(({ sandboxId, containerId, labels, mounts }) => {
    const isAtWork = labels[KEEP] === 'true' || busy.has(sandboxId) || isWarmUsed;
    if (!isAtWork || host.pool?.holds(containerId) === true) return false;
    return mounts.some(mount => !mount.readOnly && isSameTree(mount.source, workspace));
  });
  if (!writer) return refuseLocalWriters(workspace);
  const kill = writer.labels[KEEP] === 'true';
  throw new AcodeError('ACODE-FRK-017', { workspace, sandbox: writer.givenName ?? writer.sandboxId, kill });
}

// Sandboxes of level bubblewrap are processes of this user. The first one in each has the mounts of the sandbox as its own.
function refuseLocalWriters(workspace: string): void {
  const own = textOf('/proc/self/mountinfo');
  if (own === null) return;
  const ours = parseMountinfo(own);
  const here = locate(workspace, ours);
  const isHere = ({ device, root, options, type }: KernelMount): boolean =>
    device === here.device && type !== 'overlay' && options.includes('rw') && isSameTree(root, here.root);
  const pids = readdirSync('/proc').filter(name => /^\d+$/.test(name) && textOf(`/proc/${name}/comm`) === 'bwrap\n');
  const writer = pids.find(pid => {
    const mounts = parseMountinfo(textOf(`/proc/${pid}/mountinfo`) ?? '');
    return !isOutside(mounts, ours) && mounts.some(isHere);
  });
  if (writer !== undefined)
    throw new AcodeError('ACODE-FRK-017', { workspace, sandbox: `bubblewrap (process ${writer})`, kill: false });
}

// Whether a process of bubblewrap has the host’s own root: outside of its sandbox, or before that is complete. Nothing untrusted runs in it.
function isOutside(mounts: readonly KernelMount[], ours: readonly KernelMount[]): boolean {
  const at = (target: string, table: readonly KernelMount[]) => table.findLast(mount => mount.target === target);
  const [root, own] = [at('/', mounts), at('/', ours)];
  if (root && root.device === own?.device && root.root === own.root) return true;
  return at('/oldroot', mounts) !== undefined && at('/newroot', mounts) !== undefined;
}

// Null for what another user’s process has, and for one that has ended.
function textOf(path: string): string | null {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return null;
  }
}

function isSameTree(source: string, workspace: string): boolean {
  return isWithin(source, workspace) || isWithin(workspace, source);
}

// The sandboxes that run on the engine. Where there is no engine, none does; one that does not answer is an error.
async function sandboxesOn(host: Host): Promise<readonly SandboxDetails[]> {
  try {
    const engine = await host.engine();
    const all = await engine.list(host.closing);
    const running = all.filter(({ state }) => state === 'running' || state === 'paused');
    const details = await Promise.all(running.map(({ containerId }) => engine.inspect(containerId, host.closing)));
    return details.filter(one => one !== null);
  } catch (error) {
    if (error instanceof AcodeError && error.is('ACODE-SBX-008') && error.context.lateMs === undefined) return [];
    throw error;
  }
}

function nameOf({ name, id }: ForkRecord): string {
  return name ?? id;
}

// The changes to release, for the risk check and the records.
interface Parcel extends Pick<ForkPatch, 'id' | 'counts'> {
  readonly riskyChanges: readonly RiskyChange[];
  readonly only?: readonly string[] | undefined;
  /** More for the records. */
  readonly detail?: Readonly<Record<string, string | number>>;
}

type Way = 'apply' | 'patch' | 'branch';

const EVENTS: Readonly<Record<Way, string>> = {
  apply: 'changes of a fork to be applied',
  patch: 'changes of a fork printed as a patch',
  branch: 'commits of a fork to be added as a branch',
};

/** Releases changes of a fork: checks that their risks are accepted, and records it. */
export class WayOut {
  readonly #leaving: Pick<Leaving, 'host' | 'record'>;
  readonly #way: Way;
  readonly #parcel: Parcel;
  readonly #operation: Operation;

  constructor(leaving: Pick<Leaving, 'host' | 'record'>, way: Way, parcel: Parcel) {
    this.#leaving = leaving;
    this.#way = way;
    this.#parcel = parcel;
    this.#operation = leaving.host.telemetry.begin(`forks.${way}`, { fork: leaving.record.id });
  }

  /** Throws unless every rule of risk is accepted; otherwise writes the audit record before anything is released. */
  async pass({ acceptRisk = [], consent }: ForkConsent): Promise<void> {
    const { record } = this.#leaving;
    const { id, counts, riskyChanges, only, detail: more } = this.#parcel;
    const rules = [...new Set(riskyChanges.map(({ kind }) => kind))].sort();
    const missing = acceptRisk === 'all' ? [] : rules.filter(rule => !acceptRisk.includes(rule));
    if (missing.length > 0) await this.#refuse(rules);
    const detail = {
      fork: record.id,
      diff: id,
      ...more,
      ...counts,
      ...(only === undefined ? {} : { only: only.slice(0, MAX_PATHS).join('\n') }),
      risks: riskyChanges.length,
      acceptedRisk: rules.join(','),
      consent: consent?.how ?? 'library',
      parent: consent?.parent ?? 'unknown',
    };
    await this.#record(EVENTS[this.#way], detail);
  }

  /** Does the work, and notes its failure. */
  async during<Value>(work: () => Promise<Value>): Promise<Value> {
    try {
      return await work();
    } catch (error) {
      this.#operation.fail(error);
      throw error;
    }
  }

  /** Records what was done. Risky changes that the workspace has now are findings, as those of a run. */
  async ended(report: ApplyReport, removed: boolean): Promise<void> {
    const { outcome, applied, already, conflicts, refused } = report;
    const { id, riskyChanges } = this.#parcel;
    const counts = { outcome, applied, already, conflicts: conflicts.length, refused: refused.length, removed };
    const detail = { fork: this.#leaving.record.id, diff: id, ...counts };
    const isThere = outcome === 'applied' && riskyChanges.length > 0;
    await this.#record('apply of a fork ended', detail, isThere ? riskyChanges : []);
    this.#operation.succeed(detail);
  }

  /** Records that a branch was added. */
  async added(): Promise<void> {
    const { riskyChanges, detail: more = {} } = this.#parcel;
    const detail = { fork: this.#leaving.record.id, ...more };
    await this.#record('branch of a fork added', detail, riskyChanges);
    this.#operation.succeed(detail);
  }

  async #refuse(rules: readonly RiskyKind[]): Promise<never> {
    const { host, record } = this.#leaving;
    const { riskyChanges } = this.#parcel;
    const { shown, incomplete } = chooseChanges(riskyChanges, MAX_NAMED);
    const changes = [...shown, ...incomplete];
    const context = { fork: nameOf(record), way: this.#way, rules, total: riskyChanges.length, changes };
    const error = new AcodeError('ACODE-FRK-016', context);
    this.#operation.fail(error);
    await host.audit.append({
      kind: 'refusal',
      operation: this.#way,
      correlationId: this.#operation.correlationId,
      sessionId: host.session.id,
      workspace: record.workspace,
      errorCode: error.code,
      message: error.message,
    });
    throw error;
  }

  async #record(
    event: string,
    detail: NonNullable<AuditEvent['detail']>,
    found: readonly RiskyChange[] = [],
  ): Promise<void> {
    const { host, record } = this.#leaving;
    const about = { event, workspace: record.workspace, detail };
    const findings = found.length === 0 ? {} : findingsOf({ riskyChanges: [...found], scan: 'complete' });
    await host.audit.append({ ...eventOf(this.#operation, this.#way, about), sessionId: host.session.id, ...findings });
  }
}

function eventOf(
  { correlationId }: Operation,
  operation: Way,
  about: Pick<AuditEvent, 'event' | 'workspace' | 'detail'>,
): AuditEvent {
  return { kind: 'event', operation, correlationId, ...about };
}
