// The inside of a sandbox where there is none: the same programs with the same words, by the shell and the tools of this host or by
// busybox. It is real in everything but the isolation, which these tests are not about.

import { spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { AcodeError } from '@acode/sandbox';
import type { Inside, InsideEnd, InsideProgram } from '../../packages/sandbox/src/isolation/backend.ts';

const BUSYBOX = ['/bin/busybox', '/var/lib/acode-engines/packages/root/bin/busybox'].find(path => existsSync(path));
const MAX_BYTES = 16 * 1024 ** 2;

/** A set of tools that an image may have. */
export interface Tools {
  readonly name: string;
  /** Where they are; null for the host’s own. */
  readonly directory: string | null;
}

/** The tools of this host, and busybox where it is here. */
export function toolSets(): Tools[] {
  const own: Tools = { name: 'GNU coreutils', directory: null };
  return BUSYBOX === undefined ? [own] : [own, { name: 'busybox', directory: installed(BUSYBOX) }];
}

/** A set with these programs of the host and no others. */
export function emptyTools(programs: readonly string[]): Tools {
  const directory = mkdtempSync('/var/tmp/acode-test-bare-');
  for (const program of programs) symlinkSync(`/bin/${program}`, join(directory, program));
  return { name: 'a few programs', directory };
}

/** Removes what {@link toolSets} made. */
export function removeTools(sets: readonly Tools[]): void {
  for (const { directory } of sets) if (directory !== null) rmSync(directory, { recursive: true, force: true });
}

function installed(busybox: string): string {
  const directory = mkdtempSync('/var/tmp/acode-test-busybox-');
  const applets = spawnSync(busybox, ['--list'], { encoding: 'utf8' }).stdout.trim().split('\n');
  for (const applet of applets) symlinkSync(busybox, join(directory, applet));
  return directory;
}

/** Runs programs on this host. */
export class InsideHost implements Inside {
  readonly #tools: Tools;

  constructor(tools: Tools) {
    this.#tools = tools;
  }

  async call(
    argv: readonly string[],
    {
      input = '',
      maxBytes = MAX_BYTES,
      signal,
    }: { input?: Uint8Array | string; maxBytes?: number; signal: AbortSignal },
  ): Promise<InsideEnd & { stdout: Buffer }> {
    const program = await this.open(argv, signal);
    const chunks: Buffer[] = [];
    let length = 0;
    void program.write(input).then(
      () => program.closeStdin(),
      () => undefined,
    );
    for await (const chunk of program.stdout as AsyncIterable<Buffer>) {
      length += chunk.length;
      if (length > maxBytes) {
        program.destroy();
        throw new AcodeError('ACODE-FIL-003', { path: argv.join(' '), limit: `${maxBytes} bytes` });
      }
      chunks.push(chunk);
    }
    return { ...(await program.ended), stdout: Buffer.concat(chunks) };
  }

  async open([program = '', ...words]: readonly string[], signal: AbortSignal): Promise<InsideProgram> {
    signal.throwIfAborted();
    const { directory } = this.#tools;
    const path = directory !== null && program === '/bin/sh' ? join(directory, 'sh') : program;
    const child = spawn(path, words, {
      // Whoever ends it ends everything that it started, as in a sandbox.
      detached: true,
      env: { ...process.env, LANG: 'de_DE.UTF-8', ...(directory !== null && { PATH: directory }) },
    });
    let stderr = '';
    child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text.slice(0, 65_536 - stderr.length)));
    child.stdin.on('error', () => undefined);
    const destroy = (): void => void (child.exitCode === null && child.pid !== undefined && killGroup(child.pid));
    signal.addEventListener('abort', destroy, { once: true });
    const ended = new Promise<InsideEnd>((resolve, reject) => {
      child.on('error', reject);
      child.on('close', code => {
        signal.removeEventListener('abort', destroy);
        if (signal.aborted) reject(signal.reason);
        else resolve({ exitCode: code ?? 137, stderr });
      });
    });
    ended.catch(() => undefined);
    return {
      stdout: child.stdout,
      ended,
      write: data =>
        new Promise((resolve, reject) => child.stdin.write(data, error => (error ? reject(error) : resolve()))),
      closeStdin: () => new Promise(resolve => child.stdin.end(() => resolve())),
      destroy,
    };
  }
}

function killGroup(pid: number): void {
  try {
    process.kill(-pid, 'SIGKILL');
  } catch {
    // It has ended meanwhile.
  }
}
