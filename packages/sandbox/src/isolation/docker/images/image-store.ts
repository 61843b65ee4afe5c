// The images of one engine: what a name means there, what there is, and how it comes and goes.

import type { ImageFacts } from '../../../contract/spec.ts';
import type { ImageStore, PullRequest, StoredImage } from '../../backend.ts';
import type { ContainerSummary } from '../engine/container-replies.ts';
import { isNotFound } from '../engine/error.ts';
import { splitReference } from '../engine/reference.ts';
import { engineFailure } from '../failure.ts';
import { imageFacts } from './image-facts.ts';
import { KnownImages } from './known-images.ts';
import { pullImage } from './pull.ts';
import type { PullingFrom } from './pull.ts';

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
