// A terminal’s output is whole for its reader beyond any limit, and waits for a slow one.

import { describe, expect, it } from 'vitest';
import { LiveCapture } from './capture.ts';

const block = Buffer.alloc(64 * 1024, 'x');

describe('LiveCapture', () => {
  it('gives its reader everything, and keeps the head for the result', async () => {
    const capture = new LiveCapture(10);
    capture.push(Buffer.from('before '));
    const read = (async () => {
      let text = '';
      for await (const chunk of capture.follow()) text += Buffer.from(chunk).toString();
      return text;
    })();
    for (const word of ['one ', 'two ', 'three']) {
      await capture.room();
      capture.push(Buffer.from(word));
    }
    capture.end();
    expect(await read).toBe('before one two three');
    expect(capture.bytes().toString()).toBe('before one');
    expect(capture.dropped).toBe(10);
  });

  it('holds the writer back while the reader is behind, and lets go when it leaves', async () => {
    const capture = new LiveCapture(0);
    const reader = capture.follow();
    const first = reader.next();
    for (let count = 0; count < 6; count++) capture.push(block);
    await first;
    let roomy = false;
    const room = capture.room().then(() => (roomy = true));
    await new Promise(resolve => setTimeout(resolve, 10));
    expect(roomy).toBe(false);
    await reader.return();
    await room;
    expect(roomy).toBe(true);
  });

  it('has room without a reader', async () => {
    const capture = new LiveCapture(0);
    for (let count = 0; count < 20; count++) capture.push(block);
    await capture.room();
    capture.end();
    expect(await capture.follow().next()).toMatchObject({ done: true });
  });
});
