// The background process of a workspace: when it starts and when it ends, and that it leaves nothing behind.

import { spawn } from 'node:child_process';
import {
  cpSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import * as z from 'zod';
import { quoted } from '../../packages/cli/src/arguments/command-arguments.ts';
import { BIN, Bench } from '../cli/bench.ts';
import type { Ended, Given } from '../cli/bench.ts';
import { places } from './served-bench.ts';
import type { Sections } from './served-bench.ts';

// Only for what hangs, on the slowest machine.
const WAIT_MS = 60_000;
// Beyond the sixteen that Node looks at: so are those of a shell’s `<(…)`.
const INHERITED = 20;

const statusSchema = z.looseObject({
  state: z.enum(['ready', 'running', 'silent', 'not running']),
  reason: z.string(),
  server: z.looseObject({ pid: z.number(), background: z.boolean(), sandboxes: z.array(z.unknown()) }).nullable(),
});
type ServeStatus = z.infer<typeof statusSchema>;

const pause = (ms: number): Promise<void> => new Promise(resolve => void setTimeout(resolve, ms));

async function until(what: string, isSo: () => boolean | Promise<boolean>): Promise<void> {
  const end = performance.now() + WAIT_MS;
  while (!(await isSo())) {
    if (performance.now() > end) throw new Error(`it never came to be: ${what}`);
    await pause(50);
  }
}

function isAlive(pid: number): boolean {
  try {
    return !/\) Z /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
  } catch {
    return false;
  }
}

/** A bench at which nobody says `CI`, as at a person’s terminal. */
class Desk implements AsyncDisposable {
  readonly bench: Bench;
  readonly #config: Sections;

  private constructor(bench: Bench, config: Sections) {
    this.bench = bench;
    this.#config = config;
  }

  static async at({ socket, config }: (typeof places)[number]): Promise<Desk> {
    const bench = await Bench.at({ socket });
    const desk = new Desk(bench, config);
    await desk.configure({});
    return desk;
  }

  /** What the user’s file says besides. */
  configure(sections: Sections): Promise<void> {
    return this.bench.configure({ ...this.#config, ...sections });
  }

  call(argv: readonly string[], given: Given = {}): Promise<Ended> {
    return this.bench.call(argv, { ...given, env: { CI: undefined, ...given.env } });
  }

  run(given?: Given): Promise<Ended> {
    return this.call(['run', '--', 'true'], given);
  }

  async status(given?: Given): Promise<ServeStatus> {
    const { stdout } = await this.call(['serve', 'status', '--json'], given);
    return statusSchema.parse(JSON.parse(stdout.toString()));
  }

  /** Two commands, and the process that they leave; waits until a sandbox is warm. */
  async started(given?: Given): Promise<number> {
    for (let commands = 0; commands < 2; commands++) await this.#succeeds(given);
    let pid = 0;
    await until('a background process with a warm sandbox', async () => {
      const { state, server } = await this.status(given);
      pid = server?.pid ?? 0;
      return state === 'ready';
    });
    return pid;
  }

  /** Whether no command leaves a process, however many there are. */
  async startsNone(given?: Given): Promise<string> {
    for (let commands = 0; commands < 2; commands++) await this.#succeeds(given);
    // A process that was started would be there by now, or be found by the next look.
    await pause(500);
    const { state, reason } = await this.status(given);
    const processes = this.processes();
    if (state !== 'not running' || processes.length > 0) throw new Error(`${state}: ${processes.join(', ')}`);
    return reason;
  }

  async #succeeds(given?: Given): Promise<void> {
    const { status, stderr } = await this.run(given);
    if (status !== 0) throw new Error(`a command ended with ${status}: ${stderr}`);
  }

  /** The processes that serve something of this bench. */
  processes(): number[] {
    return readdirSync('/proc').flatMap(name => {
      try {
        const words = readFileSync(`/proc/${name}/cmdline`, 'utf8').split('\0');
        const isOurs = words.includes('--background') && words.some(word => word.startsWith(`${this.top}/`));
        return isOurs && isAlive(Number(name)) ? [Number(name)] : [];
      } catch {
        return [];
      }
    });
  }

  get top(): string {
    return join(this.bench.workspace, '..');
  }

  get runtime(): string {
    return join(this.bench.env['XDG_RUNTIME_DIR'] ?? '', 'acode');
  }

  get sockets(): string[] {
    return readdirSync(this.runtime).filter(name => name.endsWith('.sock'));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const pid of this.processes()) process.kill(pid, 'SIGTERM');
    await until('the end of every process', () => this.processes().length === 0);
    await this.bench[Symbol.asyncDispose]();
  }
}

// On an engine, where there is one: what runs on this host itself ends with its parent anyway.
describe.each(places.slice(-1))('the background process on $name', place => {
  let desk: Desk;

  beforeEach(async () => {
    desk = await Desk.at(place);
  });

  afterEach(async () => {
    await desk[Symbol.asyncDispose]();
  });

  const nothingLeft = async (): Promise<void> => {
    if (place.name === 'bubblewrap') return;
    await until('no sandbox', async () => (await desk.bench.left()).length === 0);
    await until('no owner', () => readdirSync(join(desk.runtime, 'owners')).length === 0);
  };

  it('starts when the second command has ended and not the first, serves the third, and ends when told to', async () => {
    expect((await desk.run()).status).toBe(0);
    await pause(500);
    expect(await desk.status()).toMatchObject({
      state: 'not running',
      reason: 'it starts after the next command',
    });
    expect(desk.processes()).toEqual([]);
    const pid = await desk.started();
    expect(desk.processes()).toEqual([pid]);
    const { stdout } = await desk.call(['run', '--json', '--', 'echo', 'hi']);
    expect(JSON.parse(stdout.toString())).toMatchObject({ warm: true, stdout: 'hi\n' });
    expect(await desk.call(['serve', 'status'])).toMatchObject({ status: 0, stderr: '' });
    const stopped = await desk.call(['serve', 'stop']);
    expect(stopped.stdout.toString()).toContain(`(process ${pid})`);
    expect(stopped.status).toBe(0);
    expect(isAlive(pid)).toBe(false);
    expect(desk.sockets).toEqual([]);
    await nothingLeft();
    expect((await desk.call(['serve', 'status'])).status).toBe(1);
    expect((await desk.call(['serve', 'stop'])).stdout.toString()).toContain('No server runs');
  });

  it('that is killed leaves nothing, and two further commands start another', async () => {
    const first = await desk.started();
    process.kill(first, 'SIGKILL');
    await nothingLeft();
    expect(await desk.run()).toMatchObject({ status: 0, stderr: '' });
    expect(await desk.started()).not.toBe(first);
  });

  it('is ended by `acode uninstall --purge`, which then finds nothing that lives', async () => {
    const pid = await desk.started();
    // Without the engine, which other tests use at the same time: what is shared there would go too.
    const everything = ['uninstall', '--purge', '--force', '--with-audit', '--with-config'];
    const { status, stderr, stdout } = await desk.call([...everything, '--socket', '/nonexistent/docker.sock']);
    expect({ status, stderr, stdout: stdout.toString() }).toMatchObject({ status: 0, stderr: '' });
    expect(isAlive(pid)).toBe(false);
    expect(existsSync(desk.runtime)).toBe(false);
  });

  it('lives on when a client of its is killed, and of that command nothing is left', async () => {
    const pid = await desk.started();
    const { child, ended } = desk.bench.start(['run', 'echo up; exec sleep 600'], { env: { CI: undefined } });
    await new Promise(resolve => child.stdout?.once('data', resolve));
    child.kill('SIGKILL');
    await ended;
    await until('an idle server', async () => ((await desk.status()).server?.['commands'] ?? 1) === 0);
    expect(isAlive(pid)).toBe(true);
    expect((await desk.call(['serve', 'stop'])).status).toBe(0);
    await nothingLeft();
  });
});

describe('the background process', () => {
  const [place] = places;
  let desk: Desk;

  beforeEach(async () => {
    if (!place) throw new Error('there is no place to run commands');
    desk = await Desk.at(place);
  });

  afterEach(async () => {
    await desk[Symbol.asyncDispose]();
  });

  const gone = (pid: number): Promise<void> => until('its end', () => !isAlive(pid));

  it('is in a session of its own, in no directory of anybody’s, with nothing of what the command was given', async () => {
    const env = { CI: undefined, EDITOR: 'vi', COLUMNS: '80', ACODE_TEST: 'x' };
    await desk.run({ env });
    const between = Array.from({ length: INHERITED - 3 }, () => 'ignore' as const);
    const child = spawn(process.execPath, [BIN, 'run', '--', 'true'], {
      cwd: desk.bench.workspace,
      env: { ...desk.bench.env, ...env },
      stdio: ['ignore', 'pipe', 'pipe', ...between, 'pipe'],
    });
    // All of them come to their end, though the process lives.
    const given = [1, 2, INHERITED].map(at => child.stdio[at]);
    await Promise.all(
      given.map(stream => new Promise(resolve => stream?.once('close', resolve).on('data', () => undefined))),
    );
    let pid = 0;
    await until('a process', async () => (pid = (await desk.status({ env })).server?.pid ?? 0) > 0);
    const read = (name: string): string => readFileSync(`/proc/${pid}/${name}`, 'utf8');
    const [, , , group, session] = read('stat')
      .slice(read('stat').lastIndexOf(')') - 2)
      .split(' ');
    expect([group, session]).toEqual([String(pid), String(pid)]);
    const names = read('environ')
      .split('\0')
      .map(entry => entry.split('=')[0]);
    expect(new Set(names.filter(Boolean))).toEqual(
      new Set(['ACODE_TEST', 'DOCKER_HOST', 'HOME', 'PATH', 'XDG_CONFIG_HOME', 'XDG_RUNTIME_DIR', 'XDG_STATE_HOME']),
    );
    expect(lstatSync(`/proc/${pid}/cwd/.`).ino).toBe(lstatSync('/.').ino);
  });

  it('is not started where CI is set, nor where the user, or the repository, says never', async () => {
    expect(await desk.startsNone({ env: { CI: '1' } })).toContain('CI is set');
    await desk.configure({ serve: 'never' });
    expect(await desk.startsNone()).toMatch(/sandbox\.serve is never \(.*config\.yml:\d+/);
    await desk.configure({ serve: 'always' });
    await desk.bench.repositoryFile('sandbox: { serve: never }\n');
    expect(await desk.startsNone()).toMatch(/sandbox\.serve is never \(\.agent\/config\.yml:1/);
    // The control: without the repository’s word, one command is enough.
    rmSync(join(desk.bench.workspace, '.agent'), { recursive: true });
    await desk.run();
    await until('a process', async () => (await desk.status()).server !== null);
  });

  it('is not switched on by a repository', async () => {
    await desk.bench.repositoryFile('sandbox: { serve: always }\n');
    const { status, stderr } = await desk.run();
    expect(status).toBe(125);
    expect(stderr).toContain('sandbox.serve');
  });

  it('ends at the next command once the user says never, which then runs by itself', async () => {
    const pid = await desk.started();
    await desk.configure({ serve: 'never' });
    const { stdout } = await desk.call(['run', '--json', '--', 'true']);
    expect(JSON.parse(stdout.toString())).toMatchObject({ warm: false, exitCode: 0 });
    await gone(pid);
  });

  it('ends when nobody uses it', async () => {
    const env = { ACODE_SERVE_IDLE_SECONDS: '2' };
    await desk.run({ env });
    await desk.run({ env });
    // Not asked by a command: on a busy machine that could take longer than it lives.
    let [pid = 0] = desk.processes();
    await until('a process', () => (pid = pid || (desk.processes()[0] ?? 0)) > 0);
    await gone(pid);
    expect(desk.sockets).toEqual([]);
  });

  it('ends when its workspace is removed, and when another directory is in its place', async () => {
    const { workspace } = desk.bench;
    const first = await desk.started();
    rmSync(workspace, { recursive: true });
    await gone(first);
    expect(desk.sockets).toEqual([]);
    mkdirSync(join(workspace, '.git'), { recursive: true });
    const second = await desk.started();
    renameSync(workspace, `${workspace}.old`);
    mkdirSync(join(workspace, '.git'), { recursive: true });
    await gone(second);
    expect(desk.sockets).toEqual([]);
  });

  it('ends when acode itself is replaced, since it would load what belongs to another version', async () => {
    const installed = join(desk.top, 'installed');
    const entry = join(installed, 'bin', 'acode.js');
    cpSync(dirname(BIN), dirname(entry), { recursive: true });
    cpSync(join(dirname(BIN), '..', 'package.json'), join(installed, 'package.json'));
    const run = (): Promise<unknown> => {
      const env = { ...desk.bench.env, CI: undefined };
      const child = spawn(process.execPath, [entry, 'run', '--', 'true'], { cwd: desk.bench.workspace, env });
      return new Promise(resolve => child.once('exit', resolve));
    };
    await run();
    await run();
    await until('a process', async () => (await desk.status()).server !== null);
    const [pid = 0] = desk.processes();
    // The control: it lives on while nothing changes.
    await pause(1500);
    expect(isAlive(pid)).toBe(true);
    cpSync(BIN, `${entry}.new`);
    renameSync(`${entry}.new`, entry);
    await gone(pid);
  });

  it('ends when its socket is replaced, and leaves what is there now', async () => {
    const pid = await desk.started();
    const path = join(desk.runtime, desk.sockets[0] ?? '');
    rmSync(path);
    const other = createServer(client => client.destroy()).listen(path);
    await gone(pid);
    expect(existsSync(path)).toBe(true);
    await new Promise(resolve => other.close(resolve));
  });

  it('is one for each workspace, and lets `acode serve` say that it is there', async () => {
    const first = await desk.started();
    const cwd = join(desk.top, 'other');
    mkdirSync(join(cwd, '.git'), { recursive: true });
    writeFileSync(join(cwd, 'mine'), '');
    const second = await desk.started({ cwd });
    expect(second).not.toBe(first);
    expect((await desk.call(['run', 'ls'], { cwd })).stdout.toString()).toBe('mine\n');
    const { status, stderr } = await desk.call(['serve']);
    expect(status).toBe(125);
    expect(stderr).toMatch(/ACODE-SBX-023[\s\S]*acode serve stop/);
    // Beside each other, each ends alone.
    expect((await desk.call(['serve', 'stop'], { cwd })).status).toBe(0);
    expect([isAlive(first), isAlive(second)]).toEqual([true, false]);
  });

  it('is announced once on a terminal, and nowhere else', async () => {
    const line = [process.execPath, BIN, 'run', '--', 'true'].map(quoted).join(' ');
    const atTerminal = async (): Promise<string> => {
      const child = spawn('/usr/bin/script', ['-q', '-e', '-f', '-c', `exec ${line}`, '/dev/null'], {
        cwd: desk.bench.workspace,
        env: { ...desk.bench.env, CI: undefined, SHELL: '/bin/sh', TERM: 'xterm' },
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      let text = '';
      child.stdout.on('data', (chunk: Buffer) => (text += chunk.toString()));
      await new Promise(resolve => child.once('close', resolve));
      return text;
    };
    await desk.started();
    await desk.call(['serve', 'stop']);
    expect(await desk.run()).toMatchObject({ status: 0, stderr: '' });
    expect(await atTerminal()).toMatch(
      /a background process now keeps a sandbox warm.*acode serve stop.*serve: never/s,
    );
    await until('a process', async () => (await desk.status()).server !== null);
    await desk.call(['serve', 'stop']);
    await desk.run();
    expect(await atTerminal()).not.toContain('background process');
  });
});
