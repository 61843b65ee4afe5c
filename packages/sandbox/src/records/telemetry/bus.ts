// Hands events to listeners; a listener that throws harms neither the run nor the other listeners.

import type { AcodeEvent, AcodeEventType, AcodeEvents, EventBus } from '../../contract/events.ts';

type Listener = (event: AcodeEvent) => void;

/** The event bus of one host. */
export class Bus implements EventBus {
  readonly #listeners = new Map<AcodeEventType, Set<Listener>>();
  readonly #onListenerError: (error: unknown) => void;

  constructor(onListenerError: (error: unknown) => void) {
    this.#onListenerError = onListenerError;
  }

  on<Type extends AcodeEventType>(type: Type, listener: (event: AcodeEvent<Type>) => void): Disposable {
    const all = this.#listeners.get(type) ?? new Set<Listener>();
    this.#listeners.set(type, all);
    // The set is kept per type, so this listener only ever sees events of its own type.
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion
    const own = listener as Listener;
    all.add(own);
    return { [Symbol.dispose]: () => void all.delete(own) };
  }

  /** Tells everybody who listens to this type. */
  emit<Type extends AcodeEventType>(type: Type, correlationId: string, at: Date, fields: AcodeEvents[Type]): void {
    // Type and fields belong together by the signature; the compiler cannot see that through a spread.
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion
    const event = { type, correlationId, at: at.toISOString(), ...fields } as unknown as AcodeEvent;
    for (const listener of this.#listeners.get(type) ?? []) {
      try {
        listener(event);
      } catch (error) {
        this.#onListenerError(error);
      }
    }
  }
}
