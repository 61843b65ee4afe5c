// Client setup: how each MCP client is connected to acode, and how its own shell is switched off.

import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';
import { quoted } from '../arguments/command-arguments.ts';
import type { Client } from './clients.ts';

/** A text, and the file it belongs into. */
export interface FileText {
  readonly file: string;
  readonly text: string;
}

/** The setup of a client. */
export interface ClientSetup extends FileText {
  /** The command of the client that does the same, where it has one. */
  readonly command?: string;
  /** What switches the client’s own shell off; null where no file does it. */
  readonly withoutShell: FileText | null;
  /** What else the client asks for before it starts the server. */
  readonly also?: string;
}

const AROUND = ['--workspace', '${workspaceFolder}'];
const TIMEOUT_SECONDS = 600;

/** What starts acode: a program, and the arguments before acode’s own. */
export interface Starter {
  readonly command: string;
  readonly args: readonly string[];
}

/** The starter where `acode` is a program that every client finds. */
export const INSTALLED: Starter = { command: 'acode', args: [] };

/** The setup of a client; with `workspace`, for that directory whatever the client has open. `options` are those of `acode mcp`. */
export function setupOf(
  client: Client,
  { command, args }: Starter = INSTALLED,
  workspace?: string,
  options: readonly string[] = [],
): ClientSetup {
  const named = workspace === undefined ? null : ['--workspace', workspace];
  const plain = { command, args: [...args, 'mcp', ...options, ...(named ?? [])] };
  const around = { command, args: [...args, 'mcp', ...options, ...(named ?? AROUND)] };
  const typed = [command, ...plain.args].map(quoted).join(' ');
  const setups: Readonly<Record<Client, ClientSetup>> = {
    'claude-code': {
      command: `claude mcp add acode -- ${typed}`,
      file: '.mcp.json in the project',
      text: json({ mcpServers: { acode: plain } }),
      withoutShell: { file: '~/.claude/settings.json', text: json({ permissions: { deny: ['Bash'] } }) },
    },
    codex: {
      command: `codex mcp add acode -- ${typed}`,
      file: '~/.codex/config.toml',
      text: `[mcp_servers.acode]\ncommand = ${JSON.stringify(command)}\nargs = ${inline(plain.args)}\ntool_timeout_sec = ${TIMEOUT_SECONDS}\n`,
      withoutShell: { file: '~/.codex/config.toml', text: '[features]\nshell_tool = false\n' },
    },
    'gemini-cli': {
      command: `gemini mcp add --scope user --timeout ${TIMEOUT_SECONDS * 1000} acode ${typed}`,
      file: '~/.gemini/settings.json',
      text: json({ mcpServers: { acode: { ...plain, timeout: TIMEOUT_SECONDS * 1000 } } }),
      withoutShell: { file: '~/.gemini/settings.json', text: json({ tools: { exclude: ['run_shell_command'] } }) },
      also: 'Gemini starts MCP servers only in folders that it trusts: if `/mcp` shows acode as disabled, run `/permissions`.\n',
    },
    opencode: {
      file: '~/.config/opencode/opencode.json',
      text: json({
        mcp: {
          acode: { type: 'local', command: [command, ...plain.args], enabled: true, timeout: TIMEOUT_SECONDS * 1000 },
        },
      }),
      withoutShell: { file: '~/.config/opencode/opencode.json', text: json({ permission: { bash: 'deny' } }) },
    },
    cursor: {
      file: '.cursor/mcp.json in the project',
      text: json({ mcpServers: { acode: around } }),
      withoutShell: null,
    },
    vscode: {
      file: '.vscode/mcp.json in the project',
      text: json({ servers: { acode: { type: 'stdio', ...around } } }),
      withoutShell: null,
    },
  };
  return setups[client];
}

/** The setup as steps for a person. */
export function setupText({ command, file, text, withoutShell, also }: ClientSetup): string {
  const add =
    command === undefined
      ? [`Put this into ${file}:`, '', text]
      : ['Run:', '', `${command}\n`, `or put this into ${file}:`, '', text];
  const shell = withoutShell
    ? [
        `Then switch the agent’s own shell off, or it still runs commands on your machine. In ${withoutShell.file}:`,
        '',
        withoutShell.text,
      ]
    : ['Then switch the agent’s own shell off in its settings, or it still runs commands on your machine.\n'];
  return [...add, ...shell, ...(also === undefined ? [] : [also])].join('\n');
}

/**
 * What starts this acode: by its name where that leads to a program, and by its file otherwise, since a client knows no
 * alias of a shell.
 */
export function ownStarter(path: string | undefined, program: string, node: string): Starter {
  const isThere = (path ?? '').split(delimiter).some(directory => isProgram(join(directory, 'acode')));
  return isThere ? INSTALLED : { command: node, args: [program] };
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

function inline(argv: readonly string[]): string {
  return `[${argv.map(argument => JSON.stringify(argument)).join(', ')}]`;
}

// Short lists stand on one line, as people write them.
function json(value: object): string {
  const text = JSON.stringify(value, null, 2);
  return `${text.replaceAll(/\[\s+([^\]]*?)\s+\]/g, (_, items: string) => `[${items.replaceAll(/\s*\n\s*/g, ' ')}]`)}\n`;
}
