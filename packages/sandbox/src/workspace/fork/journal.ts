// The journal of an apply: what it changes, and where the old and the new files are until it has ended. docs/adr/0038 has the reasons.
//
// `<state>/applies/<workspace>/` holds the journal, the marks of its outcome and the lock. Old and new files are in an area on the mount
// of the workspace: beside the journal if it is on that mount, else in `.acode-apply` at the top of the workspace.

import { execFile } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import {
  closeSync,
  constants,
  existsSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readdirSync,
  rmdirSync,
  unlinkSync,
} from 'node:fs';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import * as z from 'zod';
import { AcodeError } from '../../contract/errors.ts';
import type { PendingApply } from '../../contract/fork.ts';
import { codeOf } from '../../contract/system-error.ts';
import { ensurePrivateDirectory, readPrivateFile, writePrivateFile } from '../../lifecycle/directories.ts';
import { releaseLock, takeLock, thisHolder } from '../../lifecycle/lock.ts';
import { APPLY_AREA } from '../protected-paths.ts';
import { leftoverOf } from './leftover.ts';
import { OpenDirectory, openBelow } from './tree.ts';

const MAX_BYTES = 400 * 1024 ** 2;
const JOURNAL = 'journal';
const AREA = 'area';

const mode = z.int().min(0).max(0o7777);
const stateSchema = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('file'), sha256: z.string(), mode }),
  z.strictObject({ kind: z.literal('link'), target: z.string() }),
  z.strictObject({ kind: z.literal('directory'), mode }),
]);
const stepSchema = z.union([
  z.strictObject({ path: z.string(), before: stateSchema.nullable(), after: stateSchema.nullable() }),
  z.strictObject({ path: z.string(), from: mode, to: mode }),
]);
const headerSchema = z.strictObject({
  version: z.literal(1),
  id: z.string().regex(/^[0-9a-f]{16}$/),
  workspace: z.string(),
  inode: z.string(),
  forkId: z.string(),
  diffId: z.string(),
  /** Paths that it is limited to; absent: all. */
  only: z.array(z.string()).exactOptional(),
  startedAt: z.number(),
  area: z.enum(['state', 'workspace']),
  /** Number of changes, of changes that were already there, and of steps. */
  changes: z.int().min(0),
  already: z.int().min(0),
  steps: z.int().min(0),
  merged: z.array(z.string()),
  kept: z.array(z.string()),
});
const timesSchema = z.array(z.tuple([z.string(), z.string()]));

/** What is at a path before or after a step. */
export type StepState = z.infer<typeof stateSchema>;

/** One step of an apply: something in the place of something else, or another mode of what stays. */
export type ApplyStep = z.infer<typeof stepSchema>;

/** What is to be applied, when all of it is decided. */
export interface JournalDraft {
  readonly forkId: string;
  readonly diffId: string;
  readonly only?: readonly string[] | undefined;
  readonly startedAt: number;
  readonly changes: number;
  readonly already: number;
  readonly merged: readonly string[];
  /** Directories that stay because they hold files of which the fork knew nothing. */
  readonly kept: readonly string[];
  readonly steps: readonly ApplyStep[];
  /** Directories whose entries change, with the times of their last change in nanoseconds. */
  readonly times: readonly (readonly [path: string, modifiedNs: string])[];
}

/** How an apply ended. */
export type JournalOutcome = 'applied' | 'rolled-back';

/** Where the journal of a workspace is. */
export class ApplyPlace {
  /** The workspace, without links. */
  readonly workspace: string;
  readonly #directory: string;

  constructor(stateDirectory: string, workspace: string) {
    this.workspace = workspace;
    // By its path: numbers of devices can be others after a restart, and the journal has to be found then above all.
    const key = createHash('sha256').update(workspace).digest('hex').slice(0, 24);
    this.#directory = join(stateDirectory, 'applies', key);
  }

  /** The interrupted apply of the workspace; null where there is none. */
  pending(): PendingApply | null {
    const header = this.#header();
    if (header === null || this.#outcome(header.id) !== null) return null;
    const { forkId, diffId, only, startedAt, changes } = header;
    return { forkId, diffId, ...(only === undefined ? {} : { only }), startedAt, changes };
  }

  /** Does something while no other process applies to the workspace. */
  async locked<Value>(work: () => Promise<Value>): Promise<Value> {
    await ensurePrivateDirectory(this.#directory, process.getuid?.() ?? -1);
    const lock = takeLock(this.#directory, 1, thisHolder(), true);
    if (!lock.held) {
      const { workspace } = this;
      const pid = lock.holder?.pid;
      throw new AcodeError('ACODE-FRK-011', { workspace, ...(pid === undefined ? {} : { pid }) });
    }
    try {
      this.#sweep();
      return await work();
    } finally {
      releaseLock(this.#directory, 1, lock.generation, false);
    }
  }

  /** Makes the area of a new apply. What an apply that never came to its journal left is removed. */
  openArea(root: OpenDirectory): ApplyArea {
    using own = OpenDirectory.open(this.#directory);
    const kind = own.mount === root.mount ? 'state' : 'workspace';
    const area = ApplyArea.make(kind === 'state' ? own : root, kind);
    if (area.removeStaged()) return area;
    area[Symbol.dispose]();
    const directory = kind === 'state' ? join(this.#directory, AREA) : join(this.workspace, APPLY_AREA);
    throw this.leftover() ?? new AcodeError('ACODE-FRK-022', { workspace: this.workspace, directory });
  }

  /** What to say where files of an interrupted apply are left and no journal; null where there are none. */
  leftover(): AcodeError<'ACODE-FRK-022'> | null {
    return existsSync(join(this.#directory, JOURNAL)) ? null : leftoverOf(this.workspace, this.#directory);
  }

  /** Writes the journal. From here on the apply is finished or undone, whatever happens to this process. */
  write(root: OpenDirectory, area: ApplyArea, draft: JournalDraft, durable: boolean): Journal {
    const { steps, times, merged, kept, only, ...rest } = draft;
    const header = {
      version: 1 as const,
      id: randomBytes(8).toString('hex'),
      workspace: this.workspace,
      inode: root.inode.toString(),
      ...rest,
      ...(only === undefined ? {} : { only: [...only] }),
      area: area.kind,
      steps: steps.length,
      merged: [...merged],
      kept: [...kept],
    };
    const text = [header, ...steps, times].map(line => JSON.stringify(line)).join('\n');
    if (text.length > MAX_BYTES)
      throw new AcodeError('ACODE-FRK-013', {
        workspace: this.workspace,
        reason: `its journal would be longer than ${MAX_BYTES} bytes`,
        state: 'unchanged',
      });
    writePrivateFile(join(this.#directory, JOURNAL), text, { durable });
    this.#sync(durable);
    return { header, steps, times };
  }

  /** The journal of an interrupted apply, and its area. */
  read(root: OpenDirectory): { journal: Journal; area: ApplyArea; outcome: JournalOutcome | null } | null {
    const header = this.#header();
    if (header === null) return null;
    if (header.inode !== root.inode.toString())
      throw new AcodeError('ACODE-FRK-013', {
        workspace: this.workspace,
        reason: `another directory is at this path now; the old files are in ${this.#directory}`,
        state: 'interrupted',
      });
    const lines = this.#lines();
    const steps = lines.slice(1, -1).map(line => stepSchema.parse(JSON.parse(line)));
    const times = timesSchema.parse(JSON.parse(lines.at(-1) ?? ''));
    if (steps.length !== header.steps) throw this.#unreadable('it is cut off');
    using own = OpenDirectory.open(this.#directory);
    const area = ApplyArea.make(header.area === 'state' ? own : root, header.area);
    return { journal: { header, steps, times }, area, outcome: this.#outcome(header.id) };
  }

  /** Marks the outcome: from here on nothing is left to be done but to clean up. */
  mark({ header }: Journal, outcome: JournalOutcome, durable: boolean): void {
    writePrivateFile(join(this.#directory, `${header.id}.${outcome}`), '', { durable });
    this.#sync(durable);
  }

  /** Removes the area, then the journal, then the mark: the mark of a journal that is there is never missing. */
  async clean(root: OpenDirectory, area: ApplyArea): Promise<void> {
    await area.empty();
    using own = OpenDirectory.open(this.#directory);
    area.remove(area.kind === 'state' ? own : root);
    removeFile(own, JOURNAL);
    this.#sweep();
  }

  // What a process that was killed left beside no journal: a mark, or the draft of a journal.
  #sweep(): void {
    using own = OpenDirectory.open(this.#directory);
    if (own.inspect(JOURNAL) !== null) return;
    for (const name of readdirSync(own.self)) if (LEFT.test(name)) removeFile(own, name);
  }

  #header(): z.infer<typeof headerSchema> | null {
    if (!existsSync(join(this.#directory, JOURNAL))) return null;
    try {
      return headerSchema.parse(JSON.parse(this.#lines()[0] ?? ''));
    } catch (cause) {
      throw this.#unreadable('it is not a journal of this version', cause);
    }
  }

  #lines(): string[] {
    const file = readPrivateFile(join(this.#directory, JOURNAL), { maxBytes: MAX_BYTES });
    if (file === null) throw this.#unreadable('it is not a file of yours alone');
    return file.text.split('\n');
  }

  #unreadable(reason: string, cause?: unknown): AcodeError<'ACODE-FRK-013'> {
    const { workspace } = this;
    const text = `the journal ${join(this.#directory, JOURNAL)} cannot be used: ${reason}`;
    return new AcodeError('ACODE-FRK-013', { workspace, reason: text, state: 'interrupted' }, { cause });
  }

  #outcome(id: string): JournalOutcome | null {
    const outcomes = ['applied', 'rolled-back'] as const;
    return outcomes.find(outcome => existsSync(join(this.#directory, `${id}.${outcome}`))) ?? null;
  }

  #sync(durable: boolean): void {
    if (!durable) return;
    for (const path of [this.#directory, join(this.#directory, '..')]) {
      using directory = OpenDirectory.open(path);
      directory.sync();
    }
  }
}

const LEFT = /^(?:journal|[0-9a-f]{16}\.(?:applied|rolled-back))(?:\.[0-9a-f]{16})?$/;

/** A journal that was written or read. */
export interface Journal {
  readonly header: z.infer<typeof headerSchema>;
  readonly steps: readonly ApplyStep[];
  readonly times: JournalDraft['times'];
}

/** The three directories of an apply, each with files named by the number of their step. */
export class ApplyArea implements Disposable {
  readonly kind: 'state' | 'workspace';
  /** New files until they have their place, and beyond: the number of a file that exists is not given to another. */
  readonly fresh: OpenDirectory;
  /** Files of the workspace that were replaced or removed. */
  readonly old: OpenDirectory;
  /** What a rollback takes from a path, until it is known to be the apply’s own. */
  readonly away: OpenDirectory;

  private constructor(top: OpenDirectory, kind: ApplyArea['kind']) {
    this.kind = kind;
    [this.fresh, this.old, this.away] = [top.child('new'), top.child('old'), top.child('away')];
  }

  /** Makes the directories, or opens those of an interrupted apply. */
  static make(parent: OpenDirectory, kind: ApplyArea['kind']): ApplyArea {
    const name = kind === 'state' ? AREA : APPLY_AREA;
    makeDirectory(parent, name);
    using top = parent.child(name);
    for (const each of ['new', 'old', 'away']) makeDirectory(top, each);
    // Untracked files of an interrupted apply must not come into a commit.
    if (kind === 'workspace') createOnce(top, '.gitignore', '*\n');
    return new ApplyArea(top, kind);
  }

  /** Removes new files that never had a journal; false where there are old files, which nobody but their owner may remove. */
  removeStaged(): boolean {
    if ([this.old, this.away].some(directory => readdirSync(directory.self).length > 0)) return false;
    for (const name of readdirSync(this.fresh.self)) removeFile(this.fresh, name);
    return true;
  }

  /** Removes the files. */
  async empty(): Promise<void> {
    for (const directory of [this.away, this.old, this.fresh]) {
      const names = readdirSync(directory.self);
      for (const [at, name] of names.entries()) {
        removeFile(directory, name);
        if (at % 256 === 255) await setImmediate();
      }
    }
  }

  /** Removes the directories. What another process put there stays: acode removes files by their names only, and follows no link. */
  remove(parent: OpenDirectory): void {
    const name = this.kind === 'state' ? AREA : APPLY_AREA;
    using top = parent.child(name);
    removeFile(top, '.gitignore');
    for (const each of ['new', 'old', 'away']) removeDirectory(top, each);
    removeDirectory(parent, name);
  }

  [Symbol.dispose](): void {
    for (const directory of [this.fresh, this.old, this.away]) directory[Symbol.dispose]();
  }
}

function makeDirectory(parent: OpenDirectory, name: string): void {
  try {
    mkdirSync(parent.at(name), 0o700);
  } catch (error) {
    if (codeOf(error) !== 'EEXIST') throw error;
  }
}

function createOnce(directory: OpenDirectory, name: string, text: string): void {
  if (directory.inspect(name) === null) writePrivateFile(directory.at(name), text, { durable: false });
}

function removeFile(directory: OpenDirectory, name: string): void {
  try {
    unlinkSync(directory.at(name));
  } catch (error) {
    if (codeOf(error) === 'EISDIR') removeDirectory(directory, name);
    else if (codeOf(error) !== 'ENOENT') throw error;
  }
}

function removeDirectory(parent: OpenDirectory, name: string): void {
  try {
    rmdirSync(parent.at(name));
  } catch (error) {
    if (!['ENOENT', 'ENOTEMPTY', 'EEXIST', 'ENOTDIR'].includes(codeOf(error))) throw error;
  }
}

// Each fsync of its own makes the disk wait once; from about this many on, asking for the whole file system is quicker.
const MAX_SINGLE = 32;
const SYNC_PROGRAMS = ['/usr/bin/sync', '/bin/sync'];
const SYNC_DEADLINE_MS = 120_000;

/** Waits until files of a directory are on the disk, and their names. */
export async function syncFiles(directory: OpenDirectory, names: readonly string[]): Promise<void> {
  if (names.length <= MAX_SINGLE || !(await syncWhole(directory))) {
    for (const name of names) {
      const descriptor = openSync(directory.at(name), constants.O_WRONLY | constants.O_NOFOLLOW);
      try {
        fsyncSync(descriptor);
      } finally {
        closeSync(descriptor);
      }
      await setImmediate();
    }
  }
  directory.sync();
}

/** Waits until the entries of directories are on the disk. One that is gone has none. */
export async function syncDirectories(root: OpenDirectory, paths: readonly string[]): Promise<void> {
  if (paths.length > MAX_SINGLE && (await syncWhole(root))) return;
  for (const path of paths) {
    try {
      using directory = openBelow(root, path);
      directory.sync();
    } catch (error) {
      if (!['ENOENT', 'ENOTDIR', 'ELOOP', 'EACCES'].includes(codeOf(error))) throw error;
    }
    await setImmediate();
  }
}

// Node has no syncfs. Where the program is missing or fails, each file is synchronised by itself.
function syncWhole(directory: OpenDirectory): Promise<boolean> {
  const program = SYNC_PROGRAMS.find(path => existsSync(path));
  const path = directory.self.replace('/self/', `/${process.pid}/`);
  if (program === undefined) return Promise.resolve(false);
  return new Promise(resolve => {
    execFile(program, ['-f', path], { timeout: SYNC_DEADLINE_MS }, error => resolve(error === null));
  });
}
