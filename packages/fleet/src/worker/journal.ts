// Journal of a worker: one line for each claim and each end, so that an operator can compare what was begun with what was written.

import { appendFileSync, mkdirSync, renameSync, statSync } from 'node:fs';
import { join } from 'node:path';

const MAX_BYTES = 16 * 1024 ** 2;

/** What happened to a task on a worker. */
export interface JournalEntry {
  readonly event: 'claimed' | 'finished' | 'given-back' | 'claim-lost' | 'unwritten' | 'lease-lost';
  readonly worker: string;
  readonly tenant?: string;
  readonly id?: string;
  readonly attempt?: number;
  readonly state?: string;
  readonly reason?: string;
}

/** Appends to the journal. The file before it is kept. */
export class Journal {
  readonly #path: string;

  constructor(root: string) {
    mkdirSync(root, { recursive: true, mode: 0o700 });
    this.#path = join(root, 'journal.jsonl');
  }

  add(entry: JournalEntry): void {
    if ((statSync(this.#path, { throwIfNoEntry: false })?.size ?? 0) > MAX_BYTES)
      renameSync(this.#path, `${this.#path}.1`);
    appendFileSync(this.#path, `${JSON.stringify({ at: new Date().toISOString(), ...entry })}\n`, { mode: 0o600 });
  }
}
