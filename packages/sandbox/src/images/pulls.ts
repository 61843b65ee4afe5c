// Shared state of pulls: locks, work under way, and the index of pulled images. A prune removes only images of that
// index.

import { join } from 'node:path';
import * as z from 'zod';
import type { PullProgress, VerifySignature } from '../contract/images.ts';
import type { Host, WantedImage } from '../run/host.ts';
import type { Locks } from '../lifecycle/lock.ts';
import { AcodeError } from '../contract/errors.ts';
import { ensurePrivateDirectory, readPrivateFile, writePrivateFile } from '../lifecycle/directories.ts';

/** What a host needs to pull images. */
export interface Pulls {
  readonly locks: Locks;
  /** What was pulled. */
  readonly index: PulledImages;
  readonly shared: SharedWork<PullProgress, PullOutcome>;
  readonly verifySignature: VerifySignature | null;
}

/** What one pull came to. */
export interface PullOutcome {
  /** Whether the reference means another image than before. */
  readonly changed: boolean;
  readonly previousDigest: string | null;
}

/** A host that can pull. */
export interface ImageHost extends Host {
  readonly pulls: Pulls;
}

/** An image that a caller wants. */
export interface Wanted extends WantedImage {
  readonly onProgress?: ((progress: PullProgress) => void) | undefined;
}

/** A caller that wants it pulled. */
export interface Participant<Progress> {
  readonly signal: AbortSignal;
  readonly onProgress?: ((progress: Progress) => void) | undefined;
  /** Called with the error that `onProgress` threw: it harms neither the work nor the others. */
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

  /** Begins the work, or joins it where it is under way. A cancelled participant leaves; the work continues for the others. */
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
      // A participant may have left in its own callback.
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
    // Participants get a failure; one without participants must not end the process.
    const forget = (): void => this.#forget(key, shared);
    work.then(forget, forget);
    return shared;
  }

  // Later callers start again: work that is being cancelled is of no use to them.
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

const MAX_BYTES = 4 * 1024 * 1024;
const MAX_ENTRIES = 4096;
const WAIT_MS = 15_000;
// How exact the time of the last use is: not every run needs to write a file.
const USE_STEP_MS = 3600 * 1000;
// How often the index is checked for that: not every run needs to read it.
const LOOK_STEP_MS = 60 * 1000;
const MAX_LOOKED_AT = 256;

// Built at its first use: every host has an index, and most never look into it.
const entrySchema = z.lazy(() =>
  z.strictObject({
    /** Which engine has it. */
    engine: z.string(),
    /** In full. */
    reference: z.string(),
    /** What the reference meant when it was pulled. */
    id: z.string(),
    digest: z.string(),
    /** Whether the image came to the engine by this pull, rather than a name for what was there. */
    brought: z.boolean(),
    /** Whether the tag came by a pull of acode’s, to an image that was there. */
    named: z.boolean().optional(),
    pulledAt: z.number(),
    lastUsedAt: z.number(),
  }),
);

const fileSchema = z.lazy(() =>
  z.strictObject({ version: z.literal(1), images: z.array(entrySchema).max(MAX_ENTRIES) }),
);

/** One image that was pulled. */
export type PulledEntry = z.infer<typeof entrySchema>;

/** The index of what was pulled, for one user. */
export class PulledImages {
  readonly #directory: string;
  readonly #uid: number;
  readonly #locks: Locks;
  /** When the index was last read for a use of an image, by its id. */
  readonly #lookedAt = new Map<string, number>();

  constructor(stateDirectory: string, uid: number, locks: Locks) {
    this.#directory = stateDirectory;
    this.#uid = uid;
    this.#locks = locks;
  }

  /** What was pulled to an engine. A file that cannot be read says nothing: then nothing is known, and nothing is pruned. */
  async on(engine: string): Promise<PulledEntry[]> {
    return this.#read().filter(entry => entry.engine === engine);
  }

  /** Remembers a pull, in place of what is known of the same reference. */
  async add(entry: PulledEntry, signal: AbortSignal): Promise<void> {
    await this.#change(signal, entries => [...entries.filter(one => !isSame(one, entry)), entry]);
  }

  /** Remembers that an image was used. Cheap where that is known already, to the hour. */
  async used(id: string, now: number, signal: AbortSignal): Promise<void> {
    if (Math.abs(now - (this.#lookedAt.get(id) ?? -Infinity)) < LOOK_STEP_MS) return;
    if (this.#lookedAt.size >= MAX_LOOKED_AT) this.#lookedAt.clear();
    this.#lookedAt.set(id, now);
    const isStale = (one: PulledEntry): boolean => one.id === id && now - one.lastUsedAt >= USE_STEP_MS;
    if (!this.#read().some(isStale)) return;
    try {
      await this.#change(signal, entries => entries.map(one => (isStale(one) ? { ...one, lastUsedAt: now } : one)));
    } catch (error) {
      // The next use tries again.
      this.#lookedAt.delete(id);
      throw error;
    }
  }

  /** Forgets one. */
  async forget(engine: string, reference: string, signal: AbortSignal): Promise<void> {
    await this.#change(signal, entries => entries.filter(one => !isSame(one, { engine, reference })));
  }

  get #path(): string {
    return join(this.#directory, 'images.json');
  }

  #read(): PulledEntry[] {
    try {
      // What another user could have written would have images of the user’s own removed.
      const file = readPrivateFile(this.#path, { maxBytes: MAX_BYTES, uid: this.#uid });
      const parsed = fileSchema.safeParse(JSON.parse(file?.text ?? 'null'));
      return parsed.success ? parsed.data.images : [];
    } catch {
      return [];
    }
  }

  async #change(signal: AbortSignal, change: (entries: PulledEntry[]) => PulledEntry[]): Promise<void> {
    await this.#locks.during(`index:${this.#directory}`, { deadlineMs: WAIT_MS, signal }, async () => {
      const images = change(this.#read()).slice(-MAX_ENTRIES);
      await ensurePrivateDirectory(this.#directory, this.#uid);
      // Not durable: an index that is lost says nothing, and then nothing is pruned.
      writePrivateFile(this.#path, `${JSON.stringify({ version: 1, images }, null, 1)}\n`, { durable: false });
    });
  }
}

function isSame(
  one: Pick<PulledEntry, 'engine' | 'reference'>,
  other: Pick<PulledEntry, 'engine' | 'reference'>,
): boolean {
  return one.engine === other.engine && one.reference === other.reference;
}
