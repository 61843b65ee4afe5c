// A terminal of its own for a shell line: what is shown there, keys that are typed, and its closing.

import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';

/** A terminal with something in it. */
export class Terminal {
  /** Settles when whatever ran in it has ended. */
  readonly ended: Promise<void>;
  readonly #script: ChildProcess;
  #text = '';

  private constructor(script: ChildProcess) {
    this.#script = script;
    script.stdout?.on('data', (chunk: Buffer) => (this.#text += chunk.toString()));
    script.stdin?.on('error', () => undefined);
    this.ended = new Promise(resolve => script.once('close', () => resolve()));
  }

  /** Opens one. The shell that runs `line` is the leader of the terminal’s session. */
  static open(line: string, surroundings: { readonly cwd: string; readonly env: Record<string, string> }): Terminal {
    const { cwd, env } = surroundings;
    return new Terminal(
      spawn('/usr/bin/script', ['-q', '-f', '-c', line, '/dev/null'], {
        cwd,
        env: { ...env, SHELL: '/bin/sh', TERM: 'xterm' },
        stdio: ['pipe', 'pipe', 'ignore'],
      }),
    );
  }

  /** Everything it was sent so far. */
  get text(): string {
    return this.#text;
  }

  type(keys: string): void {
    this.#script.stdin?.write(keys);
  }

  /** Closes it, as its window is closed: nobody is left on the other side. */
  close(): void {
    this.#script.kill('SIGKILL');
  }
}
