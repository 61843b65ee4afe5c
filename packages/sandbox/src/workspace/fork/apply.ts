// Applies the changes of a fork to its workspace: all of them or none.
//
// In this order: decide for each path, make the new files, write the journal, take the steps, check what they replaced, mark the end, clean
// up. Until the journal is written the workspace is as it was; from then on a killed apply can be finished or undone.

import { chmodSync, fstatSync, linkSync, unlinkSync } from 'node:fs';
import type { FileHandle } from 'node:fs/promises';
import { lchown } from 'node:fs/promises';
import { AcodeError } from '../../contract/errors.ts';
import type { ApplyReport, PendingApply } from '../../contract/fork.ts';
import { codeOf, reasonOf } from '../../contract/system-error.ts';
import { protectionsIn } from '../protected-paths.ts';
import { Commit } from './commit.ts';
import type { ApplyProgress, Obstacles } from './commit.ts';
import { ApplyPlace, syncDirectories, syncFiles } from './journal.ts';
import type { ApplyArea, Journal, JournalDraft } from './journal.ts';
import { planApply } from './plan.ts';
import type { AppliedChange, ApplyPlan, PlannedFile } from './plan.ts';
import { OpenDirectory, createFile, currentUmask, isHollow } from './tree.ts';

/** What an apply, or the end of an interrupted one, needs to know. */
export interface ApplySettings {
  /** The user’s state directory. */
  readonly stateDirectory: string;
  /** The workspace, without links. */
  readonly workspace: string;
  readonly onProgress?: (progress: ApplyProgress) => void;
  /** Whether each part is on the disk before the next begins; `false` is for what may be lost with the machine. Default `true`. */
  readonly durable?: boolean;
}

/** How the changes of a fork are applied. */
export interface ApplyOptions extends ApplySettings {
  readonly forkId: string;
  /** The diff that a person confirmed; part of the record. */
  readonly diffId: string;
  readonly startedAt: number;
  readonly signal: AbortSignal;
  /** Paths to be applied, with what is below them. Absent: all. Protected paths are applied only if they are named here. */
  readonly only?: readonly string[];
  /** Decides, and changes nothing. */
  readonly check?: boolean;
}

/** The interrupted apply of a workspace; null where there is none. */
export function pendingApply({ stateDirectory, workspace }: ApplySettings): PendingApply | null {
  return new ApplyPlace(stateDirectory, workspace).pending();
}

/** Applies changes. Conflicts and refusals are in the report, and nothing is changed then. */
export async function applyChanges(
  changes: AsyncIterable<AppliedChange> | Iterable<AppliedChange>,
  options: ApplyOptions,
): Promise<ApplyReport> {
  const place = new ApplyPlace(options.stateDirectory, options.workspace);
  using root = OpenDirectory.openWorkspace(options.workspace);
  refusePending(place);
  if (options.check === true) return reportOf('checked', await decided(root, changes, options));
  return await place.locked(async () => {
    await endAfterMark(place, root);
    refusePending(place);
    const plan = await decided(root, changes, options);
    if (isBlocked(plan)) return reportOf('refused', plan);
    if (plan.steps.length === 0) return reportOf('applied', plan);
    return await applyPlan(place, root, plan, options);
  });
}

function decided(
  root: OpenDirectory,
  changes: AsyncIterable<AppliedChange> | Iterable<AppliedChange>,
  { workspace, only, signal }: ApplyOptions,
): Promise<ApplyPlan> {
  return planApply(root, changes, {
    ...(only === undefined ? {} : { only }),
    protectedBy: protectionsIn(workspace),
    umask: currentUmask(),
    signal,
  });
}

function refusePending(place: ApplyPlace): void {
  const pending = place.pending();
  if (pending) throw new AcodeError('ACODE-FRK-010', { workspace: place.workspace, fork: pending.forkId });
}

// An apply that was killed while it cleaned up is over: what is left of it is nobody’s.
async function endAfterMark(place: ApplyPlace, root: OpenDirectory): Promise<void> {
  const found = place.read(root);
  if (!found) return;
  using area = found.area;
  if (found.outcome !== null) await place.clean(root, area);
}

async function applyPlan(
  place: ApplyPlace,
  root: OpenDirectory,
  plan: ApplyPlan,
  options: ApplyOptions,
): Promise<ApplyReport> {
  const durable = options.durable ?? true;
  using area = place.openArea(root);
  let journal: Journal;
  try {
    const obstacles = (await stage(area, plan, options)) ?? plan.changedSince(root);
    if (obstacles) {
      await place.clean(root, area);
      return reportOf('refused', plan, obstacles);
    }
    if (durable) await syncFiles(area.fresh, [...plan.files.keys()].map(String));
    options.signal.throwIfAborted();
    journal = place.write(root, area, draftOf(plan, options), durable);
  } catch (error) {
    await place.clean(root, area);
    if (codeOf(error) === '' || error instanceof AcodeError) throw error;
    const { workspace } = options;
    throw new AcodeError('ACODE-FRK-013', { workspace, reason: reasonOf(error), state: 'unchanged' }, { cause: error });
  }
  const commit = new Commit(root, area, journal, true);
  return await finish({ place, root, area, journal, commit, options });
}

interface Finishing {
  readonly place: ApplyPlace;
  readonly root: OpenDirectory;
  readonly area: ApplyArea;
  readonly journal: Journal;
  readonly commit: Commit;
  readonly options: ApplySettings;
}

async function finish(finishing: Finishing): Promise<ApplyReport> {
  const { place, root, area, journal, commit, options } = finishing;
  const { onProgress, durable = true } = options;
  try {
    const obstacles = await commit.forward(onProgress);
    if (obstacles) return await undo(finishing, 'refused', obstacles);
    if (durable) await syncDirectories(root, commit.directories());
    place.mark(journal, 'applied', durable);
    await place.clean(root, area);
  } catch (error) {
    throw interrupted(options.workspace, error);
  }
  const { changes: applied, already, merged } = journal.header;
  return { outcome: 'applied', applied, already, merged, conflicts: [], refused: [], kept: commit.kept };
}

async function undo(
  { place, root, area, journal, commit, options: { durable = true } }: Finishing,
  outcome: 'refused' | 'rolled-back',
  obstacles: Obstacles,
): Promise<ApplyReport> {
  await commit.back();
  if (durable) await syncDirectories(root, commit.directories());
  place.mark(journal, 'rolled-back', durable);
  await place.clean(root, area);
  return { outcome, applied: 0, already: 0, merged: [], ...obstacles, kept: commit.kept };
}

function interrupted(workspace: string, error: unknown): unknown {
  if (codeOf(error) === '' || error instanceof AcodeError) return error;
  return new AcodeError(
    'ACODE-FRK-013',
    { workspace, reason: reasonOf(error), state: 'interrupted' },
    { cause: error },
  );
}

/**
 * Finishes an interrupted apply. Where the workspace has changed since in what is still to be applied, everything is undone, and the
 * report says why.
 */
export function resumeApply(settings: ApplySettings): Promise<ApplyReport> {
  return ended(settings, finish);
}

/** Undoes an interrupted apply. What was saved since at a path stays there, and the earlier file gets a name beside it. */
export function rollBackApply(settings: ApplySettings): Promise<ApplyReport> {
  return ended(settings, async finishing => {
    try {
      return await undo(finishing, 'rolled-back', { conflicts: [], refused: [] });
    } catch (error) {
      throw interrupted(settings.workspace, error);
    }
  });
}

async function ended(
  options: ApplySettings,
  end: (finishing: Finishing) => Promise<ApplyReport>,
): Promise<ApplyReport> {
  const place = new ApplyPlace(options.stateDirectory, options.workspace);
  using root = OpenDirectory.openWorkspace(options.workspace);
  return await place.locked(async () => {
    const found = place.read(root);
    if (!found) throw place.leftover() ?? new AcodeError('ACODE-FRK-012', { workspace: options.workspace });
    const { journal, outcome } = found;
    using area = found.area;
    if (outcome === null)
      return await end({ place, root, area, journal, commit: new Commit(root, area, journal, false), options });
    // It had ended, one way or the other, when it was killed.
    await place.clean(root, area);
    const isApplied = outcome === 'applied';
    const { changes, already, merged } = journal.header;
    return {
      outcome,
      applied: isApplied ? changes : 0,
      already: isApplied ? already : 0,
      merged: isApplied ? merged : [],
      conflicts: [],
      refused: [],
      kept: [],
    };
  });
}

function isBlocked({ conflicts, refused }: Obstacles): boolean {
  return conflicts.length > 0 || refused.length > 0;
}

function reportOf(
  outcome: 'applied' | 'checked' | 'refused',
  plan: ApplyPlan,
  obstacles: Obstacles = plan,
): ApplyReport {
  const { conflicts, refused } = obstacles;
  const isRefused = isBlocked(obstacles);
  return {
    outcome: isRefused ? 'refused' : outcome,
    applied: isRefused ? 0 : plan.changes,
    already: plan.already,
    merged: plan.merged,
    conflicts,
    refused,
    kept: plan.kept.map(path => ({ path, reason: 'not-empty' })),
  };
}

function draftOf(plan: ApplyPlan, { forkId, diffId, only, startedAt }: ApplyOptions): JournalDraft {
  const { changes, already, merged, kept, steps, times } = plan;
  return { forkId, diffId, only, startedAt, changes, already, merged, kept, steps, times };
}

const PROBE = 'probe';
const SECOND = 'probe-link';

// Makes the new files. Their content, mode and group are the last that is known of the fork: from here on only the area is read.
async function stage(area: ApplyArea, plan: ApplyPlan, options: ApplyOptions): Promise<Obstacles | null> {
  await probeLinks(area, options.workspace);
  for (const [at, file] of plan.files) {
    options.signal.throwIfAborted();
    const number = String(at);
    if (Buffer.isBuffer(file.content)) await createFile(area.fresh, number, file.content);
    else if (!(await stageFrom(area, number, file, file.content, options)))
      return { conflicts: [], refused: [{ path: file.path, reason: 'sparse' }] };
    if (file.group !== null) await giveGroup(area.fresh.at(number), file.group);
    chmodSync(area.fresh.at(number), file.mode);
  }
  return null;
}

async function stageFrom(
  area: ApplyArea,
  number: string,
  { sha256 }: PlannedFile,
  open: () => Promise<FileHandle>,
  { signal, workspace }: ApplyOptions,
): Promise<boolean> {
  const handle = await open();
  try {
    const found = fstatSync(handle.fd, { bigint: true });
    if (isHollow(found)) return false;
    const written = await createFile(area.fresh, number, handle.fd, signal);
    if (!found.isFile() || written.sha256 !== sha256)
      throw new AcodeError('ACODE-FRK-013', {
        workspace,
        reason: 'the fork changed while it was applied',
        state: 'unchanged',
      });
    return true;
  } finally {
    await handle.close();
  }
}

// The group of the file that is replaced, or of a directory that hands its own on. Where the user may not give it, the user’s own stays.
async function giveGroup(path: string, group: number): Promise<void> {
  try {
    await lchown(path, -1, group);
  } catch (error) {
    if (codeOf(error) !== 'EPERM') throw error;
  }
}

async function probeLinks({ fresh }: ApplyArea, workspace: string): Promise<void> {
  try {
    await createFile(fresh, PROBE, Buffer.alloc(0));
    linkSync(fresh.at(PROBE), fresh.at(SECOND));
    unlinkSync(fresh.at(SECOND));
    unlinkSync(fresh.at(PROBE));
  } catch (cause) {
    const reason = `hard links do not work on its file system (${reasonOf(cause)})`;
    throw new AcodeError('ACODE-FRK-014', { workspace, reason }, { cause });
  }
}
