// The files of a sandbox, with the shape of E2B’s.

import { posix } from 'node:path';
import { Readable } from 'node:stream';
import type { FileStats, Files } from '../contract/sandbox.ts';
import { codeOf } from '../contract/system-error.ts';
import { FileNotFoundError, InvalidArgumentError, translated, translating } from './errors.ts';
import { AS_USER, checkKnown, checkUser, limitOf, signalOf } from './options.ts';
import type { RequestOptions, UserOption } from './options.ts';

/** What an entry is. */
export const FileType = { FILE: 'file', DIR: 'dir' } as const;

/** One of {@link FileType}. */
export type FileType = (typeof FileType)[keyof typeof FileType];

/** What was written. */
export interface WriteInfo {
  /** The name, without its directory. */
  name: string;
  /** A file or a directory. */
  type?: FileType;
  /** The absolute path inside. */
  path: string;
}

/** A file or directory. */
export interface EntryInfo extends WriteInfo {
  /** Size in bytes. */
  size: number;
  /** Type and permissions, as in `node:fs`. */
  mode: number;
  /** Such as `rwxr-xr-x`. */
  permissions: string;
  /** The number of the user. */
  owner: string;
  /** The number of the group. */
  group: string;
  /** When the content changed last. */
  modifiedTime?: Date;
  /** The target, if it is a link. */
  symlinkTarget?: string;
}

/** What can be written. */
export type FileData = string | ArrayBuffer | Uint8Array | Blob | ReadableStream;

/** One of several files to be written. */
export interface WriteEntry {
  /** The path; a relative one begins in the workspace. */
  path: string;
  /** The content. */
  data: FileData;
}

/** What calls about files take. */
export type FilesystemRequestOpts = RequestOptions & UserOption;

/** What happened to a file. */
export const FilesystemEventType = {
  CHMOD: 'chmod',
  CREATE: 'create',
  REMOVE: 'remove',
  RENAME: 'rename',
  WRITE: 'write',
} as const;

/** One of {@link FilesystemEventType}. */
export type FilesystemEventType = (typeof FilesystemEventType)[keyof typeof FilesystemEventType];

/** Something that happened to a file. */
export interface FilesystemEvent {
  /** Relative to what is watched. */
  name: string;
  /** What happened to it. */
  type: FilesystemEventType;
}

/** A watch on a directory, until it is stopped. */
export interface WatchHandle {
  /** Stops watching. */
  stop(): Promise<void>;
}

/** How a directory is watched. */
export interface WatchOpts extends FilesystemRequestOpts {
  /** A minute by default; 0 for as long as the sandbox is there. */
  timeoutMs?: number;
  /** Called when watching ends; with an error if it failed. */
  onExit?: (error?: Error) => void | Promise<void>;
  /** Whether to watch directories below it too; false by default. */
  recursive?: boolean;
}

/** The files of a sandbox. A relative path begins in the workspace. */
export class Filesystem {
  readonly #files: () => Files;

  constructor(files: () => Files) {
    this.#files = files;
  }

  /** The content of a file: as text unless another format is asked for. */
  read(
    path: string,
    options?: FilesystemRequestOpts & {
      /** What the content is returned as; text by default. */
      format?: 'text';
    },
  ): Promise<string>;
  read(path: string, options: FilesystemRequestOpts & { format: 'bytes' }): Promise<Uint8Array>;
  read(path: string, options: FilesystemRequestOpts & { format: 'blob' }): Promise<Blob>;
  read(path: string, options: FilesystemRequestOpts & { format: 'stream' }): Promise<ReadableStream<Uint8Array>>;
  async read(
    path: string,
    options: FilesystemRequestOpts & { format?: 'text' | 'bytes' | 'blob' | 'stream' } = {},
  ): Promise<string | Uint8Array | Blob | ReadableStream<Uint8Array>> {
    check(options, 'format');
    const call = signalOf(options);
    return translating(async () => {
      // What is read bit by bit has no deadline for the whole of it.
      if (options.format === 'stream') return this.#stream(path, options.signal);
      const bytes = await this.#files().readFile(path, call);
      if (options.format === 'bytes') return new Uint8Array(bytes);
      return options.format === 'blob' ? new Blob([new Uint8Array(bytes)]) : bytes.toString('utf8');
    });
  }

  /** Writes a file, or several; directories on the way are made. */
  write(path: string, data: FileData, options?: FilesystemRequestOpts): Promise<WriteInfo>;
  write(files: WriteEntry[], options?: FilesystemRequestOpts): Promise<WriteInfo[]>;
  async write(
    where: string | WriteEntry[],
    what?: FileData | FilesystemRequestOpts,
    options?: FilesystemRequestOpts,
  ): Promise<WriteInfo | WriteInfo[]> {
    if (typeof where !== 'string') return this.writeFiles(where, isData(what) ? {} : what);
    if (!isData(what)) throw new InvalidArgumentError('data: is missing.');
    return this.#writeOne({ path: where, data: what }, options);
  }

  /** Writes several files, one after another. */
  async writeFiles(files: WriteEntry[], options?: FilesystemRequestOpts): Promise<WriteInfo[]> {
    const written: WriteInfo[] = [];
    for (const file of files) written.push(await this.#writeOne(file, options));
    return written;
  }

  /** The entries of a directory, and with `depth` of those below. */
  async list(
    path: string,
    options: FilesystemRequestOpts & {
      /** How many levels of directories to list; 1 by default. */
      depth?: number;
    } = {},
  ): Promise<EntryInfo[]> {
    check(options, 'depth');
    const { depth = 1 } = options;
    if (!Number.isInteger(depth) || depth < 1) throw new InvalidArgumentError('depth: must be 1 or more.');
    return translating(() => this.#listBelow(path, depth, signalOf(options)));
  }

  /** Whether there is such a file or directory. */
  async exists(path: string, options?: FilesystemRequestOpts): Promise<boolean> {
    try {
      await this.getInfo(path, options);
      return true;
    } catch (error) {
      if (error instanceof FileNotFoundError) return false;
      throw error;
    }
  }

  /** Makes a directory and those on the way; false where it is there already. */
  async makeDir(path: string, options?: FilesystemRequestOpts): Promise<boolean> {
    if (await this.exists(path, options)) return false;
    await translating(() => this.#files().mkdir(path, { recursive: true, ...signalOf(options) }));
    return true;
  }

  /** Removes a file, or a directory with everything in it. */
  async remove(path: string, options?: FilesystemRequestOpts): Promise<void> {
    check(options);
    await translating(() => this.#files().rm(path, { recursive: true, ...signalOf(options) }));
  }

  /** Gives a file or directory another name. */
  async rename(from: string, to: string, options?: FilesystemRequestOpts): Promise<EntryInfo> {
    check(options);
    await translating(() => this.#files().rename(from, to, signalOf(options)));
    return this.getInfo(to, options);
  }

  /** What there is to know of a file or directory. */
  async getInfo(path: string, options?: FilesystemRequestOpts): Promise<EntryInfo> {
    check(options);
    return translating(() => this.#infoOf(path, signalOf(options)));
  }

  /** Tells of changes in a directory, until it is stopped. */
  async watchDir(
    path: string,
    onEvent: (event: FilesystemEvent) => void | Promise<void>,
    options: WatchOpts = {},
  ): Promise<WatchHandle> {
    check(options, 'timeoutMs', 'onExit', 'recursive');
    const info = await this.getInfo(path, signalOf(options));
    if (info.type !== FileType.DIR) throw new InvalidArgumentError(`${path} is not a directory.`);
    const stop = new AbortController();
    const { timeoutMs } = limitOf(options.timeoutMs);
    const until = [stop.signal, ...(timeoutMs === undefined ? [] : [AbortSignal.timeout(timeoutMs)])];
    const watching = this.#watch(path, onEvent, AbortSignal.any(until), options);
    return {
      stop: async () => {
        stop.abort();
        await watching;
      },
    };
  }

  async #watch(
    path: string,
    onEvent: (event: FilesystemEvent) => void | Promise<void>,
    signal: AbortSignal,
    { recursive = false, onExit }: WatchOpts,
  ): Promise<void> {
    try {
      for await (const { eventType, filename } of this.#files().watch(path, { recursive, signal })) {
        const changed = eventType === 'change' ? FilesystemEventType.WRITE : await this.#cameOrWent(path, filename);
        await onEvent({ name: filename, type: changed });
      }
      await onExit?.();
    } catch (error) {
      await onExit?.(signal.aborted ? undefined : translated(error));
    }
  }

  async #cameOrWent(path: string, name: string): Promise<FilesystemEventType> {
    return (await this.exists(posix.join(path, name))) ? FilesystemEventType.CREATE : FilesystemEventType.REMOVE;
  }

  async #stream(path: string, signal?: AbortSignal): Promise<ReadableStream<Uint8Array>> {
    const source = this.#files().createReadStream(path, signal ? { signal } : {});
    const chunks = source[Symbol.asyncIterator]();
    // A missing file is an error now, not when the caller first reads the stream.
    let next = await chunks.next();
    return new ReadableStream<Uint8Array>({
      pull: async controller => {
        if (next.done === true) return controller.close();
        const chunk: unknown = next.value;
        if (chunk instanceof Uint8Array) controller.enqueue(new Uint8Array(chunk));
        next = await chunks.next();
      },
      cancel: () => void source.destroy(),
    });
  }

  async #writeOne(entry: WriteEntry, options?: FilesystemRequestOpts): Promise<WriteInfo> {
    check(options);
    checkKnown(entry, ['path', 'data'], 'files.');
    const { path, data } = entry;
    const call = signalOf(options);
    await translating(async () => {
      const content = await contentOf(data);
      const directory = posix.dirname(path);
      if (directory !== '.' && directory !== '/') await this.#files().mkdir(directory, { recursive: true, ...call });
      await this.#files().writeFile(path, content, call);
    });
    return { name: posix.basename(path), type: FileType.FILE, path };
  }

  async #listBelow(path: string, depth: number, call: { signal?: AbortSignal }): Promise<EntryInfo[]> {
    const found: EntryInfo[] = [];
    for (const name of await this.#files().readdir(path, call)) {
      const entry = await this.#unlessGone(posix.join(path, name), call);
      if (!entry) continue;
      found.push(entry);
      if (depth > 1 && entry.type === FileType.DIR) found.push(...(await this.#listBelow(entry.path, depth - 1, call)));
    }
    return found;
  }

  // Commands go on while a directory is read, and may remove what was just seen.
  async #unlessGone(path: string, call: { signal?: AbortSignal }): Promise<EntryInfo | null> {
    try {
      return await this.#infoOf(path, call);
    } catch (error) {
      if (codeOf(error) === 'ENOENT') return null;
      throw error;
    }
  }

  async #infoOf(path: string, call: { signal?: AbortSignal }): Promise<EntryInfo> {
    const stats = await this.#files().lstat(path, call);
    const target = stats.isSymbolicLink() ? { symlinkTarget: await this.#files().readlink(path, call) } : {};
    return { ...entryOf(path, stats), ...target };
  }
}

function check(options: FilesystemRequestOpts | undefined, ...besides: readonly string[]): void {
  checkKnown(options, [...AS_USER, ...besides]);
  checkUser(options);
}

function entryOf(path: string, stats: FileStats): EntryInfo {
  const { size, mode, uid, gid, mtime } = stats;
  const kind = stats.isDirectory() ? { type: FileType.DIR } : stats.isFile() ? { type: FileType.FILE } : {};
  return {
    name: posix.basename(path),
    path,
    ...kind,
    size,
    mode: mode & 0o7777,
    permissions: permissionsOf(mode),
    owner: String(uid),
    group: String(gid),
    modifiedTime: mtime,
  };
}

/** The permissions of a mode, as `ls` shows them. */
export function permissionsOf(mode: number): string {
  return [6, 3, 0]
    .flatMap(shift => ['r', 'w', 'x'].map((letter, at) => ((mode >> shift) & (4 >> at) ? letter : '-')))
    .join('');
}

function isData(value: FileData | FilesystemRequestOpts | undefined): value is FileData {
  return (
    typeof value === 'string' ||
    value instanceof ArrayBuffer ||
    value instanceof Uint8Array ||
    value instanceof Blob ||
    value instanceof ReadableStream
  );
}

async function contentOf(data: FileData): Promise<string | Uint8Array | Readable> {
  if (typeof data === 'string' || data instanceof Uint8Array) return data;
  if (data instanceof ArrayBuffer) return new Uint8Array(data);
  if (data instanceof Blob) return new Uint8Array(await data.arrayBuffer());
  return Readable.from(readAll(data), { objectMode: false });
}

async function* readAll(stream: ReadableStream<unknown>): AsyncGenerator<Uint8Array> {
  const reader = stream.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    if (value instanceof Uint8Array) yield value;
    else if (value instanceof ArrayBuffer) yield new Uint8Array(value);
    else yield Buffer.from(String(value));
  }
}
