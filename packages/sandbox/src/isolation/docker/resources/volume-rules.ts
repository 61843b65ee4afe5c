// The volumes of sandboxes, for caches, dependencies and forks: what they are called, what the engine is asked for, and what one must be to
// be used. Pure.
//
// A sandbox never gets a cache itself, but a layer of its own over it (an overlay, made by the engine out of three volumes):
// it reads what was filled in, and writes what it likes, and that goes with it. Only a run that fills a cache has the volume.

import type { CacheSpec, CacheVolume } from '../../../contract/caches.ts';
import { AcodeError } from '../../../contract/errors.ts';
import type { SandboxSpec } from '../../../contract/spec.ts';
import { CACHE, FILLING, KEEP, LAYER, MANAGED, CREATED, NONCE, UID, ownership } from '../../../lifecycle/labels.ts';
import type { VolumeDetails } from '../engine/index.ts';

/** The three parts of a layer, as directories of the engine’s host. */
export interface CacheLayer {
  readonly lower: string;
  readonly upper: string;
  readonly work: string;
}

/** A cache as the engine mounts it. */
export interface MountedCache {
  readonly target: string;
  readonly volume: string;
  /** Where the engine has the volume. */
  readonly mountpoint: string;
  /** What it is made of; null where it is the cache itself, to be filled. */
  readonly layer: CacheLayer | null;
  /** The labels it was made with. */
  readonly labels: Readonly<Record<string, string>>;
}

/** The volumes that a layer is made of, by what they are for. */
export type LayerPart = 'upper' | 'work' | 'layer';

/** What the mount of a layer does not let be: a program that gains rights, a device. No cache needs either. */
export const LAYER_FLAGS: readonly string[] = ['nosuid', 'nodev'];

// These separate the words of a mount option, and would add some of their own.
const PLAIN_PATH = /^\/[^,:\\"'\s]+$/;

/** Whether a path can stand in a mount option. */
export function isPlainPath(path: string): boolean {
  return PLAIN_PATH.test(path);
}

/** The name of a part of a sandbox’s own layer. */
export function layerName({ identity }: SandboxSpec, { tool }: CacheSpec, part: LayerPart): string {
  return `acode-${identity.sandboxId}-${tool}-${part}`;
}

/** The name of the volume that whoever fills a cache holds meanwhile. */
export function fillingName({ volume }: CacheVolume): string {
  return `${volume}.filling`;
}

/** The volume that a sandbox mounts for a cache. */
export function mountedName(spec: SandboxSpec, cache: CacheSpec): string {
  return cache.fill ? cache.volume : layerName(spec, cache, 'layer');
}

/** The mount of a cache in a create request; `made` is what was made for the caches of the plan. */
export function cacheMount(
  spec: SandboxSpec,
  cache: CacheSpec,
  made: readonly Pick<MountedCache, 'target' | 'labels'>[] = [],
): Record<string, unknown> {
  const labels = made.find(({ target }) => target === cache.target)?.labels;
  return {
    Type: 'volume',
    Source: mountedName(spec, cache),
    Target: cache.target,
    ReadOnly: false,
    // Nothing of the image belongs into a cache. The labels are for a volume that went a moment before: an engine makes it
    // anew without a word, and one that nobody knows to be ours would be left for ever, under the name of a cache.
    VolumeOptions: { NoCopy: true, Labels: { ...(labels ?? plannedLabels(spec, cache)) } },
  };
}

/** The body of `POST /volumes/create` for a cache. It outlives its session: nobody’s death makes it an orphan. */
export function cacheRequest(spec: SandboxSpec, cache: CacheVolume): Record<string, unknown> {
  return { Name: cache.volume, Driver: 'local', DriverOpts: {}, Labels: cacheLabels(spec, cache) };
}

function cacheLabels({ identity }: SandboxSpec, { tool }: CacheVolume): Record<string, string> {
  const { [UID]: uid = '', [CREATED]: created = '' } = identity.labels;
  return { [MANAGED]: 'true', [KEEP]: 'true', [CACHE]: tool, [UID]: uid, [CREATED]: created };
}

function layerLabels(spec: SandboxSpec, { volume }: CacheVolume): Record<string, string> {
  return { ...ownership(spec), [LAYER]: volume };
}

function plannedLabels(spec: SandboxSpec, cache: CacheSpec): Record<string, string> {
  return cache.fill ? cacheLabels(spec, cache) : layerLabels(spec, cache);
}

/** The body for the volume by which a cache is known to be filled; `nonce` shows afterwards who made it. */
export function fillingRequest(spec: SandboxSpec, cache: CacheVolume, nonce: string): Record<string, unknown> {
  const labels = { ...ownership(spec), [FILLING]: cache.volume, [NONCE]: nonce };
  return { Name: fillingName(cache), Driver: 'local', DriverOpts: {}, Labels: labels };
}

/** The body for a part of a layer; the layer itself is made of the others. */
export function partRequest(
  spec: SandboxSpec,
  cache: CacheSpec,
  part: LayerPart,
  { nonce, layer }: { readonly nonce: string; readonly layer: CacheLayer | null },
): Record<string, unknown> {
  return {
    Name: layerName(spec, cache, part),
    Driver: 'local',
    DriverOpts: layer ? { type: 'overlay', device: 'overlay', o: layerOptions(layer) } : {},
    Labels: { ...layerLabels(spec, cache), [NONCE]: nonce },
  };
}

/** The mount options of a layer. */
export function layerOptions({ lower, upper, work }: CacheLayer): string {
  return [`lowerdir=${lower}`, `upperdir=${upper}`, `workdir=${work}`, ...LAYER_FLAGS].join(',');
}

/** Where the engine has a volume; throws where that could not stand in a mount option. */
export function mountpointOf({ Name, Mountpoint = '' }: VolumeDetails): string {
  if (isPlainPath(Mountpoint)) return Mountpoint;
  throw new AcodeError('ACODE-SBX-001', {
    name: Name,
    reason: `the engine keeps volumes at ${JSON.stringify(Mountpoint.slice(0, 100))}, where no layer can be made over a cache; caches: false leaves it out`,
  });
}

/** What is wrong with a volume that has the name of a cache; null for nothing. A stranger could have made one of that name. */
export function cacheFault(found: VolumeDetails, { tool }: CacheVolume, uid: string): string | null {
  const labels = found.Labels ?? {};
  if (labels[MANAGED] !== 'true' || labels[CACHE] !== tool) return 'it was not made by acode';
  if (labels[UID] !== uid) return 'it is another user’s';
  const isPlain = found.Driver === 'local' && Object.keys(found.Options ?? {}).length === 0;
  return isPlain ? null : 'it leads somewhere else';
}

/** Refuses a volume that has the name of a cache and is none. */
export function assertCache(found: VolumeDetails, cache: CacheVolume, uid: string): VolumeDetails {
  const fault = cacheFault(found, cache, uid);
  if (fault === null) return found;
  throw new AcodeError('ACODE-SBX-010', {
    violation: 'MountMismatch',
    detail: `the volume ${cache.volume} is not the cache of ${cache.tool}: ${fault}`,
    remedy: `Look at it with \`docker volume inspect ${cache.volume}\`; remove it, or name another one as sandbox.cache_volumes.${cache.tool}.`,
  });
}

/** Refuses a part of a layer that another made: names are taken by whoever comes first. */
export function strange({ volume }: CacheVolume, name: string): AcodeError {
  return new AcodeError('ACODE-SBX-010', {
    violation: 'MountMismatch',
    detail: `the volume ${name}, for a layer over ${volume}, was there already and is another’s`,
    remedy: `Look at it with \`docker volume inspect ${name}\`, and remove it.`,
  });
}

/** Why a sandbox cannot have a cache that it was planned with. */
export function beingFilled({ tool, volume }: CacheVolume): AcodeError {
  return new AcodeError('ACODE-SBX-001', {
    name: volume,
    reason: `another run has begun to fill the cache of ${tool}`,
    remedy: 'Try again: a run that begins now goes without that cache, or waits for it where it is nearly filled.',
  });
}

/** Why a cache cannot be filled now. */
export function busy({ tool, volume }: CacheVolume, by: string): AcodeError {
  return new AcodeError('ACODE-SBX-001', {
    name: volume,
    reason: `the cache of ${tool} cannot be filled while ${by}; try again when that has ended`,
  });
}

/** Refuses to fill a cache with an image without a shell: its container is made too late to be given a directory there. */
export function refuseDirectFill({ image, caches }: SandboxSpec): void {
  if (!caches.some(({ fill }) => fill)) return;
  throw new AcodeError('ACODE-SBX-016', {
    what: `To fill a cache by ${image.reference}, which has no shell,`,
    instead: 'Fill it with an image that has /bin/sh.',
  });
}

const BLOCK = 512;

/** A tar with one directory in it, which belongs to the user inside. */
export function ownedDirectory(name: string, { uid, gid }: SandboxSpec['user'], mode = 0o700): Buffer {
  const header = Buffer.alloc(BLOCK);
  header.write(`${name}/`, 0);
  for (const [at, value, length] of [
    [100, mode, 8],
    [108, uid, 8],
    [116, gid, 8],
    [124, 0, 12],
    [136, 0, 12],
  ] as const)
    numberField(value, length).copy(header, at);
  header.write(' '.repeat(8), 148);
  header.write('5', 156);
  header.write('ustar\u000000', 257);
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148);
  // Two empty blocks end an archive.
  return Buffer.concat([header, Buffer.alloc(2 * BLOCK)]);
}

// In octal digits; a number that has too many of them as bytes, which the first bit says.
function numberField(value: number, length: number): Buffer {
  const digits = value.toString(8);
  if (digits.length < length) return Buffer.from(`${digits.padStart(length - 1, '0')}\0`, 'latin1');
  const field = Buffer.alloc(length);
  field.writeUIntBE(value, length - 6, 6);
  field[0] = 0x80;
  return field;
}

/** Dependencies as the engine mounts them. */
export interface MountedDependency {
  readonly target: string;
  readonly volume: string;
  /** Where the engine has the volume. */
  readonly mountpoint: string;
  readonly layer: CacheLayer;
  /** The labels it was made with. */
  readonly labels: Readonly<Record<string, string>>;
}

/** The name of a part of the layer over one of the directories. */
export function dependencyVolume({ identity }: SandboxSpec, at: number, part: LayerPart): string {
  return `acode-${identity.sandboxId}-deps${at}-${part}`;
}

/** The mount of one of the dependencies in a create request; `made` is what was made for the plan. */
export function dependencyMount(
  spec: SandboxSpec,
  at: number,
  made: readonly Pick<MountedDependency, 'target' | 'labels'>[] = [],
): Record<string, unknown> {
  const target = spec.dependencies?.[at]?.target ?? '';
  return {
    Type: 'volume',
    Source: dependencyVolume(spec, at, 'layer'),
    Target: target,
    ReadOnly: false,
    // As for a cache: what the engine makes anew under this name must be known to be ours.
    VolumeOptions: {
      NoCopy: true,
      Labels: { ...(made.find(one => one.target === target)?.labels ?? ownership(spec)) },
    },
  };
}

/** The overlay of a fork as the engine mounts it. */
export interface MountedOverlay {
  readonly target: string;
  readonly volume: string;
  /** Where the engine has the volume. */
  readonly mountpoint: string;
  /** Where the engine has the memory that takes its changes; absent where they go to a directory. */
  readonly memory?: string;
  /** The labels it was made with. */
  readonly labels: Readonly<Record<string, string>>;
}

/** The name of the volume for one of the mounts of a plan. */
export function overlayVolume({ identity }: Pick<SandboxSpec, 'identity'>, at: number): string {
  return `acode-${identity.sandboxId}-fork${at}`;
}

/** The name of the volume in memory of a plan. */
export function storeVolume({ identity }: Pick<SandboxSpec, 'identity'>): string {
  return `acode-${identity.sandboxId}-disk`;
}

const BYTES_PER_INODE = 4096;
const MIN_INODES = 64;

/** The options of a volume in memory: only the user inside can open it. */
export function storeOptions(bytes: number, { uid, gid }: SandboxSpec['user']): string {
  const inodes = Math.max(MIN_INODES, Math.floor(bytes / BYTES_PER_INODE));
  return `size=${bytes},nr_inodes=${inodes},mode=0700,uid=${uid},gid=${gid},nosuid,nodev`;
}

/** The mount of the memory that a sandbox holds, in its create request. */
export function storeMount(
  spec: SandboxSpec,
  { volume, target }: NonNullable<SandboxSpec['store']>,
): Record<string, unknown> {
  const options = { NoCopy: true, Labels: { ...ownership(spec) } };
  return { Type: 'volume', Source: volume, Target: target, ReadOnly: false, VolumeOptions: options };
}

/** The mount in a create request; `made` is what was made for the plan. */
export function overlayMount(
  spec: SandboxSpec,
  at: number,
  made: readonly Pick<MountedOverlay, 'target' | 'labels'>[] = [],
): Record<string, unknown> {
  const target = spec.mounts[at]?.target ?? '';
  return {
    Type: 'volume',
    Source: overlayVolume(spec, at),
    Target: target,
    ReadOnly: false,
    // As for a cache: what the engine makes anew under this name must be known to be ours.
    VolumeOptions: {
      NoCopy: true,
      Labels: { ...(made.find(one => one.target === target)?.labels ?? ownership(spec)) },
    },
  };
}
