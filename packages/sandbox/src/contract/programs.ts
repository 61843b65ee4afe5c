// Programs that a caller of the library keeps for its sandboxes, apart from any image.

/** A program of the store in a sandbox. */
export interface ProgramRequest {
  /** Its id in the store. */
  id: string;
  /** Where it is inside: a directory in `/opt`. */
  target: string;
}

/**
 * Programs that sandboxes of this user can be given, whatever their image: each is a directory of acode’s own that sandboxes
 * cannot write. `policy.programs` names those that a sandbox gets.
 */
export interface Programs {
  /** Whether there is a program of this id. */
  has(id: string): boolean;
  /**
   * Adds a program, unless there is one of this id already; returns whether it was added. `fill` writes its files into an empty
   * directory, and should check them: acode runs nothing of them on this machine. If it fails, nothing is added.
   *
   * @example
   * import { writeFile } from 'node:fs/promises';
   *
   * await acode.programs.add('hello-1.0', async directory => writeFile(`${directory}/hello`, '#!/bin/sh\necho hello\n', { mode: 0o755 }));
   */
  add(
    id: string,
    fill: (directory: string, signal: AbortSignal) => Promise<void>,
    options?: {
      /** Cancels it. */
      readonly signal?: AbortSignal;
    },
  ): Promise<boolean>;
}
