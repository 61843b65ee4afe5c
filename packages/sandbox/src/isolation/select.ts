// The backends of this host: connected at first use, asked once what they can do, pinned for the session.

import { AcodeError } from '../contract/errors.ts';
import { usesEngine, type Level } from '../contract/levels.ts';
import type { Backend, Capability, EngineBackend } from './backend.ts';

/** How the backends of a host are had. */
export interface BackendSources {
  readonly connect: (signal: AbortSignal) => Promise<EngineBackend>;
  /** The levels that need no engine, weakest last; made when first asked for. */
  readonly local: readonly (readonly [level: Level, make: () => Promise<Backend>])[];
  readonly closing: AbortSignal;
}

/** Every backend of a host, each connected when it is first needed. */
export class Backends {
  readonly #engine: Lazy<EngineBackend>;
  readonly #local: ReadonlyMap<Level, Lazy<Backend>>;

  constructor({ connect, local, closing }: BackendSources) {
    this.#engine = new Lazy(connect, closing);
    this.#local = new Map(local.map(([level, make]) => [level, new Lazy(make, closing)]));
  }

  /** The engine’s backend. */
  engine(): Promise<EngineBackend> {
    return this.#engine.get();
  }

  /** What the engine’s backend can do here. */
  capability(): Promise<Capability> {
    return this.#engine.capability();
  }

  /** The backend for a level; null where this host has none for it. */
  async at(level: Level): Promise<Backend | null> {
    return usesEngine(level) ? this.engine() : ((await this.#local.get(level)?.get()) ?? null);
  }

  /** What the levels that need no engine can do here, strongest first. */
  async local(): Promise<Capability[]> {
    return Promise.all(
      [...this.#local].map(([level, backend]) =>
        backend.capability().catch((error: unknown) => unanswered(level, error)),
      ),
    );
  }

  /** What one of them can do here; null where this host has no such level. */
  async localCapability(level: Level): Promise<Capability | null> {
    return (await this.#local.get(level)?.capability()) ?? null;
  }

  /** Gives back what sandboxes shared and closes the backends that were connected; says what could not be removed. */
  async close(): Promise<readonly { readonly id: string; readonly reason: string }[]> {
    return (await Promise.all(this.#all().map(backend => backend.close()))).flat();
  }

  /** Lets go of the backends as they are: an engine that does not answer is not waited for any longer. */
  async abandon(): Promise<void> {
    await Promise.all(this.#all().map(backend => backend.abandon()));
  }

  #all(): Lazy<Backend>[] {
    return [this.#engine, ...this.#local.values()];
  }
}

function unanswered(level: Level, error: unknown): Capability {
  const reason = reasonOf(error);
  return { level, available: false, unknown: true, reason, cpus: 1, runtimes: {}, standardRuntime: '' };
}

// These levels have no engine that could have failed, as the whole message would say.
function reasonOf(error: unknown): string {
  if (error instanceof AcodeError && error.is('ACODE-SBX-018')) return error.context.reason;
  return error instanceof Error ? error.message : String(error);
}

/** A backend that is connected when it is first needed. */
class Lazy<Kind extends Backend> {
  readonly #connect: (signal: AbortSignal) => Promise<Kind>;
  readonly #closing: AbortSignal;
  #backend: Promise<Kind> | null = null;
  #capability: Promise<Capability> | null = null;

  constructor(connect: (signal: AbortSignal) => Promise<Kind>, closing: AbortSignal) {
    this.#connect = connect;
    this.#closing = closing;
  }

  // A connection that failed is tried again by the next caller.
  get(): Promise<Kind> {
    this.#backend ??= this.#connect(this.#closing).catch((error: unknown) => {
      this.#backend = null;
      throw error;
    });
    return this.#backend;
  }

  capability(): Promise<Capability> {
    this.#capability ??= this.get()
      .then(backend => backend.probe(this.#closing))
      .catch((error: unknown) => {
        this.#capability = null;
        throw error;
      });
    return this.#capability;
  }

  async close(): Promise<readonly { readonly id: string; readonly reason: string }[]> {
    const backend = await this.#backend?.catch(() => null);
    const left = await backend?.release();
    backend?.close();
    return left ?? [];
  }

  async abandon(): Promise<void> {
    const backend = await this.#backend?.catch(() => null);
    backend?.close();
  }
}
