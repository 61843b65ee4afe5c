// How each client is told of the server: the text to copy, and the file it goes into.

/** The clients whose setup is known. */
export const CLIENTS = ['claude-code', 'codex', 'cursor', 'vscode', 'gemini-cli'] as const;

/** One of {@link CLIENTS}. */
export type Client = (typeof CLIENTS)[number];

/** The setup of a client. */
export interface ClientSetup {
  /** Where the text goes. */
  readonly file: string;
  readonly text: string;
}

const AROUND = ['mcp', '--workspace', '${workspaceFolder}'];

const SETUPS: Readonly<Record<Client, ClientSetup>> = {
  'claude-code': {
    file: '.mcp.json in the project (or run: claude mcp add acode -- acode mcp)',
    text: json({ mcpServers: { acode: { command: 'acode', args: ['mcp'] } } }),
  },
  codex: {
    file: '~/.codex/config.toml',
    text: '[mcp_servers.acode]\ncommand = "acode"\nargs = ["mcp"]\ntool_timeout_sec = 600\n',
  },
  cursor: {
    file: '.cursor/mcp.json in the project',
    text: json({ mcpServers: { acode: { command: 'acode', args: AROUND } } }),
  },
  vscode: {
    file: '.vscode/mcp.json in the project',
    text: json({ servers: { acode: { type: 'stdio', command: 'acode', args: AROUND } } }),
  },
  'gemini-cli': {
    file: '.gemini/settings.json in the project',
    text: json({ mcpServers: { acode: { command: 'acode', args: ['mcp'], timeout: 600_000 } } }),
  },
};

/** The setup of a client. */
export function setupOf(client: Client): ClientSetup {
  return SETUPS[client];
}

// Short lists stand on one line, as people write them.
function json(value: object): string {
  const text = JSON.stringify(value, null, 2);
  return `${text.replaceAll(/\[\s+([^\]]*?)\s+\]/g, (_, items: string) => `[${items.replaceAll(/\s*\n\s*/g, ' ')}]`)}\n`;
}
