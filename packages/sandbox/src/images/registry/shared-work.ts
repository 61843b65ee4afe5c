// One piece of work for everybody who wants the same: it is begun once, all hear how far it is, and it is given up when the
// last of them has left.

import { AcodeError } from '../../contract/errors.ts';

/** Somebody who wants it done. */
export interface Participant<Progress> {
  readonly signal: AbortSignal;
  readonly onProgress?: ((progress: Progress) => void) | undefined;
  /** Told what `onProgress` threw: that harms neither the work nor the others. */
  readonly onListenerError?: ((error: unknown) => void) | undefined;
}

interface Shared<Progress, Value> {
  readonly work: Promise<Value>;
  readonly stop: AbortController;
  readonly participants: Set<Participant<Progress>>;
  latest: { readonly progress: Progress } | null;
}

/** Work that is shared by key. */
export class SharedWork<Progress, Value> {
  readonly #running = new Map<string, Shared<Progress, Value>>();

  /** Begins the work, or joins it where it is under way. A participant who is cancelled leaves; the work goes on for the others. */
  async join(
    key: string,
    me: Participant<Progress>,
    begin: (signal: AbortSignal, tell: (progress: Progress) => void) => Promise<Value>,
  ): Promise<Value> {
    me.signal.throwIfAborted();
    const shared = this.#running.get(key) ?? this.#begin(key, begin);
    shared.participants.add(me);
    if (shared.latest) hear(me, shared.latest.progress);
    let leave: () => void = () => undefined;
    const left = new Promise<never>((_, reject) => {
      leave = () => reject(new AcodeError('ACODE-SBX-014', {}, { cause: me.signal.reason }));
      me.signal.addEventListener('abort', leave, { once: true });
      // Whoever heard enough may have left meanwhile.
      if (me.signal.aborted) leave();
    });
    try {
      return await Promise.race([shared.work, left]);
    } finally {
      me.signal.removeEventListener('abort', leave);
      shared.participants.delete(me);
      if (shared.participants.size === 0) this.#end(key, shared);
    }
  }

  #begin(
    key: string,
    begin: (signal: AbortSignal, tell: (progress: Progress) => void) => Promise<Value>,
  ): Shared<Progress, Value> {
    const stop = new AbortController();
    const participants = new Set<Participant<Progress>>();
    const tell = (progress: Progress): void => {
      shared.latest = { progress };
      for (const participant of participants) hear(participant, progress);
    };
    // Not before it is known to others: the work may tell something at once.
    const work = Promise.resolve().then(() => begin(stop.signal, tell));
    const shared: Shared<Progress, Value> = { work, stop, participants, latest: null };
    this.#running.set(key, shared);
    // Whoever joined hears of a failure; one that nobody waits for any more must not end the process.
    const forget = (): void => this.#forget(key, shared);
    work.then(forget, forget);
    return shared;
  }

  // Those who come now begin anew: what is being given up is of no use to them.
  #end(key: string, shared: Shared<Progress, Value>): void {
    this.#forget(key, shared);
    shared.stop.abort(new AcodeError('ACODE-SBX-014', {}));
  }

  #forget(key: string, shared: Shared<Progress, Value>): void {
    if (this.#running.get(key) === shared) this.#running.delete(key);
  }
}

function hear<Progress>({ onProgress, onListenerError }: Participant<Progress>, progress: Progress): void {
  try {
    onProgress?.(progress);
  } catch (error) {
    onListenerError?.(error);
  }
}
