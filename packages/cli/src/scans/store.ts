// The scans of one workspace that go on after their commands, and what they found until somebody was told: files that only this user can read.

import { createHash, randomBytes } from 'node:crypto';
import {
  chmodSync,
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  mkdirSync,
  openSync,
  readFileSync,
  readdirSync,
  readlinkSync,
  renameSync,
  rmSync,
  rmdirSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import type { RiskyChange, ScanJob, ScanReport } from '@acode/sandbox';
import * as z from 'zod';
import { allScans } from './place.ts';
import { processStart } from './process.ts';

const MAX_JOBS = 64;
const MAX_BYTES = 4 * 1024 * 1024;
const LOCK = 'scanner';
// Whoever was to tell it and ended before that has had its time.
const TELLING_MS = 60_000;

// Written by acode itself; a version that knows other kinds may have written it.
const kindSchema = z.custom<RiskyChange['kind']>(kind => typeof kind === 'string' && /^[a-z-]{1,40}$/.test(kind));
const changeSchema = z.object({ path: z.string(), kind: kindSchema, reason: z.string() });
const jobSchema = z.strictObject({
  workspace: z.string(),
  directories: z.array(
    z.strictObject({
      path: z.string(),
      shownAs: z.string().exactOptional(),
      repositories: z.array(z.string()).exactOptional(),
      skipped: z.array(z.string()),
    }),
  ),
  sinceMs: z.number(),
  untilMs: z.number().nullable(),
  sandboxId: z.string(),
  correlationId: z.string(),
  sessionId: z.string().exactOptional(),
  taskId: z.string().exactOptional(),
  known: z.array(changeSchema.pick({ kind: true, path: true })),
});
const terminalSchema = z.object({
  path: z.string(),
  device: z.number(),
  madeMs: z.number(),
  leader: z.number(),
  leaderStart: z.string(),
});
const storedJobSchema: z.ZodType<StoredJob> = z.object({
  job: jobSchema,
  askedMs: z.number(),
  terminal: terminalSchema.nullable(),
});
const findingSchema = z.object({
  /** When the commands ended that it is about. */
  askedMs: z.array(z.number()),
  riskyChanges: z.array(changeSchema),
  complete: z.boolean(),
});

/** The terminal that a command was called on. */
export type CallersTerminal = z.infer<typeof terminalSchema>;
/** A scan that is to go on. */
export interface StoredJob {
  readonly job: ScanJob;
  /** When its command had ended. */
  readonly askedMs: number;
  readonly terminal: CallersTerminal | null;
}
/** What a scan found that nobody was told yet. */
export type Finding = z.infer<typeof findingSchema>;

/** A file of the store. */
export interface Stored<Content> {
  readonly name: string;
  readonly content: Content;
}

/** The scans of one workspace. */
export class ScanStore {
  readonly #directory: string;

  private constructor(directory: string) {
    this.#directory = directory;
  }

  /** The store of a workspace, which is made where it is not there; throws where another user put it there. */
  static make(workspace: string, uid: number): ScanStore {
    mkdirSync(directoryOf(workspace), { recursive: true, mode: 0o700 });
    const store = ScanStore.of(workspace, uid);
    if (store) return store;
    throw new Error(`${directoryOf(workspace)} is not a directory of this user`);
  }

  /** The store of a workspace; null where there is none, or another user put it there. */
  static of(workspace: string, uid: number): ScanStore | null {
    const directory = directoryOf(workspace);
    const found = lstatSync(directory, { throwIfNoEntry: false });
    if (!found?.isDirectory() || found.uid !== uid) return null;
    if ((found.mode & 0o077) !== 0) chmodSync(directory, 0o700);
    return new ScanStore(directory);
  }

  /** Writes down a scan that is to go on; false where too many wait already. */
  add(job: StoredJob): boolean {
    if (this.#names('job-').length >= MAX_JOBS) return false;
    this.#write('job-', job);
    return true;
  }

  /** The scans that are to go on, or do. */
  jobs(): Stored<StoredJob>[] {
    return this.#all('job-', storedJobSchema);
  }

  /** Replaces jobs by what their scan found, if anything: never is neither of them there. */
  finish(
    jobs: readonly Stored<StoredJob>[],
    { riskyChanges, complete }: Pick<ScanReport, 'riskyChanges' | 'complete'>,
  ): void {
    const askedMs = jobs.map(({ content }) => content.askedMs);
    if (riskyChanges.length > 0) this.#write('found-', { askedMs, riskyChanges: [...riskyChanges], complete });
    for (const { name } of jobs) this.remove(name);
  }

  /** Takes what was found and not told yet: nobody else gets it. */
  take(now: number): Stored<Finding>[] {
    for (const name of this.#names('telling-'))
      if (now - Number(/-(\d+)-/.exec(name)?.[1] ?? 0) > TELLING_MS) this.#rename(name, fileName('found-', now));
    return this.#all('found-', findingSchema).flatMap(({ name, content }) => {
      const taken = fileName('telling-', now);
      return this.#rename(name, taken) ? [{ name: taken, content }] : [];
    });
  }

  /** Removes a file; and the directories, where it was the last. */
  remove(name: string): void {
    rmSync(join(this.#directory, name), { force: true });
    try {
      rmdirSync(this.#directory);
      rmdirSync(dirname(this.#directory));
    } catch {
      // Others are there.
    }
  }

  /** Makes this process the one that scans; false where another one is, and lives. */
  lock(): boolean {
    const own = `${process.pid}.${processStart(process.pid) ?? ''}`;
    for (let tries = 0; tries < 3; tries += 1) {
      try {
        symlinkSync(own, join(this.#directory, LOCK));
        return true;
      } catch {
        const holder = this.#holder();
        if (holder !== null && isAlive(holder)) return holder === own;
        if (holder !== null) this.#clear(holder);
      }
    }
    return false;
  }

  /** Lets another process scan. */
  unlock(): void {
    this.remove(LOCK);
  }

  /** Whether a process scans, one did and was killed, or none has begun. */
  get scanner(): 'works' | 'was killed' | 'has not begun' {
    const holder = this.#holder();
    if (holder === null) return 'has not begun';
    return isAlive(holder) ? 'works' : 'was killed';
  }

  #holder(): string | null {
    try {
      return readlinkSync(join(this.#directory, LOCK));
    } catch {
      return null;
    }
  }

  // Under another name first: should somebody else have taken it meanwhile, theirs is put back.
  #clear(dead: string): void {
    const aside = fileName('dead-', Date.now());
    if (!this.#rename(LOCK, aside)) return;
    const taken = readlinkSync(join(this.#directory, aside));
    if (taken === dead) rmSync(join(this.#directory, aside), { force: true });
    else this.#rename(aside, LOCK);
  }

  #names(prefix: string): string[] {
    try {
      return readdirSync(this.#directory)
        .filter(name => name.startsWith(prefix))
        .sort();
    } catch {
      return [];
    }
  }

  #all<Content>(prefix: string, schema: z.ZodType<Content>): Stored<Content>[] {
    return this.#names(prefix).flatMap(name => {
      const content = this.#read(name, schema);
      if (content !== null) return [{ name, content }];
      // Half written when the machine went down, or not ours: nobody can do anything with it.
      this.remove(name);
      return [];
    });
  }

  #read<Content>(name: string, schema: z.ZodType<Content>): Content | null {
    let file = -1;
    try {
      file = openSync(join(this.#directory, name), constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
      const found = fstatSync(file);
      if (!found.isFile() || found.size > MAX_BYTES) return null;
      return schema.parse(JSON.parse(readFileSync(file, 'utf8')));
    } catch {
      return null;
    } finally {
      if (file >= 0) closeSync(file);
    }
  }

  // Under another name first, so that a reader never sees half of it.
  #write(prefix: string, content: StoredJob | Finding): void {
    const name = fileName(prefix, Date.now());
    const draft = `draft-${name}`;
    writeFileSync(join(this.#directory, draft), JSON.stringify(content), { mode: 0o600, flag: 'wx' });
    renameSync(join(this.#directory, draft), join(this.#directory, name));
  }

  #rename(from: string, to: string): boolean {
    try {
      renameSync(join(this.#directory, from), join(this.#directory, to));
      return true;
    } catch {
      return false;
    }
  }
}

function directoryOf(workspace: string): string {
  return join(allScans(), createHash('sha256').update(workspace).digest('hex').slice(0, 32));
}

function fileName(prefix: string, now: number): string {
  return `${prefix}${String(now).padStart(15, '0')}-${randomBytes(8).toString('hex')}`;
}

function isAlive(holder: string): boolean {
  const [pid = '', start = ''] = holder.split('.');
  try {
    process.kill(Number(pid), 0);
  } catch (error) {
    return error instanceof Error && 'code' in error && error.code === 'EPERM';
  }
  // Process ids are used again.
  const now = processStart(Number(pid));
  return start === '' || now === null || now === start;
}
