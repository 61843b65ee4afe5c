// Directories inside: what is in them. What lists them can be forged by whatever else runs inside.

import { Pauses } from '../../lifecycle/pauses.ts';
import type { DirectoryEntry, FileCall } from '../../contract/sandbox.ts';
import { codeIn, fileError } from './errno.ts';
import { NamesReader, WalkReader, asText } from './listing.ts';
import { refused } from './pieces.ts';
import type { ListingBounds } from './pieces.ts';
import { leadsBelow, prefixOf } from './places.ts';
import type { Place } from './places.ts';
import type { Programs, Task } from './programs.ts';
import { ENTRIES, NAMES } from './scripts.ts';
import { sortedBy } from './sorting.ts';
import { entryOf } from './stats.ts';

// More is nothing that one call should answer, nor that one process should hold.
const MAX_BYTES = 256 * 1024 ** 2;
const MAX_ENTRIES = 2_000_000;
const WITHIN_MS = 300_000;

/** How a directory is read. */
export interface Reading extends FileCall {
  readonly recursive?: boolean;
  readonly maxBytes?: number;
}

/** The names in a directory, or the ways from it to everything below it. */
export async function readNames(programs: Programs, place: Place, options: Reading): Promise<string[]> {
  const reader = new NamesReader(boundsOf(place, options), waysBelow(place, options));
  await programs.read(taskFor(place, options, 'names'), WITHIN_MS, chunk => reader.push(chunk));
  return sortedBy(reader.finish(), way => way, new Pauses(null));
}

/** The same, with what each is. */
export async function readEntries(programs: Programs, place: Place, options: Reading): Promise<DirectoryEntry[]> {
  const found: Found[] = [];
  const wayOf = waysBelow(place, options);
  const reader = new WalkReader(boundsOf(place, options), ({ name, facts }) =>
    found.push({ way: wayOf(asText(name)), mode: facts?.mode ?? null }),
  );
  const { stderr } = await programs.read(taskFor(place, options, 'entries'), WITHIN_MS, async chunk => {
    await reader.push(chunk);
  });
  assertFinished(stderr, place);
  reader.finish();
  return described(found, place);
}

interface Found {
  readonly way: string;
  readonly mode: number | null;
}

function boundsOf({ written }: Place, { maxBytes = MAX_BYTES }: Reading): ListingBounds {
  return { path: written, maxBytes, maxEntries: MAX_ENTRIES };
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

// What goes away while it is walked over is no mistake; what may not be looked into is one.
function assertFinished(stderr: string, place: Place): void {
  if (!/^acode-unfinished$/m.test(stderr)) return;
  const code = codeIn(stderr);
  if (code !== 'ENOENT') throw fileError(code ?? 'EIO', { syscall: 'scandir', path: place.written });
}

// Callers put the names they get behind paths of their own: no name leads elsewhere.
function waysBelow({ inside, written }: Place, { recursive = false }: Reading): (name: string) => string {
  // As it reads when it was bytes meanwhile.
  const prefix = Buffer.from(prefixOf(inside)).toString();
  return name => {
    const way = name.slice(prefix.length);
    if (!name.startsWith(prefix) || !leadsBelow(way) || (!recursive && way.includes('/')))
      throw refused(written, name === '' ? 'a name in it is empty' : 'a name in it lies elsewhere');
    return way;
  };
}

async function described(found: readonly Found[], place: Place): Promise<DirectoryEntry[]> {
  const pauses = new Pauses(null);
  const prefix = prefixOf(place.written);
  const entries: DirectoryEntry[] = [];
  for (const { way, mode } of await sortedBy(found, entry => entry.way, pauses)) {
    const slash = way.lastIndexOf('/');
    const parent = slash === -1 ? place.written : `${prefix}${way.slice(0, slash)}`;
    entries.push(entryOf(way.slice(slash + 1), parent, mode));
    if (pauses.isDue) await pauses.take();
  }
  return entries;
}
