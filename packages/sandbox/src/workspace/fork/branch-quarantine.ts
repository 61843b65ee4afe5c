// Quarantine of commits: a bare repository of acode’s own, in which git checks what a fork wrote before the host’s repository gets any of it.
//
// git never reads the fork’s own git directory, nor the configuration, hooks, filters, attributes or replacements of any repository. Of the
// host’s repository it reads the objects alone, which the commits build on.

import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import {
  closeSync,
  constants,
  existsSync,
  fstatSync,
  mkdirSync,
  openSync,
  readSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import {
  BRANCH_LIMITS,
  BUNDLE_REF,
  BranchRefusal,
  checkSizes,
  parseBundleHeader,
  parseChanges,
  parseCommits,
} from './branch.ts';
import type { CommitLine, CommittedChange } from './branch.ts';

// Only the system’s own: the user’s search path may lead through directories that a command has written.
const PROGRAMS = [
  '/usr/bin/git',
  '/bin/git',
  '/usr/local/bin/git',
  '/opt/homebrew/bin/git',
  '/run/current-system/sw/bin/git',
];
const TIMEOUT_MS = 120_000;
const MAX_STDERR = 16 * 1024;
const MAX_MESSAGE = 300;
const MAX_HEADER = 1024 ** 2;
const CHUNK = 1024 ** 2;
const MAX_LINK = 4096;
const MAX_TREE_BYTES = 512 * 1024 ** 2;
const OBJECT = /^[0-9a-f]{40}$/;

// A pack that unpacks to far more than it is meets these first. In KiB, seconds, and blocks of 512 bytes.
const RLIMITS = [String(4 * 1024 ** 2), '120', String(4 * 1024 ** 2)];
const LIMITED =
  'ulimit -v "$1" 2>/dev/null; ulimit -t "$2" 2>/dev/null; ulimit -f "$3" 2>/dev/null; ulimit -c 0 2>/dev/null; shift 3; exec "$@"';

const CONFIG = `[core]
	repositoryformatversion = 0
	bare = true
	hooksPath = /dev/null
	attributesFile = /dev/null
	fsmonitor = false
	commitGraph = false
	multiPackIndex = false
	packedGitLimit = 256m
	packedGitWindowSize = 32m
	deltaBaseCacheLimit = 64m
	bigFileThreshold = 32m
[protocol]
	allow = never
[transfer]
	fsckObjects = true
[pack]
	threads = 1
	windowMemory = 64m
	useBitmaps = false
[gc]
	auto = 0
[maintenance]
	auto = false
`;

/** What the host’s repository has, as far as commits of a fork build on it. */
export interface HostHistory {
  /** Its directory of objects. */
  readonly objects: string;
  /** The ids that its refs have. */
  readonly ids: readonly string[];
  /** The commits whose parents it lacks, of a shallow clone. */
  readonly shallow: readonly string[];
}

/** An entry of a tree. */
export interface TreeItem {
  readonly mode: string;
  readonly id: string;
  /** Relative to the top, a byte string. */
  readonly path: string;
}

/** Commits that git has checked. */
export interface CheckedCommits {
  readonly tip: string;
  /** Those that no ref of the host leads to, newest first. */
  readonly commits: readonly CommitLine[];
  readonly changes: readonly CommittedChange[];
  /** Targets of the links that the commits bring, by the id of the blob. */
  readonly links: ReadonlyMap<string, string>;
  /** Everything that the newest commit has, directories included. */
  readonly tree: readonly TreeItem[];
}

/** A pack that acode made of checked commits: `<path>.pack` and `<path>.idx`. */
export interface MadePack {
  readonly directory: string;
  readonly name: string;
}

/** The git of this host; refused where there is none in the system’s directories. */
export function gitProgram(): string {
  const found = PROGRAMS.find(path => existsSync(path));
  if (found !== undefined) return found;
  throw new BranchRefusal(
    'unsuitable',
    `git is needed to check the commits, and there is none at ${PROGRAMS.join(', ')}`,
    {
      remedy: 'Install git with the system’s package manager, or apply the files with `acode fork apply`.',
    },
  );
}

/** A repository for one bundle, in a directory of its own that ends with it. */
export class Quarantine implements AsyncDisposable {
  readonly #directory: string;
  readonly #program: string;
  readonly #signal: AbortSignal;
  #exclude: readonly string[] = [];

  private constructor(directory: string, program: string, signal: AbortSignal) {
    this.#directory = directory;
    this.#program = program;
    this.#signal = signal;
  }

  /** Makes the repository. What a killed process left at the same place is removed. */
  static async make(directory: string, host: HostHistory, signal: AbortSignal): Promise<Quarantine> {
    const made = new Quarantine(directory, gitProgram(), signal);
    await rm(directory, { recursive: true, force: true });
    for (const name of ['', 'home', 'out', 'git', 'git/objects', 'git/objects/info', 'git/objects/pack', 'git/refs'])
      mkdirSync(join(directory, name), { mode: 0o700 });
    const write = (name: string, text: string): void =>
      writeFileSync(join(directory, 'git', name), text, { mode: 0o600 });
    write('HEAD', `ref: ${BUNDLE_REF}\n`);
    write('config', CONFIG);
    if (host.objects.includes('\n'))
      throw new BranchRefusal('unsuitable', 'the path of the repository has a line end in it');
    write('objects/info/alternates', `${host.objects}\n`);
    if (host.shallow.length > 0) write('shallow', `${host.shallow.join('\n')}\n`);
    made.#exclude = await made.#present(host.ids);
    return made;
  }

  /** Removes everything. */
  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.#directory, { recursive: true, force: true });
  }

  /** Copies a bundle in, checks it and unpacks it. */
  async take(bundle: number): Promise<CheckedCommits> {
    const pack = join(this.#directory, 'in.pack');
    const tip = copyPack(bundle, pack);
    const input = openSync(pack, constants.O_RDONLY);
    try {
      const limit = `--max-input-size=${BRANCH_LIMITS.bundleBytes}`;
      const output = await this.#git(['index-pack', '--strict', '--fix-thin', '--stdin', limit], { input });
      const name = /^(?:pack|keep)\t([0-9a-f]{40})\n$/.exec(output.toString('latin1'))?.[1] ?? '';
      await this.#checkSizes(join(this.#directory, 'git/objects/pack', `pack-${name}.idx`));
    } finally {
      closeSync(input);
    }
    return this.#check(tip);
  }

  /** Packs the commits, and nothing else that the bundle had. */
  async pack({ tip }: CheckedCommits): Promise<MadePack> {
    const directory = join(this.#directory, 'out');
    // Without `--thin`: the pack is complete in itself.
    const argv = ['pack-objects', '--revs', '--delta-base-offset', '-q', join(directory, 'pack')];
    const output = await this.#git(argv, { input: this.#range(tip) });
    const name = `pack-${output.toString('latin1').trim()}`;
    const files = await readdir(directory);
    if (!files.includes(`${name}.pack`) || !files.includes(`${name}.idx`))
      throw new BranchRefusal('unsuitable', 'git did not pack the commits');
    return { directory, name };
  }

  async #check(tip: string): Promise<CheckedCommits> {
    const type = await this.#git(['cat-file', '-t', tip]);
    if (type.toString('latin1') !== 'commit\n') throw new BranchRefusal('hostile', 'its ref does not lead to a commit');
    const input = this.#range(tip);
    const most = `--max-count=${BRANCH_LIMITS.commits + 1}`;
    const commits = parseCommits(await this.#git(['rev-list', '--parents', most, '--stdin'], { input }));
    if (commits.length === 0) throw new BranchRefusal('unsuitable', 'the repository already has its commits');
    if (commits.length > BRANCH_LIMITS.commits)
      throw new BranchRefusal('hostile', `it has more than ${BRANCH_LIMITS.commits} new commits, which is the limit`);
    // Fails where an object is missing that one of them names.
    await this.#git(['rev-list', '--objects', '--quiet', '--stdin'], { input });
    const argv = ['diff-tree', '--stdin', '-m', '--root', '-r', '-z', '--raw', '--no-renames', '--no-abbrev'];
    const raw = await this.#git(argv, {
      input: commits.map(({ id }) => `${id}\n`).join(''),
      maxOutput: BRANCH_LIMITS.changeBytes,
    });
    const changes = parseChanges(raw, commits);
    const tree = treeOf(
      await this.#git(['ls-tree', '-r', '-t', '-z', '--full-tree', tip], { maxOutput: MAX_TREE_BYTES }),
    );
    const ids = changes.filter(({ kind, change }) => kind === 'link' && change !== 'deleted').map(({ id }) => id);
    const known = tree.filter(({ mode }) => mode === '120000').map(({ id }) => id);
    return { tip, commits, changes, links: await this.#links([...new Set([...ids, ...known])]), tree };
  }

  // A link that is too long to be one is not listed.
  async #links(ids: readonly string[]): Promise<ReadonlyMap<string, string>> {
    const links = new Map<string, string>();
    if (ids.length === 0) return links;
    const checked = await this.#git(['cat-file', '--batch-check=%(objectname) %(objectsize)'], {
      input: ids.map(id => `${id}\n`).join(''),
    });
    const lines = checked.toString('latin1').split('\n');
    const small = lines.map(line => line.split(' ')).filter(([, size]) => Number(size) <= MAX_LINK);
    const input = small.map(([id]) => `${id}\n`).join('');
    const content = await this.#git(['cat-file', '--batch=%(objectname) %(objectsize)'], {
      input,
      maxOutput: MAX_TREE_BYTES,
    });
    for (let at = 0; at < content.length;) {
      const end = content.indexOf(0x0a, at);
      const [id = '', size = ''] = content.toString('latin1', at, end).split(' ');
      links.set(id, content.toString('latin1', end + 1, end + 1 + Number(size)));
      at = end + 1 + Number(size) + 1;
    }
    return links;
  }

  async #checkSizes(index: string): Promise<void> {
    const input = openSync(index, constants.O_RDONLY | constants.O_NOFOLLOW);
    try {
      const listed = (await this.#git(['show-index'], { input })).toString('latin1');
      const ids = [...listed.matchAll(/^\d+ ([0-9a-f]{40})/gm)].map(([, id]) => `${id}\n`).join('');
      checkSizes(await this.#git(['cat-file', '--batch-check=%(objectsize) %(objectname)'], { input: ids }));
    } finally {
      closeSync(input);
    }
  }

  // Those of the host’s ids that name a commit, or a tag of one: a broken ref of the host is not an error here.
  async #present(ids: readonly string[]): Promise<string[]> {
    const input = ids
      .filter(id => OBJECT.test(id))
      .map(id => `${id}^{commit}\n`)
      .join('');
    if (input === '') return [];
    const output = await this.#git(['cat-file', '--batch-check=%(objectname)'], { input });
    return [...new Set(output.toString('latin1').split('\n'))].filter(line => OBJECT.test(line));
  }

  #range(tip: string): string {
    return [tip, ...this.#exclude.map(id => `^${id}`)].map(line => `${line}\n`).join('');
  }

  async #git(
    argv: readonly string[],
    { input = '', maxOutput = BRANCH_LIMITS.changeBytes }: { input?: string | number; maxOutput?: number } = {},
  ): Promise<Buffer> {
    const { status, stdout, stderr } = await this.#run(argv, input, maxOutput);
    if (status === 0) return stdout;
    throw new BranchRefusal(
      'hostile',
      `git ${argv[0] ?? ''} did not take it: ${messageOf(stderr) || `status ${status}`}`,
    );
  }

  async #run(argv: readonly string[], input: string | number, maxOutput: number): Promise<Ended> {
    this.#signal.throwIfAborted();
    const deadline = AbortSignal.timeout(TIMEOUT_MS);
    const either = AbortSignal.any([this.#signal, deadline]);
    const child = spawn('/bin/sh', ['-c', LIMITED, 'sh', ...RLIMITS, this.#program, ...argv], {
      cwd: '/',
      env: this.#environment(),
      stdio: [typeof input === 'number' ? input : 'pipe', 'pipe', 'pipe'],
      signal: either,
      killSignal: 'SIGKILL',
    });
    child.stdin?.on('error', () => undefined);
    if (typeof input === 'string') child.stdin?.end(input);
    const what = `git ${argv[0] ?? ''}`;
    const ended = await endOf(child, maxOutput).catch((error: unknown) => {
      this.#signal.throwIfAborted();
      if (deadline.aborted) throw new BranchRefusal('hostile', `${what} took more than ${TIMEOUT_MS / 1000} s`);
      throw error;
    });
    if (ended === null) throw new BranchRefusal('hostile', `${what} listed more than ${maxOutput} bytes`);
    return ended;
  }

  #environment(): Record<string, string> {
    return {
      LC_ALL: 'C',
      PATH: '/usr/bin:/bin',
      HOME: join(this.#directory, 'home'),
      GIT_DIR: join(this.#directory, 'git'),
      GIT_CONFIG_NOSYSTEM: '1',
      GIT_CONFIG_GLOBAL: '/dev/null',
      GIT_ATTR_NOSYSTEM: '1',
      GIT_NO_REPLACE_OBJECTS: '1',
      GIT_NO_LAZY_FETCH: '1',
      GIT_TERMINAL_PROMPT: '0',
      GIT_ALLOW_PROTOCOL: '',
    };
  }
}

interface Ended {
  readonly status: number;
  readonly stdout: Buffer;
  readonly stderr: string;
}

// Null where it printed too much.
function endOf(child: ChildProcess, maxOutput: number): Promise<Ended | null> {
  const stdout: Buffer[] = [];
  let size = 0;
  let stderr = '';
  child.stdout?.on('data', (chunk: Buffer) => {
    size += chunk.length;
    if (size > maxOutput) child.kill('SIGKILL');
    else stdout.push(chunk);
  });
  child.stderr?.on('data', (chunk: Buffer) => {
    if (stderr.length < MAX_STDERR) stderr += chunk.toString('latin1');
  });
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', code =>
      resolve(size > maxOutput ? null : { status: code ?? -1, stdout: Buffer.concat(stdout), stderr }),
    );
  });
}

// Reads what a sandbox wrote: no more than the limit, whatever the file grows to meanwhile. Returns the commit that its header names.
function copyPack(source: number, target: string): string {
  const { size } = fstatSync(source);
  if (size > BRANCH_LIMITS.bundleBytes)
    throw new BranchRefusal('hostile', `it has ${size} bytes, and the limit is ${BRANCH_LIMITS.bundleBytes}`);
  const start = Buffer.alloc(MAX_HEADER);
  const { tip, length } = parseBundleHeader(start.subarray(0, readSync(source, start, 0, MAX_HEADER, 0)));
  const output = openSync(
    target,
    constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW,
    0o600,
  );
  try {
    const buffer = Buffer.allocUnsafe(CHUNK);
    for (let at = length; at < size;) {
      const count = readSync(source, buffer, 0, Math.min(CHUNK, size - at), at);
      if (count === 0) break;
      for (let done = 0; done < count;) done += writeSync(output, buffer, done, count - done);
      at += count;
    }
  } finally {
    closeSync(output);
  }
  return tip;
}

// `<mode> <type> <id>\t<path>`
function treeOf(output: Buffer): TreeItem[] {
  return output
    .toString('latin1')
    .split('\0')
    .filter(line => line !== '')
    .map(line => {
      const tab = line.indexOf('\t');
      const [mode = '', , id = ''] = line.slice(0, tab).split(' ');
      return { mode, id, path: line.slice(tab + 1) };
    });
}

// The last lines say why. Untrusted code chose the names in them.
function messageOf(stderr: string): string {
  const text = stderr.replaceAll(/[^\x20-\x7e\n]/g, '?').trim();
  return text.split('\n').slice(-2).join('; ').slice(-MAX_MESSAGE);
}
