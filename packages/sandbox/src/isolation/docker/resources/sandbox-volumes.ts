// The volumes that are made for a sandbox and go with it: each has a mark of its own, and only what has it is removed.
//
// To an engine, making a volume whose name is taken is a success, and the answer is the one that was there. So nothing is
// taken for ours because we asked for it, and a name that was ours once may be another’s by the time it is to be removed.

import type { Left } from './attachment.ts';
import { randomUUID } from 'node:crypto';
import type { Clock } from '../../../contract/ports.ts';
import type { SandboxSpec } from '../../../contract/spec.ts';
import { isNotFound, mayHaveBeenDone } from '../engine/error.ts';
import type { Engine } from '../engine/index.ts';
import type { VolumeDetails } from '../engine/volumes.ts';
import { reasonOf } from '../failure.ts';
import { LostCreateCleanup } from './owned.ts';
import { UNANSWERED } from './networks.ts';

/** How volumes are made. */
export interface VolumesOptions {
  readonly engine: Engine;
  readonly clock: Clock;
  readonly closing: AbortSignal;
  /** Keeps work that outlives its caller, so that closing waits for it. */
  readonly keep: (work: Promise<unknown>) => void;
  /** Does what makes something, in the knowledge of whoever cleans up if this process dies in the middle of it. */
  readonly making: <Value>(nonce: string, make: () => Promise<Value>) => Promise<Value>;
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
const REMOVAL_ATTEMPTS = 6;
const PAUSE_MS = 100;
const MARK = 'acode.nonce';

/** The volumes of the sandboxes of one backend. */
export class SandboxVolumes {
  readonly #options: VolumesOptions;
  readonly #engine: Engine;
  readonly #lostCreates: LostCreateCleanup;
  readonly #made = new Map<string, CreatedVolumes>();

  constructor(options: VolumesOptions) {
    this.#options = options;
    this.#engine = options.engine;
    this.#lostCreates = new LostCreateCleanup(options);
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
    try {
      const made = await this.#options.making(nonce, () => this.#engine.volumes.create(body(nonce), terms));
      if (made.Labels?.[MARK] !== nonce) return null;
      this.#of(spec).marks.set(made.Name, nonce);
      return made;
    } catch (error) {
      // The reply may have been lost and not the request.
      if (mayHaveBeenDone(error)) this.#options.keep(this.#lostCreates.follow(nonce, () => this.#removeLate(nonce)));
      throw error;
    }
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
    return [...left.flat(), ...this.#lostCreates.unanswered.map(nonce => ({ id: nonce, reason: UNANSWERED }))];
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

  // A container that is being removed still holds its volumes for a moment.
  async #remove(name: string, mark: string): Promise<Left | null> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        await this.#removeMarked(name, mark);
        return null;
      } catch (error) {
        if (attempt >= REMOVAL_ATTEMPTS) return { id: name, reason: reasonOf(error) };
      }
      await new Promise<void>(resolve => void this.#options.clock.after(PAUSE_MS * 2 ** attempt, resolve));
    }
  }

  async #removeMarked(name: string, mark: string): Promise<void> {
    const terms = { signal: AbortSignal.timeout(2 * CALL_MS), deadlineMs: CALL_MS };
    try {
      const found = await this.#engine.volumes.inspect(name, terms);
      if (found.Labels?.[MARK] === mark) await this.#engine.volumes.remove(name, terms);
    } catch (error) {
      if (!isNotFound(error)) throw error;
    }
  }

  async #removeLate(nonce: string): Promise<void> {
    // A signal that never fires: nobody who has given up may leave a volume behind.
    const { signal } = new AbortController();
    const late = await this.#engine.volumes.list({ labels: [`${MARK}=${nonce}`], signal, deadlineMs: CALL_MS });
    for (const { Name } of late) await this.#removeMarked(Name, nonce);
  }
}
