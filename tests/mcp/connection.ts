// A client of the protocol, connected to the built command over standard streams or HTTP, in surroundings of its own.

import { once } from 'node:events';
import { readFileSync, readdirSync } from 'node:fs';
import type { ChildProcess } from 'node:child_process';
import type { Stream } from 'node:stream';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import type { RequestOptions } from '@modelcontextprotocol/sdk/shared/protocol.js';
import { CallToolResultSchema } from '@modelcontextprotocol/sdk/types.js';
import * as z from 'zod';
import { BIN, Bench } from '../cli/bench.ts';
import { everything } from '../support/targets.ts';

/** How a client is connected. */
export const WAYS = ['stdio', 'http'] as const;

/** The transports for what does not depend on them: one, and both in the long test suite. */
export const ways: readonly Way[] = everything ? WAYS : ['stdio'];

/** One of {@link WAYS}. */
export type Way = (typeof WAYS)[number];

/** What a tool answered. */
export interface Answered {
  readonly isError: boolean;
  readonly text: string;
  readonly structured: Record<string, unknown>;
}

/** A server over HTTP that was started. */
export interface HttpServer extends AsyncDisposable {
  readonly child: ChildProcess;
  readonly url: URL;
  readonly token: string;
}

const newClient = (): Client => new Client({ name: 'acode-tests', version: '1.0.0' });

/** A client, and the bench its server runs on. */
export class Connection implements AsyncDisposable {
  readonly bench: Bench;
  readonly client: Client;
  /** The process of the server. */
  readonly pid: number;
  /** What the server has said on standard error so far. */
  readonly said: () => string;
  readonly #ends: readonly (() => Promise<void>)[];

  private constructor(
    bench: Bench,
    client: Client,
    { pid, said }: { readonly pid: number; readonly said: () => string },
    ends: readonly (() => Promise<void>)[],
  ) {
    this.bench = bench;
    this.client = client;
    this.pid = pid;
    this.said = said;
    this.#ends = ends;
  }

  /** Starts a server on an engine and connects to it. */
  static async open(
    way: Way,
    engine: { readonly socket: string },
    sandbox: Readonly<Record<string, unknown>> = {},
    options: readonly string[] = [],
  ): Promise<Connection> {
    const bench = await Bench.at(engine);
    await bench.configure(sandbox);
    const client = newClient();
    if (way === 'stdio') {
      const transport = new StdioClientTransport({
        command: process.execPath,
        args: [BIN, 'mcp', ...options],
        env: bench.env,
        cwd: bench.workspace,
        stderr: 'pipe',
      });
      const said = textOf(transport.stderr);
      await client.connect(transport);
      return new Connection(bench, client, { pid: transport.pid ?? 0, said }, [() => client.close()]);
    }
    const server = await startHttp(bench);
    await client.connect(transportTo(server));
    const ends = [() => client.close(), async () => server[Symbol.asyncDispose]()];
    return new Connection(bench, client, { pid: server.child.pid ?? 0, said: textOf(server.child.stderr) }, ends);
  }

  /** Calls a tool. */
  call(name: string, given: Record<string, unknown> = {}, options?: RequestOptions): Promise<Answered> {
    return callOf(this.client, name, given, options);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const end of this.#ends) await end();
    await this.bench[Symbol.asyncDispose]();
  }
}

// What comes from a stream, as it is when asked.
function textOf(stream: Stream | null): () => string {
  let text = '';
  stream?.on('data', (chunk: Buffer) => (text += chunk.toString()));
  return () => text;
}

/** Calls a tool of a client’s server. */
export async function callOf(
  client: Client,
  name: string,
  given: Record<string, unknown> = {},
  options?: RequestOptions,
): Promise<Answered> {
  const answer = await client.callTool({ name, arguments: given }, CallToolResultSchema, {
    timeout: 120_000,
    ...options,
  });
  const { isError = false, content, structuredContent = {} } = CallToolResultSchema.parse(answer);
  const text = content.flatMap(part => (part.type === 'text' ? [part.text] : [])).join('\n');
  return { isError, text, structured: structuredContent };
}

/** A client’s way to a server over HTTP. */
function transportTo({ url, token }: Pick<HttpServer, 'url' | 'token'>): StreamableHTTPClientTransport {
  return new StreamableHTTPClientTransport(url, { requestInit: { headers: { Authorization: `Bearer ${token}` } } });
}

/** Another client of a server over HTTP. */
export async function anotherClient(server: HttpServer): Promise<Client> {
  const client = newClient();
  await client.connect(transportTo(server));
  return client;
}

/** Starts a server over HTTP. */
export async function startHttp(bench: Bench, env: Record<string, string> = {}): Promise<HttpServer> {
  const { child, ended } = bench.start(['mcp', '--http'], { env });
  let said = '';
  child.stderr?.on('data', (chunk: Buffer) => (said += chunk.toString()));
  const words = new Set(Object.keys(env).includes('ACODE_MCP_TOKEN') ? ['url'] : ['url', 'token']);
  const find = (): { url?: string; token?: string } => ({
    ...match(said, /at (http:\/\/\S+\/mcp)\./, 'url'),
    ...match(said, /the token is (\S+)\n/, 'token'),
  });
  while ([...words].some(word => !(word in find()))) await once(child.stderr ?? child, 'data');
  const { url = '', token = env['ACODE_MCP_TOKEN'] ?? '' } = find();
  return {
    child,
    url: new URL(url),
    token,
    [Symbol.asyncDispose]: async () => {
      child.kill('SIGTERM');
      await ended;
    },
  };
}

function match<Name extends string>(text: string, pattern: RegExp, name: Name): { [Key in Name]?: string } {
  const found: { [Key in Name]?: string } = {};
  const [, value] = pattern.exec(text) ?? [];
  if (value !== undefined) found[name] = value;
  return found;
}

/** Whether a process of this machine, in whatever sandbox, has these words. */
export function isRunning(words: readonly string[]): boolean {
  const wanted = `${words.join('\0')}\0`;
  return readdirSync('/proc').some(name => {
    if (!/^\d+$/.test(name)) return false;
    try {
      return readFileSync(`/proc/${name}/cmdline`, 'utf8') === wanted;
    } catch {
      return false;
    }
  });
}

/** A text of a structured answer. */
export function textIn(structured: Record<string, unknown>, name: string): string {
  return z.string().parse(structured[name]);
}
