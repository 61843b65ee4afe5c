// A question at a terminal: yes only where somebody says so.

import { PassThrough } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { ask, canAsk } from './ask.ts';

function terminal(isTTY = true) {
  const stdin = Object.assign(new PassThrough(), { isTTY });
  const stderr = Object.assign(new PassThrough(), { isTTY });
  return { stdin, stderr };
}

describe('ask', () => {
  it.each([
    ['y\n', true],
    ['  Yes\n', true],
    ['\n', false],
    ['n\n', false],
    ['no, y\n', false],
  ])('takes %j for %j', async (typed, answer) => {
    const io = terminal();
    const asked = ask(io, 'Remove it?', new AbortController().signal);
    io.stdin.write(typed);
    expect(await asked).toBe(answer);
    expect(String(io.stderr.read())).toBe('Remove it? [y/N] ');
  });

  it('takes the end of the input for no', async () => {
    const io = terminal();
    const asked = ask(io, 'Remove it?', new AbortController().signal);
    io.stdin.end();
    expect(await asked).toBe(false);
  });

  it('stops when it is interrupted', async () => {
    const stop = new AbortController();
    const asked = ask(terminal(), 'Remove it?', stop.signal);
    stop.abort(new Error('stopped'));
    await expect(asked).rejects.toThrow('stopped');
  });

  it('can ask at a terminal only', () => {
    expect([canAsk(terminal()), canAsk(terminal(false))]).toEqual([true, false]);
  });
});
