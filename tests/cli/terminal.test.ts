// What a person at a terminal sees: colours, progress, Ctrl-C, and output that cannot drive the terminal.

import { spawn } from 'node:child_process';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { quoted } from '../../packages/cli/src/arguments/command-arguments.ts';
import { mainEngine, withoutEngines } from '../support/engines.ts';
import { BIN, Bench } from './bench.ts';

interface Seen {
  readonly status: number | null;
  readonly text: string;
}

// `script` gives the command a terminal of its own; what is typed goes to its standard input.
function atTerminal(
  bench: Bench,
  argv: readonly string[],
  given: { env?: Record<string, string>; typeAfter?: readonly [seen: string, keys: string] } = {},
): Promise<Seen> {
  const line = ['exec', process.execPath, BIN, ...argv].map(quoted).join(' ');
  const child = spawn('/usr/bin/script', ['-q', '-e', '-f', '-c', line, '/dev/null'], {
    cwd: bench.workspace,
    env: { ...bench.env, SHELL: '/bin/sh', TERM: 'xterm', ...given.env },
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  let text = '';
  let typed = false;
  child.stdout.on('data', (chunk: Buffer) => {
    text += chunk.toString();
    const [seen, keys] = given.typeAfter ?? [];
    if (typed || seen === undefined || !text.includes(seen)) return;
    typed = true;
    child.stdin.write(keys);
  });
  return new Promise(resolve =>
    child.once('close', status => resolve({ status, text: text.replaceAll('\r\n', '\n') })),
  );
}

// What stays on the screen: on a slow machine there was progress before, and it was erased.
function left(text: string): string {
  return text
    .split('\n')
    .map(line => line.split('\r\u001b[2K').at(-1))
    .join('\n');
}

describe.skipIf(withoutEngines)('at a terminal', () => {
  let bench: Bench;

  beforeAll(async () => {
    bench = await Bench.at(mainEngine);
    // What other tests leave on the engine is not this one’s to tell of.
    await bench.configure({ containers: { cleanup_orphans: false } });
  });

  afterAll(async () => {
    await bench[Symbol.asyncDispose]();
  });

  it('Ctrl-C ends the run with 130 and leaves nothing', async () => {
    const { status, text } = await atTerminal(bench, ['run', 'echo started; sleep 60'], {
      typeAfter: ['started', '\u0003'],
    });
    expect(status).toBe(130);
    // What a stopped command left is scanned by a process that goes on.
    expect(text).toMatch(/acode: stopped by Ctrl-C: the command was killed\.\n$/);
    expect(await bench.left()).toEqual([]);
  });

  it('a command reads the end of its input at once', async () => {
    const { status, text } = await atTerminal(bench, ['run', 'cat; echo done']);
    expect({ status, text: left(text) }).toEqual({ status: 0, text: 'done\n' });
  });

  it('a program that asks, reads nothing and prints nothing is followed by how to give it a terminal', async () => {
    const env = { NO_COLOR: '1' };
    // On a busy machine a command may take long once, and is then not taken for one that ended at once.
    const shown = async (...argv: string[]): Promise<string> =>
      left((await atTerminal(bench, argv, { env })).text).replaceAll(/\s+/g, ' ');
    const patient = { timeout: 60_000 };
    await expect
      .poll(() => shown('run', '--', 'cat'), patient)
      .toContain(
        'acode: nothing was printed, and standard input was empty: for a program that asks, add -t: `acode run -t -- cat` ',
      );
    await expect.poll(() => shown('run', '--memory', '256', 'sh'), patient).toContain('`acode run -t … sh`');
    // The control: a program that has nothing to say is done.
    expect(await shown('run', '--', 'true')).toBe('');
    const json = await atTerminal(bench, ['run', '--json', '--', 'cat'], { env });
    expect(json.text).not.toContain('add -t');
  });

  it('a closing line begins on a line of its own', async () => {
    const { text } = await atTerminal(bench, ['run', '--timeout', '2', 'printf open; sleep 600']);
    expect(left(text)).toMatch(/^open\n\S*acode:\S* limit reached: [^]*├▶ code:\S* ACODE-SBX-007/);
  });

  it('a failure is coloured, and is not with NO_COLOR', async () => {
    const argv = ['sandbox', 'inspect', 'nothing'];
    const coloured = await atTerminal(bench, argv);
    const plain = await atTerminal(bench, argv, { env: { NO_COLOR: '1' } });
    expect(coloured.text).toContain('\u001b[31m');
    expect(plain.text).not.toContain('\u001b');
    expect(plain.text).toMatch(/^acode: .*\n├▶ code: ACODE-CTN-012/);
  });

  it('a long wait shows a line, and takes it away again', async () => {
    const hung = createServer(() => undefined);
    const socket = join(bench.workspace, 'hung.sock');
    await new Promise<void>(resolve => hung.listen(socket, resolve));
    const { status, text } = await atTerminal(bench, ['sandbox', 'list', '--socket', socket], {
      typeAfter: ['1 s', '\u0003'],
    });
    hung.close();
    expect(status).toBe(130);
    expect(text).toContain('Asking the engine… 1 s');
    expect(text.lastIndexOf('\r\u001b[2K')).toBeGreaterThan(text.lastIndexOf('Asking'));
  });
});
