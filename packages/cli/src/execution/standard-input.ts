// What a sandboxed command reads: this process’s standard input, unless a person sits at it.

import { PassThrough } from 'node:stream';
import type { Readable } from 'node:stream';
import type { InputStream } from '../io.ts';

/** Standard input for one run. Disposing lets go of it, so that an open pipe does not keep the process alive. */
export class StandardInput implements Disposable {
  /** What to hand to the run: nothing where standard input is a terminal. */
  readonly source: Readable | '';
  readonly #stdin: InputStream;

  constructor(stdin: InputStream) {
    this.#stdin = stdin;
    this.source = stdin.isTTY ? '' : passedOn(stdin);
  }

  [Symbol.dispose](): void {
    if (this.source === '') return;
    this.#stdin.unpipe();
    this.source.destroy();
    this.#stdin.destroy();
  }
}

// A standard input that cannot be read, such as a directory, is an empty one to the command, as in a shell.
function passedOn(stdin: InputStream): Readable {
  const source = new PassThrough();
  stdin.on('error', () => source.end());
  source.on('error', () => undefined);
  return stdin.pipe(source);
}
