// What can be measured: a way to run a command, whoever’s it is.
// @ts-check

/**
 * One run of `echo hi`, from the call on.
 *
 * @typedef {{ firstByteMs: number, resultMs: number, warm?: boolean }} Sample
 */

/**
 * @typedef {object} Candidate
 * @property {string} name
 * @property {(signal: AbortSignal) => Promise<Sample>} echo
 * @property {(bytes: number, signal: AbortSignal) => Promise<number>} print How long so many bytes take, from the first on.
 * @property {(count: number, signal: AbortSignal) => Promise<number[]>} lines How long each of so many lines takes through `cat`.
 * @property {() => Promise<void>} settled When all that was left to do off the path is done.
 * @property {(most: number) => Promise<void>} caughtUp When no more than so many removals are still to be done.
 * @property {() => Promise<void>} close
 * @property {Parts} [parts] How long each container took to be created and to be removed.
 */

/** @typedef {{ create: number[], remove: number[] }} Parts */

/** @typedef {{ name: string, unavailable: string }} Absent */

/**
 * A figure of a command that did not do its work would be of no use.
 *
 * @param {string} name
 * @param {string} text
 */
export function echoed(name, text) {
  if (text !== 'hi\n') throw new Error(`${name}: printed ${JSON.stringify(text.slice(0, 80))} in place of hi`);
}

/**
 * The times of lines that are written one after another, each when the one before it is back.
 *
 * @param {number} count
 * @param {AbortSignal} signal
 * @param {{ write: (line: string) => void, onChunk: (heard: (chunk: Uint8Array) => void) => void }} through
 */
export async function lineTimes(count, signal, { write, onChunk }) {
  /** @type {() => void} */
  let back = () => undefined;
  onChunk(chunk => {
    if (chunk.includes(0x0a)) back();
  });
  /** @type {number[]} */
  const times = [];
  // The first one waits for the command to start, and is none of them.
  for (let line = -1; line < count; line += 1) {
    const began = performance.now();
    await new Promise((resolve, reject) => {
      const giveUp = () => reject(new Error('a line did not come back'));
      signal.addEventListener('abort', giveUp, { once: true });
      back = () => {
        signal.removeEventListener('abort', giveUp);
        resolve(undefined);
      };
      if (signal.aborted) giveUp();
      else write('a line of sixty-three characters that goes there and comes back\n');
    });
    if (line >= 0) times.push(performance.now() - began);
  }
  return times;
}
