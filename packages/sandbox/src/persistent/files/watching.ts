// Tells changes below a path by looking again and again: what a kernel would tell, no program that every image has can hear.

import type { Clock } from '../../contract/ports.ts';
import type { FileCall, FileChange } from '../../contract/sandbox.ts';
import type { Conversation } from './conversation.ts';
import { WalkReader, asText, isDirectoryMode } from './listing.ts';
import type { Facts } from './listing.ts';
import { refused } from './content.ts';
import { leadsBelow, prefixOf } from './programs.ts';
import type { Place, Programs } from './programs.ts';
import { WATCH } from './scripts.ts';

const INTERVAL_MS = 300;
// Two looks are in memory at once. Each entry has its name twice, and a line of what is known of it.
const MAX_LOOK = { maxEntries: 200_000, maxBytes: 128 * 1024 ** 2 };

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
  readonly #prefix: string;
  readonly #chunks: AsyncGenerator<Buffer, void, undefined>;

  constructor(conversation: Conversation, place: Place) {
    this.#conversation = conversation;
    this.#place = place;
    this.#prefix = Buffer.from(prefixOf(place.inside)).toString('latin1');
    this.#chunks = conversation.chunks();
  }

  async next(): Promise<Snapshot> {
    const look = new Map<string, Facts>();
    const reader = new WalkReader({ path: this.#place.written, ...MAX_LOOK }, ({ name, facts }) => {
      if (facts) look.set(this.#filenameOf(name), facts);
    });
    await this.#conversation.send('\n');
    for (;;) {
      const { done, value } = await this.#chunks.next();
      if (done) throw await this.#ending();
      if (await reader.push(value)) return look;
    }
  }

  // The name of a file that is watched itself is its own.
  #filenameOf(name: string): string {
    const isBelow = name.startsWith(this.#prefix);
    const way = name.slice(isBelow ? this.#prefix.length : name.lastIndexOf('/') + 1);
    if (!leadsBelow(way)) throw refused(this.#place.written, 'a name in it lies elsewhere');
    return asText(way);
  }

  // Its end is a mistake of the path where it failed, and the sandbox’s where it did not.
  async #ending(): Promise<Error> {
    await this.#conversation.finish();
    return new Error('the watching program ended');
  }
}

/** Differences between two scans. A directory’s own times change with its entries, which are reported anyway. */
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
