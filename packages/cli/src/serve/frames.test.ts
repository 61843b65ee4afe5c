// Frames arrive as they were sent, however the bytes are cut on the way.

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { FrameReader, frame } from './frames.ts';

describe('frames', () => {
  it('are the same after any cutting', () => {
    const sent = fc.array(
      fc.record({ kind: fc.integer({ min: 0, max: 255 }), body: fc.uint8Array({ maxLength: 40 }) }),
    );
    fc.assert(
      fc.property(sent, fc.array(fc.integer({ min: 1, max: 30 })), (frames, cuts) => {
        const bytes = Buffer.concat(frames.map(({ kind, body }) => frame(kind, body)));
        const reader = new FrameReader();
        const read = [];
        for (let at = 0, cut = 0; at < bytes.length; cut++) {
          const next = at + (cuts[cut % Math.max(1, cuts.length)] ?? bytes.length);
          read.push(...reader.push(bytes.subarray(at, next)));
          at = next;
        }
        expect(read.map(({ kind, body }) => ({ kind, body: [...body] }))).toEqual(
          frames.map(({ kind, body }) => ({ kind, body: [...body] })),
        );
      }),
    );
  });

  it('have an end: what announces more than anybody sends is refused', () => {
    const head = Buffer.from([1, 0xff, 0xff, 0xff, 0xff]);
    expect(() => new FrameReader().push(head)).toThrow(/a frame of/);
  });
});
