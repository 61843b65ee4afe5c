// What the command says itself stands on a line of its own wherever its output and its errors are seen together.

import { expect, it } from 'vitest';
import { Call } from './call.ts';
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
    words: null,
    called: 'acode run',
    runCli: () => Promise.resolve(0),
  };
  const call = new Call({ ...parts, interruption });
  await call.stdout.write('no end of line');
  await call.say('acode: x\n');
  expect(stderr.text).toBe(expected);
});
