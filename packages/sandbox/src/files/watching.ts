// Tells changes below a path by looking again and again: what a kernel would tell, no program that every image has can hear.

import type { Clock } from '../contract/ports.ts';
import type { FileCall, FileChange } from '../contract/sandbox.ts';
import type { Conversation } from './conversation.ts';
import { tooMany } from './directories.ts';
import { ListingReader, asText } from './listing.ts';
import type { Facts, Listed } from './listing.ts';
import { prefixOf } from './places.ts';
import type { Place } from './places.ts';
import type { Programs } from './programs.ts';
import { WATCH } from './scripts.ts';
import { isDirectoryMode } from './stats.ts';

const INTERVAL_MS = 300;
const LARGEST_WALK = 200_000;

/** What is watched, and how. */
export interface Watch extends FileCall {
  readonly recursive?: boolean;
}

type Snapshot = ReadonlyMap<string, Facts>;

/** Changes, until the signal fires or the loop is left. */
export async function* changesBelow(
  programs: Programs,
  clock: Clock,
  place: Place,
  { recursive = false, signal }: Watch,
): AsyncGenerator<FileChange, void, undefined> {
  if (signal?.aborted) return;
  try {
    using conversation = await programs.open({
      script: WATCH,
      words: [place.inside, prefixOf(place.inside), recursive ? '' : '1'],
      operation: 'watch',
      attempt: { syscall: 'watch', path: place.written },
      signal,
    });
    const looks = new Looks(conversation, place);
    let before = await looks.next();
    for (;;) {
      await pause(clock, signal);
      const now = await looks.next();
      yield* changesBetween(before, now);
      before = now;
    }
  } catch (error) {
    if (!signal?.aborted) throw error;
  }
}

class Looks {
  readonly #conversation: Conversation;
  readonly #place: Place;
  readonly #chunks: AsyncGenerator<Buffer, void, undefined>;
  readonly #reader = new ListingReader();

  constructor(conversation: Conversation, place: Place) {
    this.#conversation = conversation;
    this.#place = place;
    this.#chunks = conversation.chunks();
  }

  async next(): Promise<Snapshot> {
    await this.#conversation.send('\n');
    for (;;) {
      const { done, value } = await this.#chunks.next();
      if (done) throw await this.#ending();
      const [walk] = this.#reader.push(value);
      if (walk) return snapshotOf(walk, this.#place);
      if (this.#reader.pending > LARGEST_WALK) throw tooMany(this.#place.written, LARGEST_WALK);
    }
  }

  // Its end is a mistake of the path where it failed, and the sandbox’s where it did not.
  async #ending(): Promise<Error> {
    await this.#conversation.finish();
    return new Error('the watching program ended');
  }
}

function snapshotOf(walk: readonly Listed[], { inside }: Place): Snapshot {
  const prefix = Buffer.from(prefixOf(inside)).toString('latin1');
  return new Map(
    walk.flatMap(({ name, facts }) => {
      const own = name.startsWith(prefix) ? name.slice(prefix.length) : name.slice(name.lastIndexOf('/') + 1);
      return facts ? [[asText(own), facts]] : [];
    }),
  );
}

/** What differs between two looks. A directory’s own times change with what is in it, which is told anyway. */
export function* changesBetween(before: Snapshot, now: Snapshot): Generator<FileChange, void, undefined> {
  for (const filename of before.keys()) if (!now.has(filename)) yield { eventType: 'rename', filename };
  for (const [filename, facts] of now) {
    const known = before.get(filename);
    if (!known || known.ino !== facts.ino) yield { eventType: 'rename', filename };
    else if (known.mode !== facts.mode || (known.version !== facts.version && !isDirectoryMode(facts.mode)))
      yield { eventType: 'change', filename };
  }
}

async function pause(clock: Clock, signal: AbortSignal | undefined): Promise<void> {
  await new Promise<void>(resolve => {
    const wake = (): void => {
      cancel();
      signal?.removeEventListener('abort', wake);
      resolve();
    };
    const cancel = clock.after(INTERVAL_MS, wake);
    signal?.addEventListener('abort', wake, { once: true });
  });
}
