// Makes the image of a project: base and files are checked, dependencies installed in a sandbox, and the engine builds one layer.

import { join } from 'node:path';
import { remember, removeReplaced } from './built-images.ts';
import { AcodeError } from '../../contract/errors.ts';
import type { BuildProjectOptions, ProjectImage } from '../../contract/project-image.ts';
import type { OpenFurther } from '../../run/host.ts';
import { cannotFetch, runInstall, tooLong } from './installing.ts';
import type { BuiltImage, EngineBackend } from '../../isolation/backend.ts';
import { archiveStream } from './archive.ts';
import type { Archive } from './archive.ts';
import { NO_INSTALL, changedSince, checksumOf, manifestOf, partsText, sha256, wasInstalled } from './checksum.ts';
import type { Checksum } from './checksum.ts';
import { MAX_BYTES, MAX_FILES, readContext, readIgnoreFile } from './context.ts';
import type { Context } from './context.ts';
import { forgetHashes, hashContents } from './contents.ts';
import type { HashStore } from './contents.ts';
import { IgnoreRules } from './ignore.ts';
import { lockfilesOf } from './lockfiles.ts';
import { Stage } from './stage.ts';
import type { Unremoved } from './stage.ts';
import { CHECKSUM_LABEL, INPUTS_LABEL, KIND_LABEL, TEMPLATE_NAME, templateFor } from './template.ts';
import { projectReference } from '../../policy/image-naming.ts';
import { baseOf, planBase, refuseItself } from './project-base.ts';
import type { Planned } from '../../run/planned.ts';
import type { ImageHost } from '../pulls.ts';
import type { Operation } from '../../records/telemetry/operation.ts';
import { LockTimeoutError } from '../../lifecycle/lock.ts';
import type { Locks } from '../../lifecycle/lock.ts';

const TIMEOUT_MS = 600_000;
const MAX_TIMEOUT_MS = 24 * 3600 * 1000;
const MAX_SHOWN = 20;
const KIND = 'project';
const NOTHING_TO_FETCH_FROM =
  'the install command has no network, and no cache was ever filled for it: it may wait in vain. --network bridge gives it one (docs/project-images.md).';
const INSTALLED_NO_MORE =
  'the project image was built with an install command before, and this build has none: what that installed is no longer in it. --install runs one again.';
// In place of the base’s id, which is an input of its own.
const ANY_BASE = `sha256:${'0'.repeat(64)}`;

/** What the steps of one build share. */
interface Building {
  readonly host: ImageHost;
  readonly openFurther: OpenFurther;
  readonly options: BuildProjectOptions;
  readonly operation: Operation;
  readonly signal: AbortSignal;
  /** How far it is, for what is said where the time is up. */
  readonly stand: BuildProgress;
}

interface BuildProgress {
  image: string;
  /** What the install command was planned with, while it runs. */
  installing: Planned | null;
}

/** Builds the image of the host’s workspace, or finds that nothing has changed. */
export async function buildProject(building: Omit<Building, 'stand'>): Promise<ProjectImage> {
  const { host, options, signal } = building;
  const timeoutMs = timeoutOf(options);
  const deadline = new AbortController();
  const cancel = host.telemetry.clock.after(timeoutMs, () => deadline.abort());
  const stand: BuildProgress = { image: 'of this workspace', installing: null };
  try {
    const own = { ...building, stand, signal: AbortSignal.any([signal, deadline.signal]) };
    return await build(own, timeoutMs);
  } catch (error) {
    if (!deadline.signal.aborted || signal.aborted) throw error;
    throw new AcodeError('ACODE-IMG-001', { image: stand.image, ...tooLong(timeoutMs, stand.installing) });
  } finally {
    cancel();
  }
}

function timeoutOf({ timeoutMs = TIMEOUT_MS }: BuildProjectOptions): number {
  if (Number.isFinite(timeoutMs) && timeoutMs > 0 && timeoutMs <= MAX_TIMEOUT_MS) return timeoutMs;
  const reason = `must be a number of milliseconds, at most ${MAX_TIMEOUT_MS}`;
  throw new AcodeError('ACODE-SBX-017', { field: 'timeoutMs', reason });
}

async function build(building: Building, timeoutMs: number): Promise<ProjectImage> {
  const { host, options, operation, signal } = building;
  const began = host.telemetry.clock.monotonic();
  const engine = await host.engine();
  const planned = await planBase(building, engine);
  const { id, reference: baseReference } = planned.spec.image;
  const base = await baseOf(engine, { id, reference: baseReference }, signal);
  const root = rootOf(planned);
  const reference = projectReference(root, host.uid);
  building.stand.image = reference;
  refuseItself(baseReference, reference);
  operation.note({ image: reference, base: id });
  const on = await engine.images.engineId(signal);
  const { builds } = engine;
  const warn = operation.step.bind(operation, 'warn');
  const notes = { builds, on, index: host.pulls.index, clock: host.telemetry.clock, warn, signal };
  const look = async (): Promise<BuildState> => {
    const project = await projectAt(building, root, planned, base);
    return { project, before: await builds.find(reference, signal) };
  };
  const result = ({ project, before }: BuildState, made: BuiltImage, built: boolean): ProjectImage => ({
    reference,
    id: made.id,
    checksum: project.checksum.whole,
    built,
    changed: built ? changedSince(before?.labels[INPUTS_LABEL], project.checksum) : [],
    base: { reference: baseReference, id },
    files: project.context.entries.filter(({ kind }) => kind !== 'directory').length,
    bytes: project.context.bytes,
    withheld: { count: project.context.withheld.length, paths: project.context.withheld.slice(0, MAX_SHOWN) },
    durationMs: host.telemetry.clock.monotonic() - began,
  });
  const current = async (seen: BuildState): Promise<ProjectImage | null> => {
    const { before, project } = seen;
    if (!before || options.force === true || !isCurrent(before, base, project.checksum)) return null;
    await remember(notes, reference, before.id);
    return result(seen, before, false);
  };
  const unchanged = await current(await look());
  if (unchanged) return unchanged;
  const lock = { locks: host.pulls.locks, engine: on, reference, deadlineMs: timeoutMs, signal };
  return buildUnderLock(lock, async () => {
    // Checked again: the process that had the lock before may have made what is wanted.
    const seen = await look();
    const others = await current(seen);
    if (others) return others;
    const { checksum } = seen.project;
    if (!options.install && wasInstalled(seen.before?.labels[INPUTS_LABEL])) warn(INSTALLED_NO_MORE, {});
    await record(building, 'project image is built', { image: reference, base: id, checksum: checksum.whole });
    const made = await make({ building, engine, planned, base, project: seen.project, reference, timeoutMs });
    await record(building, 'project image was built', { image: reference, imageId: made.id });
    await remember(notes, reference, made.id);
    await removeReplaced(notes, isProject(seen.before) ? seen.before.id : made.id, made.id);
    return result(seen, made, true);
  });
}

/** What there is to build from, and what was built before. */
interface BuildState {
  readonly project: Project;
  readonly before: BuiltImage | null;
}

function isProject(image: BuiltImage | null): image is BuiltImage {
  return image?.labels[KIND_LABEL] === KIND;
}

function rootOf({ spec }: Planned): string {
  const workspace = spec.mounts.find(({ purpose }) => purpose === 'workspace');
  if (!workspace) throw new TypeError('every plan has a workspace');
  return workspace.source;
}

/** What a project image is made of. */
interface Project {
  readonly context: Context;
  readonly hashes: ReadonlyMap<string, string>;
  readonly checksum: Checksum;
  readonly store: HashStore;
}

async function projectAt(
  { host, options, signal }: Building,
  root: string,
  { policy }: Planned,
  base: BuiltImage,
): Promise<Project> {
  const ignoreText = await readIgnoreFile(root);
  const { mostBytes = MAX_BYTES, mostFiles = MAX_FILES, install } = options;
  const rules = { mostBytes, mostFiles, ignore: IgnoreRules.parse(ignoreText), linksOut: false };
  const context = await readContext(root, rules, signal);
  const store = { file: join(host.directories.state, 'project-images', `${sha256(root)}.hashes`), uid: host.uid };
  const hashes = await hashContents(context, store, signal);
  const checksum = checksumOf({
    base: base.id,
    template: templateFor(ANY_BASE),
    install: install ? JSON.stringify([install.command, policy.network.value]) : NO_INSTALL,
    ignore: ignoreText,
    lockfiles: await lockfilesOf(root, hashes),
    context: manifestOf(context.entries, hashes),
  });
  return { context, hashes, checksum, store };
}

// The label alone is a claim of whoever made the image: it must stand on the base as well.
function isCurrent(image: BuiltImage, base: BuiltImage, { whole }: Checksum): boolean {
  return image.labels[CHECKSUM_LABEL] === whole && base.layers.every((layer, index) => image.layers[index] === layer);
}

interface Making {
  readonly building: Building;
  readonly engine: EngineBackend;
  readonly planned: Planned;
  readonly base: BuiltImage;
  readonly project: Project;
  readonly reference: string;
  readonly timeoutMs: number;
}

async function make(making: Making): Promise<BuiltImage> {
  const { building, base, project } = making;
  const { install } = building.options;
  const template = templateFor(base.id);
  try {
    if (!install) return await send(making, { template, context: project.context, hashes: project.hashes });
    const { operation, signal, openFurther } = building;
    const left = (what: Unremoved): void =>
      operation.step('warn', 'a copy of a project could not be removed', { ...what });
    await using stage = await Stage.of(project.context, project.hashes, { host: building.host.identity, left }, signal);
    const { engine, planned, reference: image } = making;
    const { clock } = building.host.telemetry;
    const { onOutput, onStep } = building.options;
    const installing = { install, workspace: stage.root, planned, image, engine, openFurther, clock, onOutput };
    if (cannotFetch(planned, install)) operation.step('warn', NOTHING_TO_FETCH_FROM);
    building.stand.installing = planned;
    onStep?.('install');
    await runInstall(installing, signal);
    building.stand.installing = null;
    return await send(making, { template, context: await installedAt(building, stage.root), hashes: null });
  } catch (error) {
    // What was remembered of the files may be what is wrong.
    if (error instanceof AcodeError && error.is('ACODE-IMG-002')) await forgetHashes(project.store);
    throw error;
  }
}

async function send(
  { building, engine, base, project, reference, timeoutMs }: Making,
  archive: Archive,
): Promise<BuiltImage> {
  const { options, signal } = building;
  options.onStep?.('build');
  return engine.builds.build(
    {
      reference,
      base,
      template: TEMPLATE_NAME,
      labels: {
        [KIND_LABEL]: KIND,
        [CHECKSUM_LABEL]: project.checksum.whole,
        [INPUTS_LABEL]: partsText(project.checksum),
      },
      context: archiveStream(archive),
      timeoutMs,
      ...(options.onOutput ? { onOutput: options.onOutput } : {}),
    },
    signal,
  );
}

// Nothing in it was the user’s alone, so names mean nothing; links may lead to where the image has something.
async function installedAt({ options, signal }: Building, root: string): Promise<Context> {
  const { mostBytes = MAX_BYTES, mostFiles = MAX_FILES } = options;
  return readContext(root, { mostBytes, mostFiles, ignore: null, linksOut: true }, signal);
}

async function record(
  { host, operation }: Building,
  event: string,
  detail: Readonly<Record<string, string>>,
): Promise<void> {
  const { correlationId } = operation;
  await host.audit.append({ kind: 'event', operation: 'build', correlationId, event, detail });
}

/** The lock that a build waits for. */
export interface BuildLock {
  readonly locks: Pick<Locks, 'during'>;
  /** The engine that it is built on. */
  readonly engine: string;
  readonly reference: string;
  readonly deadlineMs: number;
  readonly signal: AbortSignal;
}

/**
 * Checks what there is and builds while no other process of the user does the same: two at once would take the name from
 * each other.
 */
export async function buildUnderLock<Value>(lock: BuildLock, work: () => Promise<Value>): Promise<Value> {
  const { locks, engine, reference, deadlineMs, signal } = lock;
  try {
    return await locks.during(`build:${engine} ${reference}`, { deadlineMs, signal }, work);
  } catch (error) {
    if (!(error instanceof LockTimeoutError)) throw error;
    throw new AcodeError(
      'ACODE-IMG-001',
      {
        image: reference,
        reason: `another process builds it, and did not end: ${error.message}`,
        remedy: 'Try again when it has ended, or give it more time.',
      },
      { cause: error },
    );
  }
}
