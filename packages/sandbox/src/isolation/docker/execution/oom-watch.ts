// Listens for the engine’s out-of-memory events: a container’s state says nothing of them while it runs.

import type { Clock } from '../../../contract/ports.ts';
import type { Engine } from '../engine/index.ts';

// An engine tells of a process that the kernel killed a moment after the command that started it has ended.
const LATE_MS = 500;
const POLL_MS = 10;

/** Which containers had a process killed for want of memory, as far as the engine told. */
export class OomWatch {
  readonly #engine: Engine;
  readonly #label: string;
  readonly #seen = new Map<string, number>();
  readonly #stop = new AbortController();
  /** Containers that were started under the present subscription, so that nothing of theirs was missed. */
  readonly #followed = new Set<string>();
  #listening: Promise<void> | null = null;

  constructor(engine: Engine, label: string) {
    this.#engine = engine;
    this.#label = label;
  }

  /** Whether events of a container may have been missed, so that the engine has to be asked about it. */
  blindFor(id: string): boolean {
    return !this.#followed.has(id);
  }

  /** Resolves once the engine sends events, so that nothing of a container started afterwards is missed; never rejects. */
  async follow(id: string): Promise<void> {
    this.#listening ??= this.#listen();
    await this.#listening;
    if (this.#listening !== null) this.#followed.add(id);
  }

  /** Whether the container lost a process. */
  saw(id: string): boolean {
    return this.count(id) > 0;
  }

  /** How often the engine told so. */
  count(id: string): number {
    return this.#seen.get(id) ?? 0;
  }

  /**
   * Whether the engine told so more than `before` times; waits a moment for a late event. Null where events may have been
   * missed, and for Podman, which sends none.
   */
  async sawSince(id: string, before: number, clock: Clock): Promise<boolean | null> {
    const deadline = clock.monotonic() + LATE_MS;
    for (;;) {
      if (this.count(id) > before) return true;
      if (this.blindFor(id) || this.#engine.connection.isPodman) return null;
      if (clock.monotonic() >= deadline) return false;
      await new Promise<void>(resolve => void clock.after(POLL_MS, resolve));
    }
  }

  /** Forgets a container that is gone. */
  forget(id: string): void {
    this.#seen.delete(id);
    this.#followed.delete(id);
  }

  close(): void {
    this.#stop.abort();
  }

  async #listen(): Promise<void> {
    try {
      const filters = { type: ['container'], event: ['oom'], label: [this.#label] };
      const subscription = await this.#engine.events.subscribe({ filters, signal: this.#stop.signal });
      void this.#follow(subscription);
    } catch {
      this.#listening = null;
    }
  }

  async #follow(subscription: AsyncIterable<{ readonly id: string }>): Promise<void> {
    try {
      for await (const { id } of subscription) this.#seen.set(id, this.count(id) + 1);
    } catch {
      // The engine went away: every container that lived then is asked about at its end.
    }
    this.#followed.clear();
    this.#listening = null;
  }
}
