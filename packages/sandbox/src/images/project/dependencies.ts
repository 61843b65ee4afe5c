// Dependencies of a project image: which directories of it hold them, noted in a label when it is built, and where a
// workspace can have them.

import { constants } from 'node:fs';
import { join, posix } from 'node:path';
import * as z from 'zod';
import { AcodeError } from '../../contract/errors.ts';
import type { DependencySpec } from '../../contract/spec.ts';
import type { EngineBackend } from '../../isolation/backend.ts';
import { readBoundedFile } from '../../lifecycle/directories.ts';
import { mountPointAt } from '../../workspace/mount-point.ts';
import { LOCKFILES, sha256 } from './checksum.ts';
import type { ContextEntry } from './context.ts';
import { DEPENDENCIES_LABEL, PROJECT_TARGET } from './project-base.ts';

// What package managers fill beside the project’s own files. What else an install command made, such as build output, belongs to
// a build: over the workspace’s own it would hide it.
const NAMES = new Set(['node_modules', '.venv', 'venv', 'vendor', '__pypackages__']);
// A project may have sources of its own in a directory of these names.
const MAY_BE_SOURCES = new Set(['vendor']);
const MANIFESTS = ['package.json', 'pyproject.toml', 'setup.py', 'composer.json', 'go.mod'];
const MAX_PATHS = 16;
const MAX_PATH = 300;
const MAX_BYTES = 64 * 1024 ** 2;
// The path becomes a word of a mount option, and a path in the workspace.
const PLAIN_NAME = /^(?!\.{1,2}$)[^/,:\\"'\s\0]+$/;

/** Whether dependencies at a path can be mounted. */
function isUsable(path: string): boolean {
  const names = path.split('/');
  return path.length <= MAX_PATH && names.every(name => PLAIN_NAME.test(name)) && NAMES.has(names.at(-1) ?? '');
}

const labelSchema = z.strictObject({
  lockfiles: z.string().max(100),
  paths: z.array(z.string().refine(isUsable)).max(MAX_PATHS),
  omitted: z.int().nonnegative(),
});

/** What the label says. */
type Label = z.infer<typeof labelSchema>;

/**
 * The label of an image: the outermost directories of dependencies among what is sent to the engine. Each is a directory there, and so is
 * everything above it.
 *
 * @param before the project’s own files, without what the install command made
 */
export async function dependenciesLabel(
  root: string,
  sent: readonly Pick<ContextEntry, 'path' | 'kind'>[],
  before: readonly Pick<ContextEntry, 'path' | 'kind'>[],
): Promise<string> {
  const sources = new Set(before.flatMap(({ path }) => (MAY_BE_SOURCES.has(posix.basename(path)) ? [path] : [])));
  const found = sent
    .filter(({ path, kind }) => kind === 'directory' && NAMES.has(posix.basename(path)) && !sources.has(path))
    .map(({ path }) => path)
    .sort();
  const outermost = found.filter(path => !found.some(other => path.startsWith(`${other}/`)));
  const usable = outermost.filter(isUsable);
  const paths = usable.slice(0, MAX_PATHS);
  const label: Label = { lockfiles: await stampOf(root), paths, omitted: outermost.length - paths.length };
  return JSON.stringify(label);
}

function labelOf(text: string | undefined): Label | null {
  try {
    return labelSchema.parse(JSON.parse(text ?? ''));
  } catch {
    return null;
  }
}

/** The directories of dependencies that the labels of an image name. */
export function dependencyPaths(labels: Readonly<Record<string, string>>): readonly string[] {
  return labelOf(labels[DEPENDENCIES_LABEL])?.paths ?? [];
}

// The lockfiles at the top of a project; its manifests where it has none.
async function stampOf(root: string): Promise<string> {
  const hashes = async (names: readonly string[]): Promise<string[]> =>
    (await Promise.all(names.map(name => hashOf(root, name)))).filter(hash => hash !== null);
  const locked = await hashes(LOCKFILES);
  return sha256(JSON.stringify(locked.length > 0 ? locked : await hashes(MANIFESTS)));
}

async function hashOf(root: string, name: string): Promise<string | null> {
  const read = await readBoundedFile(join(root, name), MAX_BYTES, constants.O_NOFOLLOW).catch(() => null);
  return read ? `${name} ${sha256(`${read.size} ${read.bytes.toString('latin1')}`)}` : null;
}

/** The dependencies of an image for the workspace at a path, and what to say about them. */
export async function dependenciesFor(
  engine: Pick<EngineBackend, 'builds'>,
  { imageId, root, target }: { readonly imageId: string; readonly root: string; readonly target: string },
  signal: AbortSignal,
): Promise<{ readonly dependencies: readonly DependencySpec[]; readonly notes: readonly string[] }> {
  const label = labelOf((await engine.builds.find(imageId, signal))?.labels[DEPENDENCIES_LABEL]);
  if (label === null || label.paths.length === 0) throw nothingInstalled();
  const places = label.paths.map(path => ({ path, found: mountPointAt(root, path) }));
  const usable = places.filter(({ found }) => found !== 'unfit');
  const covered = usable.filter(({ found }) => found === 'filled').map(({ path }) => path);
  const unfit = places.filter(({ found }) => found === 'unfit').map(({ path }) => path);
  const isOld = label.lockfiles !== (await stampOf(root));
  return {
    dependencies: usable.map(({ path }) => ({
      source: posix.join(PROJECT_TARGET, path),
      target: posix.join(target, path),
    })),
    notes: [...(isOld ? [OLD] : []), ...coverNotes(covered), ...omissionNotes(unfit, label.omitted)],
  };
}

const OLD =
  'The dependencies of the project image are out of date: lockfiles have changed since it was built. Build it again with the same --install: `acode sandbox build-image --install …`.';

function coverNotes(covered: readonly string[]): string[] {
  if (covered.length === 0) return [];
  const one = covered.length === 1;
  return [
    `For this run, ${covered.join(', ')} ${one ? 'is that' : 'are those'} of the project image; the workspace’s own ${one ? 'is' : 'are'} hidden and unchanged.`,
  ];
}

function omissionNotes(unfit: readonly string[], omitted: number): string[] {
  return [
    ...(unfit.length > 0
      ? [
          `Left out of the dependencies of the project image, because the workspace has no directory for them: ${unfit.join(', ')}.`,
        ]
      : []),
    ...(omitted > 0
      ? [`The project image has ${omitted} more directories of dependencies than a sandbox can have (${MAX_PATHS}).`]
      : []),
  ];
}

function nothingInstalled(): AcodeError {
  return new AcodeError('ACODE-SBX-017', {
    field: 'policy.deps',
    reason: `the project image has no dependencies: no directory named ${[...NAMES].join(', ')} is in it`,
    remedy:
      'Build it with the command that installs them: `acode sandbox build-image --install "npm ci --ignore-scripts" --network allow=npm:install`. If it was built by an earlier version, add --force.',
  });
}
