// That a sandbox is gone, told to whoever listens by then. A promise that lives as long as the sandbox would hold on to
// everything that ever waited beside it: each command, and all that it printed.

import { AcodeError } from '../../../contract/errors.ts';

/** The end of one sandbox. */
export class Gone {
  readonly #sandbox: string;
  readonly #listeners = new Set<(reason: string) => void>();
  #reason: string | null = null;

  constructor(sandbox: string) {
    this.#sandbox = sandbox;
  }

  /** Tells everybody, the first time. */
  tell(reason: string): void {
    if (this.#reason !== null) return;
    this.#reason = reason;
    for (const listener of this.#listeners) listener(reason);
    this.#listeners.clear();
  }

  /** Calls back when it is gone, at once where it is. What is returned ends that. */
  listen(listener: (reason: string) => void): () => void {
    if (this.#reason === null) this.#listeners.add(listener);
    else listener(this.#reason);
    return () => void this.#listeners.delete(listener);
  }

  /** What comes of the work, unless it is gone before that. */
  async unless<Value>(work: Promise<Value>): Promise<Value> {
    let stop = (): void => undefined;
    const gone = new Promise<never>((_, reject) => {
      stop = this.listen(reason => reject(this.failure(reason)));
    });
    work.catch(() => undefined);
    try {
      return await Promise.race([work, gone]);
    } finally {
      stop();
    }
  }

  /** What whoever needs it is told. */
  failure(reason: string): AcodeError {
    return new AcodeError('ACODE-SBX-025', { sandbox: this.#sandbox, reason });
  }
}
