// Logs in directories of their own, and processes that write them.

import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { AuditLog } from '../../packages/sandbox/src/records/audit/log.ts';
import type { AuditLogOptions } from '../../packages/sandbox/src/records/audit/log.ts';
import type { AuditEvent } from '../../packages/sandbox/src/contract/audit.ts';
import { systemClock } from '../../packages/sandbox/src/lifecycle/clock.ts';

const WRITER = fileURLToPath(new URL('./writer.mjs', import.meta.url));
const BUILT = fileURLToPath(new URL('../../packages/sandbox/dist/records/audit/log.js', import.meta.url));

/** The user of the tests. */
export const uid = process.getuid?.() ?? 0;

/** A directory for a log, which is gone afterwards. */
export class Place implements AsyncDisposable {
  readonly top: string;
  readonly directory: string;

  private constructor(top: string) {
    this.top = top;
    this.directory = join(top, 'audit');
  }

  static async make(): Promise<Place> {
    return new Place(await mkdtemp('/var/tmp/acode-audit-'));
  }

  log(options: Partial<AuditLogOptions> = {}): AuditLog {
    return new AuditLog({ directory: this.directory, uid, clock: systemClock, ...options });
  }

  async files(): Promise<string[]> {
    return (await readdir(this.directory)).filter(name => name.endsWith('.jsonl')).sort();
  }

  async locks(): Promise<string[]> {
    return (await readdir(this.directory)).filter(name => name.startsWith('lock.'));
  }

  /** Every line of the log, without newlines. */
  async lines(): Promise<string[]> {
    const texts = await Promise.all((await this.files()).map(name => readFile(join(this.directory, name), 'utf8')));
    return texts.join('').split('\n').slice(0, -1);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.top, { recursive: true, force: true });
  }
}

/** An entry that says little. */
export function event(correlationId: string): AuditEvent {
  return { kind: 'event', operation: 'run', correlationId, event: 'tested' };
}

/** A process that writes. */
export interface Writer {
  readonly child: ChildProcess;
  /** What it printed so far. */
  printed(): string[];
  /** Lets it begin. */
  begin(): void;
  readonly ended: Promise<unknown>;
}

/** Starts a process that writes records, up to the point where it could begin. */
export async function writer(
  directory: string,
  count: number,
  name: string,
  options: object = {},
  command: readonly string[] = [],
): Promise<Writer> {
  if (!existsSync(BUILT)) throw new Error('packages/sandbox is not built: run `npm run build` first');
  const words = [...command, process.execPath, WRITER, directory, String(count), name, JSON.stringify(options)];
  const child = spawn(words[0] ?? '', words.slice(1), { stdio: ['pipe', 'pipe', 'inherit'] });
  let text = '';
  child.stdout.setEncoding('utf8').on('data', (part: string) => (text += part));
  child.stdin.on('error', () => undefined);
  const ended = once(child, 'close');
  await once(child.stdout, 'data');
  return {
    child,
    printed: () => text.split('\n').slice(1, -1),
    begin: () => void child.stdin.end('begin\n'),
    ended,
  };
}
