// MCP clients whose setup acode knows. Apart from the setup itself: every call loads this for the options of `acode mcp`.

/** The clients. */
export const CLIENTS = ['claude-code', 'codex', 'gemini-cli', 'opencode', 'cursor', 'vscode'] as const;

/** One of {@link CLIENTS}. */
export type Client = (typeof CLIENTS)[number];
