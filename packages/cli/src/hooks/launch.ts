// Launch of an agent whose commands go into sandboxes: its program by an absolute path, settings of acode’s above those of the
// repository, and an environment without variables that load code.

import { accessSync, constants, realpathSync, statSync } from 'node:fs';
import { createHash } from 'node:crypto';
import { mkdir, readdir, rm, stat } from 'node:fs/promises';
import { dirname, join, relative, sep } from 'node:path';
import { stateDirectory } from '../serve/identity.ts';
import type { Place } from '../workspace.ts';
import type { Hooked } from './agents.ts';
import { hookError } from './errors.ts';
import { isFields, readFields, writeWhole } from './json-file.ts';
import { PREFIX } from './settings.ts';
import { environmentOfShim, isRewritten, runShim } from './shim.ts';

type Environment = Readonly<Record<string, string | undefined>>;

/** A request to start an agent. */
export interface Launching {
  readonly agent: Hooked;
  readonly place: Place;
  readonly env: Environment;
  /** The file of Node.js. */
  readonly node: string;
  /** The file of acode. */
  readonly entry: string;
  /** The agent’s program, where the user names it. */
  readonly program: string | undefined;
  /** The arguments of the agent. */
  readonly args: readonly string[];
  /** Whether the user accepts what the settings of the repository run. */
  readonly projectSettings: boolean;
}

/** A process to start. */
export interface Launch {
  readonly program: string;
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string>>;
}

/** What an agent is started with, so that its commands go into sandboxes. */
export async function launchOf(about: Launching): Promise<Launch> {
  const { agent, place, args } = about;
  const env = cleanEnvironment(about.env, place.root);
  const program = about.program ?? programOf(agent, env['PATH'] ?? '', place.root);
  refuseOptions(agent, args);
  if (!about.projectSettings) await refuseProject(agent, place);
  const run = isRewritten(agent) ? '' : await sessionProgram(about);
  const { argv, variables } = FORCED[agent](run, about);
  return { program, argv: [...argv, ...args], env: { ...env, ...variables } };
}

interface Forced {
  readonly argv: readonly string[];
  readonly variables: Readonly<Record<string, string>>;
}

// How each agent is given settings that those of a repository cannot change.
const FORCED: Readonly<Record<Hooked, (run: string, about: Launching) => Forced>> = {
  claude: (run, { projectSettings }) => ({
    argv: [
      '--setting-sources',
      projectSettings ? 'user,project,local' : 'user',
      '--settings',
      JSON.stringify({ env: { [PREFIX]: run } }),
    ],
    variables: {},
  }),
  // What makes the hook run at all stands in the user’s own files, and is the user’s to trust.
  codex: () => ({ argv: ['-c', 'sandbox_mode="danger-full-access"', '-c', 'features.hooks=true'], variables: {} }),
  // Gemini takes settings above those of a repository from root alone. Its hook stands in the user’s own.
  gemini: () => ({ argv: [], variables: {} }),
  opencode: run => ({ argv: [], variables: { OPENCODE_CONFIG_CONTENT: JSON.stringify({ shell: run }) } }),
};

// Loads code into a program that starts with it, or changes which shell Claude calls.
const LOADS_CODE =
  /^(?:LD_.*|DYLD_.*|NODE_OPTIONS|NODE_PATH|NODE_REPL_EXTERNAL_MODULE|BUN_.*|BASH_ENV|ENV|BASH_FUNC_.*|SHELLOPTS|BASHOPTS|PROMPT_COMMAND|PERL5OPT|PERL5LIB|PYTHONPATH|PYTHONSTARTUP|RUBYOPT|JAVA_TOOL_OPTIONS|GIT_.*|CLAUDE_CODE_SHELL.*|CLAUDE_ENV_FILE|OPENCODE_CONFIG.*|GEMINI_CLI_SYSTEM_.*)$/;

/** The environment of an agent: the user’s own, without variables that load code, and without programs of the workspace. */
export function cleanEnvironment(env: Environment, root: string): Record<string, string> {
  const kept = Object.entries(env).flatMap(([name, value]) =>
    value === undefined || LOADS_CODE.test(name) ? [] : [[name, value] as const],
  );
  const path = (env['PATH'] ?? '').split(':').filter(one => one.startsWith('/') && !isBelow(one, root));
  return { ...Object.fromEntries(kept), PATH: path.join(':') || '/usr/local/bin:/usr/bin:/bin' };
}

function isBelow(path: string, root: string): boolean {
  return [path, real(path)].some(one => {
    const way = relative(root, one);
    return way === '' || (way !== '..' && !way.startsWith(`..${sep}`));
  });
}

function real(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    return path;
  }
}

/** The program of an agent: the first of its name, and none that a command in the workspace could have written. */
export function programOf(agent: Hooked, path: string, root: string): string {
  for (const directory of path.split(':')) {
    const file = join(directory, agent);
    if (isProgram(file) && !isBelow(file, root)) return file;
  }
  throw hookError('ACODE-HOK-001', {
    agent,
    reason: 'no directory of PATH outside of the workspace has a program of that name',
  });
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}

const UNDOING: Readonly<Record<Hooked, RegExp>> = {
  claude: /^--(?:settings|setting-sources|managed-settings)(?:=|$)/,
  codex: /^(?:-s|--sandbox|--full-auto|--dangerously-bypass-hook-trust|--disable)(?:=|$)|sandbox_mode|features\.hooks/,
  gemini: /^(?:-s|--sandbox)(?:=|$)/,
  opencode: /^--attach(?:=|$)/,
};

function refuseOptions(agent: Hooked, args: readonly string[]): void {
  const option = args.find(one => UNDOING[agent].test(one));
  if (option !== undefined) throw hookError('ACODE-HOK-003', { agent, option: option.split('=')[0] ?? option });
}

// Settings of a project, and the keys of them with which a repository starts programs or undoes a hook.
const PROJECT: Readonly<Record<Hooked, { readonly files: readonly string[]; readonly keys: readonly string[] }>> = {
  claude: {
    files: ['.claude/settings.json', '.claude/settings.local.json'],
    keys: [
      'env',
      'hooks',
      'statusLine',
      'subagentStatusLine',
      'fileSuggestion',
      'apiKeyHelper',
      'awsAuthRefresh',
      'awsCredentialExport',
      'gcpAuthRefresh',
      'otelHeadersHelper',
      'proxyAuthHelper',
      'disableAllHooks',
    ],
  },
  codex: { files: ['.codex/hooks.json'], keys: ['hooks'] },
  gemini: { files: ['.gemini/settings.json'], keys: ['hooks', 'hooksConfig', 'tools', 'mcpServers'] },
  opencode: {
    files: ['opencode.json', '.opencode/opencode.json'],
    keys: ['shell', 'mcp', 'plugin', 'lsp', 'formatter'],
  },
};

async function refuseProject(agent: Hooked, { root, here }: Place): Promise<void> {
  const { files, keys } = PROJECT[agent];
  for (let at = here; ; at = dirname(at)) {
    for (const name of files) {
      const file = join(at, name);
      const read = await readFields(file);
      if (read === null) continue;
      if ('reason' in read) throw hookError('ACODE-HOK-004', { agent, file, reason: read.reason });
      const found = keys.filter(key => isSet(read.fields[key]));
      if (found.length > 0) throw hookError('ACODE-HOK-002', { agent, file, keys: found });
    }
    if (at === root || dirname(at) === at) return;
  }
}

function isSet(value: unknown): boolean {
  if (value === undefined || value === null || value === false) return false;
  return isFields(value) ? Object.keys(value).length > 0 : true;
}

const PROGRAM = 0o500;
const OLD_MS = 30 * 24 * 60 * 60_000;

// Named by what it holds: two sessions share it, and a session that is killed leaves nothing that must be removed at once.
async function sessionProgram({ agent, place, env, node, entry }: Launching): Promise<string> {
  const text = runShim({ agent, node, entry, env: environmentOfShim(env) }, place.root);
  const directory = join(stateDirectory(env), 'hooks', 'sessions');
  await mkdir(directory, { recursive: true, mode: 0o700 });
  await removeOld(directory);
  const path = join(directory, `${agent}-${createHash('sha256').update(text).digest('hex').slice(0, 16)}`);
  await writeWhole(path, text, PROGRAM);
  return path;
}

async function removeOld(directory: string): Promise<void> {
  for (const name of await readdir(directory)) {
    const file = join(directory, name);
    const found = await stat(file).catch(() => null);
    if (found !== null && Date.now() - found.mtimeMs > OLD_MS) await rm(file, { force: true });
  }
}
