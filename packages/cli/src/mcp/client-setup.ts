// Client configuration: the text and the file for each MCP client.

import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';
import { quoted } from '../arguments/command-arguments.ts';

/** The clients whose setup is known. */
export const CLIENTS = ['claude-code', 'codex', 'cursor', 'vscode', 'gemini-cli'] as const;

/** One of {@link CLIENTS}. */
export type Client = (typeof CLIENTS)[number];

/** The setup of a client. */
export interface ClientSetup {
  /** The file for the text. */
  readonly file: string;
  readonly text: string;
}

const AROUND = ['--workspace', '${workspaceFolder}'];

/** What starts acode: a program, and the arguments before acode’s own. */
export interface Starter {
  readonly command: string;
  readonly args: readonly string[];
}

/** The starter where `acode` is a program that every client finds. */
export const INSTALLED: Starter = { command: 'acode', args: [] };

/** The setup of a client; with `workspace`, for that directory whatever the client has open. */
export function setupOf(client: Client, { command, args }: Starter = INSTALLED, workspace?: string): ClientSetup {
  const named = workspace === undefined ? null : ['--workspace', workspace];
  const plain = { command, args: [...args, 'mcp', ...(named ?? [])] };
  const around = { command, args: [...args, 'mcp', ...(named ?? AROUND)] };
  const setups: Readonly<Record<Client, ClientSetup>> = {
    'claude-code': {
      file: `.mcp.json in the project (or run: claude mcp add acode -- ${[command, ...plain.args].map(quoted).join(' ')})`,
      text: json({ mcpServers: { acode: plain } }),
    },
    codex: {
      file: '~/.codex/config.toml',
      text: `[mcp_servers.acode]\ncommand = ${JSON.stringify(command)}\nargs = ${inline(plain.args)}\ntool_timeout_sec = 600\n`,
    },
    cursor: { file: '.cursor/mcp.json in the project', text: json({ mcpServers: { acode: around } }) },
    vscode: {
      file: '.vscode/mcp.json in the project',
      text: json({ servers: { acode: { type: 'stdio', ...around } } }),
    },
    'gemini-cli': {
      file: '.gemini/settings.json in the project',
      text: json({ mcpServers: { acode: { ...plain, timeout: 600_000 } } }),
    },
  };
  return setups[client];
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
