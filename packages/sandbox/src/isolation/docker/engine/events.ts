// What the engine says happened, as it happens.
import * as z from 'zod';
import { type CallOptions, type EngineConnection, termsOf } from './connection.ts';
import { EngineError } from './error.ts';
import { jsonLines } from './json-lines.ts';
import { path } from './path.ts';
import type { EngineReadable } from './readable.ts';

const defaultDeadlineMs = 10_000;
const operation = 'GET /events';

/** One event of the engine. */
export interface EngineEvent {
  /** `container`, `image`, `network`… */
  readonly type: string;
  /** `create`, `start`, `oom`, `die`, `destroy`…; for exec and health events followed by a colon and details. */
  readonly action: string;
  /** Of the thing it happened to. */
  readonly id: string;
  /** Labels, and what belongs to the action, such as `exitCode`. */
  readonly attributes: Readonly<Record<string, string>>;
  /** Nanoseconds since 1970, exactly. */
  readonly timeNano: bigint;
}

/** Which events to see: all that match one value of every key that is given. */
export interface EventFilters {
  readonly container?: readonly string[];
  /** `key` or `key=value`. */
  readonly label?: readonly string[];
  readonly event?: readonly string[];
  readonly type?: readonly string[];
}

/** What to subscribe to. */
export interface SubscribeOptions extends CallOptions {
  readonly filters: EventFilters;
  /** From which moment on, in nanoseconds since 1970; without it from the call on. */
  readonly since?: bigint;
}

const eventReply = z.lazy(() =>
  z.looseObject({
    Type: z.string(),
    Action: z.string(),
    Actor: z.looseObject({ ID: z.string(), Attributes: z.record(z.string(), z.string()).nullish() }),
  }),
);

/** Events that the engine is sending already. Iterate it once; leaving the loop ends the subscription. */
export class EventSubscription implements AsyncIterable<EngineEvent>, Disposable {
  readonly #body: EngineReadable;

  constructor(body: EngineReadable) {
    this.#body = body;
  }

  /** Never ends by itself: a lost engine is an EngineError, since a quiet end would look like "nothing happened". */
  async *[Symbol.asyncIterator](): AsyncGenerator<EngineEvent, void, undefined> {
    for await (const { value, text } of jsonLines(this.#body, eventReply, operation)) {
      yield {
        type: value.Type,
        action: value.Action,
        id: value.Actor.ID,
        attributes: value.Actor.Attributes ?? {},
        timeNano: timeNanoOf(text),
      };
    }
    throw new EngineError({ kind: 'disconnected', operation, detail: 'the engine ended the stream of events' });
  }

  /** Ends the subscription; a loop that is waiting gets an `aborted` error. */
  close(): void {
    this.#body.destroy();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

/** The engine's events. */
export class Events {
  readonly #connection: EngineConnection;

  constructor(connection: EngineConnection) {
    this.#connection = connection;
  }

  /**
   * Resolves when the engine sends: whatever is done after it will be seen.
   *
   * Read steadily: an engine drops events for a subscriber that lags far behind.
   */
  async subscribe({ filters, since, ...options }: SubscribeOptions): Promise<EventSubscription> {
    const { body } = await this.#connection.stream({
      method: 'GET',
      path: path`/events`,
      // The engine sends the headers a moment before it listens; events of that moment are replayed from its memory.
      query: { filters: JSON.stringify(filters), since: timestamp(since ?? BigInt(Date.now()) * 1_000_000n) },
      ...termsOf(options, defaultDeadlineMs),
    });
    return new EventSubscription(body);
  }
}

function timestamp(nanoseconds: bigint): string {
  return `${nanoseconds / 1_000_000_000n}.${String(nanoseconds % 1_000_000_000n).padStart(9, '0')}`;
}

/** Taken from the text: as a JSON number it loses its last digits, and a subscription resumed from it would repeat or miss events. */
function timeNanoOf(text: string): bigint {
  const digits = /"timeNano":\s*(\d+)/.exec(text)?.[1];
  if (digits === undefined) throw new EngineError({ kind: 'protocol', operation, detail: 'an event has no time' });
  return BigInt(digits);
}
