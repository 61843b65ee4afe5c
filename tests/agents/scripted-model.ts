// Scripted model: speaks the protocols of the agents’ model providers and asks for tool calls in a fixed order. What the agent
// sends back for each call is kept as it came.

import { once } from 'node:events';
import { createServer } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout } from 'node:timers/promises';
import * as z from 'zod';

// Titles and summaries may be any text. Gemini also asks which model to use and who speaks next, as JSON, and asks again for
// minutes where the answer is another.
const BESIDES = JSON.stringify({
  reasoning: 'scripted',
  model_choice: 'flash',
  complexity_reasoning: 'scripted',
  complexity_score: 1,
  next_speaker: 'user',
});
const TRY_MS = 100;
const MAX_TRIES = 600;

/** What the model does next: calls a tool of the MCP server, or says something and ends its turn. */
export type Move =
  { readonly tool: string; readonly given: Readonly<Record<string, unknown>> } | { readonly say: string };

/** Decides by the results of the calls so far. */
export type Script = (results: readonly string[]) => Move;

/** A request to a model, and the reply in its protocol. */
interface Exchange {
  /** The names of the tools that the agent offers; none where it only wants text. */
  readonly offered: readonly string[];
  readonly results: readonly string[];
  readonly reply: (move: Move, response: ServerResponse) => void;
}

/** A server on the loopback. */
export class ScriptedModel implements AsyncDisposable {
  readonly #server: Server;
  #script: Script = () => ({ say: 'done' });
  #isReady: () => boolean = () => true;
  /** The tools that were offered with the first request of a script. */
  offered: readonly string[] = [];
  /** What the agent sent for each call, in order. */
  results: readonly string[] = [];
  /** What was wrong with requests, as far as the protocols here go. */
  readonly faults: string[] = [];

  private constructor() {
    this.#server = createServer((request, response) => {
      this.#handle(request, response).catch((error: unknown) => {
        this.faults.push(String(error));
        response.writeHead(500).end(String(error));
      });
    });
  }

  /** Begins to listen. */
  static async listen(): Promise<ScriptedModel> {
    const model = new ScriptedModel();
    model.#server.listen(0, '127.0.0.1');
    await once(model.#server, 'listening');
    return model;
  }

  /** Where agents find it. */
  get url(): string {
    const address: AddressInfo | string | null = this.#server.address();
    if (address === null || typeof address === 'string') throw new Error('the model does not listen');
    return `http://127.0.0.1:${address.port}`;
  }

  /** What it does from now on; a real model takes longer for its first answer than a server for its start. */
  follow(script: Script, isReady: () => boolean): void {
    this.#script = script;
    this.#isReady = isReady;
    this.offered = [];
    this.results = [];
    this.faults.length = 0;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.close();
    this.#server.closeAllConnections();
    await Promise.resolve();
  }

  async #handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = (request.url ?? '').split('?')[0] ?? '';
    const chunks: Buffer[] = [];
    for await (const chunk of request) if (chunk instanceof Buffer) chunks.push(chunk);
    const text = Buffer.concat(chunks).toString();
    const exchange = request.method === 'POST' ? exchangeOf(path, text) : null;
    if (exchange === null) {
      response.writeHead(404, { 'Content-Type': 'application/json' }).end('{"error":{"message":"not here"}}');
      return;
    }
    // What is besides the conversation is asked for without tools.
    if (exchange.offered.length === 0) return exchange.reply({ say: BESIDES }, response);
    if (this.offered.length === 0) this.offered = exchange.offered;
    if (exchange.results.length >= this.results.length) this.results = exchange.results;
    for (let tries = 0; tries < MAX_TRIES && !this.#isReady(); tries += 1) await setTimeout(TRY_MS);
    exchange.reply(this.#script(exchange.results), response);
  }
}

function exchangeOf(path: string, text: string): Exchange | null {
  if (path.endsWith('/v1/messages')) return anthropic(JSON.parse(text));
  if (path.endsWith('/v1/responses')) return responses(JSON.parse(text));
  if (path.endsWith('/v1/chat/completions')) return completions(JSON.parse(text));
  if (/:(?:streamG|g)enerateContent$/.test(path)) return gemini(JSON.parse(text), path.includes(':stream'));
  return null;
}

let counted = 0;
const newId = (prefix: string): string => `${prefix}_${(counted += 1)}`;

function events(response: ServerResponse, all: readonly (readonly [name: string | null, data: unknown])[]): void {
  response.writeHead(200, { 'Content-Type': 'text/event-stream' });
  for (const [name, data] of all) {
    const body = typeof data === 'string' ? data : JSON.stringify(data);
    response.write(`${name === null ? '' : `event: ${name}\n`}data: ${body}\n\n`);
  }
  response.end();
}

function json(response: ServerResponse, body: unknown): void {
  response.writeHead(200, { 'Content-Type': 'application/json' }).end(JSON.stringify(body));
}

// A result is text, or parts of which some are text.
const parts = z.union([z.string(), z.array(z.looseObject({ text: z.string().optional() }))]);
const flat = (content: z.output<typeof parts>): string =>
  typeof content === 'string' ? content : content.map(({ text = '' }) => text).join('\n');

// Claude Code

const anthropicSchema = z.looseObject({
  stream: z.boolean().optional(),
  tools: z.array(z.looseObject({ name: z.string() })).optional(),
  messages: z.array(
    z.looseObject({
      content: z.union([z.string(), z.array(z.looseObject({ type: z.string(), content: parts.optional() }))]),
    }),
  ),
});

function anthropic(body: unknown): Exchange {
  const { stream = false, tools = [], messages } = anthropicSchema.parse(body);
  const results = messages
    .flatMap(({ content }) => (typeof content === 'string' ? [] : content))
    .flatMap(({ type, content }) => (type === 'tool_result' ? [flat(content ?? '')] : []));
  return { offered: tools.map(({ name }) => name), results, reply: (move, to) => replyAnthropic(move, to, stream) };
}

function replyAnthropic(move: Move, response: ServerResponse, stream: boolean): void {
  const usage = { input_tokens: 1, output_tokens: 1 };
  const isCall = 'tool' in move;
  const stop = isCall ? 'tool_use' : 'end_turn';
  const about = { id: newId('msg'), type: 'message', role: 'assistant', model: 'scripted', stop_sequence: null, usage };
  const call = isCall ? { type: 'tool_use', id: newId('toolu'), name: `mcp__acode__${move.tool}` } : null;
  const text = 'say' in move ? move.say : '';
  if (!stream) {
    const content = isCall ? [{ ...call, input: move.given }] : [{ type: 'text', text }];
    return json(response, { ...about, content, stop_reason: stop });
  }
  const [begin, delta] = isCall
    ? [
        { ...call, input: {} },
        { type: 'input_json_delta', partial_json: JSON.stringify(move.given) },
      ]
    : [
        { type: 'text', text: '' },
        { type: 'text_delta', text },
      ];
  events(
    response,
    [
      { type: 'message_start', message: { ...about, content: [], stop_reason: null } },
      { type: 'content_block_start', index: 0, content_block: begin },
      { type: 'content_block_delta', index: 0, delta },
      { type: 'content_block_stop', index: 0 },
      { type: 'message_delta', delta: { stop_reason: stop, stop_sequence: null }, usage },
      { type: 'message_stop' },
    ].map(event => [event.type, event]),
  );
}

// Codex

const nested = z.array(z.looseObject({ name: z.string().optional() })).optional();
const responsesSchema = z.looseObject({
  tools: z.array(z.looseObject({ type: z.string(), name: z.string().optional() })).optional(),
  input: z.array(
    z.looseObject({
      type: z.string().optional(),
      output: parts.optional(),
      arguments: z.unknown().optional(),
      tools: z.array(z.looseObject({ name: z.string().optional(), tools: nested })).optional(),
    }),
  ),
});

// Codex loads tools of MCP servers on demand. What a model would look for, in words of its task and not of acode.
const QUERIES: Readonly<Record<string, string>> = {
  run_command: 'run a shell command',
  edit_file: 'edit a file',
  run_in_sandbox: 'start a server in the background',
  read_output: 'read output of background command',
  stop_command: 'stop background command',
};

function responses(body: unknown): Exchange {
  const { tools = [], input } = responsesSchema.parse(body);
  const results = input.flatMap(({ type, output }) => (type === 'function_call_output' ? [flat(output ?? '')] : []));
  const loaded = input.flatMap(item => item.tools ?? []).flatMap(one => (one.tools ?? []).map(({ name = '' }) => name));
  const searched = input.flatMap(({ type, arguments: given }) =>
    type === 'tool_search_call' ? [JSON.stringify(given)] : [],
  );
  const reply = (move: Move, to: ServerResponse): void => {
    const query = 'tool' in move && !loaded.includes(move.tool) ? (QUERIES[move.tool] ?? move.tool) : null;
    const isNew = query !== null && !searched.some(one => one.includes(query));
    replyResponses(isNew ? { query } : move, to);
  };
  return { offered: tools.map(({ name, type }) => name ?? type), results, reply };
}

function replyResponses(move: Move | { readonly query: string }, response: ServerResponse): void {
  const id = newId('resp');
  const usage = { input_tokens: 1, output_tokens: 1, total_tokens: 2 };
  const item = responseItem(move);
  events(
    response,
    [
      { type: 'response.created', response: { id } },
      { type: 'response.output_item.done', output_index: 0, item },
      { type: 'response.completed', response: { id, output: [item], usage } },
    ].map(event => [event.type, event]),
  );
}

function responseItem(move: Move | { readonly query: string }): object {
  const call = { id: newId('item'), call_id: newId('call') };
  if ('query' in move)
    return {
      ...call,
      type: 'tool_search_call',
      execution: 'client',
      status: 'completed',
      arguments: { query: move.query },
    };
  if ('say' in move)
    return { type: 'message', id: newId('msg'), role: 'assistant', content: [{ type: 'output_text', text: move.say }] };
  const given = JSON.stringify(move.given);
  return { ...call, type: 'function_call', namespace: 'mcp__acode', name: move.tool, arguments: given };
}

// opencode

const completionsSchema = z.looseObject({
  stream: z.boolean().optional(),
  tools: z.array(z.looseObject({ function: z.looseObject({ name: z.string() }) })).optional(),
  messages: z.array(z.looseObject({ role: z.string(), content: parts.nullish() })),
});

function completions(body: unknown): Exchange {
  const { stream = false, tools = [], messages } = completionsSchema.parse(body);
  const results = messages.flatMap(({ role, content }) => (role === 'tool' ? [flat(content ?? '')] : []));
  return { offered: tools.map(one => one.function.name), results, reply: (move, to) => replyChat(move, to, stream) };
}

function replyChat(move: Move, response: ServerResponse, stream: boolean): void {
  const about = { id: newId('chat'), created: 1, model: 'scripted' };
  const usage = { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 };
  const called = 'tool' in move && {
    id: newId('call'),
    type: 'function',
    function: { name: `acode_${move.tool}`, arguments: JSON.stringify(move.given) },
  };
  const finish = called ? 'tool_calls' : 'stop';
  const message = called
    ? { role: 'assistant', content: null, tool_calls: [{ index: 0, ...called }] }
    : { role: 'assistant', content: 'say' in move ? move.say : '' };
  if (!stream) {
    const choices = [{ index: 0, message, finish_reason: finish }];
    return json(response, { ...about, object: 'chat.completion', choices, usage });
  }
  const chunk = { ...about, object: 'chat.completion.chunk' };
  events(response, [
    [null, { ...chunk, choices: [{ index: 0, delta: message, finish_reason: null }] }],
    [null, { ...chunk, choices: [{ index: 0, delta: {}, finish_reason: finish }], usage }],
    [null, '[DONE]'],
  ]);
}

// Gemini CLI

const geminiSchema = z.looseObject({
  tools: z
    .array(z.looseObject({ functionDeclarations: z.array(z.looseObject({ name: z.string() })).optional() }))
    .optional(),
  contents: z.array(
    z.looseObject({
      parts: z
        .array(z.looseObject({ functionResponse: z.looseObject({ response: z.unknown().optional() }).optional() }))
        .optional(),
    }),
  ),
});

const outputSchema = z.looseObject({ output: z.string().optional(), error: z.string().optional() });

function gemini(body: unknown, stream: boolean): Exchange {
  const { tools = [], contents } = geminiSchema.parse(body);
  const results = contents
    .flatMap(content => content.parts ?? [])
    .flatMap(({ functionResponse: one }) => (one ? [geminiText(one.response)] : []));
  const offered = tools.flatMap(({ functionDeclarations: all = [] }) => all.map(({ name }) => name));
  return { offered, results, reply: (move, to) => replyGemini(move, to, stream) };
}

function geminiText(response: unknown): string {
  const { output, error } = outputSchema.parse(response);
  return output ?? error ?? JSON.stringify(response);
}

function replyGemini(move: Move, response: ServerResponse, stream: boolean): void {
  const part =
    'tool' in move ? { functionCall: { name: `mcp_acode_${move.tool}`, args: move.given } } : { text: move.say };
  const body = {
    candidates: [{ index: 0, content: { role: 'model', parts: [part] }, finishReason: 'STOP' }],
    usageMetadata: { promptTokenCount: 1, candidatesTokenCount: 1, totalTokenCount: 2 },
    modelVersion: 'scripted',
  };
  if (stream) events(response, [[null, body]]);
  else json(response, body);
}
