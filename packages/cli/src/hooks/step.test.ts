// The process of a hook: what an agent asks for becomes one call of acode, or nothing runs.

import { mkdirSync, mkdtempSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Io } from '../io.ts';
import { COMPLETE, hookStep } from './step.ts';

describe('the process of a hook', () => {
  let root: string;

  beforeAll(() => {
    root = realpathSync(mkdtempSync(join(tmpdir(), 'acode-step-')));
    mkdirSync(join(root, '.git'));
    mkdirSync(join(root, 'sub'));
  });
  afterAll(() => rmSync(root, { recursive: true, force: true }));

  const step = (argv: readonly string[], cwd = root, input = '') => {
    const io = { cwd: () => cwd, stdin: Readable.from([Buffer.from(input)]) } as unknown as Io;
    return hookStep(argv, io);
  };
  const argvOf = async (words: readonly string[], cwd?: string) => {
    const found = await step(['hook', 'run', ...words], cwd);
    return found?.kind === 'run' ? found.argv : found;
  };

  it('is no other call', async () => {
    for (const argv of [[], ['run', 'x'], ['hook'], ['hook', 'status'], ['hook', 'exec', 'claude']])
      expect(await step(argv)).toBeNull();
  });

  it('runs a command in the project around the directory, at the path that it has here', async () => {
    const expected = ['run', '--workspace', root, '--workspace-path', 'same', '--', '/bin/sh', '-c'];
    for (const words of [
      ['claude', '', 'npm test'],
      ['opencode', '', '-c', 'npm test'],
      ['opencode', '', '-lc', 'npm test'],
      ['codex', root, 'npm test'],
    ]) {
      const argv = await argvOf(words, join(root, 'sub'));
      expect(argv).toEqual([...expected, expect.stringContaining('exec bash -c "$1"'), 'sh', 'npm test']);
    }
  });

  it('leaves out the aliases of the user, which no sandbox has', async () => {
    const line = 'source /h/.claude/shell-snapshots/s.sh 2>/dev/null || true && eval x';
    expect(await argvOf(['claude', '', line])).toContain('eval x');
  });

  it.each<[string, readonly string[]]>([
    ['no command', ['claude', '']],
    ['several words', ['claude', '', 'npm', 'test', 'x']],
    ['an option that it does not know', ['opencode', '', '-i', 'npm test']],
  ])('refuses %s, and says how to check the agent', async (_, words) => {
    expect(await argvOf(words)).toMatchObject({
      kind: 'end',
      status: 125,
      stderr: expect.stringContaining(`acode doctor --agent ${words[0]}`) as string,
    });
  });

  it('refuses a directory outside of the workspace', async () => {
    expect(await argvOf(['claude', join(root, 'sub'), 'ls'], root)).toMatchObject({ kind: 'end', status: 125 });
    expect(await argvOf(['claude', root, 'ls'], tmpdir())).toMatchObject({ kind: 'end', status: 125 });
  });

  const asked = (fields: object): string => JSON.stringify({ cwd: join(root, 'sub'), tool_input: fields });
  const rewritten = async (agent: string, input: string) => {
    const found = await step(['hook', 'rewrite', agent, '/a b/run'], root, input);
    if (found?.kind !== 'end') throw new Error('it ran something');
    return found;
  };

  it('answers a hook with a command that names program, workspace and command', async () => {
    const command = `'/a b/run' ${root} 'echo '\\''a'\\'''`;
    const codex = await rewritten('codex', asked({ command: "echo 'a'" }));
    expect(codex).toMatchObject({ status: 0, stderr: '' });
    expect(codex.stdout.split('\n').slice(1)).toEqual([COMPLETE, '']);
    expect(JSON.parse(codex.stdout.split('\n')[0] ?? '')).toEqual({
      hookSpecificOutput: { hookEventName: 'PreToolUse', permissionDecision: 'allow', updatedInput: { command } },
    });
    // What Gemini asks its user stays its own.
    const gemini = await rewritten('gemini', asked({ command: "echo 'a'", is_background: true }));
    expect(JSON.parse(gemini.stdout.split('\n')[0] ?? '')).toEqual({
      hookSpecificOutput: { hookEventName: 'BeforeTool', tool_input: { command, is_background: true } },
    });
  });

  it.each<[string, string, string]>([
    ['no JSON', 'codex', 'x'],
    ['nothing', 'codex', ''],
    ['an object without a command', 'codex', JSON.stringify({ cwd: '/', tool_input: {} })],
    ['a command that is no text', 'gemini', JSON.stringify({ cwd: '/', tool_input: { command: ['ls'] } })],
    ['a relative directory', 'gemini', JSON.stringify({ cwd: '.', tool_input: { command: 'ls' } })],
    ['an agent without such hooks', 'claude', JSON.stringify({ cwd: '/', tool_input: { command: 'ls' } })],
  ])('blocks %s with status 2 and a reason', async (_, agent, input) => {
    const found = await rewritten(agent, input);
    expect(found).toMatchObject({ status: 2, stdout: '' });
    expect(found.stderr).toMatch(/^acode: blocked: .*The command did not run\.\n$/);
  });
});
