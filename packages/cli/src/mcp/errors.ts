// Errors of the MCP server, each with a message and a hint for the model that called a tool.

import { defineErrors, errorEntry } from '@acode/sandbox';

/** Every error of the MCP server, by code. */
export const MCP_ERRORS = defineErrors({
  'ACODE-MCP-001': errorEntry<{
    tool: string;
    field: string;
    reason: string;
    /** Of an unknown argument: those that the tool takes, and the nearest of them. */
    known?: readonly string[];
    nearest?: string;
  }>({
    title: 'tool called with wrong arguments',
    message: c => {
      if (c.known)
        return `Unknown argument \`${c.field}\`: ${c.tool} takes ${c.known.length === 0 ? 'no arguments' : c.known.join(', ')}.`;
      return c.field === '' ? `${c.tool}: ${c.reason}.` : `${c.tool}: \`${c.field}\` ${c.reason}.`;
    },
    hint: c => {
      if (c.nearest !== undefined) return `Use \`${c.nearest}\` instead of \`${c.field}\`; nothing was run.`;
      if (c.known) return `Leave \`${c.field}\` out, or tell the user what you need it for; nothing was run.`;
      return `Call ${c.tool} again with the arguments that its schema lists; nothing was run.`;
    },
    exit: 125,
    example: {
      tool: 'read_file',
      field: 'file_path',
      reason: 'is not an argument of this tool',
      known: ['path', 'first_line', 'lines', 'sandbox_id'],
      nearest: 'path',
    },
  }),
  'ACODE-MCP-002': errorEntry<{ tool: string; known: string }>({
    title: 'no such tool',
    message: c => `There is no tool ${c.tool}.`,
    hint: c => `The tools are ${c.known}.`,
    exit: 125,
    example: { tool: 'run_on_host', known: 'run_command, open_sandbox' },
  }),
  'ACODE-MCP-003': errorEntry<{ running: number; waiting: number }>({
    title: 'too many tool calls at once',
    message: c => `${c.running} calls run and ${c.waiting} wait already; this one was not begun.`,
    hint: () => 'Wait for answers before calling more tools, then call this one again.',
    exit: 125,
    example: { running: 8, waiting: 64 },
  }),
  'ACODE-MCP-004': errorEntry<{ sandbox: string }>({
    title: 'no such sandbox in this session',
    message: c => `This session has no open sandbox ${c.sandbox}.`,
    hint: () =>
      'list_sandboxes shows the open ones; open_sandbox opens another. Without sandbox_id the session’s default one is used.',
    exit: 125,
    example: { sandbox: 'a1b2c3d4-0000-4000-8000-000000000000' },
  }),
  'ACODE-MCP-005': errorEntry<{ command: string }>({
    title: 'no such background command',
    message: c => `This session has no background command ${c.command}.`,
    hint: () => 'Use the command_id that run_in_sandbox gave; it is forgotten when its sandbox is closed.',
    exit: 125,
    example: { command: 'command-7' },
  }),
  'ACODE-MCP-006': errorEntry<{ field: string; asked: string; allowed: string }>({
    title: 'looser than the user’s policy',
    message: c => `\`${c.field}\` ${c.asked} is weaker than what the user’s policy asks for (${c.allowed}).`,
    hint: c =>
      `Leave \`${c.field}\` out, or ask for something stricter. Only the user can loosen the policy, in their own configuration.`,
    exit: 125,
    example: { field: 'level', asked: 'none', allowed: 'docker' },
  }),
  'ACODE-MCP-007': errorEntry<{ limit: string }>({
    title: 'message too large',
    message: c => `The message is larger than ${c.limit} and was not read.`,
    hint: () => 'Send less at once: write a large file in parts with `append`, or make it inside the sandbox.',
    exit: 125,
    example: { limit: '4 MiB' },
  }),
  'ACODE-MCP-008': errorEntry<{ reason: string }>({
    title: 'client not admitted',
    message: c => `The request was not admitted: ${c.reason}.`,
    hint: () =>
      'Send `Authorization: Bearer <token>` to http://127.0.0.1:<port>/mcp; `acode mcp --http` says both when it starts.',
    exit: 125,
    example: { reason: 'the token is missing or wrong' },
  }),
  'ACODE-MCP-009': errorEntry<{ operation: string; path: string; reason: string; remedy?: string }>({
    title: 'file in a sandbox not accessible',
    message: c => `${c.operation}: ${c.path}: ${c.reason}.`,
    hint: c =>
      c.remedy ??
      'Paths are those inside the sandbox; a relative one begins in the workspace. list_directory shows what is there.',
    exit: 125,
    example: { operation: 'read_file', path: 'src/missing.ts', reason: 'does not exist' },
  }),
  'ACODE-MCP-010': errorEntry<{ what: string; limit: number; remedy: string }>({
    title: 'too much open in this session',
    message: c => `Limit reached: ${c.limit} ${c.what}.`,
    hint: c => c.remedy,
    exit: 125,
    example: { what: 'open sandboxes', limit: 8, remedy: 'Close one with close_sandbox first.' },
  }),
  'ACODE-MCP-011': errorEntry<{ source: string; reason: string }>({
    title: 'token not usable',
    message: c => `The token in ${c.source} is not used: ${c.reason}.`,
    hint: () =>
      'Use at least 32 random letters and digits, in ACODE_MCP_TOKEN or in a file that you own with mode 0600. Without either, acode generates a token.',
    exit: 125,
    example: { source: 'ACODE_MCP_TOKEN', reason: 'it is shorter than 32 characters' },
  }),
  'ACODE-MCP-012': errorEntry<{ output: string }>({
    title: 'no such kept output',
    message: c => `The output ${c.output} is not kept any more, or never was.`,
    hint: () =>
      'Only the newest outputs of a session are kept. Run the command again and let it print less, or write to a file.',
    exit: 125,
    example: { output: 'acode://output/3' },
  }),
  'ACODE-MCP-013': errorEntry<{ reason: string }>({
    title: 'message not understood',
    message: c => `The message was not understood: ${c.reason}.`,
    hint: () => 'Send one JSON-RPC 2.0 message of the Model Context Protocol at a time.',
    exit: 125,
    example: { reason: 'it is not JSON' },
  }),
  'ACODE-MCP-014': errorEntry<{ port: number; reason: string }>({
    title: 'address not available',
    message: c => `acode cannot listen on 127.0.0.1:${c.port}: ${c.reason}.`,
    hint: () => 'Choose another --port, or leave it out to use a free one.',
    exit: 125,
    example: { port: 8931, reason: 'something else listens on it' },
  }),
  'ACODE-MCP-015': errorEntry<{ tool: string; seconds: number }>({
    title: 'tool took too long',
    message: c => `${c.tool} timed out after ${c.seconds} s.`,
    hint: () =>
      'Its target does not respond, such as a command that does not read its input. Stop the command, then try again.',
    exit: 125,
    example: { tool: 'write_input', seconds: 90 },
  }),
  'ACODE-MCP-016': errorEntry<{
    path: string;
    /** How often the text is in the file. */
    found: number;
    /** The lines where it begins, the first of them. */
    lines: readonly number[];
    /** Whether there are more lines. */
    more?: boolean;
    /** Lines that differ from the first line of the text in their spaces only. */
    similar?: readonly number[];
  }>({
    title: 'text to replace not found, or not unique',
    message: c =>
      c.found === 0
        ? `edit_file: ${c.path}: \`old_string\` was not found; nothing was changed.`
        : `edit_file: ${c.path}: \`old_string\` was found ${c.found} times, at ${c.lines.length === 1 ? 'line' : 'lines'} ${c.lines.join(', ')}${c.more === true ? ' and more' : ''}; nothing was changed.`,
    hint: c => {
      if (c.found > 0)
        return 'Include lines before or after it, so that it is found once, or set `replace_all` to replace each.';
      const near = c.similar ? ` Its first line is at line ${c.similar.join(', ')} with other spaces.` : '';
      return `Read the file again and copy the text exactly, with its spaces and line breaks.${near}`;
    },
    exit: 125,
    example: { path: 'src/app.ts', found: 3, lines: [4, 9, 17] },
  }),
});

/** Makes an error of the MCP server. */
export const mcpError = MCP_ERRORS.create;
