// Cleanup after this process: the claim of a session, and the shells that watch for its death (reaper) or for a lease’s
// end (keeper).
//
// A waiting shell costs 2 MB and no time; a waiting Node would cost 45 MB and 125 ms of CPU for every command.

import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { OwnerSocket, ownerSocketPath } from './ownership.ts';
import { reapedPath } from './orphans.ts';
import { reaperProgram } from './reaper-program.ts';

/** What a reaper cleans up when its session has died. */
export interface ReaperTask {
  /** The engine’s socket. */
  readonly engineSocket: string;
  readonly owner: string;
  readonly uid: number;
  readonly host: string;
  /** The owner’s own socket, removed last. */
  readonly ownerSocket: string;
  /** Where it writes down what it removed. */
  readonly journal: string;
  /** How long an engine may take for a create that was under way. */
  readonly createMs: number;
}

const SHELL = '/bin/sh';
const NAME = 'acode-reaper';
// Each line says what is being made now, the last one that there is nothing to do; end of file means that no process is left to
// say so.
const WAIT = 'while IFS= read -r word; do [ "$word" = done ] && exit 0; making=$word; done; exec "$@" "$making"';

/** A running reaper. */
export class Reaper {
  readonly #shell: ChildProcess;

  private constructor(shell: ChildProcess) {
    this.#shell = shell;
  }

  /**
   * Starts one, with the text of its program: nothing but Node itself is read from disk when it is needed. It outlives the
   * terminal and this process, and holds nothing of either.
   */
  static start(task: ReaperTask, program: string): Reaper {
    const words = [process.execPath, '--input-type=module', '-e', program, NAME, JSON.stringify(task)];
    const shell = spawn(SHELL, ['-c', WAIT, NAME, ...words], {
      detached: true,
      cwd: '/',
      env: { PATH: '/usr/bin:/bin', ELECTRON_RUN_AS_NODE: '1' },
      stdio: ['pipe', 'ignore', 'ignore'],
    });
    // A machine that cannot start a shell still has the sweep of the next session.
    shell.on('error', () => undefined);
    shell.stdin?.on('error', () => undefined);
    shell.unref();
    // The pipe is a socket, although its type does not say so; it must not keep this process running either.
    const { stdin } = shell;
    if (stdin && 'unref' in stdin && typeof stdin.unref === 'function') Reflect.apply(stdin.unref, stdin, []);
    return new Reaper(shell);
  }

  /** The reaper process; undefined if none could be started. */
  get pid(): number | undefined {
    return this.#shell.pid;
  }

  /** Tells it the nonces of what is being made now. */
  expect(nonces: readonly string[]): void {
    const { stdin } = this.#shell;
    if (stdin?.writable) stdin.write(`${nonces.join(',')}\n`);
  }

  /** Lets it do its work now. */
  release(): void {
    this.#shell.stdin?.end();
  }

  /** Ends it: everything of the session is already removed. */
  dismiss(): void {
    this.#shell.stdin?.end('done\n');
  }
}

/** What a keeper removes, and when. */
export interface KeeperTask {
  /** The engine’s socket. */
  readonly engineSocket: string;
  readonly sandboxId: string;
  readonly uid: number;
  readonly host: string;
  /** The file that says until when: it may be written anew, and is the keeper’s reason to live. */
  readonly lease: string;
  /** Other files about the sandbox, removed with it. */
  readonly record: string;
  /** Where it writes down what it removed. */
  readonly journal: string;
}

const KEEPER_NAME = 'acode-keeper';
const KEEPER_WAIT = [
  'lease=$1',
  'shift',
  'while read -r _ until 2>/dev/null <"$lease" && [ "$(date +%s)" -lt "$until" ]; do sleep 1; done',
  '[ -e "$lease" ] || exit 0',
  'exec "$@"',
].join('\n');

/** Starts one, with the text of its program. It outlives the terminal and this process, and holds nothing of either. */
export function startKeeper(task: KeeperTask, program: string): void {
  const words = [process.execPath, '--input-type=module', '-e', program, KEEPER_NAME, JSON.stringify(task)];
  const shell = spawn(SHELL, ['-c', KEEPER_WAIT, KEEPER_NAME, task.lease, ...words], {
    detached: true,
    cwd: '/',
    env: { PATH: '/usr/bin:/bin', ELECTRON_RUN_AS_NODE: '1' },
    stdio: 'ignore',
  });
  // A machine that cannot start a shell still has the sweep of the next session.
  shell.on('error', () => undefined);
  shell.unref();
}

/** Whose claim it is. */
export interface ClaimOptions extends Pick<ReaperTask, 'owner' | 'uid' | 'host' | 'createMs'> {
  readonly runtimeDirectory: string;
}

/** The claim of one session. A host that makes nothing never takes it, and costs neither a socket nor a process. */
export class Claim {
  readonly #options: ClaimOptions;
  readonly #creating = new Set<string>();
  #taken: Promise<{ readonly socket: OwnerSocket; readonly reaper: Reaper }> | null = null;
  #reaper: Reaper | null = null;

  constructor(options: ClaimOptions) {
    this.#options = options;
  }

  /** Proves that the owner is alive, and starts the reaper that cleans up after it if this process dies. */
  async take(engineSocket: string): Promise<void> {
    this.#taken ??= this.#take(engineSocket).catch((error: unknown) => {
      this.#taken = null;
      throw error;
    });
    const { socket } = await this.#taken;
    // A cleaner of the runtime directory may have removed the socket; without it this session would count as dead.
    await socket.ensure();
  }

  /** Tells the reaper for as long as something is being made, since the engine may still create it after this process died. */
  async during<Value>(nonce: string, making: () => Promise<Value>): Promise<Value> {
    this.#creating.add(nonce);
    this.#reaper?.expect([...this.#creating]);
    try {
      return await making();
    } finally {
      this.#creating.delete(nonce);
      this.#reaper?.expect([...this.#creating]);
    }
  }

  /** Gives the claim up. What is left of the session, if anything, is the reaper’s from now on. */
  async giveUp(isAnythingLeft: boolean): Promise<void> {
    const taken = await this.#taken?.catch(() => null);
    if (!taken) return;
    if (isAnythingLeft) taken.reaper.release();
    else taken.reaper.dismiss();
    await taken.socket.close();
  }

  async #take(engineSocket: string): Promise<{ socket: OwnerSocket; reaper: Reaper }> {
    const { runtimeDirectory, ...whose } = this.#options;
    // Read before there is a sandbox that could write where acode is installed.
    const program = await reaperProgram();
    const ownerSocket = ownerSocketPath(runtimeDirectory, whose.owner);
    const journal = reapedPath(runtimeDirectory);
    // Before there is a socket: a process killed between the two would leave one that no process removes.
    const reaper = Reaper.start({ ...whose, engineSocket, ownerSocket, journal }, program);
    try {
      const socket = await OwnerSocket.listen(runtimeDirectory, whose.owner);
      this.#reaper = reaper;
      return { socket, reaper };
    } catch (error) {
      reaper.dismiss();
      throw error;
    }
  }
}
