// The volumes that are made for a sandbox and go with it: each has a mark of its own, and only what has it is removed.
//
// To an engine, making a volume whose name is taken is a success, and the answer is the one that was there. So nothing is
// taken for ours because we asked for it, and a name that was ours once may be another’s by the time it is to be removed.

import { randomUUID } from 'node:crypto';
import type { SandboxSpec } from '../../../contract/spec.ts';
import { NONCE } from '../../../lifecycle/labels.ts';
import { isNotFound } from '../engine/error.ts';
import type { Engine } from '../engine/index.ts';
import type { VolumeDetails } from '../engine/volumes.ts';
import { type Left, OwnedResources, type OwnerOptions, removeHeld } from './owned.ts';

/** How volumes are made. */
export interface VolumesOptions extends OwnerOptions {
  readonly engine: Engine;
}

/** The volumes of one sandbox. */
interface CreatedVolumes {
  /** The mark of each, by name, in the order in which they were made. */
  readonly marks: Map<string, string>;
  /** Settles when nothing more is made for the sandbox. */
  making: Promise<unknown>;
  /** The removal that is under way: a second one beside it could take what another made in between. */
  leaving: Promise<Left[]> | null;
}

const CALL_MS = 10_000;

/** The volumes of the sandboxes of one backend. */
export class SandboxVolumes {
  readonly #options: VolumesOptions;
  readonly #engine: Engine;
  readonly #owned: OwnedResources;
  readonly #made = new Map<string, CreatedVolumes>();

  constructor(options: VolumesOptions) {
    this.#options = options;
    this.#engine = options.engine;
    this.#owned = new OwnedResources(options, async terms =>
      (await this.#engine.volumes.list(terms)).map(({ Name }) => Name),
    );
  }

  /** Says until when volumes are made for a sandbox: none is removed before, or one would be made behind the removal. */
  during(spec: SandboxSpec, making: Promise<unknown>): void {
    this.#of(spec).making = making;
  }

  /**
   * Makes a volume for a sandbox; null where the name is another’s. Without the caller’s signal: a create under way cannot
   * be taken back, and what it makes must be known to be removed.
   */
  async make(spec: SandboxSpec, body: (nonce: string) => Record<string, unknown>): Promise<VolumeDetails | null> {
    const nonce = randomUUID();
    const terms = { signal: AbortSignal.timeout(2 * CALL_MS), deadlineMs: CALL_MS };
    const made = await this.#owned.create({
      nonce,
      make: () => this.#engine.volumes.create(body(nonce), terms),
      remove: name => this.#removeMarked(name, nonce),
    });
    if (made.Labels?.[NONCE] !== nonce) return null;
    this.#of(spec).marks.set(made.Name, nonce);
    return made;
  }

  /** Removes some of a sandbox’s volumes before it is gone; what cannot be removed now goes with it. */
  async giveBack(spec: SandboxSpec, names: readonly string[]): Promise<void> {
    const { marks } = this.#of(spec);
    await Promise.all(
      names.map(async name => {
        const mark = marks.get(name);
        if (mark !== undefined && (await this.#remove(name, mark)) === null) marks.delete(name);
      }),
    );
  }

  /** A sandbox is gone, or was never made: what it alone had goes too. */
  leave({ identity: { sandboxId } }: SandboxSpec): void {
    const made = this.#made.get(sandboxId);
    if (made) this.#options.keep(this.#letGo(sandboxId, made));
  }

  /** Removes everything that was made for sandboxes; what could not be removed comes back. Containers go first. */
  async release(): Promise<Left[]> {
    const left = await Promise.all([...this.#made].map(([sandboxId, made]) => this.#letGo(sandboxId, made)));
    return [...left.flat(), ...this.#owned.unanswered];
  }

  #of({ identity: { sandboxId } }: SandboxSpec): CreatedVolumes {
    const known = this.#made.get(sandboxId);
    if (known) return known;
    const made: CreatedVolumes = { marks: new Map(), making: Promise.resolve(), leaving: null };
    this.#made.set(sandboxId, made);
    return made;
  }

  #letGo(sandboxId: string, made: CreatedVolumes): Promise<Left[]> {
    made.leaving ??= this.#removeAll(sandboxId, made).finally(() => {
      made.leaving = null;
    });
    return made.leaving;
  }

  async #removeAll(sandboxId: string, made: CreatedVolumes): Promise<Left[]> {
    await Promise.allSettled([made.making]);
    const left: Left[] = [];
    // The last one first: it may be made of the others.
    for (const [name, mark] of [...made.marks].reverse()) {
      const failed = await this.#remove(name, mark);
      if (failed) left.push(failed);
      else made.marks.delete(name);
    }
    if (made.marks.size === 0) this.#made.delete(sandboxId);
    return left;
  }

  #remove(name: string, mark: string): Promise<Left | null> {
    return removeHeld(this.#options.clock, name, () => this.#removeMarked(name, mark));
  }

  async #removeMarked(name: string, mark: string): Promise<void> {
    const terms = { signal: AbortSignal.timeout(2 * CALL_MS), deadlineMs: CALL_MS };
    try {
      const found = await this.#engine.volumes.inspect(name, terms);
      if (found.Labels?.[NONCE] === mark) await this.#engine.volumes.remove(name, terms);
    } catch (error) {
      if (!isNotFound(error)) throw error;
    }
  }
}
