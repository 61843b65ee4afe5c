// Mount conflicts: which other sandboxes on the engine could exchange what one of ours has mounted. acode notices them as they
// come, so that it need not ask the engine at every command.

import type { SandboxSpec } from '../../../contract/spec.ts';
import { MANAGED, OWNER } from '../../../lifecycle/labels.ts';
import { reachOf } from '../../neighbours.ts';
import type { Reach } from '../../neighbours.ts';
import type { Engine } from '../engine/index.ts';
import { EventStamp } from './event-stamp.ts';

/** A sandbox that runs, or waits. */
export type Neighbour = Reach & { readonly id: string };

const CALL_MS = 10_000;

/** The sandboxes around those of one session. */
export class MountConflicts {
  readonly #engine: Engine;
  readonly #owner: string;
  readonly #stamp: EventStamp;
  readonly #own = new Map<string, Neighbour>();
  #asked: { readonly mark: number | null; readonly others: readonly Neighbour[] } = { mark: null, others: [] };

  constructor(engine: Engine, owner: string) {
    this.#engine = engine;
    this.#owner = owner;
    this.#stamp = new EventStamp(engine, {
      filters: { type: ['container'], event: ['start', 'unpause'], label: [`${MANAGED}=true`] },
      counts: ({ attributes }) => attributes[OWNER] !== owner,
    });
  }

  /**
   * All that there can be: those of others when the engine was asked last, and this session’s own. Null where somebody may have
   * come since. Some may be gone.
   */
  get remembered(): readonly Neighbour[] | null {
    const { mark, others } = this.#asked;
    return this.#stamp.hasLastedSince(mark) ? [...others, ...this.#own.values()] : null;
  }

  /** Asks the engine who is there now. */
  async ask(signal: AbortSignal): Promise<readonly Neighbour[]> {
    // First: whoever comes while the engine answers has come since.
    const { mark } = this.#stamp;
    const labels = [`${MANAGED}=true`];
    const found = await this.#engine.containers.list({ labels, signal, deadlineMs: CALL_MS });
    const others = found.filter(one => one.labels[OWNER] !== this.#owner);
    this.#asked = { mark, others: others.map(neighbourOf) };
    return found.map(neighbourOf);
  }

  /** Resolves once the engine tells of whatever starts from now on; never rejects. */
  listen(): Promise<void> {
    return this.#stamp.listen();
  }

  /** One of this session’s is about to be started. */
  entered(id: string, spec: SandboxSpec): void {
    this.#own.set(id, { id, ...reachOf(spec) });
  }

  /** One of this session’s is gone. */
  left(id: string): void {
    this.#own.delete(id);
  }

  close(): void {
    this.#stamp.close();
  }
}

function neighbourOf({ id, writableSources, readOnlySources }: Neighbour): Neighbour {
  return { id, writableSources, readOnlySources };
}
