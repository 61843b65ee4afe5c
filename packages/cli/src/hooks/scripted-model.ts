// Scripted model: speaks the protocols of the agents’ model providers on the loopback, and asks for tool calls in a fixed order. No
// real model is reached, so that what an agent does with each call can be checked offline.

import { once } from 'node:events';
import { createServer } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';

// Titles and summaries may be any text. Gemini also asks which model to use and who speaks next, as JSON.
const BESIDES = JSON.stringify({
  reasoning: 'scripted',
  model_choice: 'flash',
  complexity_reasoning: 'scripted',
  complexity_score: 1,
  next_speaker: 'user',
});
const MAX_BODY = 64 * 1024 ** 2;

/** A call of a tool, a search for tools that the agent loads on demand, or words that end the turn. */
export type Move =
  | {
      readonly tool: string;
      readonly given: Readonly<Record<string, unknown>>;
      readonly freeform?: string;
      /** Where Codex keeps the tool, if it is one of an MCP server. */
      readonly namespace?: string;
    }
  | { readonly search: string }
  | { readonly say: string };

/** What the model does next, by the results of the calls so far, the tools that the agent offers, and its first request of the user. */
export type Script = (results: readonly string[], offered: readonly string[], prompt: string) => Move | Promise<Move>;

interface Exchange {
  /** The names of the tools that the agent offers; none where it only wants text. */
  readonly offered: readonly string[];
  readonly results: readonly string[];
  /** The first words of the user in it; empty where no script needs them. */
  readonly prompt: string;
  readonly reply: (move: Move, response: ServerResponse) => void;
}

/** A model on the loopback that follows a script. */
export class ScriptedModel implements AsyncDisposable {
  readonly #server: Server;
  readonly #script: Script;
  /** What the agent sent back for each call, in order. */
  results: readonly string[] = [];
  /** The tools that the agent offered with its first request. */
  offered: readonly string[] = [];
  /** What was wrong with requests, as far as the protocols here go. */
  faults: readonly string[] = [];

  private constructor(script: Script) {
    this.#script = script;
    this.#server = createServer((request, response) => {
      this.#handle(request, response).catch((error: unknown) => {
        const reason = error instanceof Error ? error.message : '';
        this.faults = [...this.faults, reason];
        response.writeHead(500).end(reason);
      });
    });
  }

  /** Begins to listen. */
  static async listen(script: Script): Promise<ScriptedModel> {
    const model = new ScriptedModel(script);
    model.#server.listen(0, '127.0.0.1');
    await once(model.#server, 'listening');
    return model;
  }

  /** Where agents find it. */
  get url(): string {
    const address = this.#server.address();
    if (address === null || typeof address === 'string') throw new Error('the model does not listen');
    return `http://127.0.0.1:${address.port}`;
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.#server.close();
    this.#server.closeAllConnections();
    return Promise.resolve();
  }

  async #handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = (request.url ?? '').split('?')[0] ?? '';
    const body = request.method === 'POST' ? await bodyOf(request) : null;
    const exchange = body === null ? null : exchangeOf(path, body);
    if (exchange === null) {
      response.writeHead(404, { 'Content-Type': 'application/json' }).end('{"error":{"message":"not here"}}');
      return;
    }
    // What is besides the conversation is asked for without tools.
    if (exchange.offered.length === 0) return exchange.reply({ say: BESIDES }, response);
    if (this.offered.length === 0) this.offered = exchange.offered;
    if (exchange.results.length >= this.results.length) this.results = exchange.results;
    exchange.reply(await this.#script(exchange.results, exchange.offered, exchange.prompt), response);
  }
}

async function bodyOf(request: IncomingMessage): Promise<unknown> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of request) {
    if (!(chunk instanceof Buffer)) continue;
    bytes += chunk.length;
    if (bytes > MAX_BODY) throw new Error('the request is too large');
    chunks.push(chunk);
  }
  return JSON.parse(Buffer.concat(chunks).toString());
}

function exchangeOf(path: string, body: unknown): Exchange | null {
  const of = recordOf(body);
  if (path.endsWith('/v1/messages')) return messages(of);
  if (path.endsWith('/v1/responses')) return responses(of);
  if (path.endsWith('/v1/chat/completions')) return completions(of);
  if (/:(?:streamG|g)enerateContent$/.test(path)) return contents(of, path.includes(':stream'));
  return null;
}

// What agents send is read as far as it is understood; the rest counts as absent.
type Fields = Readonly<Record<string, unknown>>;

function recordOf(value: unknown): Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? { ...value } : {};
}

function listOf(value: unknown): readonly Fields[] {
  return Array.isArray(value) ? value.map(recordOf) : [];
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

// A result is text, or parts of which some are text.
function flat(content: unknown): string {
  return typeof content === 'string'
    ? content
    : listOf(content)
        .map(({ text }) => textOf(text))
        .join('\n');
}

function wordsOf(move: Move): string {
  return 'say' in move ? move.say : '';
}

let counted = 0;
const newId = (prefix: string): string => `${prefix}_${(counted += 1)}`;

function events(response: ServerResponse, all: readonly (readonly [name: string | null, data: unknown])[]): void {
  response.writeHead(200, { 'Content-Type': 'text/event-stream' });
  for (const [name, data] of all) {
    const text = typeof data === 'string' ? data : JSON.stringify(data);
    response.write(`${name === null ? '' : `event: ${name}\n`}data: ${text}\n\n`);
  }
  response.end();
}

function json(response: ServerResponse, body: unknown): void {
  response.writeHead(200, { 'Content-Type': 'application/json' }).end(JSON.stringify(body));
}

// Messages: Claude Code

function messages({ stream, tools, messages: all }: Fields): Exchange {
  const results = listOf(all)
    .flatMap(({ content }) => listOf(content))
    .flatMap(({ type, content }) => (type === 'tool_result' ? [flat(content)] : []));
  const offered = listOf(tools).map(({ name }) => textOf(name));
  const prompt = flat(listOf(all)[0]?.['content']);
  return { offered, results, prompt, reply: (move, to) => replyMessages(move, to, stream === true) };
}

function replyMessages(move: Move, response: ServerResponse, stream: boolean): void {
  const usage = { input_tokens: 1, output_tokens: 1 };
  const about = { id: newId('msg'), type: 'message', role: 'assistant', model: 'scripted', stop_sequence: null, usage };
  const call = 'tool' in move ? { type: 'tool_use', id: newId('toolu'), name: move.tool } : null;
  const given = 'tool' in move ? move.given : {};
  const text = wordsOf(move);
  const stop = call ? 'tool_use' : 'end_turn';
  if (!stream) {
    const content = call ? [{ ...call, input: given }] : [{ type: 'text', text }];
    return json(response, { ...about, content, stop_reason: stop });
  }
  const begin = call ? { ...call, input: {} } : { type: 'text', text: '' };
  const delta = call ? { type: 'input_json_delta', partial_json: JSON.stringify(given) } : { type: 'text_delta', text };
  const all = [
    { type: 'message_start', message: { ...about, content: [], stop_reason: null } },
    { type: 'content_block_start', index: 0, content_block: begin },
    { type: 'content_block_delta', index: 0, delta },
    { type: 'content_block_stop', index: 0 },
    { type: 'message_delta', delta: { stop_reason: stop, stop_sequence: null }, usage },
    { type: 'message_stop' },
  ];
  events(
    response,
    all.map(event => [event.type, event]),
  );
}

// Responses: Codex

function responses({ tools, input }: Fields): Exchange {
  const results = listOf(input).flatMap(({ type, output }) =>
    type === 'function_call_output' || type === 'custom_tool_call_output' ? [flat(output)] : [],
  );
  const offered = listOf(tools).map(({ name, type }) => textOf(name) || textOf(type));
  return { offered, results, prompt: '', reply: replyResponses };
}

function replyResponses(move: Move, response: ServerResponse): void {
  const id = newId('resp');
  const usage = { input_tokens: 1, output_tokens: 1, total_tokens: 2 };
  const item = responseItem(move);
  const all = [
    { type: 'response.created', response: { id } },
    { type: 'response.output_item.done', output_index: 0, item },
    { type: 'response.completed', response: { id, output: [item], usage } },
  ];
  events(
    response,
    all.map(event => [event.type, event]),
  );
}

function responseItem(move: Move): object {
  if ('say' in move)
    return { type: 'message', id: newId('msg'), role: 'assistant', content: [{ type: 'output_text', text: move.say }] };
  const about = { id: newId('item'), call_id: newId('call') };
  if ('search' in move) {
    const given = { query: move.search };
    return { ...about, type: 'tool_search_call', execution: 'client', status: 'completed', arguments: given };
  }
  const { tool, given, freeform, namespace } = move;
  const call = { ...about, name: tool, ...(namespace === undefined ? {} : { namespace }) };
  if (freeform !== undefined) return { ...call, type: 'custom_tool_call', input: freeform };
  return { ...call, type: 'function_call', arguments: JSON.stringify(given) };
}

// Chat completions: opencode

function completions({ stream, tools, messages: all }: Fields): Exchange {
  const results = listOf(all).flatMap(({ role, content }) => (role === 'tool' ? [flat(content)] : []));
  const offered = listOf(tools).map(tool => textOf(recordOf(tool['function'])['name']));
  return { offered, results, prompt: '', reply: (move, to) => replyCompletions(move, to, stream === true) };
}

function replyCompletions(move: Move, response: ServerResponse, stream: boolean): void {
  const about = { id: newId('chat'), created: 1, model: 'scripted' };
  const usage = { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 };
  const called = 'tool' in move && {
    id: newId('call'),
    type: 'function',
    function: { name: move.tool, arguments: JSON.stringify(move.given) },
  };
  const finish = called ? 'tool_calls' : 'stop';
  const message = called
    ? { role: 'assistant', content: null, tool_calls: [{ index: 0, ...called }] }
    : { role: 'assistant', content: wordsOf(move) };
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

// Contents: Gemini CLI

function contents({ tools, contents: all }: Fields, stream: boolean): Exchange {
  const results = listOf(all)
    .flatMap(({ parts }) => listOf(parts))
    .flatMap(({ functionResponse: one }) => (one === undefined ? [] : [contentText(recordOf(one)['response'])]));
  const offered = listOf(tools).flatMap(({ functionDeclarations: some }) =>
    listOf(some).map(({ name }) => textOf(name)),
  );
  return { offered, results, prompt: '', reply: (move, to) => replyContents(move, to, stream) };
}

function contentText(response: unknown): string {
  const { output, error } = recordOf(response);
  return textOf(output) || textOf(error) || JSON.stringify(response);
}

function replyContents(move: Move, response: ServerResponse, stream: boolean): void {
  const part = 'tool' in move ? { functionCall: { name: move.tool, args: move.given } } : { text: wordsOf(move) };
  const body = {
    candidates: [{ index: 0, content: { role: 'model', parts: [part] }, finishReason: 'STOP' }],
    usageMetadata: { promptTokenCount: 1, candidatesTokenCount: 1, totalTokenCount: 2 },
    modelVersion: 'scripted',
  };
  if (stream) events(response, [[null, body]]);
  else json(response, body);
}
