// Pull display: bars on a terminal, plain lines now and then elsewhere, nothing with --json.

import type { PullProgress } from '@acode/sandbox';
import type { Call } from '../call.ts';
import { plainPullLine, pullLines } from './pull-lines.ts';
import type { ProgressText } from './progress.ts';
import { oneLine } from './text.ts';

const EVERY_MS = 1000;

/** What one call shows of the pulls it waits for. */
export class PullDisplay {
  readonly #call: Call;
  #latest: PullProgress | null = null;
  #saidAt = -Infinity;

  constructor(call: Call) {
    this.#call = call;
  }

  /** Hears how far a pull is. */
  readonly hear = (progress: PullProgress): void => {
    this.#latest = progress;
    const { options, progress: shown, io } = this.#call;
    if (shown.enabled || options.json || io.now() - this.#saidAt < EVERY_MS) return;
    this.#saidAt = io.now();
    void this.#call.say(`${oneLine(plainPullLine(progress))}\n`);
  };

  /** Whether the registry has named a layer of the image. */
  get reached(): boolean {
    return (this.#latest?.layers.length ?? 0) > 0;
  }

  /** What a terminal shows now; `otherwise` while nothing is pulled. */
  text(otherwise: string): ProgressText {
    return this.#latest ? pullLines(this.#latest, this.#call.errorLook.width) : otherwise;
  }

  /** The pull is over: what comes now is something else. */
  end(): void {
    this.#latest = null;
  }
}
