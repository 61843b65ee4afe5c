// Index of project images: its entries, and that no old entry makes a build fail.

import { describe, expect, it } from 'vitest';
import { remember, removeReplaced } from './building.ts';
import type { BuildNotes } from './building.ts';
import type { PulledEntry } from '../pulls.ts';

const OLD = `sha256:${'a'.repeat(64)}`;
const NEW = `sha256:${'b'.repeat(64)}`;
const NAME = 'acode-sandbox-app-4f1c2d3e4a5b:project';

/** Notes in memory; `remove` is what the engine does with the image from before. */
function notes(remove: (id: string) => void, index: Partial<BuildNotes['index']> = {}) {
  const there = new Set([OLD, NEW]);
  const entries: PulledEntry[] = [];
  const warnings: string[] = [];
  const all: BuildNotes = {
    builds: {
      find: async id => (there.has(id) ? { id, labels: {}, layers: [], triggers: [] } : null),
      remove: async id => {
        remove(id);
        there.delete(id);
      },
    },
    on: 'engine',
    index: {
      on: async () => entries,
      used: async (id, now) =>
        entries.forEach((one, at) => one.id === id && (entries[at] = { ...one, lastUsedAt: now })),
      add: async entry => void entries.push(entry),
      ...index,
    },
    clock: { now: () => 17 },
    warn: message => warnings.push(message),
    signal: new AbortController().signal,
  };
  return { all, there, entries, warnings };
}

describe('an image that another took the place of', () => {
  it('is removed, and nothing is noted down of it', async () => {
    const { all, there, entries, warnings } = notes(() => undefined);
    await removeReplaced(all, OLD, NEW);
    expect([...there]).toEqual([NEW]);
    expect([entries, warnings]).toEqual([[], []]);
  });

  it('that the engine does not remove is no reason to fail, and is found by its id later', async () => {
    const { all, there, entries, warnings } = notes(() => {
      throw new Error('the engine is busy');
    });
    await expect(removeReplaced(all, OLD, NEW)).resolves.toBeUndefined();
    expect(there.has(OLD)).toBe(true);
    expect(warnings).toEqual(['the project image from before could not be removed']);
    expect(entries).toMatchObject([{ engine: 'engine', reference: OLD, id: OLD, brought: true }]);
  });

  it('that was the same is left alone', async () => {
    const { all, there } = notes(() => undefined);
    await removeReplaced(all, NEW, NEW);
    expect(there.has(NEW)).toBe(true);
  });
});

describe('an image that was built', () => {
  it('is noted down once, by its full name, and then as used', async () => {
    const { all, entries } = notes(() => undefined);
    await remember(all, NAME, NEW);
    await remember({ ...all, clock: { now: () => 18 } }, NAME, NEW);
    expect(entries).toEqual([
      {
        engine: 'engine',
        reference: `docker.io/library/${NAME}`,
        id: NEW,
        digest: NEW,
        brought: true,
        pulledAt: 17,
        lastUsedAt: 18,
      },
    ]);
  });

  it('is built also where that cannot be noted down', async () => {
    const { all, warnings } = notes(() => undefined, { add: () => Promise.reject(new Error('no space')) });
    await remember(all, NAME, NEW);
    expect(warnings).toEqual(['a project image could not be noted down']);
  });
});
