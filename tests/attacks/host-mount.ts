// A file system that is mounted below a directory of the host, as an engine sees it: only root can do that, so a container does.

import { readFileSync } from 'node:fs';
import type { TestEngine } from '../support/engines.ts';
import { TOOLS } from './targets.ts';
import { runWeakened } from './weakened.ts';

/** A small tmpfs in an engine’s own mount namespace, over a directory of the test’s own. */
export class HostMount implements AsyncDisposable {
  readonly #engine: TestEngine;
  readonly #path: string;

  private constructor(engine: TestEngine, path: string) {
    this.#engine = engine;
    this.#path = path;
  }

  /** Mounts it, with a file called `below` in it. */
  static async at(engine: TestEngine, path: string): Promise<HostMount> {
    const mount = new HostMount(engine, path);
    await mount.#inEngine('mount -t tmpfs -o size=1m,mode=1777 acode-nested "$1" && touch "$1/below"');
    return mount;
  }

  /** What lies in it. */
  async list(): Promise<string[]> {
    const names = await this.#inEngine('ls -A "$1"');
    return names.split('\n').filter(name => name !== '');
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#inEngine('umount "$1"');
  }

  async #inEngine(script: string): Promise<string> {
    const pid = readFileSync(this.#engine.pidfile, 'utf8').trim();
    const { stdout, stderr, exitCode } = await runWeakened(this.#engine, {
      image: TOOLS,
      command: ['nsenter', '-t', pid, '-m', 'sh', '-c', script, 'sh', this.#path],
      host: { PidMode: 'host', CapAdd: ['SYS_ADMIN', 'SYS_PTRACE', 'SYS_CHROOT'], SecurityOpt: ['seccomp=unconfined'] },
    });
    if (exitCode !== 0) throw new Error(`${script}: ${stdout}${stderr}`);
    return stdout;
  }
}
