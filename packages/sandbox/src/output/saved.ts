// The kept output of past runs: private, capped, and gone after a while.

import { open, readFile, readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { ensurePrivateDirectory } from '../config/directories.ts';
import type { SavedLog, SavedLogInfo } from '../contract/host.ts';

const KEPT_PER_STREAM = 1024 ** 2;
const MOST_FILES = 500;
const LARGEST_FILE = 16 * KEPT_PER_STREAM;
const SUFFIX = '.log.json';

const savedSchema = z.object({
  name: z.string(),
  sandboxId: z.string(),
  command: z.string(),
  endedAt: z.string(),
  exitCode: z.number().nullable(),
  stdout: z.string(),
  stderr: z.string(),
  dropped: z.object({ stdout: z.number(), stderr: z.number() }),
});

/** Past runs’ output in one directory. */
export class SavedLogs {
  readonly #directory: string;
  readonly #uid: number;
  readonly #retentionMs: number;

  constructor(stateDirectory: string, uid: number, retentionDays: number) {
    this.#directory = join(stateDirectory, 'logs');
    this.#uid = uid;
    this.#retentionMs = retentionDays * 24 * 3600 * 1000;
  }

  /** Keeps the output of a run, and lets go of what is too old or too much. */
  async save(log: SavedLog, now: number): Promise<void> {
    await ensurePrivateDirectory(this.#directory, this.#uid);
    const stdout = head(log.stdout);
    const stderr = head(log.stderr);
    const dropped = { stdout: log.dropped.stdout + stdout.cut, stderr: log.dropped.stderr + stderr.cut };
    // The time leads the name, so that the newest are found without opening any; `wx` never follows or replaces what is there.
    const file = await open(
      join(this.#directory, `${String(now).padStart(15, '0')}-${log.sandboxId}${SUFFIX}`),
      'wx',
      0o600,
    );
    try {
      await file.writeFile(JSON.stringify({ ...log, stdout: stdout.text, stderr: stderr.text, dropped }));
    } finally {
      await file.close();
    }
    await this.#prune(now);
  }

  /** The runs whose output is kept, newest first. */
  async list(): Promise<SavedLogInfo[]> {
    const logs = await Promise.all((await this.#files()).map(file => this.#read(file)));
    return logs
      .filter(log => log !== null)
      .map(({ name, sandboxId, command, endedAt, exitCode }) => ({ name, sandboxId, command, endedAt, exitCode }));
  }

  /** The newest run with this container name, or with a sandbox id that begins like this. */
  async find(reference: string): Promise<SavedLog | null> {
    for (const file of await this.#files()) {
      const log = await this.#read(file);
      if (log && (log.name === reference || (reference.length >= 4 && log.sandboxId.startsWith(reference)))) return log;
    }
    return null;
  }

  async #prune(now: number): Promise<void> {
    const files = await this.#files();
    const oldest = now - this.#retentionMs;
    const gone = files.filter((file, index) => index >= MOST_FILES || Number.parseInt(file, 10) < oldest);
    await Promise.all(gone.map(file => rm(join(this.#directory, file), { force: true })));
  }

  async #files(): Promise<string[]> {
    try {
      const names = await readdir(this.#directory);
      return names
        .filter(name => name.endsWith(SUFFIX))
        .sort()
        .reverse();
    } catch {
      return [];
    }
  }

  async #read(file: string): Promise<SavedLog | null> {
    const path = join(this.#directory, file);
    try {
      if ((await stat(path)).size > LARGEST_FILE) return null;
      return savedSchema.parse(JSON.parse(await readFile(path, 'utf8')));
    } catch {
      // Half written or foreign: it is no log of ours.
      return null;
    }
  }
}

function head(text: string): { text: string; cut: number } {
  const bytes = Buffer.from(text);
  if (bytes.length <= KEPT_PER_STREAM) return { text, cut: 0 };
  const kept = new TextDecoder().decode(bytes.subarray(0, KEPT_PER_STREAM), { stream: true });
  return { text: kept, cut: bytes.length - Buffer.byteLength(kept) };
}
