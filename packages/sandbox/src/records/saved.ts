// The kept output of past runs: private, capped, and gone after a while.

import { constants } from 'node:fs';
import { open, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import * as z from 'zod';
import { readBoundedFile, ensurePrivateDirectory } from '../lifecycle/directories.ts';
import type { BoundedFile } from '../lifecycle/directories.ts';
import type { SavedLog, SavedLogInfo } from '../contract/host.ts';

const KEPT_PER_STREAM = 1024 ** 2;
const MAX_FILES = 500;
const KEPT_OF_COMMAND = 4096;
// JSON writes a control character as six.
const MAX_FILE = 13 * KEPT_PER_STREAM;
const MAX_HEADER = 64 * 1024;
const SUFFIX = '.log.json';

const headerSchema = z.object({
  name: z.string(),
  sandboxId: z.string(),
  command: z.string(),
  endedAt: z.string(),
  exitCode: z.number().nullable(),
  correlationId: z.string().optional(),
});
const bodySchema = z.object({
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
      const { name, sandboxId, command, endedAt, exitCode, correlationId } = log;
      // The header is a line of its own, so that listing never reads the output.
      const short = command.slice(0, KEPT_OF_COMMAND);
      const header = JSON.stringify({ name, sandboxId, command: short, endedAt, exitCode, correlationId });
      await file.writeFile(`${header}\n${JSON.stringify({ stdout: stdout.text, stderr: stderr.text, dropped })}\n`);
    } finally {
      await file.close();
    }
    await this.#prune(now);
  }

  /** The runs whose output is kept, newest first. */
  async list(): Promise<SavedLogInfo[]> {
    const infos: SavedLogInfo[] = [];
    for (const file of await this.#files()) {
      const info = await this.#header(file);
      if (info) infos.push(info);
    }
    return infos;
  }

  /** The newest run with this container name, or with a sandbox id that begins like this. */
  async find(reference: string): Promise<SavedLog | null> {
    for (const file of await this.#files()) {
      const info = await this.#header(file);
      const wanted = info?.name === reference || (reference.length >= 4 && info?.sandboxId.startsWith(reference));
      const log = info && wanted ? await this.#whole(file, info) : null;
      if (log) return log;
    }
    return null;
  }

  /** The commands of a sandbox, by its id or the beginning of it, that were saved since a time; oldest first. */
  async since(sandboxId: string, sinceMs: number): Promise<SavedLog[]> {
    const logs: SavedLog[] = [];
    for (const file of (await this.#files()).reverse()) {
      // Both are in its name, so that a caller may ask again and again.
      if (!file.slice(file.indexOf('-') + 1).startsWith(sandboxId) || Number.parseInt(file, 10) < sinceMs) continue;
      const info = await this.#header(file);
      const log = info && (await this.#whole(file, info));
      if (log) logs.push(log);
    }
    return logs;
  }

  async #prune(now: number): Promise<void> {
    const files = await this.#files();
    const oldest = now - this.#retentionMs;
    const gone = files.filter((file, index) => index >= MAX_FILES || Number.parseInt(file, 10) < oldest);
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

  // Half written or foreign: not a log of acode.
  async #header(file: string): Promise<SavedLogInfo | null> {
    try {
      const { text } = await this.#read(file, MAX_HEADER);
      return headerSchema.parse(JSON.parse(text.slice(0, text.indexOf('\n'))));
    } catch {
      return null;
    }
  }

  async #whole(file: string, info: SavedLogInfo): Promise<SavedLog | null> {
    try {
      const { text } = await this.#read(file, MAX_FILE);
      return { ...info, ...bodySchema.parse(JSON.parse(text.slice(text.indexOf('\n') + 1))) };
    } catch {
      return null;
    }
  }

  #read(file: string, most: number): Promise<BoundedFile> {
    return readBoundedFile(join(this.#directory, file), most, constants.O_NOFOLLOW);
  }
}

function head(text: string): { text: string; cut: number } {
  const bytes = Buffer.from(text);
  if (bytes.length <= KEPT_PER_STREAM) return { text, cut: 0 };
  const kept = new TextDecoder().decode(bytes.subarray(0, KEPT_PER_STREAM), { stream: true });
  return { text: kept, cut: bytes.length - Buffer.byteLength(kept) };
}
