// Settings of each agent: where they are, what `acode hook install` adds to them, and what of acode they hold.

import { join } from 'node:path';
import { homeDirectory } from '../serve/identity.ts';
import type { Hooked } from './agents.ts';
import { isFields } from './json-file.ts';
import type { Fields } from './json-file.ts';
import { AGENT_SECONDS, gate, isRewritten } from './shim.ts';

type Environment = Readonly<Record<string, string | undefined>>;

/** The programs that the settings of an agent name. */
export interface HookPrograms {
  /** What runs a command in a sandbox. */
  readonly run: string;
  /** What answers a hook; for agents whose commands are rewritten. */
  readonly rewrite: string;
}

/** What of acode a settings file holds. */
export type Held = 'whole' | 'outdated' | 'other' | 'none';

/** The settings of an agent. */
export interface AgentSettings {
  /** The user’s own file. */
  readonly file: (env: Environment) => string;
  /** The fields with acode’s added, in place of earlier ones of acode. */
  readonly added: (fields: Fields, programs: HookPrograms) => Fields;
  /** The fields without acode’s. */
  readonly removed: (fields: Fields, programs: HookPrograms) => Fields;
  /** What of acode the fields hold; `other` where a program that is not acode’s has its place. */
  readonly held: (fields: Fields, programs: HookPrograms) => Held;
  /** Each way of the agent past the hook, as said to the user in one line. */
  readonly outside: string;
}

/** The variable of Claude that names the program for its commands. */
export const PREFIX = 'CLAUDE_CODE_SHELL_PREFIX';

function within(env: Environment, variable: string, ...otherwise: string[]): string {
  const path = env[variable];
  return path?.startsWith('/') === true ? path : join(homeDirectory(env), ...otherwise);
}

function fieldsIn(fields: Fields, name: string): Fields {
  const value = fields[name];
  return isFields(value) ? value : {};
}

// Nothing empty is left behind that was not there before.
function withField(fields: Fields, name: string, value: Fields | readonly unknown[]): Fields {
  const { [name]: _, ...others } = fields;
  const isEmpty = Array.isArray(value) ? value.length === 0 : Object.keys(value).length === 0;
  return isEmpty ? others : { ...fields, [name]: value };
}

// One text, in one place of the file.
function named(place: string | null, name: string): Omit<AgentSettings, 'file' | 'outside'> {
  const inside = (fields: Fields): Fields => (place === null ? fields : fieldsIn(fields, place));
  const around = (fields: Fields, changed: Fields): Fields =>
    place === null ? changed : withField(fields, place, changed);
  return {
    added: (fields, { run }) => around(fields, { ...inside(fields), [name]: run }),
    removed(fields, { run }) {
      const { [name]: value, ...others } = inside(fields);
      return value === run ? around(fields, others) : fields;
    },
    held(fields, { run }) {
      const value = inside(fields)[name];
      if (value === undefined || value === '') return 'none';
      return value === run ? 'whole' : 'other';
    },
  };
}

/** The hook of an agent whose commands are rewritten, as its settings have it. */
function hookEntry(agent: Hooked, { rewrite }: HookPrograms): Fields {
  const command = gate(rewrite);
  return agent === 'gemini'
    ? {
        matcher: 'run_shell_command',
        hooks: [{ type: 'command', name: 'acode', command, timeout: AGENT_SECONDS * 1000 }],
      }
    : { matcher: 'Bash', hooks: [{ type: 'command', command, timeout: AGENT_SECONDS }] };
}

/** The event of an agent before it runs a command. */
function hookEvent(agent: Hooked): string {
  return agent === 'gemini' ? 'BeforeTool' : 'PreToolUse';
}

// An entry in a list of hooks. It stands last: what another hook makes of a command before it goes into the sandbox too.
function listed(agent: Hooked): Omit<AgentSettings, 'file' | 'outside'> {
  const event = hookEvent(agent);
  const all = (fields: Fields): readonly unknown[] => {
    const list = fieldsIn(fields, 'hooks')[event];
    return Array.isArray(list) ? list : [];
  };
  const isOwn = (entry: unknown, { rewrite }: HookPrograms): boolean => JSON.stringify(entry).includes(rewrite);
  const changed = (fields: Fields, list: readonly unknown[]): Fields =>
    withField(fields, 'hooks', withField(fieldsIn(fields, 'hooks'), event, list));
  const removed: AgentSettings['removed'] = (fields, programs) =>
    changed(
      fields,
      all(fields).filter(entry => !isOwn(entry, programs)),
    );
  return {
    removed,
    added: (fields, programs) => changed(fields, [...all(removed(fields, programs)), hookEntry(agent, programs)]),
    held(fields, programs) {
      const own = all(fields).filter(entry => isOwn(entry, programs));
      if (own.length === 0) return 'none';
      const wanted = JSON.stringify(hookEntry(agent, programs));
      return own.length === 1 && JSON.stringify(own[0]) === wanted ? 'whole' : 'outdated';
    },
  };
}

/** The settings of every agent. */
export const SETTINGS: Readonly<Record<Hooked, AgentSettings>> = {
  claude: {
    file: env => join(within(env, 'CLAUDE_CONFIG_DIR', '.claude'), 'settings.json'),
    ...named('env', PREFIX),
    outside: 'its tools Edit, Write and Read, and MCP servers over HTTP, work on this machine',
  },
  codex: {
    file: env => join(within(env, 'CODEX_HOME', '.codex'), 'hooks.json'),
    ...listed('codex'),
    outside: 'apply_patch, MCP servers and `!` work on this machine',
  },
  gemini: {
    file: env => join(within(env, 'GEMINI_CLI_HOME', '.'), '.gemini', 'settings.json'),
    ...listed('gemini'),
    outside: 'its file tools, MCP servers and `!` work on this machine',
  },
  opencode: {
    file: env => join(within(env, 'XDG_CONFIG_HOME', '.config'), 'opencode', 'opencode.json'),
    ...named(null, 'shell'),
    outside: 'its file tools and MCP servers work on this machine',
  },
};

/** Where the programs of acode for an agent are, below acode’s state directory. */
export function programsIn(directory: string, agent: Hooked): HookPrograms {
  const run = join(directory, 'hooks', agent);
  return { run, rewrite: isRewritten(agent) ? `${run}-hook` : run };
}
