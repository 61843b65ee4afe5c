// Tools refuse what their schemas do not list before anything is done; programs inside get an argv, never a shell line.

import { Acode, AcodeError } from '@acode/sandbox';
import { existsSync, mkdirSync, mkdtempSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import type { ToolHost } from '../host.ts';
import { WorkspacePaths } from '../paths.ts';
import { Progress } from '../progress.ts';
import { Session } from '../session.ts';
import { TOOLS, filled, listed } from '../server.ts';
import { timeLimit } from './run-in-sandbox.ts';
import { matchesIn, searchWords } from './search-files.ts';

// Whatever gets through would be an error of another kind.
const nobody = (): never => {
  throw new Error('the host was asked');
};
const host: ToolHost = { run: nobody, create: nobody, explain: nobody, status: nobody, network: { request: nobody } };

function call(name: string, given: unknown) {
  const tool = TOOLS.find(one => one.name === name);
  const session = new Session(host, new WorkspacePaths('/home/me/proj'));
  return tool?.call(given, { session, signal: AbortSignal.timeout(30_000), progress: new Progress(null) });
}

describe('a time limit', () => {
  it('counts, and is left out with a note where no sandbox lives that long', () => {
    expect(timeLimit(undefined, 20)).toEqual({ timeoutMs: undefined, notes: [] });
    expect(timeLimit(86_400, null)).toEqual({ timeoutMs: 86_400_000, notes: [] });
    expect(timeLimit(0.0001, 20)).toEqual({ timeoutMs: 1, notes: [] });
    expect(timeLimit(3600, 20)).toEqual({
      timeoutMs: undefined,
      notes: ['timeout_seconds was lowered from 3600 to 20, the limit of the user’s policy.'],
    });
    expect(timeLimit(100_000, null)).toEqual({
      timeoutMs: undefined,
      notes: [expect.stringMatching(/^timeout_seconds was ignored: 100000 is more than the 86400/)],
    });
  });
});

it('no tool applies, discards or undoes changes of a fork', () => {
  const names = TOOLS.map(({ name }) => name);
  expect(names).toContain('run_command');
  expect(names.filter(name => /apply|fork|discard|undo|patch|unmask/.test(name))).toEqual([]);
  // What tools are given of a host has no forks.
  expect(Object.keys(host).sort()).toEqual(['create', 'explain', 'network', 'run', 'status']);
});

it('a model asks for a host, and only a person answers', async () => {
  const names = TOOLS.map(({ name }) => name);
  expect(names.filter(name => /access|grant|allow|consent|trust/.test(name))).toEqual(['request_access']);
  // What tools are given of access to hosts is a way to ask.
  expect(Object.keys(host.network)).toEqual(['request']);
  const top = realpathSync(mkdtempSync(join(tmpdir(), 'acode-asking-')));
  for (const name of ['XDG_CONFIG_HOME', 'XDG_STATE_HOME', 'XDG_RUNTIME_DIR']) {
    mkdirSync(join(top, name), { mode: 0o700 });
    vi.stubEnv(name, join(top, name));
  }
  mkdirSync(join(top, 'project', '.git'), { recursive: true });
  try {
    await using acode = await Acode.open({ workspace: join(top, 'project'), engine: { socket: join(top, 'no.sock') } });
    const given = { host: 'registry.npmjs.org', why: 'npm ci' };
    const tool = TOOLS.find(({ name }) => name === 'request_access');
    const asking = () =>
      tool?.call(given, {
        session: new Session({ ...host, network: acode.network }, new WorkspacePaths('/home/me/proj')),
        signal: AbortSignal.timeout(30_000),
        progress: new Progress(null),
      });
    const answer = await asking();
    const [wanted] = await acode.network.pending();
    expect(answer?.structured).toMatchObject({
      status: 'pending',
      user_types: `acode egress allow ${wanted?.id}`,
      afterwards: { network: 'allow=npm:install' },
    });
    // Asking again is no answer.
    expect((await asking())?.structured).toMatchObject({ status: 'pending', id: wanted?.id });
    expect(await acode.network.pending()).toMatchObject([{ by: 'model', why: 'npm ci' }]);
    expect(existsSync(join(top, 'XDG_STATE_HOME', 'acode', 'grants'))).toBe(false);
    expect((await acode.audit.tail()).map(({ event }) => event)).toEqual(['network access requested']);
  } finally {
    vi.unstubAllEnvs();
    rmSync(top, { recursive: true });
  }
});

const WRONG: readonly (readonly [tool: string, given: unknown])[] = [
  ['run_command', {}],
  ['run_command', { command: 7 }],
  ['run_command', { command: '' }],
  ['run_command', { command: [] }],
  ['run_command', { command: 'ls', privileged: true }],
  ['run_command', { command: 'ls', mounts: [{ source: '/', target: '/host' }] }],
  ['run_command', { command: 'ls', ports: [{ container: 80 }] }],
  ['run_command', { command: 'ls', policy: { network: 'bridge' } }],
  ['run_command', { command: 'ls', network: 'bridge' }],
  ['run_command', { command: 'ls', network: { name: 'host' } }],
  ['run_command', { command: 'ls', pull: 'always' }],
  ['run_command', { command: 'ls', user: '0:0' }],
  ['run_command', { command: 'ls', read_only: false }],
  ['run_command', { command: 'ls', timeout_seconds: -1 }],
  ['run_command', { command: 'ls', timeout_seconds: '5' }],
  ['run_command', { command: 'ls', env: { A: 1 } }],
  ['run_command', JSON.parse('{"command":"ls","__proto__":{"privileged":true}}')],
  ['run_command', JSON.parse('{"command":"ls","env":{"__proto__":"x"}}')],
  ['open_sandbox', { keep: true }],
  ['run_in_sandbox', { command: 'ls', sandbox_id: 7 }],
  ['read_output', {}],
  ['read_output', { command_id: 'command-1', output: 'acode://output/1' }],
  ['read_file', { path: 'a\0b' }],
  ['read_file', { path: 'x'.repeat(5000) }],
  ['read_file', { path: '' }],
  ['edit_file', { path: 'a', old_string: '', new_string: 'b' }],
  ['edit_file', { path: 'a', old_string: 'b' }],
  ['write_file', { path: 'a' }],
  ['write_file', { path: 'a', content: 'b', mode: 0o4755 }],
  ['search_files', { by: 'content', pattern: 'a\nb' }],
  ['search_files', { by: 'everything', pattern: 'a' }],
  ['close_sandbox', {}],
  ['status', { verbose: true }],
  ['request_access', { host: 'a.example' }],
  ['request_access', { host: 'a.example', why: 'x', allow: true }],
  ['request_access', { host: 'a.example', why: 'x', yes: true }],
  ['request_access', { host: 'a.example', why: 'x', port: 0 }],
];

describe('a tool', () => {
  it.each(WRONG)('%s refuses %j', async (name, given) => {
    await expect(call(name, given)).rejects.toMatchObject({ code: 'ACODE-MCP-001' });
  });

  it('asks the host when its arguments are right', async () => {
    await expect(call('run_command', { command: 'ls' })).rejects.toThrow('the host was asked');
    await expect(call('read_file', { path: 'a' })).rejects.toThrow('the host was asked');
  });

  it.each(TOOLS)('$name says what it is, and lists every argument with nothing besides', tool => {
    expect(tool.title).not.toBe('');
    expect(tool.description.length).toBeGreaterThan(20);
    expect(tool.inputSchema).toMatchObject({ type: 'object', additionalProperties: false });
  });

  // They are in the context of every agent that is connected, at every turn.
  it('costs little: all of them together are listed in 10,000 bytes', () => {
    const bytes = Buffer.byteLength(JSON.stringify({ jsonrpc: '2.0', id: 1, result: { tools: TOOLS.map(listed) } }));
    process.stderr.write(`tools/list: ${bytes} bytes\n`);
    expect(bytes).toBeLessThanOrEqual(10_000);
  });

  it('run_command alone asks to be loaded at once, and loses no argument to the short schemas', () => {
    const asking = TOOLS.map(listed).filter(one => '_meta' in one);
    expect(asking).toMatchObject([{ name: 'run_command', _meta: { 'anthropic/alwaysLoad': true } }]);
    expect(Object.keys(TOOLS.find(({ name }) => name === 'search_files')?.inputSchema['properties'] ?? {})).toContain(
      'pattern',
    );
  });

  it.each([
    ['run_command', { cmd: 'ls' }, /^Unknown argument `cmd`: run_command takes command, cwd, env, stdin, /, 'command'],
    ['read_file', { file_path: 'a' }, /^Unknown argument `file_path`: read_file takes path, first_line, lines/, 'path'],
    ['edit_file', { path: 'a', oldString: 'b', new_string: 'c' }, /`oldString`: edit_file takes path, /, 'old_string'],
    ['run_command', { comand: 'ls' }, /`comand`/, 'command'],
    ['run_in_sandbox', { command: 'ls', timeout: 5 }, /`timeout`/, 'timeout_seconds'],
    ['list_directory', { dir: 'a' }, /`dir`/, 'path'],
    ['run_command', { command: 'ls', workdir: 'a' }, /`workdir`/, 'cwd'],
    ['run_command', { command: 'ls', privileged: true }, /`privileged`/, undefined],
    ['status', { verbose: true }, /^Unknown argument `verbose`: status takes no arguments\.$/, undefined],
  ])('%s answers %j with its arguments and the nearest', async (name, given, message, nearest) => {
    const error = await call(name, given)?.catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ message: expect.stringMatching(message) });
    const hint = error instanceof AcodeError ? error.hint : '';
    expect(hint).toMatch(nearest === undefined ? /^Leave `/ : `Use \`${nearest}\` instead of`);
  });

  // A model that could do one of these would decide what is applied, or what it may read.
  it('of no name or argument applies, shows, discards or undoes changes, leaves a fork, or unmasks a file', () => {
    const forbidden = /fork|diff|apply|discard|undo|snapshot|mask/i;
    const words = TOOLS.flatMap(({ name, inputSchema }) => [name, ...Object.keys(inputSchema['properties'] ?? {})]);
    expect(words).toContain('run_command');
    expect(words).toContain('read_only');
    expect(words.filter(word => forbidden.test(word))).toEqual([]);
  });
});

describe('the object of an answer', () => {
  it('has nothing that is empty, and keeps what is zero, false or null', () => {
    const full = { exitCode: 0, ended: null, running: false, text: 'x', limits: { cpus: 1 } };
    const empty = { stdout: '', notes: [], omitted: { stdout: undefined, stderr: undefined }, timedOut: undefined };
    expect(filled({ ...full, ...empty })).toEqual(full);
    expect(Object.keys(filled(empty))).toEqual([]);
  });
});

describe('a search', () => {
  it.each(['-delete', '; rm -rf /', '$(id)', '-f/etc/passwd', '--', '{}'])('takes %s for one word of text', pattern => {
    expect(searchWords({ by: 'content', pattern })).toEqual([
      ...['grep', '-rnIsH', '-F', '-m', '50', '-e'],
      pattern,
      '--',
      './.',
    ]);
    expect(searchWords({ by: 'name', pattern })).toEqual(['find', './.', '-name', pattern]);
  });

  it('takes no path for an option', () => {
    expect(searchWords({ by: 'name', pattern: '*', path: '-exec' })[1]).toBe('./-exec');
    expect(searchWords({ by: 'content', pattern: 'x', path: '/-r' }).at(-1)).toBe('/-r');
  });

  it('reads what the programs print, without what is git’s own', () => {
    const printed = './src/a.ts:3:const a = "b:4:c";\n./.git/config:1:x\nnonsense\n';
    expect(matchesIn(printed, 'content')).toEqual([{ path: 'src/a.ts', line: 3, text: 'const a = "b:4:c";' }]);
    expect(matchesIn('./a\n././b/.git/c\n', 'name')).toEqual([{ path: 'a' }]);
  });
});
