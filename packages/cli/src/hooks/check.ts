// Check of an agent’s hook on the real program: with a copy of the user’s settings, in an empty directory and offline, a scripted
// model asks for a command and for a write outside of the workspace, through each way that the agent offers.

import { spawn } from 'node:child_process';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { hostname, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { placeOf } from '../workspace.ts';
import type { Hooked } from './agents.ts';
import type { Installing } from './install.ts';
import { isFields, readFields } from './json-file.ts';
import type { Fields } from './json-file.ts';
import { cleanEnvironment, launchOf, programOf } from './launch.ts';
import type { Launch } from './launch.ts';
import { POINTING } from './pointing.ts';
import { ScriptedModel } from './scripted-model.ts';
import type { Move } from './scripted-model.ts';
import { SETTINGS } from './settings.ts';
import { whyNotInForce } from './status.ts';

/** Where something ran: in a sandbox, on this machine, or not at all. */
export type Ran = 'inside' | 'outside' | 'not run';

/** One way of an agent to run or write something. */
export interface CheckedWay {
  readonly way: string;
  readonly ran: Ran;
  /** Whether a hook is to send it inside; the rest is listed because it stays outside. */
  readonly isHooked: boolean;
  /** The beginning of what the agent sent back. */
  readonly answer: string;
}

/** What came of one start of the agent. */
export interface CheckedStart {
  /** `exec`: as `acode hook exec` starts it. `plain`: as its own program, with the user’s settings. */
  readonly start: 'exec' | 'plain';
  readonly ways: readonly CheckedWay[];
  /** Why there is nothing to report; null where the agent ran. */
  readonly fault: string | null;
}

/** The report on an agent. */
export interface AgentCheck {
  readonly agent: Hooked;
  readonly program: string;
  readonly version: string;
  readonly starts: readonly CheckedStart[];
  /** Whether nothing that a hook is to send inside ran on this machine, as `acode hook exec` starts the agent. */
  readonly ok: boolean;
}

interface Way {
  readonly name: string;
  readonly isHooked: boolean;
  /** What the model asks for; `line` is a command, `file` a path outside of the workspace. */
  readonly move: (line: string, file: string) => Move;
}

const tool = (name: string, given: Fields): Move => ({ tool: name, given });

const WAYS: Readonly<Record<Hooked, readonly Way[]>> = {
  claude: [
    { name: 'Bash', isHooked: true, move: command => tool('Bash', { command, description: 'check' }) },
    {
      name: 'Bash in the background',
      isHooked: true,
      move: command => tool('Bash', { command, description: 'check', run_in_background: true }),
    },
    {
      name: 'Bash of a subagent',
      isHooked: true,
      move: command =>
        tool('Agent', { description: 'check', prompt: `${SUBAGENT}${command}`, subagent_type: 'general-purpose' }),
    },
    { name: 'Write', isHooked: false, move: (_, file) => tool('Write', { file_path: file, content: 'written' }) },
  ],
  codex: [
    { name: 'exec_command', isHooked: true, move: cmd => tool('exec_command', { cmd }) },
    { name: 'exec_command with a terminal', isHooked: true, move: cmd => tool('exec_command', { cmd, tty: true }) },
    {
      name: 'apply_patch',
      isHooked: false,
      move: (_, file) => ({
        tool: 'apply_patch',
        given: {},
        freeform: `*** Begin Patch\n*** Add File: ${file}\n+written\n*** End Patch\n`,
      }),
    },
  ],
  gemini: [
    { name: 'run_shell_command', isHooked: true, move: command => tool('run_shell_command', { command }) },
    {
      name: 'run_shell_command in the background',
      isHooked: true,
      move: command => tool('run_shell_command', { command, is_background: true }),
    },
    {
      name: 'write_file',
      isHooked: false,
      move: (_, file) => tool('write_file', { file_path: file, content: 'written' }),
    },
  ],
  opencode: [
    { name: 'bash', isHooked: true, move: command => tool('bash', { command, description: 'check' }) },
    { name: 'write', isHooked: false, move: (_, file) => tool('write', { filePath: file, content: 'written' }) },
  ],
};

// A subagent asks the same model. Its prompt has the command, which it is told to run.
const SUBAGENT = 'acode-check-run: ';

const START_MS = 120_000;
const MAX_ANSWER = 300;

/** What a check is given. */
export interface Checking extends Installing {
  readonly signal: AbortSignal;
  /** The agent’s program, where the user names it. */
  readonly program?: string | undefined;
}

/** Checks an agent, first as `acode hook exec` starts it, then by itself. */
export async function checkAgent(about: Checking): Promise<AgentCheck> {
  const { agent, env } = about;
  const top = await mkdtemp(join(tmpdir(), 'acode-check-'));
  try {
    const program = about.program ?? programOf(agent, cleanEnvironment(env, top)['PATH'] ?? '', top);
    const starts = [await checkStart(about, 'exec', join(top, 'exec'), program)];
    starts.push(await checkStart(about, 'plain', join(top, 'plain'), program));
    const ok = starts[0]?.fault === null && starts[0].ways.every(({ isHooked, ran }) => !isHooked || ran === 'inside');
    return { agent, program, version: await versionOf(program, env, top), starts, ok };
  } finally {
    await rm(top, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
  }
}

async function checkStart(
  about: Checking,
  start: CheckedStart['start'],
  top: string,
  program: string,
): Promise<CheckedStart> {
  const { agent } = about;
  const [work, outside] = [join(top, 'work'), join(top, 'outside')];
  await Promise.all([work, outside].map(directory => mkdir(directory, { recursive: true })));
  const ways = WAYS[agent];
  const fileOf = (way: Way): string => join(outside, way.name.replaceAll(' ', '-'));
  const hereOf = (way: Way): string => join(work, way.name.replaceAll(' ', '-'));
  await using model = await ScriptedModel.listen(async (results, _, prompt) => {
    const asked = prompt.lastIndexOf(SUBAGENT);
    if (asked >= 0 && results.length === 0)
      return lineMove(agent, prompt.slice(asked + SUBAGENT.length).split('\n')[0] ?? '');
    if (asked >= 0) return { say: 'done' };
    // What runs in the background has run before the next is asked for: the agent ends it when its turn ends.
    const before = ways[results.length - 1];
    if (before?.isHooked === true) await untilThere(hereOf(before), fileOf(before));
    const way = ways[results.length];
    return way ? way.move(lineFor(hereOf(way), fileOf(way)), fileOf(way)) : { say: 'done' };
  });
  try {
    const launch = await launched(about, { start, top, work, program, model: model.url });
    const printed = await finished(launch, work, about.signal);
    if (model.results.length === 0) return { start, ways: [], fault: `it called no tool: ${tail(printed)}` };
    const checked = await Promise.all(
      ways.map(async (way, at) => wayOf(way, model.results[at], await textIn(hereOf(way)), await textIn(fileOf(way)))),
    );
    return { start, ways: checked, fault: null };
  } catch (error) {
    if (about.signal.aborted) throw error;
    return { start, ways: [], fault: error instanceof Error ? error.message : String(error) };
  }
}

// The workspace is mounted as it is, so that a command in a sandbox can leave there where it ran.
function lineFor(here: string, outside: string): string {
  return `hostname > ${here}; echo written > ${outside}`;
}

function lineMove(agent: Hooked, command: string): Move {
  const [way] = WAYS[agent];
  return way ? way.move(command, '') : { say: 'done' };
}

function wayOf({ name, isHooked }: Way, result = '', here: string | null, outside: string | null): CheckedWay {
  const answer = result.replaceAll(/\s+/g, ' ').slice(0, MAX_ANSWER);
  const isHost = outside !== null || here?.trim() === hostname();
  const ran = isHost ? 'outside' : here === null ? 'not run' : 'inside';
  return { way: name, isHooked, ran, answer };
}

function textIn(path: string): Promise<string | null> {
  return readFile(path, 'utf8').catch(() => null);
}

const TRY_MS = 100;
const MAX_TRIES = 150;

async function untilThere(...paths: readonly string[]): Promise<void> {
  for (let tries = 0; tries < MAX_TRIES; tries += 1) {
    if ((await Promise.all(paths.map(textIn))).some(text => text !== null && text !== '')) return;
    await new Promise(done => void setTimeout(done, TRY_MS));
  }
}

interface Surroundings {
  readonly start: CheckedStart['start'];
  readonly top: string;
  readonly work: string;
  readonly program: string;
  readonly model: string;
}

// Nothing of the user’s environment that names a model, a key or a proxy; and no way to the outside.
async function launched(about: Checking, around: Surroundings): Promise<Launch> {
  const { agent, env } = about;
  const { start, top, work, program, model } = around;
  const home = join(top, 'home');
  await mkdir(home, { recursive: true, mode: 0o700 });
  const { argv, variables, settings } = POINTING[agent](model);
  const copied = await COPY[agent]({ ...about, home, settings });
  const place = placeOf(work, work);
  const given = { ...about, place, program, args: [], projectSettings: false };
  const launch = start === 'exec' ? await launchOf(given) : { program, argv: [], env: {} };
  const kept = cleanEnvironment(env, work);
  const base = Object.fromEntries(
    ['PATH', 'LANG', 'LC_ALL', 'TERM', 'USER', 'LOGNAME', 'SHELL', 'TMPDIR'].flatMap(name =>
      kept[name] === undefined ? [] : [[name, kept[name]] as const],
    ),
  );
  const forced = Object.fromEntries(Object.entries(launch.env).filter(([name]) => FORCED_VARIABLES.includes(name)));
  const nowhere = { HTTP_PROXY: NOWHERE, HTTPS_PROXY: NOWHERE, NO_PROXY: '127.0.0.1,localhost' };
  const all = { ...base, ...nowhere, HOME: home, ...variables, ...copied, ...forced };
  const fault = start === 'exec' ? await whyNotInForce(about, { program, env: all, cwd: work }) : null;
  if (fault !== null) throw new Error(`acode hook exec ${agent} does not start it: ${fault}`);
  return { program, argv: [...launch.argv, ...argv], env: all };
}

const FORCED_VARIABLES = ['OPENCODE_CONFIG_CONTENT'];
// Nothing listens there.
const NOWHERE = 'http://127.0.0.1:9';

interface Copying extends Checking {
  readonly home: string;
  /** What points the agent at the model, for its settings. */
  readonly settings: Fields;
}

const OF_MODELS = /^(?:ANTHROPIC|AWS)_|^CLAUDE_CODE_USE_|_PROXY$/i;

// Copies the user’s settings of each agent, without what names a model, a key or a server. The variables say where the copy is.
const COPY: Readonly<Record<Hooked, (about: Copying) => Promise<Readonly<Record<string, string>>>>> = {
  async claude({ agent, env, home }) {
    const { env: own, apiKeyHelper: _, ...fields } = await fieldsOf(SETTINGS[agent].file(env));
    const kept = Object.entries(isFields(own) ? own : {}).filter(([name]) => !OF_MODELS.test(name));
    await put(join(home, '.claude/settings.json'), { ...fields, env: Object.fromEntries(kept) });
    return { CLAUDE_CONFIG_DIR: join(home, '.claude') };
  },
  async codex({ agent, env, home }) {
    const hooks = SETTINGS[agent].file(env);
    const [from, to] = [dirname(hooks), join(home, '.codex')];
    await put(join(to, 'hooks.json'), await fieldsOf(hooks));
    // Trust in a hook is kept by the path of its file.
    const config = await readFile(join(from, 'config.toml'), 'utf8').catch(() => '');
    await put(join(to, 'config.toml'), config.replaceAll(from, to));
    return { CODEX_HOME: to };
  },
  async gemini({ agent, env, home, settings }) {
    const { mcpServers: _, ...fields } = await fieldsOf(SETTINGS[agent].file(env));
    await put(join(home, '.gemini/settings.json'), { ...fields, ...settings });
    return { GEMINI_CLI_HOME: home };
  },
  async opencode({ agent, env, home, settings }) {
    const { mcp: _, ...fields } = await fieldsOf(SETTINGS[agent].file(env));
    await put(join(home, '.config/opencode/opencode.json'), { ...fields, ...settings });
    return {};
  },
};

async function fieldsOf(file: string): Promise<Fields> {
  const read = await readFields(file);
  if (read === null) return {};
  if ('fields' in read) return read.fields;
  throw new Error(`${file} ${read.reason}`);
}

async function put(path: string, content: Fields | string): Promise<void> {
  await mkdir(dirname(path), { recursive: true });
  await writeFile(path, typeof content === 'string' ? content : JSON.stringify(content), { mode: 0o600 });
}

function finished({ program, argv, env }: Launch, cwd: string, signal: AbortSignal): Promise<string> {
  return new Promise((done, reject) => {
    const child = spawn(program, argv, { cwd, env, stdio: ['ignore', 'pipe', 'pipe'], detached: true });
    let printed = '';
    for (const stream of [child.stdout, child.stderr])
      stream.on('data', (chunk: Buffer) => (printed += chunk.toString()));
    const kill = (): void => {
      try {
        if (child.pid !== undefined) process.kill(-child.pid, 'SIGKILL');
      } catch {
        // Ended already.
      }
    };
    const late = setTimeout(kill, START_MS);
    signal.addEventListener('abort', kill, { once: true });
    child.on('error', reject);
    child.on('close', () => {
      clearTimeout(late);
      // Some agents leave a process of theirs behind.
      kill();
      signal.removeEventListener('abort', kill);
      if (signal.aborted) reject(new Error('stopped'));
      else done(printed);
    });
  });
}

async function versionOf(program: string, env: Checking['env'], cwd: string): Promise<string> {
  const clean = { ...cleanEnvironment(env, cwd), HOME: join(cwd, 'home') };
  const printed = await finished({ program, argv: ['--version'], env: clean }, cwd, new AbortController().signal);
  return /\d+(?:\.\d+)+[\w.-]*/.exec(printed)?.[0] ?? 'unknown';
}

function tail(text: string): string {
  return text.trim().replaceAll(/\s+/g, ' ').slice(-MAX_ANSWER);
}
