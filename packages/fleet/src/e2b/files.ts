// Files of one sandbox as E2B’s `filesystem.Filesystem` and `/files` have them. Every path is one inside the sandbox.

import type { IncomingMessage, ServerResponse } from 'node:http';
import { posix } from 'node:path';
import { Readable } from 'node:stream';
import type { FileStats, Files } from '@acode/sandbox';
import * as z from 'zod';
import { HOME } from './sandboxes.ts';
import { MAX_FORM_BYTES, MAX_UPLOAD_BYTES, filesOfForm, invalid, streamedBody, withBody, written } from './wire.ts';
import type { HeldBytes, MessageStream } from './wire.ts';

const MAX_PATH = 4096;
const MAX_DEPTH = 32;
const MAX_ENTRIES = 10_000;
const AT_ONCE = 8;

const integer = z.coerce.number().int().min(0);
/** A call about one path. */
export const pathSchema = z.object({ path: z.string() });
/** A call that lists a directory. */
export const listSchema = z.object({ path: z.string(), depth: integer.max(MAX_DEPTH).default(1) });
/** A call that moves something. */
export const moveSchema = z.object({ source: z.string(), destination: z.string() });
/** A call that watches a directory. */
export const watchSchema = z.object({ path: z.string(), recursive: z.boolean().default(false) });

interface Entry {
  readonly name: string;
  readonly type: 'FILE_TYPE_FILE' | 'FILE_TYPE_DIRECTORY' | 'FILE_TYPE_SYMLINK' | 'FILE_TYPE_UNSPECIFIED';
  readonly path: string;
  readonly [more: string]: unknown;
}

interface Call {
  readonly signal: AbortSignal;
}

/** A path as the sandbox has it: relative ones begin in the home directory. It never leaves the sandbox, whatever it says. */
export function insidePath(path: string): string {
  if (path === '') throw invalid('path', 'is empty');
  if (path.length > MAX_PATH) throw invalid('path', `is longer than ${MAX_PATH} characters`);
  if (path.includes('\0')) throw invalid('path', 'has a NUL in it');
  const [, rest] = /^~(?:\/(.*))?$/s.exec(path) ?? [null, null];
  return posix.resolve(HOME, rest === null ? path : (rest ?? ''));
}

/** What there is to know of a path. */
export async function statOf(files: Files, path: string, call: Call): Promise<object> {
  return { entry: await entryOf(files, insidePath(path), call) };
}

/** Makes a directory and those on the way; one that exists is refused. */
export async function makeDirectory(files: Files, path: string, call: Call): Promise<object> {
  const inside = insidePath(path);
  const found = await unlessGone(() => files.stat(inside, call));
  if (found) throw Object.assign(new Error(`EEXIST: ${inside} exists`), { code: 'EEXIST' });
  await files.mkdir(inside, { recursive: true, ...call });
  return { entry: await entryOf(files, inside, call) };
}

/** Moves a file or directory. */
export async function move(files: Files, from: string, to: string, call: Call): Promise<object> {
  const [source, destination] = [insidePath(from), insidePath(to)];
  await withParents(files, destination, call);
  await files.rename(source, destination, call);
  return { entry: await entryOf(files, destination, call) };
}

/** Removes a file, or a directory with everything in it. */
export async function remove(files: Files, path: string, call: Call): Promise<object> {
  await files.rm(insidePath(path), { recursive: true, ...call });
  return {};
}

/** The entries of a directory, and of those below it down to a depth. */
export async function list(files: Files, path: string, depth: number, call: Call): Promise<object> {
  const entries: Entry[] = [];
  let directories = [insidePath(path)];
  for (let level = 0; level < Math.max(depth, 1) && directories.length > 0; level += 1) {
    const below: string[] = [];
    for (const directory of directories) {
      const names = await (level === 0
        ? files.readdir(directory, call)
        : unlessGone(() => files.readdir(directory, call)).then(found => found ?? []));
      if (entries.length + names.length > MAX_ENTRIES)
        throw invalid(
          'path',
          `has more than ${MAX_ENTRIES} entries`,
          'List a directory below it, or use `ls` or `find`.',
        );
      const found = await inTurns(names, name => unlessGone(() => entryOf(files, posix.join(directory, name), call)));
      for (const entry of found) {
        if (!entry) continue;
        entries.push(entry);
        if (entry.type === 'FILE_TYPE_DIRECTORY') below.push(entry.path);
      }
    }
    directories = below;
  }
  return { entries };
}

/** Tells a caller what changes in a directory. */
export async function watch(
  files: Files,
  asked: z.infer<typeof watchSchema>,
  stream: MessageStream,
  call: Call,
): Promise<void> {
  const inside = insidePath(asked.path);
  const stats = await files.stat(inside, call);
  if (!stats.isDirectory()) throw invalid('path', 'is not a directory');
  await stream.send({ start: {} });
  const signal = AbortSignal.any([call.signal, stream.gone]);
  for await (const { eventType, filename } of files.watch(inside, { recursive: asked.recursive, signal })) {
    const isThere = async (): Promise<boolean> =>
      (await unlessGone(() => files.lstat(posix.join(inside, filename), { signal }))) !== null;
    const type =
      eventType === 'change' ? 'EVENT_TYPE_WRITE' : (await isThere()) ? 'EVENT_TYPE_CREATE' : 'EVENT_TYPE_REMOVE';
    await stream.send({ filesystem: { name: filename, type } });
  }
}

/** Sends a file. */
export async function download(files: Files, path: string, response: ServerResponse, call: Call): Promise<void> {
  const inside = insidePath(path);
  const stats = await files.stat(inside, call);
  if (!stats.isFile()) throw invalid('path', 'is not a file');
  const pieces = files.createReadStream(inside, call)[Symbol.asyncIterator]();
  // What cannot be read is refused, and not sent as an empty file.
  let next = await pieces.next();
  response.writeHead(200, {
    'content-type': 'application/octet-stream',
    // A browser that was sent a link shows nothing of it as a page of this server.
    'content-disposition': 'attachment',
    'x-content-type-options': 'nosniff',
    ...(next.done ? { 'content-length': 0 } : {}),
  });
  try {
    for (; !next.done && !response.destroyed; next = await pieces.next())
      if (next.value instanceof Uint8Array) await written(response, next.value);
    response.end();
  } catch {
    // Half of a file must not look like a whole one.
    response.destroy();
  } finally {
    await pieces.return?.();
  }
}

/** Writes what a caller sends: one file as it is, or those of a form. */
export async function upload(
  files: Files,
  request: IncomingMessage,
  path: string | null,
  { held, signal }: Call & { readonly held: HeldBytes },
): Promise<object[]> {
  const type = request.headers['content-type'] ?? '';
  if (Object.keys(request.headers).some(name => name.startsWith('x-metadata-')))
    throw invalid('metadata', 'of files is not kept', 'Leave it out.');
  if (type.startsWith('multipart/form-data'))
    return withBody(request, { maxBytes: MAX_FORM_BYTES, held }, async body => {
      const sent = filesOfForm(body, type);
      if (path !== null && sent.length > 1) throw invalid('path', 'is one, and the form has several files');
      const done: object[] = [];
      for (const one of sent) done.push(await write(files, path ?? one.path, one.content, { signal }));
      return done;
    });
  if (!type.startsWith('application/octet-stream'))
    throw invalid('Content-Type', 'is neither multipart/form-data nor application/octet-stream');
  if (path === null) throw invalid('path', 'is missing');
  const source = Readable.from(streamedBody(request, MAX_UPLOAD_BYTES), { objectMode: false });
  return [await write(files, path, source, { signal })];
}

async function write(files: Files, path: string, content: Buffer | Readable, call: Call): Promise<object> {
  const inside = insidePath(path);
  await withParents(files, inside, call);
  await files.writeFile(inside, content, call);
  return { name: posix.basename(inside), type: 'file', path: inside };
}

async function withParents(files: Files, path: string, call: Call): Promise<void> {
  const parent = posix.dirname(path);
  if (parent !== HOME && parent !== '/') await files.mkdir(parent, { recursive: true, ...call });
}

async function entryOf(files: Files, path: string, call: Call): Promise<Entry> {
  const stats = await files.lstat(path, call);
  const isLink = stats.isSymbolicLink();
  const target = isLink ? { symlinkTarget: await files.readlink(path, call) } : {};
  const { size, mode, uid, gid, mtime } = stats;
  return {
    name: posix.basename(path),
    type: typeOf(stats),
    path,
    size: String(size),
    mode: mode & 0o7777,
    permissions: permissionsOf(mode),
    owner: nameOf(uid, process.getuid?.()),
    group: nameOf(gid, process.getgid?.()),
    modifiedTime: mtime.toISOString(),
    ...target,
  };
}

function typeOf(stats: FileStats): Entry['type'] {
  if (stats.isDirectory()) return 'FILE_TYPE_DIRECTORY';
  if (stats.isFile()) return 'FILE_TYPE_FILE';
  return stats.isSymbolicLink() ? 'FILE_TYPE_SYMLINK' : 'FILE_TYPE_UNSPECIFIED';
}

function permissionsOf(mode: number): string {
  return Array.from('rwxrwxrwx', (letter, at) => (mode & (1 << (8 - at)) ? letter : '-')).join('');
}

// The one user of a sandbox has the name that E2B’s has.
function nameOf(id: number, own: number | undefined): string {
  return id === 0 ? 'root' : id === own ? 'user' : String(id);
}

// Commands go on meanwhile, and may remove what was just seen.
async function unlessGone<Value>(look: () => Promise<Value>): Promise<Value | null> {
  try {
    return await look();
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return null;
    throw error;
  }
}

async function inTurns<Item, Value>(items: readonly Item[], work: (item: Item) => Promise<Value>): Promise<Value[]> {
  const done: Value[] = [];
  for (let at = 0; at < items.length; at += AT_ONCE)
    done.push(...(await Promise.all(items.slice(at, at + AT_ONCE).map(work))));
  return done;
}
