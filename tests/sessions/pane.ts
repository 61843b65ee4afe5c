// A real terminal for tests: a pane of a tmux server of its own, with a shell of the host in it.

import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);
const LATE_MS = 60_000;

/** A pane. Disposing ends its server and everything in it. */
export class Pane implements AsyncDisposable {
  readonly #directory: string;
  readonly #socket: string;

  private constructor(directory: string) {
    this.#directory = directory;
    this.#socket = join(directory, 'tmux.sock');
  }

  /** Opens one of 80 by 24 in a directory, with an environment. */
  static async open(cwd: string, env: Readonly<Record<string, string>>): Promise<Pane> {
    const pane = new Pane(await mkdtemp('/var/tmp/acode-pane-'));
    try {
      await pane.#begin(cwd, env);
    } catch (error) {
      await pane[Symbol.asyncDispose]();
      throw error;
    }
    return pane;
  }

  /** Types text as it is. */
  async type(text: string): Promise<void> {
    await this.#tmux('send-keys', '-l', text);
  }

  /** Types a line. */
  async line(text: string): Promise<void> {
    await this.type(text);
    await this.#tmux('send-keys', 'Enter');
  }

  /** Pastes text, marked as such where the program asked for that. */
  async paste(text: string): Promise<void> {
    await this.#tmux('set-buffer', '-b', 'pasted', text);
    await this.#tmux('paste-buffer', '-d', '-p', '-b', 'pasted');
  }

  /** Presses keys by the names that tmux has for them. */
  async press(...keys: readonly string[]): Promise<void> {
    await this.#tmux('send-keys', ...keys);
  }

  async resize(columns: number, rows: number): Promise<void> {
    await this.#tmux('resize-window', '-x', String(columns), '-y', String(rows));
  }

  /** What is on the screen, without spaces at the ends of lines and empty lines at the end. */
  async screen(): Promise<string> {
    return (await this.#tmux('capture-pane', '-p')).replaceAll(/ +$/gm, '').trimEnd();
  }

  /** The same with its colours. */
  async coloured(): Promise<string> {
    return this.#tmux('capture-pane', '-p', '-e');
  }

  /** A fact that tmux knows of the pane, such as `alternate_on`. */
  async fact(name: string): Promise<string> {
    return (await this.#tmux('display-message', '-p', `#{${name}}`)).trim();
  }

  /** What the clipboard has; nothing where nobody wrote to it. */
  async clipboard(): Promise<string> {
    return this.#tmux('show-buffer').catch(() => '');
  }

  /** Waits until the screen shows something, and gives the screen. */
  async until(shown: RegExp): Promise<string> {
    const end = Date.now() + LATE_MS;
    for (;;) {
      const screen = await this.screen();
      if (shown.test(screen)) return screen;
      if (Date.now() > end) throw new Error(`the screen never showed ${shown}:\n${screen}`);
      await new Promise(resolve => void setTimeout(resolve, 50));
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#tmux('kill-server').catch(() => undefined);
    await rm(this.#directory, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
  }

  async #begin(cwd: string, env: Readonly<Record<string, string>>): Promise<void> {
    const shell = 'env PS1="host> " TERM=screen-256color bash --norc --noprofile';
    const size = ['-x', '80', '-y', '24'];
    await run('tmux', ['-S', this.#socket, '-f', '/dev/null', 'new-session', '-d', ...size, '-c', cwd, shell], {
      env: { ...env, SHELL: '/bin/sh' },
    });
    // What is sent to the clipboard becomes a buffer of tmux, where a test can see it.
    await this.#tmux('set-option', '-s', 'set-clipboard', 'on');
    // Shift-Enter is a key of its own for programs that ask for it.
    await this.#tmux('set-option', '-s', 'extended-keys', 'on');
    await this.until(/host>$/);
  }

  async #tmux(...words: readonly string[]): Promise<string> {
    const { stdout } = await run('tmux', ['-S', this.#socket, ...words], { timeout: 60_000 });
    return stdout;
  }
}
