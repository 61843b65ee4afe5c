// The shape of E2B’s, over stand-ins for commands and files of ours: what is passed on, what comes back, what is thrown.

import * as fs from 'node:fs/promises';
import { createReadStream, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { afterAll, describe, expect, it, vi } from 'vitest';
import { AcodeError } from '../contract/errors.ts';
import type { RunResult } from '../contract/result.ts';
import type {
  CommandHandle as InnerHandle,
  CommandRequest,
  Commands as InnerCommands,
  FileChange,
  Files,
} from '../contract/sandbox.ts';
import { CommandExitError } from './command-handle.ts';
import { Commands, Pty } from './commands.ts';
import {
  FileNotFoundError,
  InvalidArgumentError,
  NotEnoughSpaceError,
  NotFoundError,
  RateLimitError,
  SandboxError,
  SandboxNotFoundError,
  TimeoutError,
  translated,
} from './errors.ts';
import { Filesystem, permissionsOf } from './filesystem.ts';

const RESULT: RunResult = {
  exitCode: 0,
  stdout: '',
  stderr: '',
  dropped: { stdout: 0, stderr: 0 },
  timedOut: false,
  oomKilled: false,
  denials: [],
  sandboxId: 'a',
  level: 'docker',
  durationMs: 1,
  timings: { queueMs: 0, obtainMs: 0, runMs: 1 },
  warm: true,
  riskyChanges: [],
  changed: { executable: 0, hidden: 0, configuration: 0, source: 0, other: 0 },
  scan: 'complete',
  correlationId: 'b',
};

const write = vi.fn<(data: Uint8Array | string) => Promise<void>>(async () => undefined);
const kill = vi.fn<(signal?: string) => Promise<void>>(async () => undefined);

function handle(output: readonly string[], result: Partial<RunResult>): InnerHandle {
  const ended = Promise.resolve({ ...RESULT, ...result });
  return {
    pid: 7,
    ports: [],
    stdout: Readable.from(output.map(text => Buffer.from(text, 'latin1'))),
    stderr: Readable.from([Buffer.from('err')]),
    result: ended,
    wait: () => ended,
    write,
    closeStdin: async () => undefined,
    kill,
    disconnect: async () => undefined,
    [Symbol.asyncDispose]: async () => undefined,
  };
}

function commandsOf(inner: InnerHandle): {
  readonly commands: Commands;
  readonly asked: CommandRequest[];
  readonly pty: Pty;
} {
  const asked: CommandRequest[] = [];
  function run(
    command: string | readonly string[],
    request?: CommandRequest & { background?: false },
  ): Promise<RunResult>;
  function run(
    command: string | readonly string[],
    request: CommandRequest & { background: true },
  ): Promise<InnerHandle>;
  async function run(
    _: unknown,
    request: CommandRequest & { background?: boolean } = {},
  ): Promise<RunResult | InnerHandle> {
    asked.push(request);
    return request.background === true ? inner : inner.result;
  }
  const stand: InnerCommands = {
    run,
    spawn: async () => inner,
    terminal: async (_, request = {}) => {
      asked.push(request);
      return { ...inner, resize: async () => undefined };
    },
    list: async () => [{ pid: 7, command: 'sleep 1', cwd: '.', startedAt: '' }],
    connect: async pid => {
      if (pid === 7) return inner;
      throw new AcodeError('ACODE-SBX-017', { field: 'pid', reason: `no command of this process runs as ${pid}` });
    },
  };
  return { commands: new Commands(() => stand), asked, pty: new Pty(() => stand) };
}

describe('commands', () => {
  it('give a result, with output in whole characters as it comes', async () => {
    const { commands, asked } = commandsOf(handle(['caf\u00c3', '\u00a9\n'], {}));
    const seen: string[] = [];
    const result = await commands.run('echo', { onStdout: data => void seen.push(data), envs: { A: '1' }, cwd: 'sub' });
    expect(result).toEqual({ exitCode: 0, stdout: 'café\n', stderr: 'err' });
    expect(seen).toEqual(['caf', 'é\n']);
    expect(asked).toEqual([{ background: true, timeoutMs: 60_000, env: { A: '1' }, cwd: 'sub', stdin: '' }]);
  });

  it('throw what is also the result where the status is not 0', async () => {
    const { commands } = commandsOf(handle(['out'], { exitCode: 3 }));
    const error = await commands.run('false').catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(CommandExitError);
    expect(error).toMatchObject({ exitCode: 3, stdout: 'out', stderr: 'err', error: 'exit status 3' });
    expect(error).toBeInstanceOf(SandboxError);
  });

  it('throw where their time was over, and have none with 0', async () => {
    const { commands, asked } = commandsOf(handle([], { exitCode: null, timedOut: true }));
    await expect(commands.run('sleep', { timeoutMs: 0 })).rejects.toThrow(TimeoutError);
    expect(asked[0]).not.toHaveProperty('timeoutMs');
  });

  it('go on in the background, with their input open where that was asked for', async () => {
    const { commands, asked } = commandsOf(handle(['x'], {}));
    const running = await commands.run('cat', { background: true, stdin: true });
    expect(asked[0]).not.toHaveProperty('stdin');
    await running.sendStdin('in');
    expect(write).toHaveBeenCalledWith('in');
    expect(await running.wait()).toMatchObject({ stdout: 'x' });
    expect([running.exitCode, running.stdout, running.pid, await running.kill()]).toEqual([0, 'x', 7, false]);
  });

  it('are listed, found and killed by their processes', async () => {
    const { commands } = commandsOf(handle([], {}));
    expect(await commands.list()).toEqual([{ pid: 7, cmd: '/bin/sh', args: ['-c', 'sleep 1'], envs: {}, cwd: '.' }]);
    expect([await commands.kill(7), await commands.kill(8)]).toEqual([true, false]);
    expect(kill).toHaveBeenCalledWith('SIGKILL');
    await expect(commands.connect(8)).rejects.toThrow(NotFoundError);
    expect((await commands.connect(7)).pid).toBe(7);
  });

  it('run as the one user there is', async () => {
    const { commands, pty } = commandsOf(handle([], {}));
    await expect(commands.run('id', { user: 'root' })).rejects.toThrow(InvalidArgumentError);
    await expect(commands.run('id', { user: 'user' })).resolves.toMatchObject({ exitCode: 0 });
    await expect(pty.create({ cols: 1, rows: 1, onData: () => undefined, user: 'root' })).rejects.toThrow(/root/);
  });

  it('have terminals, whose output is bytes', async () => {
    const { pty, asked } = commandsOf(handle(['\u00ff'], {}));
    const seen: number[] = [];
    const terminal = await pty.create({ cols: 80, rows: 24, onData: data => void seen.push(...data) });
    await terminal.wait();
    expect(seen).toEqual([255]);
    expect(asked[0]).toMatchObject({ size: { columns: 80, rows: 24 } });
    await expect(pty.resize(99, { cols: 1, rows: 1 })).rejects.toThrow(NotFoundError);
    expect(await pty.kill(99)).toBe(false);
  });
});

describe('files', () => {
  const top = mkdtempSync(join(tmpdir(), 'acode-e2b-'));
  afterAll(() => rmSync(top, { recursive: true }));
  const at = (path: string): string => join(top, path);
  // A directory of this host in place of a sandbox’s: the shape of the one is the shape of the other.
  const parts: Partial<Files> = {
    writeFile: async (path, data) => fs.writeFile(at(path), data),
    createReadStream: path => createReadStream(at(path)),
    mkdir: async path => void (await fs.mkdir(at(path), { recursive: true })),
    rm: (path, options) => fs.rm(at(path), { recursive: options?.recursive ?? false }),
    rename: (from, to) => fs.rename(at(from), at(to)),
    lstat: path => fs.lstat(at(path)),
    readlink: path => fs.readlink(at(path)),
    watch: async function* (): AsyncIterable<FileChange> {
      yield { eventType: 'rename', filename: 'there' };
      yield { eventType: 'rename', filename: 'not there' };
      yield { eventType: 'change', filename: 'there' };
    },
  };
  const files = new Filesystem(() =>
    Object.assign(Object.create(null), parts, {
      readFile: (path: string) => fs.readFile(at(path)),
      readdir: (path: string) => fs.readdir(at(path)),
    }),
  );

  it('are written with the directories on their way, and read in every format', async () => {
    expect(await files.write('a/b/c.txt', 'ä')).toEqual({ name: 'c.txt', type: 'file', path: 'a/b/c.txt' });
    await files.write([
      { path: 'one', data: new TextEncoder().encode('1').buffer },
      { path: 'two', data: new Blob(['2']) },
      { path: 'three', data: new Blob(['3']).stream() },
    ]);
    expect(await files.read('a/b/c.txt')).toBe('ä');
    expect(await files.read('one', { format: 'bytes' })).toEqual(new Uint8Array([0x31]));
    expect(await (await files.read('two', { format: 'blob' })).text()).toBe('2');
    expect(await new Response(await files.read('three', { format: 'stream' })).text()).toBe('3');
  });

  it('are listed as deep as asked for, and described', async () => {
    await files.write('list/below/deep', 'x');
    expect((await files.list('list')).map(({ path }) => path)).toEqual(['list/below']);
    const [below, deep] = await files.list('list', { depth: 2 });
    expect([below?.type, deep?.type, deep?.size, deep?.name]).toEqual(['dir', 'file', 1, 'deep']);
    await expect(files.list('list', { depth: 0 })).rejects.toThrow(InvalidArgumentError);
    await fs.symlink('deep', at('list/below/link'));
    expect(await files.getInfo('list/below/link')).toMatchObject({ symlinkTarget: 'deep' });
  });

  it('are made, renamed and removed', async () => {
    expect([await files.makeDir('made/x'), await files.makeDir('made/x')]).toEqual([true, false]);
    expect(await files.rename('made', 'moved')).toMatchObject({ name: 'moved', type: 'dir' });
    await files.remove('moved');
    expect(await files.exists('moved')).toBe(false);
    await expect(files.read('moved')).rejects.toThrow(FileNotFoundError);
    await expect(files.read('moved', { format: 'stream' })).rejects.toThrow(FileNotFoundError);
  });

  it('are watched: what came, what went, what was written', async () => {
    await files.write('watched/there', '');
    const seen: string[] = [];
    const ended = new Promise(resolve => {
      const onExit = (error?: Error): void => resolve(error);
      void files.watchDir('watched', ({ name, type }) => void seen.push(`${type} ${name}`), { onExit });
    });
    expect(await ended).toBeUndefined();
    expect(seen).toEqual(['create there', 'remove not there', 'write there']);
    await expect(files.watchDir('watched/there', () => undefined)).rejects.toThrow(InvalidArgumentError);
  });

  it('have permissions as ls shows them', () => {
    expect([permissionsOf(0o755), permissionsOf(0o640), permissionsOf(0o100_007)]).toEqual([
      'rwxr-xr-x',
      'rw-r-----',
      '------rwx',
    ]);
  });
});

describe('errors', () => {
  it('have the names that are caught, and ours as their cause', () => {
    const gone = new AcodeError('ACODE-SBX-025', { sandbox: 'a', reason: 'b' });
    expect(translated(gone)).toBeInstanceOf(SandboxNotFoundError);
    expect(translated(gone)).toMatchObject({ name: 'SandboxNotFoundError', cause: gone });
    expect(translated(new AcodeError('ACODE-SBX-017', { field: 'a', reason: 'b' }))).toBeInstanceOf(
      InvalidArgumentError,
    );
    expect(translated(new AcodeError('ACODE-CTN-009', { limit: 1, waitedMs: 1 }))).toBeInstanceOf(RateLimitError);
    expect(translated(Object.assign(new Error('full'), { code: 'ENOSPC' }))).toBeInstanceOf(NotEnoughSpaceError);
    const late = new DOMException('late', 'TimeoutError');
    expect(translated(new AcodeError('ACODE-SBX-014', {}, { cause: late }))).toBeInstanceOf(TimeoutError);
    expect(translated('text')).toMatchObject({ name: 'SandboxError', message: 'text' });
  });
});
