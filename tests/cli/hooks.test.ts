// Hooks of agents on a real engine, without the agents: what an agent’s shell starts runs its command in a sandbox, or not at all.

import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { mainEngine } from '../support/engines.ts';
import { until } from '../support/waiting.ts';
import { BIN, Bench } from './bench.ts';

let bench: Bench;
let outside: string;
let line: string;

beforeAll(async () => {
  bench = await Bench.at(mainEngine);
  mkdirSync(bench.env['HOME'] ?? '', { recursive: true });
  outside = join(bench.workspace, '..', 'outside');
  line = `pwd > ran; echo "it's here"; echo written > ${outside}`;
});
afterAll(async () => bench[Symbol.asyncDispose]());

const shim = (agent: string): string => join(bench.env['XDG_STATE_HOME'] ?? '', 'acode/hooks', agent);
// As an agent starts it: in its own environment, which may be anything.
const started = (program: string, argv: readonly string[], given: { input?: string } = {}) =>
  spawnSync(program, argv, {
    cwd: join(bench.workspace, 'sub'),
    env: { BASH_ENV: '/nonexistent', NODE_OPTIONS: '--require /nonexistent.cjs', PATH: '/nonexistent' },
    encoding: 'utf8',
    ...given,
  });

it('a command of each agent runs in a sandbox, at its own path, and cannot write outside of the workspace', async () => {
  for (const agent of ['claude', 'opencode', 'gemini'] as const) {
    expect(await bench.call(['hook', 'install', agent])).toMatchObject({ status: 0 });
    const ran =
      agent === 'gemini'
        ? started('/bin/sh', ['-c', await rewritten(line)])
        : started(shim(agent), agent === 'claude' ? [line] : ['-c', line]);
    expect(ran.stdout, ran.stderr).toBe("it's here\n");
    expect(readFileSync(join(bench.workspace, 'sub/ran'), 'utf8').trim()).toBe(join(bench.workspace, 'sub'));
    expect(existsSync(outside)).toBe(false);
  }
  // The control: the same line in the shell that the hook is in the place of.
  expect(spawnSync('/bin/sh', ['-c', line], { cwd: bench.workspace }).status).toBe(0);
  expect(existsSync(outside)).toBe(true);
});

async function rewritten(command: string): Promise<string> {
  const file = join(bench.env['HOME'] ?? '', '.gemini/settings.json');
  const { hooks } = JSON.parse(readFileSync(file, 'utf8')) as {
    hooks: { BeforeTool: readonly [{ hooks: readonly [{ command: string }] }] };
  };
  const asked = JSON.stringify({ cwd: join(bench.workspace, 'sub'), tool_input: { command } });
  const answer = started('/bin/sh', ['-c', hooks.BeforeTool[0].hooks[0].command], { input: asked });
  expect(answer.status, answer.stderr).toBe(0);
  const { hookSpecificOutput: given } = JSON.parse(answer.stdout) as {
    hookSpecificOutput: { tool_input: { command: string } };
  };
  await Promise.resolve();
  return given.tool_input.command;
}

it('runs nothing without an engine', async () => {
  const env = { DOCKER_HOST: 'unix:///nonexistent/docker.sock' };
  expect(await bench.call(['hook', 'install', 'claude'], { env })).toMatchObject({ status: 0 });
  const ran = started(shim('claude'), ['touch sub-ran']);
  expect(ran).toMatchObject({ status: 125, stdout: '' });
  expect(existsSync(join(bench.workspace, 'sub/sub-ran'))).toBe(false);
});

it('asks for the background process at the first command', async () => {
  const env = { CI: undefined };
  expect(await bench.call(['hook', 'install', 'claude'], { env })).toMatchObject({ status: 0 });
  writeFileSync(join(bench.workspace, 'x'), '');
  expect(started(shim('claude'), ['true']).status).toBe(0);
  await until(async () => (await bench.call(['serve', 'status'], { env })).status === 0);
  expect((await bench.call(['serve', 'stop'], { env })).status).toBe(0);
  await until(async () => (await bench.left()).length === 0);
});

it('approves a call of acode without a question, records it, and approves nothing that it cannot record', async () => {
  const ask = async (command: string, env: Record<string, string> = {}) => {
    const event = { hook_event_name: 'PreToolUse', tool_name: 'Bash', cwd: bench.workspace, tool_input: { command } };
    return bench.call(['hook', 'auto-approve'], { stdin: Buffer.from(JSON.stringify(event)), env });
  };
  const answer = await ask(`${BIN} swarm list`);
  expect(answer.status, answer.stderr).toBe(0);
  expect(JSON.parse(answer.stdout.toString())).toMatchObject({
    hookSpecificOutput: { hookEventName: 'PreToolUse', permissionDecision: 'allow' },
  });
  // Whatever else it is, the agent asks its user.
  for (const other of [`${BIN} swarm list; id`, `X=1 ${BIN} swarm list`, `${BIN} swarm run --yes`, 'acode swarm list'])
    expect([other, await ask(other)]).toMatchObject([other, { status: 0, stdout: Buffer.alloc(0) }]);
  expect(await ask(`${BIN} swarm list`, { NODE_OPTIONS: '--no-warnings' })).toMatchObject({ stdout: Buffer.alloc(0) });
  const records = (await bench.call(['audit', 'tail', '--json'])).stdout.toString();
  expect(records.match(/"operation":"approve"/g)).toHaveLength(1);
  expect(records).toContain(JSON.stringify(`${BIN} swarm list`));

  writeFileSync(join(bench.workspace, '..', 'no-directory'), '');
  const unrecorded = await ask(`${BIN} swarm list`, { XDG_STATE_HOME: join(bench.workspace, '..', 'no-directory') });
  expect(unrecorded).toMatchObject({ status: 125, stdout: Buffer.alloc(0) });
  expect(unrecorded.stderr).toContain('ACODE-AUD-001');
});
