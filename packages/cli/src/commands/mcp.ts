// `acode mcp`: MCP server for agents that run commands and edit files in sandboxes.

import { resolve } from 'node:path';
import { Command, InvalidArgumentError, Option } from '@commander-js/extra-typings';
import { requestCommand } from '../arguments/request.ts';
import type { Call, Perform } from '../call.ts';
import { execute } from '../execution/execute.ts';
import { UsageError } from '../failure/usage.ts';
import { CLIENTS } from '../mcp/clients.ts';
import type { Client } from '../mcp/clients.ts';
import type { HttpFacts } from '../mcp/serve-mcp.ts';
import { flagsOf } from './exec.ts';

/** The command. */
export function mcpCommand(perform: Perform) {
  return new Command('mcp')
    .enablePositionalOptions()
    .description('Serve sandboxes to an agent over the Model Context Protocol')
    .optionsGroup('Server options:')
    .addOption(new Option('--http', 'listen on 127.0.0.1 instead of standard input and output'))
    .addOption(new Option('--port <number>', 'with --http: the port (default: a free one)').argParser(portNumber))
    .addOption(new Option('--token-file <file>', 'with --http: a file of mode 0600 that holds the token'))
    .addOption(new Option('--fork [name]', 'commands write a fork of the workspace: the current one, =new, or =<name>'))
    .addOption(clientOption())
    .action((options, command) => perform(command, call => serve(call, options)))
    .addCommand(wrapCommand(perform));
}

// A client starts its other servers on this machine, with everything that the user can read.
function wrapCommand(perform: Perform) {
  return requestCommand('wrap')
    .description('Run another MCP server in a fresh sandbox, for a client that starts it')
    .usage('[options] -- <program> [arguments…]')
    .addHelpText('after', WRAP_HELP)
    .action((argv, options, command) =>
      perform(command, call => {
        if (call.options.json)
          throw new UsageError('`acode mcp wrap` passes on what the server prints.', 'Leave --json out.');
        // Limits of a long session, unless the client's configuration says otherwise.
        return execute(call, argv, { ...options, profile: options.profile ?? 'agent' }, flagsOf(command));
      }),
    );
}

const WRAP_HELP = `
Put this in place of the server’s own command in the configuration of the client. Profile agent by default: 8 hours.`;

// Many call Claude Code by the name of its command.
function clientOption() {
  const option = new Option('--print-config <client>', 'print how to set up a client, then exit').choices(CLIENTS);
  const check = option.parseArg;
  option.parseArg = (name, before) => check?.(name === 'claude' ? 'claude-code' : name, before) ?? before;
  return option;
}

interface McpOptions {
  readonly http?: true | undefined;
  readonly port?: number | undefined;
  readonly tokenFile?: string | undefined;
  readonly printConfig?: Client | undefined;
  readonly fork?: string | true | undefined;
}

async function serve(call: Call, { http, port, tokenFile, printConfig, fork }: McpOptions): Promise<number> {
  if (printConfig !== undefined) return printSetup(call, printConfig, fork);
  if (http === undefined) refuseWithoutHttp(call, port !== undefined || tokenFile !== undefined);
  // What only a server needs is loaded by a server only.
  const { serveHttp, serveStandardStreams } = await import('../mcp/serve-mcp.ts');
  if (http === undefined) {
    await greet(call);
    await serveStandardStreams(call, fork);
  } else
    await serveHttp(call, { port: port ?? 0, tokenFile: tokenFile && resolve(call.io.cwd(), tokenFile), fork }, facts =>
      announce(call, facts),
    );
  return 0;
}

function refuseWithoutHttp(call: Call, isForHttp: boolean): void {
  if (isForHttp) throw new UsageError('--port and --token-file need --http.', 'Add --http, or leave them out.');
  if (call.options.json)
    throw new UsageError('`acode mcp` speaks its own protocol on standard output.', 'Leave --json out.');
}

// Whoever types it sees a server that says nothing.
async function greet(call: Call): Promise<void> {
  const setup = '`acode mcp --print-config <client>` shows how to set one up';
  if (call.io.stdin.isTTY) await call.say(`acode: waiting for a client on standard input; ${setup}. Ctrl-C ends it.\n`);
}

async function printSetup(call: Call, client: Client, fork: McpOptions['fork']): Promise<number> {
  const { ownStarter, setupOf, setupText } = await import('../mcp/client-setup.ts');
  const starter = ownStarter(call.io.env['PATH'], resolve(process.argv[1] ?? 'acode'), process.execPath);
  const { workspace } = call.options;
  // A client starts the server wherever it likes.
  const named = workspace === undefined ? undefined : resolve(call.io.cwd(), workspace);
  const forking = fork === undefined ? [] : [fork === true ? '--fork' : `--fork=${fork}`];
  const setup = setupOf(client, starter, named, forking);
  await call.print('acode.mcp-config/1', { client, ...setup }, () => setupText(setup));
  return 0;
}

// The token is said once and on standard error: what is printed elsewhere ends in logs and histories.
async function announce(call: Call, { url, token }: HttpFacts): Promise<void> {
  if (call.options.json) await call.printJson('acode.mcp/1', { url });
  await call.say(`acode: serving the Model Context Protocol at ${url}. Ctrl-C ends it.\n`);
  if (token.isNew) await call.say(`acode: the token is ${token.value}\n`);
}

const LAST = 65_535;

/** The number. */
function portNumber(text: string): number {
  const value = /^\d{1,5}$/.test(text) ? Number(text) : NaN;
  if (!(value >= 1 && value <= LAST)) throw new InvalidArgumentError(`Expected a port from 1 to ${LAST}.`);
  return value;
}
