// Tools refuse what their schemas do not list before anything is done; programs inside get an argv, never a shell line.

import { describe, expect, it } from 'vitest';
import type { ToolHost } from '../host.ts';
import { Progress } from '../progress.ts';
import { Session } from '../session.ts';
import { TOOLS } from '../server.ts';
import { timeLimit } from './run-in-sandbox.ts';
import { matchesIn, searchWords } from './search-files.ts';

// Whatever gets through would be an error of another kind.
const nobody = (): never => {
  throw new Error('the host was asked');
};
const host: ToolHost = { run: nobody, create: nobody, explain: nobody, status: nobody };

function call(name: string, given: unknown) {
  const tool = TOOLS.find(one => one.name === name);
  const surroundings = { session: new Session(host), signal: AbortSignal.timeout(1000), progress: new Progress(null) };
  return tool?.call(given, surroundings);
}

describe('a time limit', () => {
  it('counts, and is left out with a note where no sandbox lives that long', () => {
    expect(timeLimit(undefined)).toEqual({ timeoutMs: undefined, notes: [] });
    expect(timeLimit(86_400)).toEqual({ timeoutMs: 86_400_000, notes: [] });
    expect(timeLimit(0.0001)).toEqual({ timeoutMs: 1, notes: [] });
    expect(timeLimit(100_000)).toEqual({
      timeoutMs: undefined,
      notes: [expect.stringMatching(/^timeout_seconds was ignored: 100000 is more than the 86400/)],
    });
  });
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
  ['open_sandbox', { expires_in_minutes: 100_000 }],
  ['run_in_sandbox', { command: 'ls', sandbox_id: 7 }],
  ['read_output', {}],
  ['read_output', { command_id: 'command-1', output: 'acode://output/1' }],
  ['read_file', { path: 'a\0b' }],
  ['read_file', { path: 'x'.repeat(5000) }],
  ['read_file', { path: '' }],
  ['write_file', { path: 'a' }],
  ['write_file', { path: 'a', content: 'b', mode: 0o4755 }],
  ['search_files', { by: 'content', pattern: 'a\nb' }],
  ['search_files', { by: 'everything', pattern: 'a' }],
  ['close_sandbox', {}],
  ['status', { verbose: true }],
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
    expect(tool.outputSchema).toMatchObject({ type: 'object', properties: { code: {}, hint: {}, denials: {} } });
  });

  it('of no name brings changes home or shows them', () => {
    expect(TOOLS.filter(({ name }) => /diff|apply/.test(name))).toEqual([]);
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
