// Directories inside: what is in them, making and removing them.

import { AcodeError } from '../contract/errors.ts';
import type { DirectoryEntry, FileCall } from '../contract/sandbox.ts';
import { codeIn, fileError } from './errno.ts';
import { ListingReader, asText } from './listing.ts';
import type { Listed } from './listing.ts';
import { prefixOf } from './places.ts';
import type { Place } from './places.ts';
import type { Programs, Task, Terms } from './programs.ts';
import { ENTRIES, NAMES } from './scripts.ts';
import { entryOf } from './stats.ts';

// A tree of a million files; more is nothing that one call should answer.
const MOST_BYTES = 256 * 1024 ** 2;
const WITHIN_MS = 300_000;

/** How a directory is read. */
export interface Reading extends FileCall {
  readonly recursive?: boolean;
  readonly maxBytes?: number;
}

/** The names in a directory, or the ways from it to everything below it. */
export async function readNames(programs: Programs, place: Place, options: Reading): Promise<string[]> {
  const output = await programs.run(taskFor(place, options, 'names'), termsOf(options));
  const names = output.toString('utf8').split('\0');
  const prefix = prefixOf(place.inside);
  names.pop();
  return names.map(name => name.slice(prefix.length)).sort();
}

/** The same, with what each is. */
export async function readEntries(programs: Programs, place: Place, options: Reading): Promise<DirectoryEntry[]> {
  const task = taskFor(place, options, 'entries');
  const { stdout, stderr } = await programs.told(task, termsOf(options));
  assertFinished(stderr, place);
  const [walk] = new ListingReader().push(stdout);
  if (!walk) throw fileError('EIO', task.attempt);
  const skipped = prefixOf(place.inside).length;
  return walk.map(listed => described(listed, place, skipped)).sort(byWay);
}

function termsOf({ maxBytes = MOST_BYTES }: Reading): Terms {
  return { maxBytes, withinMs: WITHIN_MS };
}

function taskFor(place: Place, { recursive = false, signal }: Reading, kind: 'names' | 'entries'): Task {
  return {
    script: kind === 'names' ? NAMES : ENTRIES,
    words: [place.inside, prefixOf(place.inside), recursive ? '' : '1'],
    operation: 'readdir',
    attempt: { syscall: 'scandir', path: place.written },
    signal,
  };
}

// What went away while it was walked over is no mistake; what may not be looked into is one.
function assertFinished(stderr: string, place: Place): void {
  if (!/^acode-unfinished$/m.test(stderr)) return;
  const code = codeIn(stderr);
  if (code !== 'ENOENT') throw fileError(code ?? 'EIO', { syscall: 'scandir', path: place.written });
}

function described({ name, facts }: Listed, place: Place, skipped: number): DirectoryEntry {
  // The name is counted in bytes, and the prefix in characters of the path: both begin after the same slash.
  const way = asText(name).slice(skipped);
  const slash = way.lastIndexOf('/');
  const parent = slash === -1 ? place.written : `${prefixOf(place.written)}${way.slice(0, slash)}`;
  return entryOf(way.slice(slash + 1), parent, facts?.mode ?? null);
}

function byWay(one: DirectoryEntry, other: DirectoryEntry): number {
  const [here, there] = [`${one.parentPath}/${one.name}`, `${other.parentPath}/${other.name}`];
  return here < there ? -1 : Number(here > there);
}

/** The error for a tree that has more entries than anybody should wait for. */
export function tooMany(path: string, limit: number): AcodeError {
  return new AcodeError('ACODE-FIL-003', { path, limit: `${limit} entries` });
}
