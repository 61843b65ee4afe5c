// MCP over standard input and output: one message per line of bounded length, and an error answer to anything else.

import type { AcodeError } from '@acode/sandbox';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { JSONRPCMessageSchema } from '@modelcontextprotocol/sdk/types.js';
import type { JSONRPCMessage } from '@modelcontextprotocol/sdk/types.js';
import type { InputStream } from '../io.ts';
import type { Output } from '../terminal/output.ts';
import { MAX_MESSAGE, NOT_A_REQUEST, NOT_JSON, refusalOf } from './messages.ts';
import { mcpError } from './errors.ts';

const MAX_UNWRITTEN = 256;

/** The transport. The one of the protocol’s library would close at the first line that is too long. */
export class StandardStreams implements Transport {
  onclose?: (() => void) | undefined;
  onerror?: ((error: Error) => void) | undefined;
  onmessage?: ((message: JSONRPCMessage) => void) | undefined;
  /** Settles when the client has ended its side, or reads no more. */
  readonly ended: Promise<void>;
  readonly #input: InputStream;
  readonly #output: Output;
  readonly #lines: CappedLines;
  readonly #take = (chunk: Uint8Array | string): void => this.#lines.push(Buffer.from(chunk));
  #end: () => void = () => undefined;
  #closed = false;
  #written: Promise<void> = Promise.resolve();
  #unwritten = 0;

  constructor(input: InputStream, output: Output) {
    this.#input = input;
    this.#output = output;
    this.ended = new Promise(resolve => (this.#end = resolve));
    this.#lines = new CappedLines(MAX_MESSAGE, {
      line: text => this.#hear(text),
      tooLong: () => this.#refuse(NOT_A_REQUEST, mcpError('ACODE-MCP-007', { limit: '4 MiB' })),
    });
  }

  async start(): Promise<void> {
    this.#input.on('data', this.#take);
    for (const event of ['end', 'close', 'error']) this.#input.once(event, () => this.#end());
  }

  async send(message: JSONRPCMessage): Promise<void> {
    await this.#write(message);
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#input.off('data', this.#take);
    this.#input.pause();
    this.#end();
    this.onclose?.();
  }

  #hear(text: string): void {
    let value: unknown;
    try {
      value = JSON.parse(text);
    } catch {
      this.#refuse(NOT_JSON, mcpError('ACODE-MCP-013', { reason: 'it is not JSON' }));
      return;
    }
    const parsed = JSONRPCMessageSchema.safeParse(value);
    if (parsed.success) this.onmessage?.(parsed.data);
    else
      this.#refuse(NOT_A_REQUEST, mcpError('ACODE-MCP-013', { reason: 'it is not a message of JSON-RPC 2.0' }), value);
  }

  #refuse(code: number, error: AcodeError, about?: unknown): void {
    void this.#write(refusalOf(code, error, about));
  }

  // One after the other: input of a client that does not read its answers is not read either, or they would fill the memory.
  #write(message: object): Promise<void> {
    this.#unwritten += 1;
    if (this.#unwritten > MAX_UNWRITTEN) this.#input.pause();
    this.#written = this.#written.then(() => this.#writeNow(message));
    return this.#written;
  }

  async #writeNow(message: object): Promise<void> {
    if (!this.#closed) await this.#output.write(`${JSON.stringify(message)}\n`);
    if (this.#output.broken) this.#end();
    this.#unwritten -= 1;
    if (!this.#closed && this.#unwritten <= MAX_UNWRITTEN && this.#input.isPaused()) this.#input.resume();
  }
}

const NEWLINE = 0x0a;

/** What is done with lines. */
export interface LineListener {
  readonly line: (text: string) => void;
  /** Called once for each line that was too long, when it ends being read. */
  readonly tooLong: () => void;
}

/** Cuts a stream into lines. */
export class CappedLines {
  readonly #most: number;
  readonly #listener: LineListener;
  #chunks: Uint8Array[] = [];
  #size = 0;
  #skipping = false;

  constructor(most: number, listener: LineListener) {
    this.#most = most;
    this.#listener = listener;
  }

  /** Takes the next bytes. */
  push(chunk: Uint8Array): void {
    let from = 0;
    for (let end = chunk.indexOf(NEWLINE); end >= 0; end = chunk.indexOf(NEWLINE, from)) {
      this.#add(chunk.subarray(from, end));
      this.#end();
      from = end + 1;
    }
    this.#add(chunk.subarray(from));
  }

  #add(part: Uint8Array): void {
    if (this.#skipping || part.length === 0) return;
    this.#size += part.length;
    this.#chunks.push(part);
    if (this.#size <= this.#most) return;
    this.#skipping = true;
    this.#chunks = [];
  }

  #end(): void {
    const skipped = this.#skipping;
    const text = Buffer.concat(this.#chunks).toString('utf8').trim();
    this.#chunks = [];
    this.#size = 0;
    this.#skipping = false;
    if (skipped) this.#listener.tooLong();
    else if (text !== '') this.#listener.line(text);
  }
}
