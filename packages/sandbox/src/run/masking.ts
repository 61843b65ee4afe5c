// Masks in the pipeline: the mounts that hide files with secrets of the workspace from a command.
//
// A masked file is present and empty inside: acode mounts an empty file of its own over it, read-only. A program that looks for the
// file finds it, and one that writes it is refused.

import { lstatSync, mkdirSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import type { Stats } from 'node:fs';
import { join, posix, relative } from 'node:path';
import { AcodeError } from '../contract/errors.ts';
import { isBoundary } from '../contract/levels.ts';
import type { Level } from '../contract/levels.ts';
import { maskLine, maskWarningText } from '../contract/masks.ts';
import type { MaskedPath } from '../contract/masks.ts';
import type { EffectivePolicy } from '../contract/policy.ts';
import type { RunResult } from '../contract/result.ts';
import type { DependencySpec, MountSpec, SandboxSpec } from '../contract/spec.ts';
import { text } from '../contract/wording.ts';
import { parseMountinfo } from '../isolation/kernel.ts';
import type { KeptMask } from '../lifecycle/kept.ts';
import { createPrivateFile } from '../lifecycle/directories.ts';
import { sourceOf } from '../policy/layers.ts';
import { identityOf, isWithin, refusal } from '../workspace/file-identity.ts';
import type { Workspace } from '../workspace/locate.ts';
import { prepareMasks } from '../workspace/masks/masks.ts';
import type { PreparedMasks } from '../workspace/masks/masks.ts';
import type { Host } from './host.ts';

/** What masks are planned for. */
export interface MasksFor {
  readonly level: Level;
  readonly policy: Pick<EffectivePolicy, 'masks'>;
  readonly workspace: Workspace;
  /** What the sandbox has of the host, without its masks. */
  readonly mounts: readonly MountSpec[];
  /** Directories of the project image that lie over those of the workspace. */
  readonly dependencies: readonly DependencySpec[];
  /** Whether this is a run, whose user is told of what was not masked before. */
  readonly tells: boolean;
  /** Whether the workspace is a fork, which has a layer for its masks. */
  readonly isFork: boolean;
  /** The masks that a persistent sandbox was created with; absent for a new sandbox. */
  readonly created?: readonly KeptMask[] | undefined;
}

/** The masks of a plan. */
interface PlannedMasks {
  readonly mounts: readonly MountSpec[];
  /** What was found, and by which rule. */
  readonly masked: readonly MaskedPath[];
  /** What is to be in the mask layer of a fork. */
  readonly layer: readonly MaskedPath[];
  /** Lines for the user. */
  readonly notes: readonly string[];
  /** Lines that only `explain` shows. */
  readonly asides: readonly string[];
}

const NONE: PlannedMasks = { mounts: [], masked: [], layer: [], notes: [], asides: [] };
const NOT_HERE = 'Files with secrets are not masked: this level does not keep a command away from your files.';
const EMPTY_FILE = 'empty';
const EMPTY_DIRECTORY = 'empty.d';
const WRITABLE = 0o222;
const REMEDY = 'Mount another file or directory, or name the file in `sandbox.unmask` of your own configuration file.';

/** Plans the masks of a sandbox. What is masked is written down before the command runs. */
export async function planMasks(host: Host, wanted: MasksFor, signal: AbortSignal): Promise<PlannedMasks> {
  const { level, policy, created } = wanted;
  if (host.isCopy) return NONE;
  if (!isBoundary(level)) return withoutMasks(level, policy);
  const empty = new EmptyFiles(join(host.directories.state, 'masks'), host.uid);
  if (created) return { ...NONE, mounts: created.map(mask => empty.over(mask)) };
  const { root } = wanted.workspace;
  const { state } = host.directories;
  const { clock } = host.telemetry;
  const asked = { root, policy: policy.masks, state, tells: wanted.tells, signal, clock };
  const prepared = await prepareMasks(asked);
  const { masked, warnings } = prepared;
  const asides = warnings.map(maskWarningText);
  if (masked.length === 0) return { ...NONE, notes: newsOf(prepared), asides };
  const hidden = [...mountsBelow(root), ...coveredBy(wanted)];
  const visible = masked.filter(({ path }) => !hidden.some(place => isWithin(join(root, path), place)));
  const mounts = visible.flatMap(one => masksOf(one, wanted).map(mask => empty.over(mask)));
  return { mounts, masked: visible, layer: wanted.isFork ? visible : [], notes: newsOf(prepared), asides };
}

/** The masked paths of a plan, as a result lists them. */
export function maskedIn({ mounts }: Pick<SandboxSpec, 'mounts'>): Pick<RunResult, 'masked'> {
  const root = mounts.find(({ purpose }) => purpose === 'workspace')?.source ?? '/';
  const paths = mounts.flatMap(({ covers, overlay, copyOf }) => [
    ...(copyOf?.masked ?? []),
    ...(covers ? [relative(root, covers.path)] : []),
    ...(overlay?.masked ?? []),
  ]);
  return paths.length === 0 ? {} : { masked: [...new Set(paths)] };
}

/** The masks of a plan, for the record of a persistent sandbox. */
export function createdMasks({ mounts }: Pick<SandboxSpec, 'mounts'>): KeptMask[] {
  return mounts.flatMap(({ covers, target, source }) =>
    covers ? [{ ...covers, target, kind: source.endsWith(EMPTY_DIRECTORY) ? 'directory' : 'file' }] : [],
  );
}

// A user who asks for a mask must not get a command that can read the file.
function withoutMasks(level: Level, { masks: { add } }: Pick<EffectivePolicy, 'masks'>): PlannedMasks {
  const [first] = add;
  if (!first) return { ...NONE, asides: [NOT_HERE] };
  throw new AcodeError('ACODE-SBX-016', {
    what: text`sandbox.mask: ${first.value} (set by ${sourceOf(first)}) at level ${level}`,
    instead: 'Use a level that isolates files (bubblewrap, docker or stronger), or take the key out.',
  });
}

// Once for each file: a line that comes with every command is not read.
function newsOf({ untold }: PreparedMasks): string[] {
  if (untold.masked.length === 0) return untold.warnings.map(maskWarningText);
  const line = maskLine(untold.masked);
  const hint = 'Commands see them empty; `acode masks list` says why, docs/masks.md how to change it';
  return [...(line === null ? [] : [`${line}. ${hint}.`]), ...untold.warnings.map(maskWarningText)];
}

/**
 * The masks over one file: in the workspace, and wherever else the sandbox has a directory with the file in it. Refuses a mount of the
 * file itself, which would show it under another name.
 */
function masksOf({ path, kind, device, inode }: MaskedPath, { workspace, mounts, isFork }: MasksFor): KeptMask[] {
  const file = join(workspace.root, path);
  const found = lstatSync(file, { throwIfNoEntry: false });
  if (!found || found.dev !== device || found.ino !== inode || !isKind(found, kind))
    throw new AcodeError('ACODE-MSK-001', { path, others: 0, because: 'changing' });
  const identity = identityOf(found);
  return mounts
    .filter(({ purpose }) => purpose === 'additional' || (purpose === 'workspace' && !isFork))
    .flatMap(({ source, target }) => {
      if (isWithin(source, file)) throw refusal(source, 'ProtectedPath', `${path} is masked`, { remedy: REMEDY });
      if (!isWithin(file, source)) return [];
      return [{ path: file, identity, kind, target: posix.join(target, relative(source, file)) }];
    });
}

function isKind(found: Stats, kind: MaskedPath['kind']): boolean {
  return kind === 'file' ? found.isFile() : found.isDirectory();
}

// What is mounted in the workspace is not in the sandbox, because mounts are not recursive there. A mask would be mounted where there
// is nothing, and the runtime would make a file for it on the host, as root.
function mountsBelow(root: string): string[] {
  let table: string;
  try {
    table = readFileSync('/proc/self/mountinfo', 'utf8');
  } catch {
    return [];
  }
  return parseMountinfo(table).flatMap(({ target }) => (target !== root && isWithin(target, root) ? [target] : []));
}

function coveredBy({ workspace: { root }, mounts, dependencies }: MasksFor): string[] {
  const target = mounts.find(({ purpose }) => purpose === 'workspace')?.target ?? '/';
  return dependencies.map(one => join(root, posix.relative(target, one.target)));
}

/** The empty file and the empty directory that masks are made of. */
class EmptyFiles {
  readonly #directory: string;
  readonly #uid: number;
  readonly #known = new Map<KeptMask['kind'], Pick<MountSpec, 'source' | 'identity'>>();

  constructor(directory: string, uid: number) {
    this.#directory = directory;
    this.#uid = uid;
  }

  /** The mount of a mask. */
  over({ path, identity, target, kind }: KeptMask): MountSpec {
    let from = this.#known.get(kind);
    if (!from) {
      from = this.#find(kind);
      this.#known.set(kind, from);
    }
    return { purpose: 'masked', ...from, target, readOnly: true, covers: { path, identity } };
  }

  #find(kind: KeptMask['kind']): Pick<MountSpec, 'source' | 'identity'> {
    const source = join(this.#directory, kind === 'file' ? EMPTY_FILE : EMPTY_DIRECTORY);
    const found = this.#usable(source, kind);
    if (found) return { source, identity: identityOf(found) };
    mkdirSync(this.#directory, { recursive: true, mode: 0o700 });
    if (lstatSync(source, { throwIfNoEntry: false })) rmSync(source, { recursive: true, force: true });
    // Another process may make it just now, and mount it: then it is not replaced.
    if (kind === 'file') createPrivateFile(source, '', { mode: 0o444 });
    else mkdirSync(source, { mode: 0o555, recursive: true });
    return { source, identity: identityOf(lstatSync(source)) };
  }

  // A program of the user may have written to it since.
  #usable(source: string, kind: KeptMask['kind']): Stats | null {
    const found = lstatSync(source, { throwIfNoEntry: false });
    if (!found || !isKind(found, kind) || found.uid !== this.#uid || (found.mode & WRITABLE) !== 0) return null;
    const isEmpty = kind === 'file' ? found.size === 0 : readdirSync(source).length === 0;
    return isEmpty ? found : null;
  }
}
