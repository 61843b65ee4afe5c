// From a preset and a task to a request for a sandbox: the one function of this package that those who run agents call.

import { spawnSync } from 'node:child_process';
import type { Acode, AllowedHosts, PolicyFields, ProgramRequest, RunRequest, StateRequest } from '@acode/sandbox';
import { stringify as tomlText } from 'smol-toml';
import { copiedConfiguration, merged } from './copied.ts';
import type { CopiedConfiguration, Fields, LeftOut } from './copied.ts';
import { credentialsOf, valueAt } from './credential.ts';
import { agentError } from './errors.ts';
import { imageOf } from './image.ts';
import type { AgentImage } from './image.ts';
import type { AgentPreset } from './preset.ts';
import { addProgram, programTarget } from './program.ts';
import type { ProgramProgress } from './program.ts';
import { START, addStart, seedVariables } from './start.ts';
import type { SeededFile } from './start.ts';

type Environment = Readonly<Record<string, string | undefined>>;

/** What an agent is started for. */
export interface AgentOptions {
  /** The workspace of the host that is passed: its absolute path. */
  readonly workspace: string;
  /** The user’s configuration file, where it is not in its place. */
  readonly configFile?: string | undefined;
  /** The task; without one, the agent is for a terminal. */
  readonly prompt?: string;
  /** Arguments of the user, besides those of the preset. */
  readonly arguments?: readonly string[];
  /** Whether it goes on with its last session; needs a state directory. False by default. */
  readonly resume?: boolean;
  /** The name of the state directory, in which it keeps its sessions; false for none. By default the name of the agent. */
  readonly state?: string | false;
  /** Whether that directory is emptied first; false by default. */
  readonly fresh?: boolean;
  /** What of the policy is asked for: image, workspace, fork, limits. Programs, state and the allow-list are the agent’s own. */
  readonly policy?: PolicyFields;
  /** Entries of the allow-list besides those of the preset. */
  readonly allow?: readonly string[];
  /** Whether the user’s own configuration of the agent is copied, as far as its preset says; true by default. */
  readonly configuration?: boolean;
  /** Whether commits get the name and the mail address of the user’s git; true by default. */
  readonly identity?: boolean;
  /** The environment of the user; that of this process by default. */
  readonly env?: Environment;
  /** Told how far the download of the program is. */
  readonly progress?: (progress: ProgramProgress) => void;
  /** Cancels it. */
  readonly signal?: AbortSignal;
}

/** One way to start an agent. */
export interface AgentStart {
  /** The task; without one, the agent is for a terminal. */
  readonly prompt?: string;
  /** Whether it goes on with its last session. */
  readonly resume: boolean;
}

/** An agent, ready to be started in a sandbox. */
export interface AgentTask {
  /** The command, for `acode.run`, `acode.spawn` or `sandbox.commands`. */
  readonly command: readonly string[];
  /** The command of another start in the same sandbox; null where the agent cannot do that. */
  readonly startedFor: (start: AgentStart) => readonly string[] | null;
  /** The rest of the request. A sandbox that is created first takes its `policy`, and the command its `env`. */
  readonly request: Pick<RunRequest, 'env' | 'taskId'> & { readonly policy: PolicyFields };
  /** The image that it runs on. */
  readonly image: AgentImage;
  /** What of the user’s own configuration stays outside. */
  readonly leftOut: readonly LeftOut[];
}

const GIT_CONFIG = '~/.gitconfig';
const GIT_MS = 5000;

/**
 * Turns a preset and a task into a request for a sandbox. Fetches the agent’s program where the store does not have it, and finds out
 * which build the image needs.
 *
 * @example
 * const { preset } = await agentCalled('claude', process.env);
 * const { command, request } = await agentTask(acode, preset, { workspace, prompt: 'Fix the failing test', policy: { fork: 'new' } });
 * const result = await acode.run(command, { ...request, policy: policyFrom(request.policy) });
 */
export async function agentTask(acode: Acode, preset: AgentPreset, options: AgentOptions): Promise<AgentTask> {
  const { env = process.env, signal = new AbortController().signal, policy = {} } = options;
  const wanted: PolicyFields = { profile: 'agent', workspace: 'fork', ...policy };
  const startArguments = argumentsOf(preset, options);
  const network = await networkOf(preset, options, env);
  const image = await imageOf(acode, wanted, { env, signal });
  refuseWithoutShell(preset, image);
  const added = await addProgram(acode, preset, {
    platform: { arch: process.arch, libc: image.libc },
    image: image.reference,
    env,
    workspace: options.workspace,
    signal,
    progress: options.progress,
  });
  const start = await addStart(acode, signal);
  const state = stateOf(preset, options);
  const words: Words = {
    program: programTarget(preset),
    state: state === null ? '/tmp/agent' : '/state',
    workspace: image.workspace,
  };
  const copied = options.configuration === false ? NOTHING : await copiedConfiguration(preset, env);
  const identity = options.identity === false ? { name: '', email: '' } : identityOf(env);
  const files = [...filesOf(preset, copied, words), identityFile(identity)];
  const program = [START, ...preset.command.map(word => filled(word, words))];
  return {
    command: [...program, ...startArguments],
    startedFor: ({ prompt, resume }) => {
      const template = templateOf(preset, prompt, resume);
      return template === undefined ? null : [...program, ...withArguments(template, prompt, options.arguments)];
    },
    request: {
      taskId: `agent-${preset.name}`,
      env: { ...variablesOf(preset, words), ...identityVariables(identity), ...seedsOf(preset, files, words) },
      policy: {
        ...wanted,
        ...(network === null ? {} : { network }),
        limits: { ...preset.limits, ...policy.limits },
        programs: [start, added].filter((one): one is ProgramRequest => one !== null),
        ...(state === null ? {} : { state }),
      },
    },
    image,
    leftOut: copied.leftOut,
  };
}

// Claude Code would start, run none of its commands, and end with 0.
function refuseWithoutShell({ name, shells }: AgentPreset, image: AgentImage): void {
  if (shells === undefined || shells.some(shell => image.shells.includes(shell))) return;
  throw agentError('ACODE-AGT-008', { agent: name, image: image.reference, shells });
}

function stateOf({ name }: AgentPreset, { state = name, fresh = false }: AgentOptions): StateRequest | null {
  return state === false ? null : { name: state, ...(fresh ? { fresh } : {}) };
}

function seedsOf(
  { copies, network, program }: AgentPreset,
  files: readonly SeededFile[],
  words: Words,
): Record<string, string> {
  return seedVariables({
    files,
    // What the user has removed by now is not to be found from an earlier run, and what that run put there neither.
    cleared: (copies?.texts ?? []).map(({ to }) => filled(to, words)),
    baseUrlVariable: network?.credential?.baseUrlVariable,
    keyVariable: network?.credential?.variable,
    path: (program?.path ?? []).map(path => `${words.program}/${path}`),
  });
}

const NOTHING: CopiedConfiguration = { texts: [], fields: [], leftOut: [] };

function argumentsOf(preset: AgentPreset, { prompt, resume = false, ...options }: AgentOptions): readonly string[] {
  const template = templateOf(preset, prompt, resume);
  if (template === undefined)
    throw agentError('ACODE-AGT-007', { agent: preset.name, what: 'go on with an earlier session' });
  return withArguments(template, prompt, options.arguments);
}

function templateOf(
  { start }: AgentPreset,
  prompt: string | undefined,
  resume: boolean,
): readonly string[] | undefined {
  const [terminal, once] = resume ? [start.resumeTerminal, start.resumePrompt] : [start.terminal, start.prompt];
  return prompt === undefined ? terminal : once;
}

function withArguments(
  template: readonly string[],
  prompt: string | undefined,
  given: readonly string[] = [],
): readonly string[] {
  return template.flatMap(word => (word === '{arguments}' ? given : [word.replaceAll('{prompt}', () => prompt ?? '')]));
}

async function networkOf(
  preset: AgentPreset,
  { allow = [], policy, workspace, configFile }: AgentOptions,
  env: Environment,
): Promise<AllowedHosts | PolicyFields['network'] | null> {
  const entries = [...new Set([...(preset.network?.allow ?? []), ...allow])];
  // Who says which network it has, answers for it.
  if (policy?.network !== undefined || entries.length === 0) return policy?.network ?? null;
  const configured = async (key: string): Promise<unknown> => {
    const { Acode: Host } = await import('@acode/sandbox');
    const options = { workspace, ...(configFile === undefined ? {} : { configFile }) };
    const values = await (await Host.configuration(options)).get();
    return valueAt(
      values.filter(({ layer, overridden }) => layer === 'user' && !overridden),
      key,
    );
  };
  const credentials = await credentialsOf(preset, env, configured);
  return { allow: entries, ...(Object.keys(credentials).length === 0 ? {} : { credentials }) };
}

/** What stands for words in braces. */
interface Words {
  readonly program: string;
  readonly state: string;
  readonly workspace: string;
}

function filled(text: string, words: Words): string {
  return text
    .replaceAll('{program}', () => words.program)
    .replaceAll('{state}', () => words.state)
    .replaceAll('{workspace}', () => words.workspace);
}

function variablesOf({ environment = {} }: AgentPreset, words: Words): Record<string, string> {
  return Object.fromEntries(Object.entries(environment).map(([name, value]) => [name, filled(value, words)]));
}

// What the user has comes first, so that what acode says counts.
function filesOf(preset: AgentPreset, copied: CopiedConfiguration, words: Words): SeededFile[] {
  const settings = (preset.settings ?? []).map(({ path, format, values }): SeededFile => {
    const own = copied.fields.filter(({ to }) => to === path).map(one => one.values);
    const all = merged(
      own.reduce<Fields>((before, one) => merged(before, one), {}),
      values,
    );
    const text = format === 'json' ? JSON.stringify(all, null, 2) : tomlText(all);
    return { path: filled(path, words), text: filled(text, words), isTemplate: true };
  });
  const texts = copied.texts.map(({ to, text }): SeededFile => ({ path: filled(to, words), text, isTemplate: false }));
  return [...settings, ...texts];
}

/** The user’s name and mail address, as git has them for all repositories. git is asked outside of every repository. */
function identityOf(env: Environment): Identity {
  const [name = '', email = ''] = ['user.name', 'user.email'].map(key => {
    const { stdout, status } = spawnSync('git', ['config', '--global', '--get', key], {
      cwd: '/',
      env: { HOME: env['HOME'], XDG_CONFIG_HOME: env['XDG_CONFIG_HOME'], PATH: '/usr/local/bin:/usr/bin:/bin' },
      encoding: 'utf8',
      timeout: GIT_MS,
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    return status === 0 ? (stdout.split('\n')[0] ?? '').trim() : '';
  });
  return { name, email };
}

interface Identity {
  readonly name: string;
  readonly email: string;
}

// As variables too: some agents hide the file from the commands that they run.
function identityVariables({ name, email }: Identity): Record<string, string> {
  return {
    ...(name === '' ? {} : { GIT_AUTHOR_NAME: name, GIT_COMMITTER_NAME: name }),
    ...(email === '' ? {} : { GIT_AUTHOR_EMAIL: email, GIT_COMMITTER_EMAIL: email }),
  };
}

function identityFile({ name, email }: Identity): SeededFile {
  const lines = [
    ...(name === '' ? [] : [`\tname = ${quoted(name)}`]),
    ...(email === '' ? [] : [`\temail = ${quoted(email)}`]),
  ];
  const text = `${lines.length === 0 ? '' : `[user]\n${lines.join('\n')}\n`}[safe]\n\tdirectory = *\n`;
  return { path: GIT_CONFIG, text, isTemplate: false };
}

function quoted(value: string): string {
  return `"${value.replaceAll('\\', '\\\\').replaceAll('"', '\\"')}"`;
}
