// Walks the whole chain and names the first record that is not what it was.

import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { AcodeError } from '../../contract/errors.ts';
import type { AuditFault, AuditHead, AuditProblem, AuditRecord, AuditVerification } from '../../contract/audit.ts';
import { isInPlaceOfCheckpoint, fileName } from './files.ts';
import { LineReader, listFiles, partsOf } from './lines.ts';
import type { Part } from './lines.ts';
import { LOST, NO_HASH, openLine } from './record.ts';
import { Verifier, keysIn } from './log.ts';
import { isBeingWritten } from '../../lifecycle/lock.ts';

// Longer than it takes to write a line, by far.
const MOMENT_MS = 50;

const BROKEN: Readonly<Record<'not-json' | 'not-canonical' | 'edited', string>> = {
  'not-json': 'the line is no record',
  'not-canonical': 'the line is not written as acode writes it',
  edited: 'its content is not what its hash says',
};

/** Where a line stands. */
interface Where {
  readonly file: string;
  readonly line: number;
}

/** Verifies the log in a directory. */
export async function verifyLog(
  directory: string,
  heads: readonly AuditHead[] = [],
  signal?: AbortSignal,
): Promise<AuditVerification> {
  const walk = new Walk(directory, heads);
  // Before the files: a first writer may make both meanwhile, and a key without a record would look like a loss.
  const keys = keysIn(directory);
  const names = await listFiles(directory);
  let unfinished = false;
  let problem: AuditProblem | null = null;
  for (const [index, name] of names.entries()) {
    const end = await walkFile(walk, directory, name, index === names.length - 1, signal);
    problem = end.problem;
    unfinished = end.unfinished;
    if (problem) break;
  }
  problem ??= walk.missingHead(names.at(-1) ?? directory) ?? walk.loss(directory, keys);
  problem = await explained(directory, names, problem, signal);
  return { ...walk.report, ok: problem === null, files: names.length, unfinished, problem };
}

interface FileEnd {
  readonly problem: AuditProblem | null;
  readonly unfinished: boolean;
}

async function walkFile(
  walk: Walk,
  directory: string,
  name: string,
  isLast: boolean,
  signal?: AbortSignal,
): Promise<FileEnd> {
  const reader = await opened(directory, name);
  if (typeof reader === 'string')
    return { problem: walk.problem('unreadable', reader, fileAt(directory, name)), unfinished: false };
  await using file = reader;
  const misnamed = walk.enter(file);
  if (misnamed) return { problem: misnamed, unfinished: false };
  const problem = await walkLines(walk, file, signal);
  if (problem || file.rest === 0) return { problem, unfinished: false };
  return await theRest(walk, directory, file, isLast, signal);
}

async function walkLines(walk: Walk, file: LineReader, signal?: AbortSignal): Promise<AuditProblem | null> {
  for (;;) {
    signal?.throwIfAborted();
    const part = await file.next();
    if (part === null) return null;
    const problem = walk.part(part);
    if (problem) return problem;
  }
}

// A line without an end is being written; if no process writes it, it was cut.
async function theRest(
  walk: Walk,
  directory: string,
  file: LineReader,
  isLast: boolean,
  signal?: AbortSignal,
): Promise<FileEnd> {
  const { line, rest } = file;
  const where = { file: file.path, line };
  if (file.overlong)
    return { problem: walk.problem('not-json', 'the line is longer than any record', where), unfinished: false };
  if (isLast && isBeingWritten(directory, walk.expected)) return { problem: null, unfinished: true };
  await wait(MOMENT_MS);
  // The writer may have ended the line and released its lock before the lock was looked for.
  const problem = await walkLines(walk, file, signal);
  if (problem) return { problem, unfinished: false };
  if (isLast && (file.line !== line || file.rest !== rest)) return { problem: null, unfinished: file.rest > 0 };
  return {
    problem: walk.problem('incomplete', 'the line has no end, and no process is writing it', where),
    unfinished: false,
  };
}

async function opened(directory: string, name: string): Promise<LineReader | string> {
  try {
    return await LineReader.open(directory, name);
  } catch (error) {
    if (error instanceof AcodeError && error.is('ACODE-AUD-004')) return error.context.reason;
    throw error;
  }
}

function fileAt(directory: string, name: string): Where {
  return { file: `${directory}/${name}`, line: 0 };
}

// Whether a record that is not where it should be stands further on: one was taken out, or two were exchanged.
async function explained(
  directory: string,
  names: readonly string[],
  problem: AuditProblem | null,
  signal?: AbortSignal,
): Promise<AuditProblem | null> {
  if (problem?.fault !== 'missing') return problem;
  const wanted = Buffer.from(`"seq":${problem.seq},`);
  try {
    for await (const { lines } of partsOf(directory, names, signal)) {
      const there = lines.some(line => line.includes(wanted) && openLine(line).record?.seq === problem.seq);
      if (there) return { ...problem, fault: 'out-of-order', detail: `${problem.detail}, which stands elsewhere` };
    }
  } catch (error) {
    if (!(error instanceof AcodeError)) throw error;
  }
  return problem;
}

/** The chain so far. */
class Walk {
  readonly #heads: Map<number, Set<string>>;
  readonly #directory: string;
  #stored: Verifier | null = null;
  #records = 0;
  #checkpoints = 0;
  #lastCheckpoint = 0;
  #headsFound = 0;
  #saysLost = false;
  #last: AuditHead = { seq: 0, hash: NO_HASH };
  #end: Where = { file: '', line: 0 };

  constructor(directory: string, heads: readonly AuditHead[]) {
    this.#directory = directory;
    this.#heads = new Map();
    for (const { seq, hash } of heads) this.#heads.set(seq, (this.#heads.get(seq) ?? new Set()).add(hash));
  }

  // Asked again while there is none: the first writer makes the key after its first record.
  get #verifier(): Verifier | null {
    return (this.#stored ??= Verifier.stored(this.#directory));
  }

  get expected(): number {
    return this.#last.seq + 1;
  }

  get report(): Omit<AuditVerification, 'ok' | 'files' | 'unfinished' | 'problem'> {
    return {
      records: this.#records,
      head: this.#records === 0 ? null : this.#last,
      checkpoints: this.#checkpoints,
      covered: Math.max(0, this.#lastCheckpoint - 1),
      warnings: this.#warnings(),
      key: this.#verifier?.key ?? null,
      headsFound: this.#headsFound,
    };
  }

  problem(fault: AuditFault, detail: string, where: Where, seq = this.expected): AuditProblem {
    return { fault, ...where, seq, detail };
  }

  /** Whether a file belongs here by its name. */
  enter({ path, first }: LineReader): AuditProblem | null {
    const { expected } = this;
    this.#end = { file: path, line: 1 };
    if (first === expected) return null;
    const fault = first > expected ? 'missing' : 'inserted';
    return this.problem(fault, `the file should begin with record ${expected}`, { file: path, line: 0 });
  }

  part({ path, line, lines }: Part): AuditProblem | null {
    for (const [index, bytes] of lines.entries()) {
      const problem = this.#line(bytes, { file: path, line: line + index });
      if (problem) return problem;
    }
    return null;
  }

  /** The first of the given heads that is not reached. */
  missingHead(file: string): AuditProblem | null {
    const beyond = [...this.#heads.keys()]
      .filter(seq => seq > this.#last.seq || seq < 1)
      .sort((one, other) => one - other);
    const [seq] = beyond;
    if (seq === undefined) return null;
    const where = this.#end.file === '' ? { file, line: 0 } : this.#end;
    return this.problem('truncated', `the log ends before record ${seq}, which was noted elsewhere`, where);
  }

  /** That records were lost: there is a key and none of them, or the first one says so. */
  loss(directory: string, keys: readonly string[]): AuditProblem | null {
    const where = { file: join(directory, fileName(1)), line: 0 };
    if (this.#saysLost) return this.problem('lost', `record 1 says: ${LOST}`, { ...where, line: 1 }, 1);
    if (this.#records > 0 || keys.length === 0) return null;
    const detail = `there is no record, and ${keys.join(' and ')} beside it shows that there were some`;
    return this.problem('lost', detail, where, 1);
  }

  #line(bytes: Buffer, where: Where): AuditProblem | null {
    const { record, broken } = openLine(bytes);
    if (broken !== null) return this.problem(broken, BROKEN[broken], where);
    const problem =
      this.#misplaced(record, where) ??
      this.#badSignature(record, where) ??
      this.#unsigned(record, where) ??
      this.#unlikeHead(record, where);
    if (problem) return problem;
    if (record.seq === 1 && record['event'] === LOST) this.#saysLost = true;
    this.#records += 1;
    if (record.kind === 'checkpoint') {
      this.#checkpoints += 1;
      this.#lastCheckpoint = record.seq;
    }
    this.#last = { seq: record.seq, hash: record.hash };
    this.#end = { file: where.file, line: where.line + 1 };
    return null;
  }

  #misplaced({ seq, prev }: AuditRecord, where: Where): AuditProblem | null {
    const { expected } = this;
    if (seq > expected) return this.problem('missing', `record ${seq} stands in place of record ${expected}`, where);
    if (seq < expected) return this.problem('inserted', `record ${seq} stands in place of record ${expected}`, where);
    if (prev === this.#last.hash) return null;
    return this.problem(
      'broken-chain',
      'it does not continue the record before it; one of the two was written anew',
      where,
    );
  }

  #badSignature(record: AuditRecord, where: Where): AuditProblem | null {
    if (record.kind !== 'checkpoint') return null;
    const { key, signature } = record;
    const verifier = this.#verifier;
    if (verifier === null) return this.problem('bad-signature', 'there is no public key to check it with', where);
    if (key !== verifier.key) return this.problem('bad-signature', 'another key than the stored one signed it', where);
    const good = typeof signature === 'string' && verifier.signed(this.#last, signature);
    return good ? null : this.problem('bad-signature', 'the key did not sign the record before it', where);
  }

  // The chain alone does not show it: an attacker who can renumber records can leave out the signed ones.
  #unsigned({ seq, kind }: AuditRecord, where: Where): AuditProblem | null {
    const stand = { seq, kind, beginsFile: where.line === 1, checkpoint: this.#lastCheckpoint };
    if (!isInPlaceOfCheckpoint(stand)) return null;
    return this.problem('unsigned', `a checkpoint must stand here, and the last one is ${this.#lastNamed()}`, where);
  }

  #lastNamed(): string {
    return this.#lastCheckpoint === 0 ? 'none at all' : `record ${this.#lastCheckpoint}`;
  }

  // The first writer makes the key, so that without it there is nothing a later signature could be checked with.
  #warnings(): string[] {
    if (this.#records === 0 || this.#verifier !== null) return [];
    return ['The key that signs checkpoints is missing or unreadable, although there are records.'];
  }

  #unlikeHead({ seq, hash }: AuditRecord, where: Where): AuditProblem | null {
    const noted = this.#heads.get(seq);
    if (!noted) return null;
    if (noted.size > 1 || !noted.has(hash))
      return this.problem('rewritten', 'its hash is not the one that was noted elsewhere', where);
    this.#headsFound += 1;
    return null;
  }
}
