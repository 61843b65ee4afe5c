// Who else has sandboxes on the engine: noticed as they come, so that what waits need not ask the engine at every hand-over.

import type { SandboxSpec } from '../../contract/spec.ts';
import { MANAGED } from '../../lifecycle/labels.ts';
import { reachOf } from '../neighbours.ts';
import type { Reach } from '../neighbours.ts';
import type { Engine } from './engine/index.ts';
import { Silence } from './silence.ts';

/** A sandbox of this session that runs, or waits. */
export type Neighbour = Reach & { readonly id: string };

/** The sandboxes around those of one session. */
export class Neighbourhood {
  readonly #silence: Silence;
  readonly #own = new Map<string, Neighbour>();

  constructor(engine: Engine, owner: string) {
    this.#silence = new Silence(engine, {
      filters: { type: ['container'], event: ['start', 'unpause'], label: [`${MANAGED}=true`] },
      counts: ({ attributes }) => attributes['acode.owner'] !== owner,
    });
  }

  /** Those of this session, asked of nobody. */
  get own(): readonly Neighbour[] {
    return [...this.#own.values()];
  }

  /** What is compared later; null while nobody listens, so that nothing follows from it. */
  get mark(): number | null {
    return this.#silence.mark;
  }

  /** Whether no sandbox of another session has been started since a mark. */
  isQuietSince(mark: number | null): boolean {
    return this.#silence.hasLastedSince(mark);
  }

  /** Resolves once the engine tells of whatever starts from now on; never rejects. */
  listen(): Promise<void> {
    return this.#silence.listen();
  }

  /** One of this session’s was started. */
  entered(id: string, spec: SandboxSpec): void {
    this.#own.set(id, { id, ...reachOf(spec) });
  }

  /** One of this session’s is gone. */
  left(id: string): void {
    this.#own.delete(id);
  }

  close(): void {
    this.#silence.close();
  }
}
