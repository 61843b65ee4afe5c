// The claim of a session on what it makes: taken before its first sandbox, given up when the last one is gone.

import { OwnerSocket, ownerSocketPath } from './ownership.ts';
import { reapedPath } from './reaped.ts';
import { reaperProgram } from './reaper-program.ts';
import { Reaper } from './reaper.ts';
import type { ReaperTask } from './reaper.ts';

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

  /** Shows that the owner lives and sees to it that somebody cleans up after it, whatever becomes of this process. */
  async take(engineSocket: string): Promise<void> {
    this.#taken ??= this.#take(engineSocket).catch((error: unknown) => {
      this.#taken = null;
      throw error;
    });
    const { socket } = await this.#taken;
    // Whoever tidies the runtime directory may have taken it for rubbish; without it this session would count as dead.
    await socket.ensure();
  }

  /** Tells the reaper for as long as something is being made, since it may still appear when this process is gone. */
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
    // Before there is a socket: a process killed between the two would leave one that nobody takes away.
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
