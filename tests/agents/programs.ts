// Coding agents as programs: what is installed, and how each is pointed at a scripted model and at the MCP server of acode.

import { readFileSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import * as z from 'zod';
import type { Move } from '../../packages/cli/src/hooks/scripted-model.ts';
import type { Client } from '../../packages/cli/src/mcp/clients.ts';

/** The MCP server that an agent starts. */
export interface ServerCommand {
  readonly command: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
}

/** What an agent is set up with. */
export interface Setup {
  readonly home: string;
  /** Where the scripted model listens. */
  readonly model: string;
  readonly server: ServerCommand;
  /** How long the agent waits for a tool; its own default without it. */
  readonly toolTimeoutMs?: number;
  /** Whether the agent’s own shell is switched off, as docs/mcp.md shows it. */
  readonly withoutShell?: boolean;
}

/** A way to start an agent. */
export interface Started {
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string>>;
}

/** A coding agent. */
export interface Agent {
  readonly name: string;
  readonly client: Client;
  /** The package and its version, as npm takes them. */
  readonly package: string;
  readonly version: string;
  /** Its program below `node_modules`. */
  readonly program: string;
  /** Its name for a tool of the MCP server. */
  readonly toolName: (tool: string) => string;
  /** How its model calls a tool of the MCP server. */
  readonly call: (tool: string, given: Readonly<Record<string, unknown>>) => Move;
  /** What its model searches for before it calls a tool, where tools are loaded on demand: words of its task and not of acode. */
  readonly search?: Readonly<Record<string, string>>;
  /** Its name for its own shell. */
  readonly shell: RegExp;
  /** Settings in a project that ask for the shell, against those of the user. */
  readonly projectSettings: { readonly file: string; readonly text: string };
  /** Writes its settings, and says how it is started for a prompt without a person. */
  readonly prepare: (setup: Setup, prompt: string) => Promise<Started>;
}

const versions = z
  .record(z.string(), z.object({ package: z.string(), version: z.string() }))
  .parse(JSON.parse(readFileSync(new URL('versions.json', import.meta.url), 'utf8')));

function pinned(client: Client): Pick<Agent, 'client' | 'package' | 'version'> {
  const found = versions[client];
  if (!found) throw new Error(`versions.json has no ${client}`);
  return { client, ...found };
}

async function put(path: string, content: object | string): Promise<void> {
  await mkdir(dirname(path), { recursive: true });
  await writeFile(path, typeof content === 'string' ? content : JSON.stringify(content));
}

const claude: Agent = {
  name: 'Claude Code',
  ...pinned('claude-code'),
  program: '.bin/claude',
  toolName: tool => `mcp__acode__${tool}`,
  call: (tool, given) => ({ tool: `mcp__acode__${tool}`, given }),
  shell: /^Bash$/,
  projectSettings: {
    file: '.claude/settings.json',
    text: JSON.stringify({ permissions: { allow: ['Bash'], deny: [] } }),
  },
  prepare: async ({ home, model, server, toolTimeoutMs, withoutShell }, prompt) => {
    const config = join(home, 'claude-mcp.json');
    await put(config, { mcpServers: { acode: server } });
    await put(join(home, '.claude/settings.json'), withoutShell ? { permissions: { deny: ['Bash'] } } : {});
    return {
      argv: [
        '-p',
        prompt,
        '--dangerously-skip-permissions',
        '--mcp-config',
        config,
        '--output-format',
        'stream-json',
        '--verbose',
      ],
      env: {
        ANTHROPIC_BASE_URL: model,
        ANTHROPIC_API_KEY: 'x',
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
        ...(toolTimeoutMs === undefined ? {} : { MCP_TOOL_TIMEOUT: String(toolTimeoutMs) }),
      },
    };
  },
};

const toml = (value: unknown): string => JSON.stringify(value);

const codex: Agent = {
  name: 'Codex',
  ...pinned('codex'),
  program: '.bin/codex',
  toolName: tool => `mcp__acode__${tool}`,
  call: (tool, given) => ({ tool, given, namespace: 'mcp__acode' }),
  search: {
    run_command: 'run a shell command',
    edit_file: 'edit a file',
    run_in_sandbox: 'start a server in the background',
    read_output: 'read output of background command',
    stop_command: 'stop background command',
  },
  shell: /^(?:shell|shell_command|exec_command|local_shell|write_stdin)$/,
  projectSettings: { file: '.codex/config.toml', text: '[features]\nshell_tool = true\n' },
  prepare: async ({ home, model, server, toolTimeoutMs = 600_000, withoutShell }, prompt) => {
    await put(
      join(home, '.codex/config.toml'),
      [
        'model = "gpt-5.5"',
        'model_provider = "scripted"',
        'check_for_update_on_startup = false',
        '[analytics]',
        'enabled = false',
        '[features]',
        'plugins = false',
        ...(withoutShell ? ['shell_tool = false'] : []),
        '[model_providers.scripted]',
        'name = "scripted"',
        `base_url = ${toml(`${model}/v1`)}`,
        'env_key = "SCRIPTED_KEY"',
        'wire_api = "responses"',
        '[mcp_servers.acode]',
        `command = ${toml(server.command)}`,
        `args = ${toml(server.args)}`,
        'startup_timeout_sec = 60',
        `tool_timeout_sec = ${toolTimeoutMs / 1000}`,
        '[mcp_servers.acode.env]',
        ...Object.entries(server.env).map(([name, value]) => `${name} = ${toml(value)}`),
        '',
      ].join('\n'),
    );
    return {
      argv: ['exec', '--dangerously-bypass-approvals-and-sandbox', '--skip-git-repo-check', '--json', prompt],
      env: { SCRIPTED_KEY: 'x' },
    };
  },
};

const gemini: Agent = {
  name: 'Gemini CLI',
  ...pinned('gemini-cli'),
  program: '.bin/gemini',
  toolName: tool => `mcp_acode_${tool}`,
  call: (tool, given) => ({ tool: `mcp_acode_${tool}`, given }),
  shell: /^run_shell_command$/,
  projectSettings: {
    file: '.gemini/settings.json',
    text: JSON.stringify({ tools: { exclude: [], allowed: ['run_shell_command'] } }),
  },
  prepare: async ({ home, model, server, toolTimeoutMs = 600_000, withoutShell }, prompt) => {
    await put(join(home, '.gemini/settings.json'), {
      security: { auth: { selectedType: 'gemini-api-key' }, folderTrust: { enabled: false } },
      general: { enableAutoUpdate: false },
      privacy: { usageStatisticsEnabled: false },
      ...(withoutShell ? { tools: { exclude: ['run_shell_command'] } } : {}),
      mcpServers: { acode: { ...server, timeout: toolTimeoutMs } },
    });
    return {
      argv: ['-m', 'gemini-2.5-flash', '-p', prompt, '--yolo'],
      env: { GEMINI_CLI_TRUST_WORKSPACE: 'true', GOOGLE_GEMINI_BASE_URL: model, GEMINI_API_KEY: 'x' },
    };
  },
};

const opencode: Agent = {
  name: 'opencode',
  ...pinned('opencode'),
  program: '.bin/opencode',
  toolName: tool => `acode_${tool}`,
  call: (tool, given) => ({ tool: `acode_${tool}`, given }),
  shell: /^bash$/,
  projectSettings: { file: 'opencode.json', text: JSON.stringify({ permission: { bash: 'allow' } }) },
  prepare: async ({ home, model, server, toolTimeoutMs, withoutShell }, prompt) => {
    const options = { baseURL: `${model}/v1`, apiKey: '{env:SCRIPTED_KEY}' };
    await put(join(home, '.config/opencode/opencode.json'), {
      $schema: 'https://opencode.ai/config.json',
      model: 'scripted/scripted',
      small_model: 'scripted/scripted',
      autoupdate: false,
      share: 'disabled',
      provider: {
        scripted: { npm: '@ai-sdk/openai-compatible', options, models: { scripted: {} } },
      },
      ...(withoutShell ? { permission: { bash: 'deny' } } : {}),
      mcp: {
        acode: {
          type: 'local',
          command: [server.command, ...server.args],
          environment: server.env,
          enabled: true,
          ...(toolTimeoutMs === undefined ? {} : { timeout: toolTimeoutMs }),
        },
      },
    });
    return {
      argv: ['run', prompt],
      env: { SCRIPTED_KEY: 'x', OPENCODE_DISABLE_MODELS_FETCH: '1', OPENCODE_DISABLE_AUTOUPDATE: '1' },
    };
  },
};

/** The agents of the table. */
export const AGENTS: readonly Agent[] = [claude, codex, gemini, opencode];
