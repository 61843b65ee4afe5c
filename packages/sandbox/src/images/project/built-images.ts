// Notes down which project images were built, so that a prune and an uninstallation know them for acode’s own.

import type { Clock } from '../../contract/ports.ts';
import type { ImageBuilds } from '../../isolation/backend.ts';
import { fullName } from '../../policy/images.ts';
import type { PulledImages } from '../registry/pulled.ts';

/** Where notes are kept, and of what. */
export interface BuildNotes {
  readonly builds: Pick<ImageBuilds, 'find' | 'remove'>;
  /** The engine’s id. */
  readonly on: string;
  readonly index: Pick<PulledImages, 'on' | 'used' | 'add'>;
  readonly clock: Pick<Clock, 'now'>;
  /** Hears of what went wrong without being a reason to fail: the image is built. */
  readonly warn: (message: string, fields: Readonly<Record<string, unknown>>) => void;
  readonly signal: AbortSignal;
}

/** Notes an image down, or that it was used. It is there whether that succeeds or not. */
export async function remember(
  { on, index, clock, warn, signal }: BuildNotes,
  name: string,
  id: string,
): Promise<void> {
  const reference = fullName(name) ?? name;
  const now = clock.now();
  try {
    const known = (await index.on(on)).some(one => one.reference === reference && one.id === id);
    const entry = { engine: on, reference, id, digest: id, brought: true, pulledAt: now, lastUsedAt: now };
    await (known ? index.used(id, now, signal) : index.add(entry, signal));
  } catch (error) {
    signal.throwIfAborted();
    warn('a project image could not be noted down', { image: name, imageId: id, reason: String(error) });
  }
}

/**
 * Removes the image that another took the name of. Whatever still runs from it keeps it, and a prune finds it by its id
 * later.
 */
export async function removeReplaced(notes: BuildNotes, before: string, made: string): Promise<void> {
  if (before === made) return;
  const { builds, warn, signal } = notes;
  try {
    await builds.remove(before, signal);
    if ((await builds.find(before, signal)) === null) return;
  } catch (error) {
    signal.throwIfAborted();
    const reason = error instanceof Error ? error.message : String(error);
    warn('the project image from before could not be removed', { imageId: before, reason });
  }
  await remember(notes, before, before);
}
