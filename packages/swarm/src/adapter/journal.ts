// Journal and result file of a task, in the git directory of its fork: what was done, for the process that continues it.

import {
  appendFileSync,
  closeSync,
  fsyncSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import * as z from 'zod';
import { parseFromAdapter } from '../protocol.ts';
import type { Completion } from '../protocol.ts';

const entrySchema = z.looseObject({
  at: z.string(),
  event: z.enum(['begin', 'story', 'session', 'end']),
  story: z.string().optional(),
  status: z.string().optional(),
  commit: z.string().optional(),
  containerId: z.string().optional(),
});

/** One line of a journal. */
export type JournalEntry = z.infer<typeof entrySchema>;

/** What a task has written down. */
export class Journal {
  readonly #file: string;
  readonly #result: string;

  constructor(directory: string) {
    this.#file = join(directory, 'journal.ndjson');
    this.#result = join(directory, 'result.json');
  }

  /** Every entry that is whole: the last one may have been cut off. */
  read(): JournalEntry[] {
    const text = readOr(this.#file);
    return (text ?? '').split('\n').flatMap(line => {
      try {
        return entrySchema.parse(JSON.parse(line));
      } catch {
        return [];
      }
    });
  }

  append(entry: Omit<JournalEntry, 'at'>): void {
    const before = readOr(this.#file);
    // After a line that was cut off, the next one begins anew.
    const gap = before !== null && before !== '' && !before.endsWith('\n') ? '\n' : '';
    appendFileSync(this.#file, `${gap}${JSON.stringify({ at: new Date().toISOString(), ...entry })}\n`);
  }

  /** Whether the agent has a session that it can go on with. */
  hasSession(): boolean {
    return this.read().findLast(({ event }) => event === 'session')?.status === 'kept';
  }

  /** The last message of the run before; null where it wrote none. */
  result(): Completion | null {
    const text = readOr(this.#result);
    if (text === null) return null;
    try {
      const message = parseFromAdapter(text.trim());
      return message.type === 'completion' ? message : null;
    } catch {
      return null;
    }
  }

  /** Whole or not at all. */
  writeResult(message: Completion): void {
    const temporary = `${this.#result}.new`;
    writeFileSync(temporary, `${JSON.stringify(message)}\n`);
    const file = openSync(temporary, 'r');
    fsyncSync(file);
    closeSync(file);
    renameSync(temporary, this.#result);
  }

  removeResult(): void {
    rmSync(this.#result, { force: true });
  }
}

function readOr(path: string): string | null {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return null;
  }
}
