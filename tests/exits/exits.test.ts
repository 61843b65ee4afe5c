// However a process ends that has a sandbox: its status says how, the sandbox goes, the terminal is as it was, nothing is left.

import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { quoted } from '../../packages/cli/src/arguments/command-arguments.ts';
import { BIN, Bench } from '../cli/bench.ts';
import { images, engines, withoutEngines } from '../support/engines.ts';
import { EngineProxy } from '../support/proxy.ts';
import { ownerSocketsIn, reapersIn } from '../support/remains.ts';
import { Terminal } from './terminal.ts';

const PROGRAM = fileURLToPath(new URL('program.mjs', import.meta.url));
const RUN = ['run', '--', 'sh', '-c', 'echo up; exec sleep 600'];
// A sandbox is gone within two seconds of the end of its process; the reaper looks a while longer whether more appears.
const GONE_MS = 2000;
const QUIET_MS = 8000;

interface End {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

// A process that has a sandbox, and how it will end.
interface Held {
  readonly child: ChildProcess;
  readonly end: Promise<End>;
}

const exited = (code: number): End => ({ code, signal: null });
const killed = (signal: NodeJS.Signals): End => ({ code: null, signal });
const pause = (ms: number): Promise<void> => new Promise(resolve => void setTimeout(resolve, ms));

async function held(child: ChildProcess): Promise<Held> {
  const end = new Promise<End>(resolve => child.once('exit', (code, signal) => resolve({ code, signal })));
  const output = child.stdout;
  if (!output) throw new Error('it has no output');
  await Promise.race([
    once(output, 'data'),
    end.then(({ code }) => Promise.reject(new Error(`it ended with ${code}`))),
  ]);
  return { child, end };
}

const viaCommand = (bench: Bench): Promise<Held> => held(bench.start(RUN).child);

const viaLibrary =
  (way: string, seconds = 0) =>
  (bench: Bench): Promise<Held> =>
    held(
      spawn(process.execPath, [PROGRAM, way, images.busybox, String(seconds)], {
        cwd: bench.workspace,
        env: bench.env,
        stdio: ['ignore', 'pipe', 'ignore'],
      }),
    );

interface Row {
  readonly name: string;
  readonly begin: (bench: Bench) => Promise<Held>;
  /** What ends it; without it, it ends by itself. */
  readonly signal?: NodeJS.Signals;
  readonly expected: End;
  /** Whether the process itself takes the sandbox away before it ends. */
  readonly tidy: boolean;
}

const rows: readonly Row[] = [
  { name: 'the command, SIGINT', begin: viaCommand, signal: 'SIGINT', expected: exited(130), tidy: true },
  { name: 'the command, SIGTERM', begin: viaCommand, signal: 'SIGTERM', expected: exited(143), tidy: true },
  { name: 'the command, SIGHUP', begin: viaCommand, signal: 'SIGHUP', expected: exited(129), tidy: true },
  { name: 'the command, SIGQUIT', begin: viaCommand, signal: 'SIGQUIT', expected: exited(131), tidy: true },
  { name: 'the command, SIGKILL', begin: viaCommand, signal: 'SIGKILL', expected: killed('SIGKILL'), tidy: false },
  // The library leaves the signals of a program to the program; by default they end it at once.
  ...(['SIGINT', 'SIGTERM', 'SIGHUP'] as const).map(signal => ({
    name: `a program, ${signal}`,
    begin: viaLibrary('wait'),
    signal,
    expected: killed(signal),
    tidy: false,
  })),
  { name: 'a program, an uncaught exception', begin: viaLibrary('throw'), expected: exited(1), tidy: false },
  { name: 'a program, an unhandled rejection', begin: viaLibrary('reject'), expected: exited(1), tidy: false },
  { name: 'a program, process.exit', begin: viaLibrary('exit'), expected: exited(7), tidy: false },
  { name: 'a program, process.abort', begin: viaLibrary('abort'), expected: killed('SIGABRT'), tidy: false },
  {
    name: 'a program that blocks its event loop, SIGKILL',
    begin: viaLibrary('block', 60),
    signal: 'SIGKILL',
    expected: killed('SIGKILL'),
    tidy: false,
  },
];

describe.skipIf(withoutEngines).each(engines)('an end on $name', engine => {
  let bench: Bench;
  beforeEach(async () => {
    bench = await Bench.at(engine);
    // Asked once before anything is measured: it has to find out under which label.
    await bench.left();
  });
  afterEach(() => bench[Symbol.asyncDispose]());

  const runtime = (): string => bench.env['XDG_RUNTIME_DIR'] ?? 'none';

  async function goneWithin(ms: number): Promise<string[]> {
    const deadline = performance.now() + ms;
    let left = await bench.left();
    while (left.length > 0 && performance.now() < deadline) {
      await pause(20);
      left = await bench.left();
    }
    return left;
  }

  async function quiet(): Promise<void> {
    const remains = (): unknown[] => [...reapersIn(runtime()), ...ownerSocketsIn(runtime())];
    await expect.poll(remains, { timeout: QUIET_MS, interval: 100 }).toEqual([]);
  }

  it.each(rows)('$name: status, sandbox, reaper and socket', async ({ begin, signal, expected, tidy }) => {
    const { child, end } = await begin(bench);
    if (signal) child.kill(signal);
    expect(await end).toEqual(expected);
    expect(await goneWithin(tidy ? 0 : GONE_MS)).toEqual([]);
    await quiet();
  });

  it('would be noticed if it left its sandbox: nobody takes it away where the reaper is killed too', async () => {
    const { child, end } = await viaLibrary('wait')(bench);
    for (const pid of reapersIn(runtime())) process.kill(pid, 'SIGKILL');
    child.kill('SIGKILL');
    await end;
    expect(await goneWithin(GONE_MS)).toHaveLength(1);
    expect(ownerSocketsIn(runtime())).toHaveLength(1);
    expect((await bench.call(['run', '--', 'true'])).status).toBe(0);
    expect(await goneWithin(0)).toEqual([]);
    await quiet();
  });

  it('a program that blocks its event loop is no dead owner: nobody takes its sandbox', async () => {
    const { child, end } = await viaLibrary('block', 60)(bench);
    const before = await bench.left();
    expect(before).toHaveLength(1);
    expect((await bench.call(['run', '--', 'true'])).status).toBe(0);
    expect((await bench.call(['sandbox', 'cleanup', '--force'])).status).toBe(0);
    expect(await bench.left()).toEqual(before);
    child.kill('SIGKILL');
    await end;
    expect(await goneWithin(GONE_MS)).toEqual([]);
    await quiet();
  });

  it('a second SIGINT leaves at once where the first one waits for an engine that does not answer', async () => {
    await using proxy = await EngineProxy.start(engine.socket);
    let removals = 0;
    // The first removal is never answered; the reaper’s, later, is.
    proxy.onRequest(method => {
      if (method !== 'DELETE') return undefined;
      removals += 1;
      return removals === 1 ? 'hang' : undefined;
    });
    const { child } = bench.start(RUN, { env: { DOCKER_HOST: `unix://${proxy.socket}` } });
    const { end } = await held(child);
    child.kill('SIGINT');
    await expect.poll(() => removals).toBe(1);
    // Not as one wish with the first.
    await pause(500);
    expect(child.exitCode).toBeNull();
    const before = performance.now();
    child.kill('SIGINT');
    expect(await end).toEqual(exited(130));
    expect(performance.now() - before).toBeLessThan(500);
    expect(await goneWithin(GONE_MS)).toEqual([]);
    await quiet();
  });

  it('a parent that is killed without a terminal does not take the command with it, nor its sandbox', async () => {
    const line = [process.execPath, BIN, ...RUN].map(quoted).join(' ');
    const shell = spawn('/bin/sh', ['-c', `${line} & echo $! >pid; wait`], {
      cwd: bench.workspace,
      env: bench.env,
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    const { end } = await held(shell);
    const pid = Number(readFileSync(`${bench.workspace}/pid`, 'utf8'));
    shell.kill('SIGKILL');
    expect(await end).toEqual(killed('SIGKILL'));
    expect((await bench.call(['run', '--', 'true'])).status).toBe(0);
    expect(await bench.left()).toHaveLength(1);
    process.kill(pid, 'SIGTERM');
    await expect.poll(() => existsSync(`/proc/${pid}`)).toBe(false);
    expect(await goneWithin(0)).toEqual([]);
    await quiet();
  });

  describe('at a terminal', () => {
    const TRAPPED = 'trap : HUP INT QUIT TERM';
    const command = (): string => [process.execPath, BIN, ...RUN].map(quoted).join(' ');
    const written = (name: string): string => {
      try {
        return readFileSync(`${bench.workspace}/${name}`, 'utf8').trim();
      } catch {
        return '';
      }
    };
    const open = async (line: string): Promise<Terminal> => {
      const terminal = Terminal.open(line, { cwd: bench.workspace, env: bench.env });
      await expect.poll(() => terminal.text, { interval: 20 }).toContain('up');
      return terminal;
    };
    const cursorIsShown = (text: string): boolean => text.lastIndexOf('\u001b[?25l') <= text.lastIndexOf('\u001b[?25h');

    it.each([
      ['Ctrl-C', '\u0003', 130],
      ['Ctrl-\\', '\u001c', 131],
    ])('%s: the terminal is as it was', async (_, key, status) => {
      const terminal = await open(`${TRAPPED}; stty -g >before; ${command()}; echo $? >status; stty -g >after`);
      terminal.type(key);
      await terminal.ended;
      expect(written('status')).toBe(String(status));
      expect(written('before')).not.toBe('');
      expect(written('after')).toBe(written('before'));
      expect(cursorIsShown(terminal.text)).toBe(true);
      expect(await goneWithin(0)).toEqual([]);
      await quiet();
    });

    it('a terminal that is not as it was would be noticed', async () => {
      const terminal = await open(`stty -g >before; echo up; printf '\\033[?25l'; stty raw -echo; stty -g >after`);
      await terminal.ended;
      expect(written('after')).not.toBe(written('before'));
      expect(cursorIsShown(terminal.text)).toBe(false);
    });

    it('its closing ends the command like SIGHUP', async () => {
      const terminal = await open(`(${TRAPPED}; ${command()}; echo $? >status); true`);
      terminal.close();
      await expect.poll(() => written('status'), { interval: 20 }).toBe('129');
      expect(await goneWithin(0)).toEqual([]);
      await quiet();
    });

    it('its shell that is killed takes the command with it like SIGHUP', async () => {
      const terminal = await open(`echo $$ >shell; (${TRAPPED}; ${command()}; echo $? >status) & wait`);
      process.kill(Number(written('shell')), 'SIGKILL');
      await expect.poll(() => written('status'), { interval: 20 }).toBe('129');
      await terminal.ended;
      expect(await goneWithin(0)).toEqual([]);
      await quiet();
    });
  });
});
