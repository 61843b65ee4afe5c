// Scan store: pending scans of one workspace, and their findings until they are reported, in files that only this user can read.

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
import { chooseChanges } from '@acode/sandbox';
import * as z from 'zod';
import { allScans } from './directory.ts';
import { processStart } from './process.ts';

const MAX_JOBS = 64;
const MAX_BYTES = 4 * 1024 * 1024;
const LOCK = 'scanner';
// A link for each scanner that was started and has not begun to scan yet.
const STARTED = 'started-';
// Whoever was to tell it and ended before that has had its time.
const TELLING_MS = 60_000;
// A command chooses paths and how many there are, so what is written down of them is bounded, and far below MAX_BYTES.
const MAX_KNOWN = 256;
const MAX_KNOWN_PATH = 300;
const MAX_CHANGES = 256;
const MAX_NOTES = 16;
const MAX_PATH = 200;
const MAX_REASON = 600;
// Reports given to a program are retained for a terminal: this many, this long. The audit log has all of them.
const MAX_KEPT = 16;
const KEPT_MS = 7 * 24 * 60 * 60 * 1000;

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
      absent: z.array(z.string()).exactOptional(),
    }),
  ),
  sinceMs: z.number(),
  untilMs: z.number().nullable(),
  rest: z.strictObject({ fromMs: z.number(), toMs: z.number() }).exactOptional(),
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
  /** Of the warm sandbox that waited for a command; absent where it is about commands. */
  image: z.string().exactOptional(),
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
/** What a scan found and acode has not reported yet. */
export type Finding = z.infer<typeof findingSchema>;

const UNTOLD = ['found', 'ended', 'stuck', 'damaged', 'more'] as const;
/**
 * What somebody is to be told: what was found; that a scan did not finish, because its process was ended or is stuck, or what was
 * written down of it cannot be read; that more was found than is kept.
 */
export type UntoldKind = (typeof UNTOLD)[number];
/** Something to report. */
export interface Untold {
  readonly name: string;
  readonly kind: UntoldKind;
  /** When the commands ended that it is about. */
  readonly askedMs: readonly number[];
  /** Of kind `found` alone. */
  readonly finding: Finding | null;
  /** The scan that did not finish: of kinds `ended` and `stuck`, where it can be read. */
  readonly job: ScanJob | null;
}

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

  /** Writes down a scan that is to go on; false where too many wait already, or it is too large to be read again. */
  add(stored: StoredJob): boolean {
    // What is left out of these is reported twice, which is better than never.
    const known = stored.job.known.filter(({ path }) => path.length <= MAX_KNOWN_PATH).slice(0, MAX_KNOWN);
    const text = JSON.stringify({ ...stored, job: { ...stored.job, known } });
    if (Buffer.byteLength(text) <= MAX_BYTES && this.#names('job-').length < MAX_JOBS) {
      this.#write('job-', text);
      return true;
    }
    this.#tidy();
    return false;
  }

  /** The scans that are to go on, or do. */
  jobs(): Stored<StoredJob>[] {
    return this.#names('job-').flatMap(name => {
      const content = this.#read(name, storedJobSchema);
      return typeof content === 'string' ? [] : [{ name, content }];
    });
  }

  /** The names of scans that are written down and cannot be read: half written when the machine went down, or not by acode. */
  damagedJobs(): string[] {
    return this.#names('job-').filter(name => this.#read(name, storedJobSchema) === 'damaged');
  }

  /** Abandons scans: the next report says that they did not finish. Needs no disk space. */
  giveUp(names: readonly string[], why: 'ended' | 'stuck' | 'damaged'): void {
    for (const name of names) this.#rename(name, name.replace(/^job-/, `${why}-`));
  }

  /** Replaces jobs by what their scan found, if anything: never is neither of them there. */
  finish(
    jobs: readonly Stored<StoredJob>[],
    { riskyChanges, complete }: Pick<ScanReport, 'riskyChanges' | 'complete'>,
  ): void {
    const askedMs = jobs.map(({ content }) => content.askedMs);
    if (riskyChanges.length > 0) this.addFinding({ askedMs, riskyChanges: [...riskyChanges], complete });
    for (const { name } of jobs) this.remove(name);
  }

  /** Writes down what was found. */
  addFinding(finding: Finding): void {
    // Beyond this, the report says that there was more.
    if (this.#names('found-').length < MAX_JOBS) this.#writeFinding(finding);
    else if (this.#names('more-').length === 0) this.#write('more-', '{}');
  }

  /**
   * Takes what was not told yet, oldest first. What a terminal takes is to be removed when it was said. Findings that a program
   * takes, whose output perhaps nobody reads, no other program gets, and the next terminal does. That a scan did not finish is
   * said once, to either: `acode changes` lists it from then on.
   */
  take(now: number, by: 'terminal' | 'program'): Untold[] {
    this.#recover(now);
    const untold = UNTOLD.flatMap(kind => this.#names(`${kind}-`));
    if (by === 'terminal') untold.push(...this.#names('told-'));
    const taken = untold
      .sort((one, other) => timeIn(bare(one)) - timeIn(bare(other)))
      .flatMap(name => {
        const isOnce = by === 'terminal' || /^(?:ended|stuck)-/.test(bare(name));
        const claimed = `${isOnce ? 'telling' : 'told'}-${padded(now)}-${bare(name)}`;
        return this.#rename(name, claimed) ? [this.#untold(claimed)] : [];
      });
    if (by === 'program') this.#keepFew(now);
    return taken;
  }

  /** Removes a file; and the directories, where it was the last. */
  remove(name: string): void {
    rmSync(join(this.#directory, name), { force: true, recursive: true });
    this.#tidy();
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

  /** Notes a scanner that was started. On a busy machine it may take long until it begins. */
  started(pid: number): void {
    try {
      symlinkSync(`${pid}.${processStart(pid) ?? ''}`, join(this.#directory, `${STARTED}${pid}`));
    } catch {
      // It was noted before, or has ended already, and the directory with it.
    }
  }

  /** Removes the notes of scanners that have ended, and that of this process, which has begun. */
  forgetStarted(): void {
    for (const name of this.#names(STARTED))
      if (name === `${STARTED}${process.pid}` || !isAlive(this.#holder(name) ?? '')) this.remove(name);
  }

  /** Lets another process scan. */
  unlock(): void {
    this.remove(LOCK);
  }

  /** Removes the lock of a process that is not there any more. */
  removeDeadLock(): void {
    const holder = this.#holder();
    if (holder !== null && !isAlive(holder)) this.#clear(holder);
    this.#tidy();
  }

  /** Whether a process scans or is about to, one did and was killed, or none has begun. */
  get scanner(): 'works' | 'was killed' | 'has not begun' {
    const holder = this.#holder();
    if (holder !== null && isAlive(holder)) return 'works';
    if (this.#names(STARTED).some(name => isAlive(this.#holder(name) ?? ''))) return 'works';
    return holder === null ? 'has not begun' : 'was killed';
  }

  #holder(name = LOCK): string | null {
    try {
      return readlinkSync(join(this.#directory, name));
    } catch {
      return null;
    }
  }

  // Under another name first: should another user have taken it meanwhile, theirs is put back.
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

  #untold(name: string): Untold {
    const kind = UNTOLD.find(one => bare(name).startsWith(`${one}-`)) ?? 'damaged';
    const written = [timeIn(bare(name))];
    if (kind === 'more' || kind === 'damaged') return { name, kind, askedMs: written, finding: null, job: null };
    if (kind === 'found') {
      const finding = this.#read(name, findingSchema);
      if (typeof finding === 'string') return { name, kind: 'damaged', askedMs: written, finding: null, job: null };
      return { name, kind, askedMs: finding.askedMs, finding, job: null };
    }
    const job = this.#read(name, storedJobSchema);
    if (typeof job === 'string') return { name, kind, askedMs: written, finding: null, job: null };
    return { name, kind, askedMs: [job.askedMs], finding: null, job: job.job };
  }

  // What was taken and not reported is reported again; what was retained long enough is removed.
  #recover(now: number): void {
    for (const name of this.#names('telling-')) {
      if (now - timeIn(name) <= TELLING_MS) continue;
      const isNamed = UNTOLD.some(kind => bare(name).startsWith(`${kind}-`));
      this.#rename(name, isNamed ? bare(name) : fileName('found-', now));
    }
    for (const name of this.#names('told-')) if (now - timeIn(name) > KEPT_MS) this.remove(name);
  }

  // The next terminal is not flooded; that there was more, it hears.
  #keepFew(now: number): void {
    const isMore = (name: string): boolean => bare(name).startsWith('more-');
    const told = this.#names('told-');
    const kept = told.filter(name => !isMore(name)).sort((one, other) => timeIn(bare(one)) - timeIn(bare(other)));
    if (kept.length <= MAX_KEPT) return;
    if (!told.some(isMore)) this.#write(`told-${padded(now)}-more-`, '{}');
    for (const name of kept.slice(0, -MAX_KEPT)) this.remove(name);
  }

  #tidy(): void {
    try {
      rmdirSync(this.#directory);
      rmdirSync(dirname(this.#directory));
    } catch {
      // Others are there.
    }
  }

  // Not a file of acode, or too large, or half written: damaged. Gone: another process has taken it.
  #read<Content extends object>(name: string, schema: z.ZodType<Content>): Content | 'damaged' | 'gone' {
    let file = -1;
    try {
      file = openSync(join(this.#directory, name), constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
      const found = fstatSync(file);
      if (!found.isFile() || found.size > MAX_BYTES) return 'damaged';
      return schema.parse(JSON.parse(readFileSync(file, 'utf8')));
    } catch (error) {
      return error instanceof Error && 'code' in error && error.code === 'ENOENT' ? 'gone' : 'damaged';
    } finally {
      if (file >= 0) closeSync(file);
    }
  }

  #writeFinding({ riskyChanges, ...rest }: Finding): void {
    const { shown, incomplete } = chooseChanges(riskyChanges, MAX_CHANGES);
    const kept = [...shown.slice(0, MAX_CHANGES), ...incomplete.slice(0, MAX_NOTES)].map(({ kind, path, reason }) => ({
      kind,
      path: shortened(path, MAX_PATH),
      reason: shortened(reason, MAX_REASON),
    }));
    this.#write('found-', JSON.stringify({ ...rest, riskyChanges: kept }));
  }

  // Under another name first, so that a reader never sees half of it.
  #write(prefix: string, text: string): void {
    const name = fileName(prefix, Date.now());
    const draft = `draft-${name}`;
    writeFileSync(join(this.#directory, draft), text, { mode: 0o600, flag: 'wx' });
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
  return `${prefix}${padded(now)}-${randomBytes(8).toString('hex')}`;
}

// By characters and not by columns: some characters take none.
function shortened(text: string, max: number): string {
  return text.length <= max ? text : `${text.slice(0, max)}…`;
}

function padded(ms: number): string {
  return String(ms).padStart(15, '0');
}

// The first time in a name: of one that was taken, when that was.
function timeIn(name: string): number {
  return Number(/-(\d+)-/.exec(name)?.[1] ?? 0);
}

// The name that it had before it was taken.
function bare(name: string): string {
  return name.replace(/^(?:telling|told)-\d+-/, '');
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
