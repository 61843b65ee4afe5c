// Takes files out of a sandbox. What comes is whatever its commands made it, the tar that packs it included: no name of it
// leads out of the target, and nothing but files and directories arrives.

import { AcodeError } from '../../contract/errors.ts';
import type { TransferOptions, TransferReport } from '../../contract/sandbox.ts';
import type { InsideEnd } from '../../isolation/backend.ts';
import { NoPlace } from './arrival.ts';
import type { Arrival, ArrivalKind } from './arrival.ts';
import { ByteReader, MalformedTar, readTar } from '../../workspace/archive/tar-read.ts';
import type { Conversation } from './conversation.ts';
import { asText } from './listing.ts';
import { PACK } from './programs.ts';
import type { Place, Programs } from './programs.ts';
import type { TarItem } from '../../workspace/archive/tar-read.ts';
import { Tally } from './options.ts';
import type { Bounds } from './options.ts';

const BOUNDS: Bounds = { maxBytes: 4 * 1024 ** 3, maxEntries: 100_000 };
const MAX_HEAD = 80;
// Before each entry may stand a long name, a long target and a record.
const HEADERS_PER_ENTRY = 4;
const HEADERS_BESIDES = 16;
const MAX_NAMED = 200;
// What a kernel takes for a path; deeper trees do not occur.
const MAX_PATH = 4096;
const MAX_DEPTH = 256;

/** Takes a file or a tree out; `arrive` prepares its place on the host once it is known what it is. */
export async function download(
  programs: Programs,
  place: Place,
  arrive: (kind: ArrivalKind) => Arrival,
  { signal, maxBytes = BOUNDS.maxBytes, maxEntries = BOUNDS.maxEntries }: TransferOptions,
): Promise<TransferReport> {
  using conversation = await programs.open({
    script: PACK,
    words: [place.inside],
    operation: 'download',
    attempt: { syscall: 'open', path: place.written },
    signal,
  });
  const bounds = { maxBytes, maxEntries };
  const tally = new Tally(place.written, bounds);
  const bytes = new ByteReader(conversation.chunks());
  const head = await bytes.line(MAX_HEAD);
  if (head === 'directory') await takeTree({ conversation, bytes, tally, bounds, place, arrive });
  else await takeFile({ conversation, bytes, tally, bounds, place, arrive }, head);
  return tally.report();
}

interface Taking {
  readonly conversation: Conversation;
  readonly bytes: ByteReader;
  readonly tally: Tally;
  readonly bounds: Bounds;
  readonly place: Place;
  readonly arrive: (kind: ArrivalKind) => Arrival;
}

async function takeFile({ conversation, bytes, tally, place, arrive }: Taking, head: string | null): Promise<void> {
  const [, mode, size] = /^file ([0-7]{1,5}) (\d{1,20})$/.exec(head ?? '') ?? [];
  if (mode === undefined) {
    await conversation.finish();
    throw refusal(place, head === 'special' ? 'it is neither a file nor a directory' : 'it did not say what it is');
  }
  tally.announce(Number(size));
  using arrival = arrive('file');
  tally.file(0);
  await arrival.file(['content'], { mode: Number.parseInt(mode, 8), content: counted(bytes, tally) });
  await conversation.finish();
  arrival.settleFile('content');
}

async function* counted(bytes: ByteReader, tally: Tally): AsyncGenerator<Buffer, void, undefined> {
  for (let chunk = await bytes.some(Infinity); chunk; chunk = await bytes.some(Infinity)) {
    tally.bytes(chunk.length);
    yield chunk;
  }
}

async function takeTree({ conversation, bytes, tally, bounds, place, arrive }: Taking): Promise<void> {
  using arrival = arrive('directory');
  try {
    await unpack(bytes, arrival, tally, bounds);
  } catch (error) {
    if (!(error instanceof MalformedTar)) throw error;
    // A tar that failed has also ended in the middle; why it failed says more.
    if (error.isTruncated) await conversation.finish();
    throw refusal(place, error.message, error);
  }
  await conversation.finish(isUnsettled);
  arrival.settle();
}

// Puts the entries of an archive at their places, as far as they have one.
async function unpack(bytes: ByteReader, arrival: Arrival, tally: Tally, { maxEntries }: Bounds): Promise<void> {
  for await (const item of readTar(bytes, maxEntries * HEADERS_PER_ENTRY + HEADERS_BESIDES)) {
    const segments = segmentsOf(item.name);
    if (segments.length === 0) continue;
    const path = asText(segments.join('/'));
    try {
      await bring(item, segments, arrival, tally);
      tally.made(arrival.made);
    } catch (error) {
      if (!(error instanceof NoPlace)) throw error;
      tally.skip(path, error.message);
    }
  }
}

async function bring(item: TarItem, segments: readonly string[], arrival: Arrival, tally: Tally): Promise<void> {
  const { kind, mode, size, modifiedSeconds } = item;
  tally.announce(size);
  if (kind === 'directory') {
    arrival.directory(segments, mode);
    tally.directory();
  } else if (kind === 'file') {
    await arrival.file(segments, { mode, modifiedSeconds, content: item.content() });
    tally.file(size);
  } else throw new NoPlace(`it is ${/^[aeiou]/.test(kind) ? 'an' : 'a'} ${kind}`);
}

// The names that lead to an entry; a name that leads elsewhere refuses all of the archive.
function segmentsOf(name: string): string[] {
  if (name.length > MAX_PATH) throw new MalformedTar('the name of an entry is longer than any path');
  if (name.includes('\0')) throw new MalformedTar('the name of an entry has a NUL in it');
  if (name.startsWith('/')) throw new MalformedTar(`an entry is called ${shown(name)}`);
  const segments = name.split('/').filter(segment => segment !== '' && segment !== '.');
  if (segments.length > MAX_DEPTH) throw new MalformedTar('an entry is nested too deep');
  if (segments.includes('..')) throw new MalformedTar(`an entry is called ${shown(name)}`);
  // On Windows these lead elsewhere too.
  if (process.platform === 'win32' && /[\\:]/.test(name)) throw new MalformedTar(`an entry is called ${shown(name)}`);
  return segments;
}

// It may stand in a terminal.
function shown(name: string): string {
  return JSON.stringify(asText(name.slice(0, MAX_NAMED)));
}

// GNU’s tar says so where something was written to while it was packed, and what it packed is whole all the same.
function isUnsettled({ exitCode, stderr }: InsideEnd): boolean {
  return exitCode === 1 && /file changed as we read it|[Ff]ile removed before we read it/.test(stderr);
}

function refusal({ written }: Place, reason: string, cause?: unknown): AcodeError {
  return new AcodeError('ACODE-FIL-002', { path: written, reason }, cause === undefined ? {} : { cause });
}
