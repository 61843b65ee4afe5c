// The dependencies of a project image in the workspace of a sandbox: for each directory a layer of the sandbox’s own (an overlay, made
// by the engine) over that directory in the image’s top layer. Nothing is copied, and what the sandbox writes ends with it.

import { posix } from 'node:path';
import { AcodeError } from '../../../contract/errors.ts';
import type { DependencySpec, SandboxSpec } from '../../../contract/spec.ts';
import { NONCE, ownership } from '../../../lifecycle/labels.ts';
import { makeMountPoint } from '../../../workspace/mount-point.ts';
import type { Difference } from '../../kernel.ts';
import { unlessCancelled } from '../../../lifecycle/clock.ts';
import type { Engine, VolumeDetails } from '../engine/index.ts';
import { engineFailure } from '../failure.ts';
import type { EngineFacts } from '../request.ts';
import { layerDifferences } from '../verify/verify.ts';
import {
  type LayerPart,
  isPlainPath,
  layerOptions,
  mountpointOf,
  ownedDirectory,
  dependencyVolume,
  type MountedDependency,
} from './volume-rules.ts';
import { SandboxVolumes, type VolumesOptions } from './caches.ts';
import type { Attachment, Left, Seen } from './owned.ts';

const CALL_MS = 10_000;
// The kernel takes one page of options.
const MAX_OPTIONS = 4095;
const MODE = 0o755;

/** The dependencies of the sandboxes of one backend. */
export class SandboxDependencies implements Attachment {
  readonly #engine: Engine;
  readonly #volumes: SandboxVolumes;

  constructor(options: VolumesOptions) {
    this.#engine = options.engine;
    this.#volumes = new SandboxVolumes(options);
  }

  async acquire(spec: SandboxSpec, signal: AbortSignal): Promise<Pick<EngineFacts, 'dependencies'>> {
    const { dependencies = [] } = spec;
    signal.throwIfAborted();
    if (dependencies.length === 0) return {};
    const top = await this.#topLayer(spec, signal);
    for (const dependency of dependencies) makeMountPoint(...pointOf(spec, dependency));
    const making = Promise.all(dependencies.map((dependency, at) => this.#make(spec, dependency, { at, top })));
    this.#volumes.during(spec, Promise.allSettled([making]));
    try {
      return { dependencies: await unlessCancelled(making, signal) };
    } catch (error) {
      this.release(spec);
      throw engineFailure(error, signal);
    }
  }

  /**
   * Refuses a directory of the image that is a link, or lies behind one: the kernel would follow it on the engine’s host. Nothing has
   * run by then. After that the user inside is given the directory itself, for files that tools keep beside packages.
   */
  async created(spec: SandboxSpec, containerId: string, signal: AbortSignal): Promise<void> {
    const terms = { signal, deadlineMs: CALL_MS };
    for (const { source, target } of spec.dependencies ?? []) {
      for (const path of pathsTo(source)) {
        const kind = await this.#engine.archive.kindAt(containerId, path, terms);
        if (kind !== 'directory') throw strangeImage(spec, path, kind);
      }
      // A workspace that is read-only takes nothing, and its dependencies are read-only then.
      if (isReadOnly(spec)) continue;
      const tar = ownedDirectory(posix.basename(target), spec.user, MODE);
      await this.#engine.archive.put(containerId, posix.dirname(target), tar, terms);
    }
  }

  verify(spec: SandboxSpec, { dependencies = [] }: EngineFacts, { view }: Seen): Difference[] {
    if (!view) return [];
    return (spec.dependencies ?? []).flatMap(({ target }, at) => {
      const made = dependencies.find(one => one.target === target);
      const isIt = made?.volume === dependencyVolume(spec, at, 'layer');
      return layerDifferences(target, isIt ? made.layer : null, view);
    });
  }

  release(spec: SandboxSpec): void {
    this.#volumes.leave(spec);
  }

  async close(): Promise<Left[]> {
    return this.#volumes.release();
  }

  async #make(
    spec: SandboxSpec,
    { source, target }: DependencySpec,
    { at, top }: { readonly at: number; readonly top: string },
  ): Promise<MountedDependency> {
    const parts = [this.#part(spec, at, 'upper', {}), this.#part(spec, at, 'work', {})] as const;
    // Where one fails, the other is under way: what is made has an end before it is removed.
    await Promise.allSettled(parts);
    const [upper, work] = await Promise.all(parts);
    const layer = { lower: `${top}${source}`, upper: mountpointOf(upper), work: mountpointOf(work) };
    const options = layerOptions(layer);
    if (options.length >= MAX_OPTIONS) throw notMountable(`the path of ${source} is too long on this engine`);
    const made = await this.#part(spec, at, 'layer', { type: 'overlay', device: 'overlay', o: options });
    return { target, volume: made.Name, mountpoint: mountpointOf(made), layer, labels: made.Labels ?? {} };
  }

  async #part(
    spec: SandboxSpec,
    at: number,
    part: LayerPart,
    options: Readonly<Record<string, string>>,
  ): Promise<VolumeDetails> {
    const name = dependencyVolume(spec, at, part);
    const made = await this.#volumes.make(spec, nonce => ({
      Name: name,
      Driver: 'local',
      DriverOpts: options,
      Labels: { ...ownership(spec), [NONCE]: nonce },
    }));
    if (made !== null) return made;
    throw new AcodeError('ACODE-SBX-010', {
      violation: 'MountMismatch',
      detail: `the volume ${name}, for dependencies of the project image, was there already and is another’s`,
      remedy: `Inspect it with \`docker volume inspect ${name}\`, and remove it.`,
    });
  }

  async #topLayer({ image }: SandboxSpec, signal: AbortSignal): Promise<string> {
    const { topLayer } = await this.#engine.images.inspect(image.id, { signal, deadlineMs: CALL_MS });
    if (topLayer !== null && isPlainPath(topLayer)) return topLayer;
    throw notMountable('this engine’s image store does not say where the layers of an image are');
  }
}

function pointOf({ mounts, workdir }: SandboxSpec, { target }: DependencySpec): [root: string, path: string] {
  const workspace = mounts.find(({ purpose }) => purpose === 'workspace');
  if (!workspace) throw new TypeError('every plan has a workspace');
  return [workspace.source, posix.relative(workdir, target)];
}

// `/project`, `/project/packages`, …, up to the directory itself.
function pathsTo(source: string): string[] {
  const names = source.split('/').slice(1);
  return names.map((_, at) => `/${names.slice(0, at + 1).join('/')}`);
}

function isReadOnly({ mounts }: SandboxSpec): boolean {
  return mounts.some(({ purpose, readOnly }) => purpose === 'workspace' && readOnly);
}

function strangeImage({ image }: SandboxSpec, path: string, kind: string): AcodeError {
  return new AcodeError('ACODE-SBX-010', {
    violation: 'DangerousImage',
    detail: `${path} in ${image.reference} is ${kind === 'absent' ? 'not there' : `no directory (${kind})`}, although the image lists it as dependencies`,
    remedy: 'Do not use the image. Build it again: `acode sandbox build-image --force --install …`.',
  });
}

function notMountable(reason: string): AcodeError {
  return new AcodeError('ACODE-SBX-016', {
    what: `The dependencies of the project image in the workspace (${reason})`,
    instead: 'Leave --deps out, and run the files of the image: `cd /project && npm test` (docs/project-images.md).',
  });
}
