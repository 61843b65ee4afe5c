// Audit log reader. It never takes a lock, so that no writer waits for a reader.

import { setTimeout as wait } from 'node:timers/promises';
import type { Audit, AuditRecord } from '../../contract/audit.ts';
import { AcodeError } from '../../contract/errors.ts';
import { LineReader, filesFrom, listFiles, partsOf } from './lines.ts';
import type { Part } from './lines.ts';
import { openLine } from './record.ts';
import { recordedChanges } from './changes.ts';
import { recordedStats } from './stats.ts';
import { verifyLog } from './verify.ts';

const SHOWN = 20;
const MAX_SHOWN = 10_000;
const MAX_FOUND = 1000;
const LOOK_EVERY_MS = 200;

/** The audit log in a directory. Makes nothing; a log that does not exist is an empty one. */
export function auditIn(directory: string): Audit {
  return {
    tail: async ({ count = SHOWN } = {}) => tail(directory, Math.min(Math.max(count, 0), MAX_SHOWN)),
    follow: options => follow(directory, options?.after, options?.signal),
    find: reference => find(directory, reference),
    verify: async ({ heads, signal } = {}) => verifyLog(directory, heads, signal),
    changes: query => recordedChanges(exported(directory, 1, Infinity, query?.signal), query),
    stats: query => recordedStats(exported(directory, 1, Infinity, query?.signal), query),
    export: options => exported(directory, options?.from ?? 1, options?.to ?? Infinity, options?.signal),
  };
}

async function tail(directory: string, count: number): Promise<AuditRecord[]> {
  const last = await lastSequence(directory);
  const from = Math.max(1, last - count + 1);
  const records: AuditRecord[] = [];
  for await (const { bytes, part, index } of linesFrom(directory, from)) {
    if (records.length >= count) break;
    records.push(recordOf(bytes, part, index));
  }
  return records;
}

async function find(directory: string, reference: string): Promise<AuditRecord[]> {
  const found = /^\d{1,15}$/.test(reference)
    ? await findBySequence(directory, Number(reference))
    : await findByCorrelation(directory, reference);
  if (found.length === 0) throw new AcodeError('ACODE-AUD-003', { reference });
  return found;
}

async function findBySequence(directory: string, seq: number): Promise<AuditRecord[]> {
  for await (const { bytes, part, index } of linesFrom(directory, Math.max(1, seq))) {
    const record = recordOf(bytes, part, index);
    return record.seq === seq ? [record] : [];
  }
  return [];
}

async function findByCorrelation(directory: string, correlationId: string): Promise<AuditRecord[]> {
  const needle = Buffer.from(`"correlationId":${JSON.stringify(correlationId)}`);
  const found: AuditRecord[] = [];
  for await (const { bytes, part, index } of linesFrom(directory, 1)) {
    if (!bytes.includes(needle)) continue;
    const record = recordOf(bytes, part, index);
    // The same text can stand inside the command of another run.
    if (record.correlationId === correlationId) found.push(record);
    if (found.length >= MAX_FOUND) break;
  }
  return found;
}

async function* exported(
  directory: string,
  from: number,
  to: number,
  signal?: AbortSignal,
): AsyncGenerator<string, void, undefined> {
  for await (const { bytes, seq } of linesFrom(directory, from, signal)) {
    if (seq > to) return;
    yield `${bytes.toString('utf8')}\n`;
  }
}

async function* follow(
  directory: string,
  after: number | undefined,
  signal?: AbortSignal,
): AsyncGenerator<AuditRecord, void, undefined> {
  let seen = after ?? (await lastSequence(directory));
  for (;;) {
    if (signal?.aborted) return;
    const before = seen;
    const [name] = filesFrom(await listFiles(directory), seen + 1);
    if (name !== undefined) {
      for await (const record of followFile(directory, name, seen, signal)) {
        seen = record.seq;
        yield record;
      }
    }
    if (seen === before) await moment(signal);
  }
}

// Follows one file until the next one exists, so that a long file is not read again each time.
async function* followFile(
  directory: string,
  name: string,
  after: number,
  signal?: AbortSignal,
): AsyncGenerator<AuditRecord, void, undefined> {
  await using reader = await LineReader.open(directory, name);
  for (;;) {
    if (signal?.aborted) return;
    // Asked before reading: once there is a newer file, this one does not grow any more.
    const isOver = (await listFiles(directory)).some(other => other > name);
    const part = await reader.next();
    if (part) yield* recordsAfter(part, after);
    else if (isOver) return;
    else await moment(signal);
  }
}

function* recordsAfter(part: Part, after: number): Generator<AuditRecord, void, undefined> {
  for (const [index, bytes] of part.lines.entries())
    if (sequenceAt(part, index) > after) yield recordOf(bytes, part, index);
}

async function moment(signal?: AbortSignal): Promise<void> {
  // A cancelled signal is how following ends.
  await wait(LOOK_EVERY_MS, undefined, signal ? { signal } : {}).catch(() => undefined);
}

/** The number of the last whole record, by counting the lines of the last file. */
async function lastSequence(directory: string): Promise<number> {
  const names = await listFiles(directory);
  let last = 0;
  for await (const part of partsOf(directory, names.slice(-2))) last = sequenceAt(part, part.lines.length - 1);
  return last;
}

async function* linesFrom(
  directory: string,
  from: number,
  signal?: AbortSignal,
): AsyncGenerator<{ bytes: Buffer; seq: number; part: Part; index: number }, void, undefined> {
  const names = filesFrom(await listFiles(directory), from);
  for await (const part of partsOf(directory, names, signal)) {
    for (const [index, bytes] of part.lines.entries()) {
      const seq = sequenceAt(part, index);
      if (seq >= from) yield { bytes, seq, part, index };
    }
  }
}

// One line is one record, and the name of the file is the number of the first: nothing has to be parsed to count.
function sequenceAt({ first, line }: Part, index: number): number {
  return first + line - 1 + index;
}

function recordOf(bytes: Buffer, part: Part, index: number): AuditRecord {
  const { record, broken } = openLine(bytes);
  if (broken === null) return record;
  throw new AcodeError('ACODE-AUD-002', {
    file: part.path,
    line: part.line + index,
    seq: sequenceAt(part, index),
    fault: broken,
    detail: 'the line is not a record as it was written',
  });
}
