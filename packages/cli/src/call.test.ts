// What the command says itself stands on a line of its own wherever its output and its errors are seen together.

import { expect, it } from 'vitest';
import fc from 'fast-check';
import { Call, jsonPieces } from './call.ts';
import { Interruption } from './interruption.ts';
import { Output } from './terminal/output.ts';
import { Recorder, testIo } from './test-process.ts';

it.each([
  [true, false, '\nacode: x\n'],
  [false, true, '\nacode: x\n'],
  [false, false, 'acode: x\n'],
])('on terminals %j, into one pipe %j: %j', async (terminal, outputsAreOne, expected) => {
  const [stdout, stderr] = [new Recorder(terminal), new Recorder(terminal)];
  const io = testIo({ stdout, stderr, outputsAreOne });
  using interruption = new Interruption(io.signals, () => undefined);
  const options = { json: false, verbose: false, color: false };
  const parts = {
    io,
    stdout: new Output(stdout),
    stderr: new Output(stderr),
    options,
    before: [],
    argv: null,
    called: 'acode run',
    runCli: () => Promise.resolve(0),
  };
  const call = new Call({ ...parts, interruption });
  await call.stdout.write('no end of line');
  await call.say('acode: x\n');
  expect(stderr.text).toBe(expected);
});

const text = (value: object) => [...jsonPieces('acode.run/1', value)].join('');

it('is one line with the schema first', () => {
  expect(text({ a: 1, b: undefined, c: null, d: [], e: {} })).toBe(
    '{"schema":"acode.run/1","a":1,"c":null,"d":[],"e":{}}\n',
  );
});

it('has bytes as base64', () => {
  expect(JSON.parse(text({ bytes: Uint8Array.of(0, 255) }))).toMatchObject({ bytes: 'AP8=' });
});

it('says what JSON.stringify says', () => {
  fc.assert(
    fc.property(fc.dictionary(fc.string(), fc.jsonValue()), value => {
      const { schema: _, ...rest } = value;
      expect(JSON.parse(text(rest))).toEqual(JSON.parse(JSON.stringify({ schema: 'acode.run/1', ...rest })));
    }),
  );
});

it('keeps a long text whole, also where a character stands on a cut', () => {
  const long = `x${'🙂'.repeat(1024 ** 2)}`;
  expect([...jsonPieces('s', { long })].length).toBeGreaterThan(3);
  expect(JSON.parse(text({ long }))).toHaveProperty('long', long);
});
