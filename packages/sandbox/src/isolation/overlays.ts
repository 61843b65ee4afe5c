// Overlays of forks as the kernel shows them: how one differs from its plan. For every level that mounts them.

import { lstatSync, opendirSync } from 'node:fs';
import { join } from 'node:path';
import type { MountSpec, OverlayPart, OverlaySpec, SandboxSpec } from '../contract/spec.ts';
import { isInPlace, isSameNumber } from '../workspace/file-identity.ts';
import { OVERLAY_FLAGS, overlayValues } from '../workspace/fork/overlay.ts';
import { isPartInPlace } from '../workspace/fork/overlay.ts';
import { type Difference, type KernelMount, type KernelView, last, mounted } from './kernel.ts';

/** A mount whose changes go to a layer. */
export type ForkedMount = MountSpec & { readonly overlay: OverlaySpec };

/** The mounts of a plan that are overlays, each with its position among all mounts. */
export function forkedMounts({ mounts }: Pick<SandboxSpec, 'mounts'>): {
  readonly mount: ForkedMount;
  readonly at: number;
}[] {
  return mounts.flatMap((mount, at) => (isForked(mount) ? [{ mount, at }] : []));
}

/** Whether the changes to a mount go to a layer. */
export function isForked(mount: MountSpec): mount is ForkedMount {
  return mount.overlay !== undefined;
}

/** Every directory of an overlay that is not what was checked. Names prove nothing where one on the way was exchanged. */
export function swappedParts({ upper, work, lowers }: OverlaySpec): Difference[] {
  return [upper, work, ...lowers]
    .filter(({ ofEngine }) => ofEngine !== true)
    .filter(part => !isPartInPlace(part))
    .map(({ path }) => mounted(`${path}, a part of the fork, is not what was checked`));
}

/** The overlay of a plan as an engine mounts it over memory: what is below that belongs to root, and nobody else can exchange it. */
export function overMemory<Mount extends ForkedMount>(mount: Mount, memory: string): Mount {
  const part = (name: string): OverlayPart => ({ path: `${memory}/${name}`, identities: [], ofEngine: true });
  return { ...mount, overlay: { ...mount.overlay, upper: part(MEMORY_UPPER), work: part(MEMORY_WORK) } };
}

/** The directories of an overlay within its memory. */
export const MEMORY_UPPER = 'u';
export const MEMORY_WORK = 'w';

/** What of an overlay is not as planned; `below` stands before each path where the mounting program had another root. */
export function overlayDifferences(mount: ForkedMount, view: KernelView | null, pid: number, below = ''): Difference[] {
  const { source, target } = mount;
  const isOther = view !== null && !isSameBelow(mount, pid);
  return [
    ...(view === null || isMounted(mount, view, below)
      ? []
      : [mounted(`${target} is not the fork that was made for it`)]),
    ...(isInPlace(mount, isSameNumber) ? [] : [mounted(`${source}, the workspace, is not what was checked`)]),
    ...swappedParts(mount.overlay),
    ...(isOther ? [mounted(`${target} shows files of another directory than ${source}`)] : []),
  ];
}

// Engines let volumes receive what is mounted below them on the host, where nobody but root can; never the other way.
function isMounted(mount: ForkedMount, view: KernelView, below: string): boolean {
  const found = last(view.mounts, mount.target);
  return found !== undefined && isOverlay(mount, found, below) && (!found.shared || found.receives);
}

function isOverlay(
  { overlay, source }: ForkedMount,
  { type, options, superOptions }: KernelMount,
  below: string,
): boolean {
  const { lowerdir, upperdir, workdir } = overlayValues(overlay, source, below);
  // Some kernels show a single directory as it was given, others without the escapes.
  const shown = (name: string, ...values: string[]): boolean =>
    values.some(value => superOptions.includes(`${name}=${value}`));
  return (
    type === 'overlay' &&
    ['rw', 'nosuid', 'nodev'].every(flag => options.includes(flag)) &&
    OVERLAY_FLAGS.every(flag => superOptions.includes(flag)) &&
    shown('lowerdir', lowerdir) &&
    shown('upperdir', upperdir, below + overlay.upper.path) &&
    shown('workdir', workdir, below + overlay.work.path)
  );
}

const MAX_COMPARED = 4;
const MAX_LISTED = 64;
// Over directories of several file systems, some kernels put the number of the file system into the highest bits.
const INODE_BITS = 48;

// A directory that was exchanged while it was being mounted, and put back, has its name and not its files: acode compares some of
// them through the sandbox’s own root, where an overlay gives a file of a lower layer its own number. One that somebody replaced
// since proves nothing, and neither does what the sandbox’s process does not let us see.
function isSameBelow({ source, target, overlay }: ForkedMount, pid: number): boolean {
  const layers = [overlay.upper, ...overlay.lowers].map(({ path }) => path);
  const isBelow = (name: string): boolean => layers.every(layer => inodeOf(join(layer, name)) === null);
  const names = filesIn(source).filter(isBelow).slice(0, MAX_COMPARED);
  const compared = names.flatMap(name => {
    const own = inodeOf(join(source, name));
    const seen = inodeOf(`/proc/${pid}/root${join(target, name)}`);
    return seen === null || own === null ? [] : [own === seen || own === BigInt.asUintN(INODE_BITS, seen)];
  });
  return compared.length === 0 || compared.includes(true);
}

function filesIn(directory: string): string[] {
  const opened = opendirSync(directory, { bufferSize: MAX_LISTED });
  try {
    const names: string[] = [];
    for (let listed = 0; listed < MAX_LISTED; listed += 1) {
      const entry = opened.readSync();
      if (!entry) break;
      if (entry.isFile()) names.push(entry.name);
    }
    return names;
  } finally {
    opened.closeSync();
  }
}

function inodeOf(path: string): bigint | null {
  try {
    return lstatSync(path, { bigint: true }).ino;
  } catch {
    return null;
  }
}
