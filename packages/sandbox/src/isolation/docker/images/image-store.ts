// The images of one engine: what a name means there, what there is, and how it comes and goes.

import { AcodeError } from '../../../contract/errors.ts';
import type { ImageProgram } from '../../../contract/services.ts';
import type { ImageFacts } from '../../../contract/spec.ts';
import { RESERVED } from '../../../lifecycle/labels.ts';
import type { BuiltImage, ImageBuild, ImageBuilds, ImageStore, PullRequest, StoredImage } from '../../backend.ts';
import type { ContainerSummary } from '../engine/containers.ts';
import { Builds, type ImageDetails, splitReference } from '../engine/images.ts';
import type { Engine } from '../engine/index.ts';
import { EngineError, isNotFound } from '../engine/protocol.ts';
import { engineFailure } from '../failure.ts';
import { EventStamp } from '../resources/creation.ts';
import { pullImage, type PullingFrom } from './pull.ts';

// Of the first thing every run asks, so that an engine that hangs is noticed in time.
const FIRST_ANSWER_MS = 5000;
const CALL_MS = 10_000;
// Some engines measure their disks for this answer.
const DISK_MS = 20_000;
const REMOVE_MS = 60_000;

/** The images of one engine. */
export class EngineImages implements ImageStore {
  readonly #from: PullingFrom;
  readonly #known: KnownImages;
  #id: string | null = null;

  /** With `keepsWaiting` what names mean is remembered until the engine tells of a change: commands come often then. */
  constructor({ engine, clock, retry, keepsWaiting = false }: PullingFrom & { readonly keepsWaiting?: boolean }) {
    this.#from = { engine, clock, retry };
    this.#known = new KnownImages(engine, keepsWaiting);
  }

  async engineId(signal: AbortSignal): Promise<string> {
    const { connection, system } = this.#from.engine;
    // Podman makes a new id for each answer.
    if (connection.isPodman) return `podman:${connection.socketPath}`;
    this.#id ??= await this.#asked(signal, async () => (await system.info({ signal, deadlineMs: CALL_MS })).ID);
    return this.#id;
  }

  /** Takes in the engine’s own id, where it was said on another occasion. */
  learn(id: string): void {
    this.#id = id;
  }

  async find(reference: string, signal: AbortSignal): Promise<ImageFacts | null> {
    return this.#known.find(reference, () => this.#ask(reference, signal));
  }

  close(): void {
    this.#known.close();
  }

  async #ask(reference: string, signal: AbortSignal): Promise<ImageFacts | null> {
    const { images, connection } = this.#from.engine;
    try {
      const found = await images.inspect(fullReference(reference), { signal, deadlineMs: FIRST_ANSWER_MS });
      return imageFacts(reference, found, connection.isPodman);
    } catch (error) {
      if (isNotFound(error)) return null;
      throw engineFailure(error, signal);
    }
  }

  async pull(request: PullRequest, signal: AbortSignal): Promise<void> {
    await pullImage(this.#from, request, signal);
  }

  async list(signal: AbortSignal): Promise<StoredImage[]> {
    const { images, containers } = this.#from.engine;
    const terms = { signal, deadlineMs: CALL_MS };
    return this.#asked(signal, async () => {
      const [found, users] = await Promise.all([
        images.list(terms),
        containers.list({ labels: [], all: true, ...terms }),
      ]);
      return found.map(image => ({
        id: image.id,
        tags: image.repoTags.filter(isNamed),
        digests: image.repoDigests.filter(isNamed),
        sizeBytes: image.size,
        createdAt: new Date(image.created * 1000).toISOString(),
        containers: usersOf(image.id, users),
      }));
    });
  }

  async diskBytes(signal: AbortSignal): Promise<number | null> {
    try {
      return (await this.#from.engine.images.diskUse({ signal, deadlineMs: DISK_MS })) ?? null;
    } catch (error) {
      if (signal.aborted) throw engineFailure(error, signal);
      // A figure for people; the list is worth having without it.
      return null;
    }
  }

  async remove(reference: string, signal: AbortSignal): Promise<void> {
    const terms = { signal, deadlineMs: REMOVE_MS };
    await this.#asked(signal, () => this.#from.engine.images.remove(fullReference(reference), terms));
  }

  async #asked<Value>(signal: AbortSignal, call: () => Promise<Value>): Promise<Value> {
    try {
      return await call();
    } catch (error) {
      throw engineFailure(error, signal);
    }
  }
}

// What an engine shows for an image that lost its name.
function isNamed(name: string): boolean {
  return !name.startsWith('<none>');
}

// Engines write an id with and without its algorithm.
function usersOf(id: string, containers: readonly ContainerSummary[]): number {
  const bare = id.replace(/^sha256:/, '');
  return containers.filter(({ imageId }) => imageId.replace(/^sha256:/, '') === bare).length;
}

// Never without a tag or a digest: to an engine a bare name is the beginning of an id too, and so perhaps another image.
function fullReference(reference: string): string {
  if (/^sha256:[0-9a-f]{64}$/.test(reference)) return reference;
  const { name, version } = splitReference(reference);
  return `${name}${version.startsWith('sha256:') ? '@' : ':'}${version}`;
}

// An image as a plan sees it; one that would speak for acode is refused before anything is made of it.

// Podman’s own name for what was built or loaded here and never came from a registry.
const LOCAL = /^localhost\//;

/** What the plan needs to know of an image; `reference` is what it was asked for by. */
export function imageFacts(reference: string, image: ImageDetails, isPodman = false): ImageFacts {
  refuseOwnLabels(reference, image.config.Labels ?? {});
  const repositoryDigests = image.repoDigests.filter(digest => !isPodman || !LOCAL.test(digest));
  return {
    reference,
    id: image.id,
    digest: repositoryDigests[0]?.split('@')[1] ?? image.id,
    environment: image.config.Env ?? [],
    volumes: Object.keys(image.config.Volumes ?? {}),
    repositoryDigests,
    program: programOf(image),
    ...(isPodman || isNamedByManifest(image) ? { namedOnly: true } : {}),
  };
}

function programOf({ config }: ImageDetails): ImageProgram {
  const { User: user, Entrypoint: entrypoint, Cmd: command, WorkingDir: workdir, ExposedPorts: exposed } = config;
  const ports = Object.keys(exposed ?? {}).flatMap(key => /^(\d{1,5})(?:\/tcp)?$/.exec(key)?.[1] ?? []);
  return {
    user: user ?? '',
    entrypoint: entrypoint ?? [],
    command: command ?? [],
    workdir: workdir ?? '',
    ports: ports.map(Number),
  };
}

// Docker’s containerd image store, which is told by an image’s id: that is the digest of its manifest there. It makes the
// digests of whatever names an image has, also of one that was built here.
function isNamedByManifest({ id, repoDigests }: ImageDetails): boolean {
  return repoDigests.some(digest => digest.endsWith(`@${id}`));
}

// A container gets the labels of its image: with one such as acode.keep it would outlive its session.
function refuseOwnLabels(reference: string, labels: Readonly<Record<string, string>>): void {
  const own = Object.keys(labels).filter(name => name.startsWith(RESERVED));
  if (own.length === 0) return;
  throw new AcodeError('ACODE-SBX-010', {
    violation: 'DangerousImage',
    detail: `the image ${reference} has labels by which acode knows its own sandboxes (${own.slice(0, 5).join(', ')})`,
    remedy:
      'Use another image, or rebuild this one from a Dockerfile without labels that begin with acode. (`docker commit` of a sandbox takes its labels along).',
  });
}

// What names of images mean, remembered as long as the engine says that no image has changed.

const MAX_ENTRIES = 64;

/** The images that were asked for lately. Nothing is remembered before the second question: the first is asked by everybody. */
export class KnownImages {
  readonly #stamp: EventStamp;
  readonly #known = new Map<string, { readonly facts: ImageFacts; readonly mark: number }>();
  readonly #remembers: boolean;
  #asked = false;

  /** Without `remembers` it asks each time: a question costs less than one connection more. */
  constructor(engine: Engine, remembers: boolean) {
    this.#stamp = new EventStamp(engine, { filters: { type: ['image'] } });
    this.#remembers = remembers;
  }

  /** What a name means, by `ask` unless that is known still. What is not there is asked for each time. */
  async find(reference: string, ask: () => Promise<ImageFacts | null>): Promise<ImageFacts | null> {
    const known = this.#known.get(reference);
    if (known && this.#stamp.hasLastedSince(known.mark)) return known.facts;
    // Not waited for: until the engine is heard, it is asked.
    if (this.#asked && this.#remembers) void this.#stamp.listen();
    this.#asked = true;
    // Before it is asked: what changes meanwhile counts as a change.
    const { mark } = this.#stamp;
    const facts = await ask();
    if (facts && mark !== null) this.#remember(reference, facts, mark);
    return facts;
  }

  close(): void {
    this.#stamp.close();
  }

  #remember(reference: string, facts: ImageFacts, mark: number): void {
    if (this.#known.size >= MAX_ENTRIES) this.#known.clear();
    this.#known.set(reference, { facts, mark });
  }
}

// Makes images on the engine from a template and files of acode’s own, and holds what was made against what was asked for.

/** The builds of one engine. */
export class DockerBuilds implements ImageBuilds {
  readonly impossible: string | null;
  readonly #builds: Builds;

  constructor(engine: Engine) {
    // It executes them all the same, as root.
    this.impossible = engine.connection.isPodman ? 'Podman does not say which ONBUILD triggers a base image has' : null;
    this.#builds = new Builds(engine.connection);
  }

  async find(reference: string, signal: AbortSignal): Promise<BuiltImage | null> {
    try {
      return await this.#builds.inspect(reference, { signal });
    } catch (error) {
      if (isNotFound(error)) return null;
      throw engineFailure(error, signal);
    }
  }

  async build(build: ImageBuild, signal: AbortSignal): Promise<BuiltImage> {
    const { reference, base, template, labels, context, timeoutMs, onOutput } = build;
    let said: string | null;
    try {
      said = await this.#builds.build(
        { reference, dockerfile: template, labels, context },
        { signal, deadlineMs: timeoutMs, ...(onOutput ? { onOutput } : {}) },
      );
    } catch (error) {
      throw buildFailure(reference, error, signal);
    }
    const made = await this.find(reference, signal);
    const difference = made ? differenceOf(made, { base, labels, said }) : 'the engine has no image of that name';
    if (made && difference === null) return made;
    // Under its name it would be taken for the project’s. Only what this build made: the name may be another’s by now, whose
    // image is none of ours to remove.
    if (said !== null) await this.#discard(said, signal);
    throw new AcodeError('ACODE-IMG-001', {
      image: reference,
      reason: `what the engine made is not what was asked for (${difference ?? 'nothing'})`,
      remedy: 'Do not use the image. If nobody else builds on this engine, treat this as an attack.',
    });
  }

  // What is wrong with it is the error, and not that it could not be removed.
  async #discard(id: string, signal: AbortSignal): Promise<void> {
    try {
      await this.remove(id, signal);
    } catch {
      signal.throwIfAborted();
    }
  }

  async remove(id: string, signal: AbortSignal): Promise<void> {
    try {
      await this.#builds.remove(id, { signal });
    } catch (error) {
      // Somebody uses it, under this name or another.
      if (!(error instanceof EngineError && error.status === 409)) throw engineFailure(error, signal);
    }
  }
}

// One layer on top of the base, with our labels: a build that pulled, or executed something, would show here.
function differenceOf(
  made: BuiltImage,
  asked: Pick<ImageBuild, 'base' | 'labels'> & { readonly said: string | null },
): string | null {
  const { base, labels, said } = asked;
  if (said !== null && said !== made.id) return 'its name is another image’s';
  if (base.layers.some((layer, index) => made.layers[index] !== layer)) return 'it is not built on its base';
  if (made.layers.length !== base.layers.length + 1) return 'it has other layers than the project’s';
  const label = Object.keys(labels).find(name => made.labels[name] !== labels[name]);
  return label === undefined ? null : `its label ${label} is another one`;
}

function buildFailure(image: string, error: unknown, signal: AbortSignal): unknown {
  if (signal.aborted) return signal.reason;
  // A file that changed while it was sent is the reason, and not that the sending ended.
  if (error instanceof EngineError && error.cause instanceof AcodeError) return error.cause;
  if (!(error instanceof EngineError)) return error;
  return new AcodeError(
    'ACODE-IMG-001',
    { image, reason: error.engineMessage ?? error.message },
    { cause: engineFailure(error, signal) },
  );
}
