// Project image build: base and files are checked, dependencies installed in a sandbox, and the engine builds one
// layer.

import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { AcodeError } from '../../contract/errors.ts';
import type { BuildProjectOptions, ProjectImage } from '../../contract/project-image.ts';
import type { OpenFurther, Planned } from '../../run/host.ts';
import { cannotFetch, runInstall, tooLong } from './installing.ts';
import type { Installing } from './installing.ts';
import type { BuiltImage, EngineBackend, ImageBuilds } from '../../isolation/backend.ts';
import {
  NO_INSTALL,
  changedSince,
  checksumOf,
  lockfilesOf,
  manifestOf,
  partsText,
  sha256,
  wasInstalled,
} from './checksum.ts';
import type { Checksum } from './checksum.ts';
import { MAX_BYTES, MAX_FILES, readContext, readIgnoreFile } from './context.ts';
import type { Context } from './context.ts';
import { changed, contentOf, forgetHashes, hashContents } from './contents.ts';
import type { HashStore } from './contents.ts';
import { dependenciesLabel, dependencyPaths } from './dependencies.ts';
import { IgnoreRules } from './pattern.ts';
import { Stage } from './stage.ts';
import type { Unremoved } from './stage.ts';
import {
  CHECKSUM_LABEL,
  DEPENDENCIES_LABEL,
  INPUTS_LABEL,
  KIND_LABEL,
  PROJECT_FOLDER,
  TEMPLATE_NAME,
  baseOf,
  planBase,
  refuseItself,
  templateFor,
} from './project-base.ts';
import { projectReference } from '../../policy/pull.ts';
import type { ImageHost, PulledImages } from '../pulls.ts';
import type { Operation } from '../../records/telemetry.ts';
import { LockTimeoutError } from '../../lifecycle/lock.ts';
import type { Locks } from '../../lifecycle/lock.ts';
import { Pauses } from '../../lifecycle/clock.ts';
import { gathered, tarEnd, tarPadding } from '../../workspace/archive/tar-read.ts';
import { tarHeader } from '../../workspace/archive/context-tar.ts';
import type { Clock } from '../../contract/ports.ts';
import { fullName } from '../../policy/images.ts';

const TIMEOUT_MS = 600_000;
const MAX_TIMEOUT_MS = 24 * 3600 * 1000;
const MAX_SHOWN = 20;
const KIND = 'project';
const NOTHING_TO_FETCH_FROM =
  'the install command has no network, and no cache was ever filled for it: it may wait in vain. --network allow=… gives it one (docs/project-images.md).';
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
  installing: Pick<Installing, 'planned' | 'install'> | null;
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
    dependencies: dependencyPaths(made.labels),
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
  { policy, masked }: Planned,
  base: BuiltImage,
): Promise<Project> {
  const ignoreText = await readIgnoreFile(root);
  const { mostBytes = MAX_BYTES, mostFiles = MAX_FILES, install } = options;
  const rules = { mostBytes, mostFiles, ignore: IgnoreRules.parse(ignoreText), masked, linksOut: false };
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

// The label alone is a claim of the image’s author: the image must also be based on the base.
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
    building.stand.installing = installing;
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
  { building, engine, planned, base, project, reference, timeoutMs }: Making,
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
        // Always: a base image may have one of its own.
        [DEPENDENCIES_LABEL]: await dependenciesLabel(
          rootOf(planned),
          archive.context.entries,
          project.context.entries,
        ),
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

const PORTION = 128 * 1024;

/** What a build is sent. */
export interface Archive {
  readonly template: string;
  readonly context: Context;
  /** The hash that each file must still have, since the image’s checksum promises it; none for files made just now. */
  readonly hashes: ReadonlyMap<string, string> | null;
}

/** The archive as bytes, no faster than they are read. Fails where a file is not what was summed up. */
export function archiveStream(archive: Archive): Readable {
  return Readable.from(gathered(pieces(archive), PORTION), { objectMode: false });
}

async function* pieces({ template, context, hashes }: Archive): AsyncGenerator<Buffer, void, undefined> {
  const text = Buffer.from(template, 'utf8');
  yield tarHeader({ path: TEMPLATE_NAME, kind: 'file', mode: 0o644, size: text.length });
  yield Buffer.concat([text, tarPadding(text.length)]);
  yield tarHeader({ path: PROJECT_FOLDER, kind: 'directory', mode: 0o755, size: 0 });
  // A reader may be as fast as the disk; a caller that cancels destroys the stream.
  const pauses = new Pauses(null);
  for (const entry of context.entries) {
    if (pauses.isDue) await pauses.take();
    yield tarHeader({ ...entry, path: `${PROJECT_FOLDER}/${entry.path}` });
    if (entry.kind !== 'file') continue;
    const hash = createHash('sha256');
    for await (const chunk of contentOf(context.root, entry)) {
      hash.update(chunk);
      yield chunk;
    }
    if (hashes && hash.digest('hex') !== hashes.get(entry.path)) throw changed(entry.path);
    yield tarPadding(entry.size);
  }
  yield tarEnd();
}

/** Where notes are kept, and of what. */
export interface BuildNotes {
  readonly builds: Pick<ImageBuilds, 'find' | 'remove'>;
  /** The engine’s id. */
  readonly on: string;
  readonly index: Pick<PulledImages, 'on' | 'used' | 'add'>;
  readonly clock: Pick<Clock, 'now'>;
  /** Hears of what went wrong without being a reason to fail: the image is built. */
  readonly warn: (message: string, fields: Readonly<Record<string, unknown>>) => void;
  readonly signal: AbortSignal;
}

/** Notes an image down, or that it was used. It is there whether that succeeds or not. */
export async function remember(
  { on, index, clock, warn, signal }: BuildNotes,
  name: string,
  id: string,
): Promise<void> {
  const reference = fullName(name) ?? name;
  const now = clock.now();
  try {
    const known = (await index.on(on)).some(one => one.reference === reference && one.id === id);
    const entry = { engine: on, reference, id, digest: id, brought: true, pulledAt: now, lastUsedAt: now };
    await (known ? index.used(id, now, signal) : index.add(entry, signal));
  } catch (error) {
    signal.throwIfAborted();
    warn('a project image could not be noted down', { image: name, imageId: id, reason: String(error) });
  }
}

/**
 * Removes the image that another took the name of. Whatever still runs from it keeps it, and a prune finds it by its id
 * later.
 */
export async function removeReplaced(notes: BuildNotes, before: string, made: string): Promise<void> {
  if (before === made) return;
  const { builds, warn, signal } = notes;
  try {
    await builds.remove(before, signal);
    if ((await builds.find(before, signal)) === null) return;
  } catch (error) {
    signal.throwIfAborted();
    const reason = error instanceof Error ? error.message : String(error);
    warn('the project image from before could not be removed', { imageId: before, reason });
  }
  await remember(notes, before, before);
}
