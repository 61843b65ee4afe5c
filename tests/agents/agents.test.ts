// Real coding agents with a scripted model use the MCP server: commands, edits, background commands, cancelling, and no shell of
// their own. `npm run ci:long agents` installs the programs, runs this and writes docs/results/agents.md.

import { spawn } from 'node:child_process';
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import * as z from 'zod';
import { ScriptedModel } from '../../packages/cli/src/hooks/scripted-model.ts';
import type { Script } from '../../packages/cli/src/hooks/scripted-model.ts';
import { BIN, Bench } from '../cli/bench.ts';
import { isRunning } from '../mcp/connection.ts';
import { mainEngine } from '../support/engines.ts';
import { figure, until } from '../support/waiting.ts';
import { AGENTS } from './programs.ts';
import type { Setup } from './programs.ts';
import { report } from './results.ts';

const TAP = fileURLToPath(new URL('tap.mjs', import.meta.url));
// Where the programs are: each in a directory of its own, and a Node that all of them accept.
const PROGRAMS = process.env['ACODE_AGENTS'] ?? '';
const MAX_MS = 120_000;
const TRY_MS = 100;
const MAX_TRIES = 600;

const PROGRAM = '#!/bin/sh\nsum=0\nfor word in "$@"; do sum=$((sum - word)); done\necho "$sum"\n';
const TEST =
  '#!/bin/sh\nfor step in 1 2 3; do echo "step $step"; sleep 0.4; done\nfound=$(sh ./add.sh 2 3 5)\nif [ "$found" = 10 ]; then echo all is well; else echo "expected 10, found $found" >&2; exit 1; fi\n';

/** One message between an agent and the server. */
interface Message {
  readonly from: 'client' | 'server';
  readonly line: string;
}

const messageSchema = z.object({ from: z.enum(['client', 'server']), line: z.string() });
const rpcSchema = z.looseObject({
  method: z.string().optional(),
  params: z
    .looseObject({
      name: z.string().optional(),
      message: z.string().optional(),
      _meta: z.looseObject({ progressToken: z.unknown() }).optional(),
    })
    .optional(),
});

describe.each(AGENTS)('$name $version', agent => {
  let bench: Bench;
  let model: ScriptedModel;
  let runs = 0;
  let kill: () => void = () => undefined;

  beforeAll(async () => {
    bench = await Bench.at(mainEngine);
    model = await ScriptedModel.listen(() => ({ say: 'done' }));
    await mkdir(homeOf(bench), { recursive: true });
    writeFileSync(join(bench.workspace, 'add.sh'), PROGRAM, { mode: 0o755 });
    writeFileSync(join(bench.workspace, 'test.sh'), TEST);
  });

  // An agent that a failed test leaves behind would speak in the next one.
  afterEach(() => kill());

  afterAll(async () => {
    await model[Symbol.asyncDispose]();
    await bench[Symbol.asyncDispose]();
  });

  // Starts the agent in the workspace; what it and the server said to each other is read afterwards.
  async function start(script: Script, more: Partial<Setup> = {}) {
    runs += 1;
    const log = join(homeOf(bench), `messages-${runs}.jsonl`);
    writeFileSync(log, '');
    // A real model takes longer for its first answer than a server for its start.
    const isReady = (): boolean => readFileSync(log, 'utf8').includes('{\\"tools\\":[');
    await model[Symbol.asyncDispose]();
    const searched = new Set<string>();
    model = await ScriptedModel.listen(async (...asked) => {
      for (let tries = 0; tries < MAX_TRIES && !isReady(); tries += 1) await delay(TRY_MS);
      const move = await script(...asked);
      if (!('tool' in move)) return move;
      const search = agent.search?.[move.tool];
      if (search === undefined || searched.has(search)) return agent.call(move.tool, move.given);
      searched.add(search);
      return { search };
    });
    const server = { command: process.execPath, args: [TAP, log, process.execPath, BIN, 'mcp'], env: serverEnv(bench) };
    const setup = { home: homeOf(bench), model: model.url, server, ...more };
    const { argv, env } = await agent.prepare(setup, 'Do what has to be done.');
    const child = spawn(join(PROGRAMS, agent.client, 'node_modules', agent.program), argv, {
      cwd: bench.workspace,
      env: { HOME: homeOf(bench), PATH: `${join(PROGRAMS, 'node', 'node_modules/node/bin')}:/usr/bin:/bin`, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
      // A group of its own, as a shell gives it: Ctrl-C reaches every process of it.
      detached: true,
    });
    const signal = (name: NodeJS.Signals): void => {
      try {
        process.kill(-(child.pid ?? 0), name);
      } catch {
        // Ended already.
      }
    };
    kill = () => signal('SIGKILL');
    const late = setTimeout(kill, MAX_MS);
    let printed = '';
    for (const stream of [child.stdout, child.stderr])
      stream.on('data', (chunk: Buffer) => (printed += chunk.toString()));
    const ended = new Promise<string>(resolve => child.once('close', () => resolve(printed)));
    void ended.then(() => clearTimeout(late));
    const messages = (): Message[] =>
      readFileSync(log, 'utf8')
        .split('\n')
        .filter(line => line !== '')
        .map(line => messageSchema.parse(JSON.parse(line)));
    return { child, ended, messages, signal, printed: () => printed };
  }

  it('is the program of the table', () => {
    const file = join(PROGRAMS, agent.client, 'node_modules', agent.package, 'package.json');
    const { version } = z.looseObject({ version: z.string() }).parse(JSON.parse(readFileSync(file, 'utf8')));
    expect(version).toBe(agent.version);
    report(agent.name, 'version', version);
  });

  it('runs commands, edits a file and reads a background command', async () => {
    const script: Script = results => {
      const steps = [
        { tool: 'run_command', given: { command: 'sh test.sh' } },
        {
          tool: 'edit_file',
          given: { path: join(bench.workspace, 'add.sh'), old_string: 'sum - word', new_string: 'sum + word' },
        },
        { tool: 'run_command', given: { command: ['sh', 'test.sh'], cwd: bench.workspace } },
        { tool: 'run_in_sandbox', given: { command: 'echo begun; sleep 1000', background: true } },
        { tool: 'read_output', given: { command_id: commandIn(results), wait_seconds: 20 } },
        { tool: 'stop_command', given: { command_id: commandIn(results) } },
      ];
      return steps[results.length] ?? { say: 'All is well.' };
    };
    const { ended, messages } = await start(script);
    const printed = await ended;
    const { results, faults } = model;
    expect(faults).toEqual([]);
    expect(results, printed.slice(-4000)).toHaveLength(6);
    const [failed, edited, passed, begun, read, stopped] = results;
    expect(failed).toContain('expected 10, found -10');
    expect(edited).toMatch(/Replaced 1 occurrence|"replaced":\s?1/);
    expect(readFileSync(join(bench.workspace, 'add.sh'), 'utf8')).toBe(PROGRAM.replace('-', '+'));
    expect(passed).toContain('all is well');
    expect(begun).toMatch(/command-\d+/);
    expect(read).toContain('begun');
    expect(stopped).toMatch(/has ended|"stopped":\s?true/);
    // Nothing empty reaches the model.
    for (const result of results) expect(result).not.toMatch(/"\w+":\s?(?:""|\[\]|\{\})/);
    report(agent.name, 'run_command, edit_file, background', 'yes');
    const asObject = passed?.includes('"exitCode":');
    report(agent.name, 'the model reads', asObject ? 'the object' : 'the text');
    const { offered } = model;
    report(
      agent.name,
      'run_command offered',
      offered.includes(agent.toolName('run_command')) ? 'at once' : 'on demand',
    );
    report(agent.name, 'tools offered at once', String(offered.filter(name => /acode/.test(name)).length));
    const calls = messages().filter(({ from, line }) => from === 'client' && methodOf(line) === 'tools/call');
    const asks = calls.some(({ line }) => parsed(line)?.params?._meta?.progressToken !== undefined);
    const sent = messages().filter(({ line }) => methodOf(line) === 'notifications/progress').length;
    expect(sent > 0).toBe(asks);
    const shown = printed.includes('The command printed:');
    report(
      agent.name,
      'progress',
      asks ? `asked for; ${shown ? 'printed' : 'not printed without a terminal'}` : 'not asked for',
    );
    await until(async () => (await bench.left()).length === 0);
  });

  it('interrupted, ends the command and its sandbox', async () => {
    const words = ['sleep', String(3_000_000 + Math.floor(Math.random() * 1_000_000))];
    const { child, ended, messages, signal, printed } = await start(results =>
      results.length === 0 ? { tool: 'run_command', given: { command: words } } : { say: 'done' },
    );
    await until(() => isRunning(words) || child.exitCode !== null);
    expect(isRunning(words), `${model.faults.join('\n')}\n${printed().slice(-4000)}`).toBe(true);
    const container = containerOf(words);
    expect(await bench.left()).toContain(container);
    signal('SIGINT');
    const ms = await until(() => !isRunning(words));
    await until(async () => !(await bench.left()).includes(container));
    const told = messages().some(({ line }) => methodOf(line) === 'notifications/cancelled');
    report(agent.name, 'interrupted: how the server hears of it', told ? 'cancelled' : 'the connection ends');
    figure(`${agent.name}, interrupted to gone`, ms, 10_000);
    // Some agents wait for the model after the first signal.
    const killing = setTimeout(() => signal('SIGKILL'), 10_000);
    await ended;
    clearTimeout(killing);
    await until(async () => (await bench.left()).length === 0);
    report(agent.name, 'interrupted: command and container gone', 'yes');
  });

  it('that gives a call up after its own time limit ends the command, and goes on', async () => {
    const words = ['sleep', String(4_000_000 + Math.floor(Math.random() * 1_000_000))];
    const { child, ended } = await start(
      results => (results.length === 0 ? { tool: 'run_command', given: { command: words } } : { say: 'done' }),
      { toolTimeoutMs: 8000 },
    );
    await until(() => isRunning(words) || child.exitCode !== null);
    expect(isRunning(words)).toBe(true);
    const container = containerOf(words);
    expect(await bench.left()).toContain(container);
    await until(() => !isRunning(words));
    await until(async () => !(await bench.left()).includes(container));
    const printed = await ended;
    expect(model.results, printed.slice(-4000)).toHaveLength(1);
    expect(model.results[0]).toMatch(/time|cancel/i);
    report(agent.name, 'own time limit: command and container gone', 'yes');
    await until(async () => (await bench.left()).length === 0);
  });

  it('offers its own shell, and not when it is switched off as docs/mcp.md says', async () => {
    const quiet: Script = () => ({ say: 'done' });
    await (
      await start(quiet)
    ).ended;
    expect(model.offered.filter(name => agent.shell.test(name))).not.toEqual([]);
    await (
      await start(quiet, { withoutShell: true })
    ).ended;
    expect(model.offered).not.toEqual([]);
    expect(model.offered.filter(name => agent.shell.test(name))).toEqual([]);
    report(agent.name, 'own shell switched off', 'not offered');
    // A repository that is opened may have settings of its own. What comes of that is reported, for docs/mcp.md to say.
    const { file, text } = agent.projectSettings;
    mkdirSync(dirname(join(bench.workspace, file)), { recursive: true });
    writeFileSync(join(bench.workspace, file), text);
    await (
      await start(quiet, { withoutShell: true })
    ).ended;
    expect(model.offered).not.toEqual([]);
    const isBack = model.offered.some(name => agent.shell.test(name));
    report(agent.name, 'settings of the project switch it on again', isBack ? '**yes**' : 'no');
  });
});

function homeOf(bench: Bench): string {
  return bench.env['HOME'] ?? '';
}

// The server of the agent finds engine, configuration and directories of the bench.
function serverEnv({ env }: Bench): Record<string, string> {
  return env;
}

function commandIn(results: readonly string[]): string {
  return /command-\d+/.exec(results[3] ?? '')?.[0] ?? 'command-0';
}

function parsed(line: string): z.output<typeof rpcSchema> | null {
  try {
    return rpcSchema.parse(JSON.parse(line));
  } catch {
    return null;
  }
}

function methodOf(line: string): string | undefined {
  return parsed(line)?.method;
}

// The container of a process of this machine, by its control group.
function containerOf(words: readonly string[]): string {
  for (const pid of readdirSync('/proc').filter(name => /^\d+$/.test(name)))
    try {
      if (readFileSync(`/proc/${pid}/cmdline`, 'utf8') !== `${words.join('\0')}\0`) continue;
      const [id] = /[0-9a-f]{64}/.exec(readFileSync(`/proc/${pid}/cgroup`, 'utf8')) ?? [];
      if (id !== undefined) return id;
    } catch {
      // Ended meanwhile.
    }
  throw new Error(`${words.join(' ')} runs in no container`);
}
