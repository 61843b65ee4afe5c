import { expect, it } from 'vitest';
import { decodePiece, encodePiece } from '../tasks/log-pieces.ts';
import { fitted, isHostTrouble, stateOf } from './outcome-of.ts';

it('cuts output at whole characters, and counts what it dropped', () => {
  const result = { stdout: 'aé', stderr: 'short', dropped: { stdout: 1, stderr: 0 }, denials: [], riskyChanges: [] };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only these fields are read
  expect(fitted(result as unknown as Parameters<typeof fitted>[0], 2)).toMatchObject({
    stdout: 'a',
    stderr: 'sh',
    dropped: { stdout: 3, stderr: 3 },
  });
});

it('knows trouble of the machine from a refusal of the task', () => {
  expect(['ACODE-CTN-008', 'ACODE-SBX-018', 'ACODE-SBX-001'].every(code => isHostTrouble({ code }))).toBe(true);
  expect(['ACODE-SBX-016', 'ACODE-SBX-010', 'ACODE-FLT-012'].some(code => isHostTrouble({ code }))).toBe(false);
  expect(stateOf({ timedOut: true, exitCode: null })).toBe('timed_out');
  expect(stateOf({ timedOut: false, exitCode: 0 })).toBe('succeeded');
  expect(stateOf({ timedOut: false, exitCode: null })).toBe('failed');
});

it('reads pieces of a log as they were written, and no damaged one', () => {
  const chunks = [
    { stream: 1 as const, bytes: Buffer.from('out') },
    { stream: 2 as const, bytes: Buffer.from('') },
  ];
  expect(decodePiece(encodePiece(chunks)).map(({ stream, bytes }) => [stream, Buffer.from(bytes).toString()])).toEqual([
    [1, 'out'],
    [2, ''],
  ]);
  expect(decodePiece(Buffer.from([1, 0xff, 0xff, 0xff, 0xff, 1]))).toEqual([]);
  expect(decodePiece(Buffer.from([9, 0, 0, 0, 0]))).toEqual([]);
});
