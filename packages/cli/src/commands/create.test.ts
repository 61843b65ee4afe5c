// Messages about when a persistent sandbox expires.

import { describe, expect, it } from 'vitest';
import { lookOf } from '../terminal/look.ts';
import { Output } from '../terminal/output.ts';
import { Recorder } from '../test-process.ts';
import { expiryLine, timeLine } from './create.ts';

const now = Date.parse('2026-01-02T03:04:05Z');
const errorLook = lookOf(new Output(new Recorder()), { env: {}, now: () => now }, false);
const line = (milliseconds: number, isMaximum: boolean): string =>
  expiryLine({ errorLook }, new Date(now + milliseconds), isMaximum);

describe('the lifetime of a persistent sandbox', () => {
  it('is what was asked for, and can be changed', () => {
    expect(line(5_399_000, false)).toBe(
      'acode: it expires in 1 hour 30 minutes, at 2026-01-02T04:34:04Z; `acode sandbox keep` extends that, `acode sandbox kill` removes it.\n',
    );
  });

  it('is how long a command in it may run, unless a limit is set', () => {
    expect(timeLine({ errorLook }, null)).toContain('until the sandbox ends');
    expect(timeLine({ errorLook }, 30_000)).toContain('may take 30 s at most');
  });

  it('is not said to be more where it is the most already', () => {
    expect(line(86_399_000, true)).toBe(
      'acode: it expires in 1 day, at 2026-01-03T03:04:04Z; `acode sandbox kill` removes it.\n',
    );
  });
});
