// The backends of this host: connected at first use, asked once what they can do, pinned for the session.

import type { Backend, Capability } from './backend.ts';

/** A backend that is connected when it is first needed. */
export class LazyBackend {
  readonly #connect: (signal: AbortSignal) => Promise<Backend>;
  readonly #closing: AbortSignal;
  #backend: Promise<Backend> | null = null;
  #capability: Promise<Capability> | null = null;

  constructor(connect: (signal: AbortSignal) => Promise<Backend>, closing: AbortSignal) {
    this.#connect = connect;
    this.#closing = closing;
  }

  /** The backend; a connection that failed is tried again by the next caller. */
  get(): Promise<Backend> {
    this.#backend ??= this.#connect(this.#closing).catch((error: unknown) => {
      this.#backend = null;
      throw error;
    });
    return this.#backend;
  }

  /** What it can do here. */
  capability(): Promise<Capability> {
    this.#capability ??= this.get()
      .then(backend => backend.probe(this.#closing))
      .catch((error: unknown) => {
        this.#capability = null;
        throw error;
      });
    return this.#capability;
  }

  /** Gives back what sandboxes shared and closes the backend, if it was ever connected; says what could not be removed. */
  async close(): Promise<readonly { readonly id: string; readonly reason: string }[]> {
    const backend = await this.#backend?.catch(() => null);
    const left = await backend?.release();
    backend?.close();
    return left ?? [];
  }

  /** Lets go of the backend as it is: an engine that does not answer is not waited for any longer. */
  async abandon(): Promise<void> {
    const backend = await this.#backend?.catch(() => null);
    backend?.close();
  }
}
