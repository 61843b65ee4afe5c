// What a hook of an agent costs for one command, beside `node -e 0`: medians on the built command, with a warm pool.
// Usage: hooks.mjs [--rounds N]. The engine is that of DOCKER_HOST, else the newest test engine. Needs a build.
// @ts-check

import { spawn, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { fileURLToPath } from 'node:url';
import { percentile } from './figures.mjs';

const BIN = fileURLToPath(new URL('../packages/cli/bin/acode.js', import.meta.url));
const LIST = '/run/acode-engines/engines.json';
const WARM_MS = 60_000;
const TRY_MS = 200;
/** Milliseconds that a command may take more than `node -e 0`: one process of Node.js, and two. */
const MOST = { one: 150, two: 300 };

const { values } = parseArgs({ options: { rounds: { type: 'string', default: '21' } } });
const rounds = Number(values.rounds);
const engines = JSON.parse(readFileSync(LIST, 'utf8'));
const socket = process.env['DOCKER_HOST'] ?? `unix://${engines.engines.at(-1).socket}`;

const top = mkdtempSync('/var/tmp/acode-bench-hooks-');
const at = (/** @type {string} */ name) => join(top, name);
for (const name of ['config/acode', 'home', 'project/.git']) mkdirSync(at(name), { recursive: true });
mkdirSync(at('run'), { mode: 0o700 });
writeFileSync(at('config/acode/config.yml'), `sandbox:\n  images: { default: "${engines.images.busybox}" }\n`);
const cwd = at('project');
const env = {
  PATH: process.env['PATH'],
  HOME: at('home'),
  XDG_CONFIG_HOME: at('config'),
  XDG_STATE_HOME: at('state'),
  XDG_RUNTIME_DIR: at('run'),
  DOCKER_HOST: socket,
};

/**
 * @param {string} program
 * @param {readonly string[]} argv
 * @param {string} [input]
 */
function call(program, argv, input = '') {
  const from = performance.now();
  const { status, stdout, stderr } = spawnSync(program, argv, { cwd, env, input, encoding: 'utf8' });
  return { ms: performance.now() - from, status, stdout, stderr };
}

/** @param {readonly string[]} argv */
const acode = argv => call(process.execPath, [BIN, ...argv]);

/** What the shell of an agent does for one command. */
const shim = (/** @type {string} */ agent) => join(at('state'), 'acode/hooks', agent);
/** @param {readonly number[] | undefined} all */
const median = all => percentile(all ?? [], 0.5);
const asked = JSON.stringify({ cwd, tool_name: 'Bash', tool_input: { command: 'true' } });

/** @param {'codex' | 'gemini'} agent */
function hooked(agent) {
  const file = { codex: at('home/.codex/hooks.json'), gemini: at('home/.gemini/settings.json') }[agent];
  const event = { codex: 'PreToolUse', gemini: 'BeforeTool' }[agent];
  const { command } = JSON.parse(readFileSync(file, 'utf8')).hooks[event][0].hooks[0];
  return () => {
    const before = call('/bin/sh', ['-c', command], asked);
    const { hookSpecificOutput: answer } = JSON.parse(before.stdout);
    const after = call('/bin/sh', ['-c', (answer.updatedInput ?? answer.tool_input).command]);
    return { ...after, ms: before.ms + after.ms };
  };
}

/** @type {import('node:child_process').ChildProcess | undefined} */
let server;
try {
  for (const agent of ['claude', 'codex', 'gemini', 'opencode']) acode(['hook', 'install', agent, '--yes']);
  /** @type {readonly [string, () => ReturnType<typeof call>, number][]} */
  const rows = [
    ['node -e 0', () => call(process.execPath, ['-e', '0']), 0],
    ['claude', () => call('/bin/sh', ['-c', `${shim('claude')} true`]), MOST.one],
    ['opencode', () => call(shim('opencode'), ['-c', 'true']), MOST.one],
    ['codex', hooked('codex'), MOST.two],
    ['gemini', hooked('gemini'), MOST.two],
  ];
  // The same server that a hook asks for after its first command, with the plan of a hook’s commands.
  server = spawn(process.execPath, [BIN, 'serve', '--min', '2'], { cwd, env, stdio: 'ignore' });
  const isWarm = () => acode(['serve', 'status', '--json']).stdout.includes('"waiting":');
  for (const until = Date.now() + WARM_MS; Date.now() < until && !isWarm();)
    await new Promise(done => void setTimeout(done, TRY_MS));
  /** @type {Map<string, number[]>} */
  const figures = new Map(rows.map(([name]) => [name, []]));
  for (let round = 0; round < rounds + 2; round += 1)
    for (const [name, once] of rows) {
      // What the one before used up is made again meanwhile, as between the commands of an agent.
      await new Promise(done => void setTimeout(done, 500));
      const { status, ms, stderr } = once();
      if (status !== 0) throw new Error(`${name} ended with ${status}: ${stderr}`);
      if (round >= 2) figures.get(name)?.push(ms);
    }
  const base = median(figures.get('node -e 0'));
  console.log(`FIGURE node -e 0: ${base.toFixed(0)} ms (median of ${rounds})`);
  for (const [name, , most] of rows.slice(1)) {
    const found = median(figures.get(name));
    console.log(`FIGURE a command through the hook of ${name}: ${found.toFixed(0)} ms, at most ${most}`);
  }
} finally {
  server?.kill('SIGTERM');
  await new Promise(done => (server && server.exitCode === null ? server.once('exit', done) : done(null)));
  rmSync(top, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
}
