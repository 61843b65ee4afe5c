// Loads the bundled command: three files of modules, each compiled as one script with a code cache, each module run when it is first
// needed. The build alone refers to this file; sources are loaded by Node.js itself.

import { closeSync, fstatSync, openSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Script } from 'node:vm';
import type { lastWords, runCli } from '../cli.ts';
import { whereOf } from '../serve/location-options.ts';
import { cacheOf, readCache, writeCache } from './code-cache.ts';
import type { OwnCache } from './code-cache.ts';

/** What the entry needs of the command. */
interface Command {
  readonly runCli: typeof runCli;
  readonly lastWords: typeof lastWords;
}
/** A module of the bundle, as CommonJS. */
type Run = (exports: object, require: (id: string) => unknown, module: { exports: unknown }, url: string) => void;
type Modules = Readonly<Record<string, Run>>;

// A command that ended so has not run all that it is made of: it was used wrongly, failed, or was stopped.
const USAGE = 2;
const FAILED = 125;
const BY_SIGNAL = 128;
// V8 drops compiled code that was not used for long. A process that lived longer has less to store than it was given.
const MAX_UPTIME_MS = 60_000;

/** What a bundle consists of. */
export interface BundleParts {
  /** The address of the entry. */
  readonly url: string;
  /** The files beside it. */
  readonly files: readonly string[];
  /** The module that is the command. */
  readonly first: string;
}

/** The bundled command. When it has done its work, it stores what was compiled for it. */
export function bundledCommand({ url, files, first }: BundleParts): Command {
  const bundle = new Bundle(url, files);
  const command = bundle.load(first);
  if (!isCommand(command)) throw new Error(`${first} is not the command`);
  return {
    lastWords: command.lastWords,
    async runCli(argv, io, served) {
      const status = await command.runCli(argv, io, served);
      const isWhole = status !== USAGE && status !== FAILED && status < BY_SIGNAL;
      // What has just removed every trace of acode leaves none.
      if (isWhole && performance.now() < MAX_UPTIME_MS && !argv.includes('uninstall')) bundle.store(argv);
      return status;
    },
  };
}

class Bundle {
  readonly #url: string;
  readonly #parts: readonly Part[];
  readonly #modules = new Map<string, { exports: unknown }>();
  readonly #require: NodeJS.Require;

  constructor(url: string, files: readonly string[]) {
    this.#url = url;
    this.#require = createRequire(url);
    const cache = ownCache();
    const directory = dirname(fileURLToPath(url));
    this.#parts = files.map(file => new Part(join(directory, file), file, cache));
  }

  load(id: string): unknown {
    // What is built into Node.js.
    if (!id.startsWith('./')) return this.#require(id);
    const known = this.#modules.get(id);
    if (known) return known.exports;
    const exports = {};
    const module: { exports: unknown } = { exports };
    this.#modules.set(id, module);
    this.#find(id)(exports, other => this.load(other), module, this.#url);
    return module.exports;
  }

  store(argv: readonly string[]): void {
    for (const part of this.#parts) part.store(whereOf(argv) !== null);
  }

  // A module is named by the number of its part and its file.
  #find(id: string): Run {
    const run = this.#parts[Number(id.split('/')[1])]?.take(id);
    if (!run) throw new Error(`${id} is not a part of acode`);
    return run;
  }
}

/** One file of modules, read when the first of them is needed. */
class Part {
  readonly #path: string;
  readonly #name: string;
  readonly #cache: OwnCache | null;
  #compiled: Compiled | null = null;

  constructor(path: string, name: string, cache: OwnCache | null) {
    this.#path = path;
    this.#name = name;
    this.#cache = cache;
  }

  take(id: string): Run | undefined {
    const { modules, used } = (this.#compiled ??= compile(this.#path, this.#name, this.#cache));
    const at = Object.keys(modules).indexOf(id);
    if (at >= 0) used[at] = 1;
    return modules[id];
  }

  /** Stores what is compiled by now, unless that was stored before. */
  store(isExecution: boolean): void {
    if (!this.#compiled || !this.#cache) return;
    const { script, used, stored, cacheName } = this.#compiled;
    // To run a command takes more of the same modules than to plan it.
    if (isExecution) used[used.length - 1] = 1;
    if (stored && used.every((one, at) => one === 0 || stored[at] === 1)) return;
    const all = used.map((one, at) => one | (stored?.[at] ?? 0));
    writeCache(this.#cache, cacheName, Buffer.concat([script.createCachedData(), all]));
  }
}

function isCommand(exports: unknown): exports is Command {
  return typeof exports === 'object' && exports !== null && 'runCli' in exports && 'lastWords' in exports;
}

// Whatever else is in it, the build that wrote it wrote this file too.
function isModules(value: unknown): value is Modules {
  return typeof value === 'object' && value !== null;
}

interface Compiled {
  readonly script: Script;
  readonly modules: Modules;
  /** One byte for each module, which is 1 where it ran in this process, and one for the execution of a command. */
  readonly used: Uint8Array;
  /** The same of the processes that wrote the cache; null where it was not accepted. */
  readonly stored: Uint8Array | null;
  readonly cacheName: string;
}

// Stored are V8’s data and, behind them, which modules they are of.
function compile(path: string, name: string, cache: OwnCache | null): Compiled {
  const { source, mark } = read(path);
  const cacheName = `${name}-${mark}-${process.version}-${process.arch}.bin`;
  const found = cache && readCache(cache, cacheName);
  // The file begins with the count of its modules.
  const used = new Uint8Array(Number(/^\/\*(\d+)\*\//.exec(source)?.[1]) + 1);
  const data = found && found.length > used.length ? found : null;
  const end = data ? data.length - used.length : 0;
  const script = new Script(source, { filename: path, ...(data ? { cachedData: data.subarray(0, end) } : {}) });
  const modules: unknown = script.runInThisContext();
  if (!isModules(modules)) throw new Error(`${path} is not a part of acode`);
  const stored = data && script.cachedDataRejected === false ? data.subarray(end) : null;
  return { script, modules, used, stored, cacheName };
}

// V8 compares no more of a source than its length. The name of the file has a hash of it; this tells a file that was changed since.
function read(path: string): { source: string; mark: string } {
  const file = openSync(path, 'r');
  try {
    const { size, mtimeMs } = fstatSync(file);
    return { source: readFileSync(file, 'latin1'), mark: `${size}-${Math.trunc(mtimeMs)}` };
  } finally {
    closeSync(file);
  }
}

function ownCache(): OwnCache | null {
  try {
    const uid = process.getuid?.() ?? null;
    if (uid !== process.geteuid?.()) return null;
    return cacheOf({ env: process.env, uid, cwd: process.cwd(), argv: process.argv.slice(2) });
  } catch {
    return null;
  }
}
