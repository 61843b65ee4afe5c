import { describe, expect, it } from 'vitest';
import { decodeFrame, encodeFrame } from '../engine/frame.ts';
import { makeKeys, signed } from '../tasks/signature.ts';
import { MAX_AGE_MS, admittedCall, signedAnswer, signedCall, verifiedAnswer } from './protocol.ts';
import type { ExecCall } from './protocol.ts';

const [acme, other, worker] = [makeKeys(), makeKeys(), makeKeys()];
const box = { tenant: 'acme', id: 'box' };
const number = '00000000-0000-4000-8000-000000000000';
const call: ExecCall = { verb: 'write', number, at: 0, end: false };
const bytes = Buffer.from('input');
const admitted = (message: Uint8Array, sandbox = box, now = Date.now()): unknown =>
  admittedCall(sandbox, message, { keys: [acme.publicKey], now });

describe('a call to a sandbox', () => {
  it('is admitted if a key of its tenant has signed exactly this one, and else refused', () => {
    const message = signedCall(box, call, { keys: acme, bytes });
    expect(admitted(message)).toEqual({ call, bytes });
    const frame = decodeFrame(message);
    const forged = { publicKey: acme.publicKey, privateKey: other.privateKey };
    const refused: [Uint8Array, { tenant: string; id: string }?, number?][] = [
      [signedCall(box, call, { keys: other, bytes })],
      [signedCall(box, call, { keys: forged, bytes })],
      // Signed for another purpose, or not at all.
      [encodeFrame({ envelope: signed('task', JSON.stringify({ ...box, call }), acme) })],
      [encodeFrame({ call })],
      [Buffer.from('nothing')],
      // For another sandbox, or of another tenant.
      [message, { tenant: 'acme', id: 'other' }],
      [message, { tenant: 'other', id: 'box' }],
      // With other bytes.
      [encodeFrame(Object(frame?.value), Buffer.from('other'))],
      [encodeFrame(Object(frame?.value))],
      // Long ago, or in the future.
      [message, box, Date.now() + 2 * MAX_AGE_MS],
      [message, box, Date.now() - 2 * MAX_AGE_MS],
    ];
    for (const [at, [tried, ...of]] of refused.entries())
      expect(() => admitted(tried, ...of), String(at)).toThrow(expect.objectContaining({ code: 'ACODE-FLT-052' }));
  });
});

describe('an answer of a sandbox', () => {
  const message = signedCall(box, call, { keys: acme, bytes });
  const answer = signedAnswer(message, { value: { value: { taken: 5 } }, bytes }, worker);
  const read = (of: Uint8Array, to = message, workers: string[] | undefined = [worker.publicKey]): unknown =>
    verifiedAnswer('box', to, { answer: of, workers });

  it('is taken if a worker that is known has signed it for this call, and else refused', () => {
    expect(read(answer)).toEqual({ answer: { value: { taken: 5 } }, bytes });
    const value = Object(decodeFrame(answer)?.value);
    const refused: [Uint8Array, Uint8Array?][] = [
      [signedAnswer(message, { value: { value: {} } }, other)],
      [answer, signedCall(box, call, { keys: acme, bytes: Buffer.from('another call') })],
      [encodeFrame(value, Buffer.from('other'))],
      [encodeFrame({ value: {} })],
      [Buffer.alloc(0)],
    ];
    for (const [at, [tried, to]] of refused.entries())
      expect(() => read(tried, to), String(at)).toThrow(expect.objectContaining({ code: 'ACODE-FLT-053' }));
  });

  it('is taken of any worker where the client names none, and still only for its call', () => {
    const signedByAny = signedAnswer(message, { value: { value: {} } }, other);
    expect(verifiedAnswer('box', message, { answer: signedByAny, workers: undefined })).toMatchObject({
      answer: { value: {} },
    });
    const another = signedCall(box, call, { keys: acme });
    expect(() => verifiedAnswer('box', another, { answer: signedByAny, workers: undefined })).toThrow(
      expect.objectContaining({ code: 'ACODE-FLT-053' }),
    );
  });
});
