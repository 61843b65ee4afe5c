// Tokens of language models, as their answers count them: read from the `usage` of an answer while it passes, whatever its protocol.

import type { Readable } from 'node:stream';

// An object of that name outside of a text: within one, its quotation marks would be escaped.
const USAGE = /"usage(?:Metadata)?"\s*:\s*\{/g;
const MAX_MARK = 64;
const MAX_OBJECT = 2048;
const CLOSING = 0x7d;
const BYTES_PER_TOKEN = 4;

type Usage = Readonly<Record<string, unknown>>;

/** The tokens of one answer. Its figures are running totals, so that the largest ones count. */
export class TokenCount {
  #rest = '';
  #bytes = 0;
  #input = 0;
  #output = 0;
  #total = 0;
  #isCounted = false;
  #isWithin = false;

  /** Reads a piece of the answer; returns how many tokens more it has than was known. */
  push(chunk: Uint8Array): number {
    this.#bytes += chunk.length;
    // Names and numbers are ASCII, and nothing else is read.
    const text = this.#rest + Buffer.from(chunk).toString('latin1');
    // An object that comes byte by byte is not read again for each of them.
    if (this.#isWithin && text.length < MAX_OBJECT && !chunk.includes(CLOSING)) {
      this.#rest = text;
      return 0;
    }
    const before = this.#tokens;
    this.#rest = this.#read(text);
    return this.#tokens - before;
  }

  /** The answer has ended. One without figures counts with a quarter of its bytes: it may have left them out. */
  end(): number {
    const isKnown = this.#isCounted;
    this.#isCounted = true;
    return isKnown ? 0 : Math.ceil(this.#bytes / BYTES_PER_TOKEN);
  }

  get #tokens(): number {
    return Math.max(this.#total, this.#input + this.#output);
  }

  // Returns what has to be read again with the next piece.
  #read(text: string): string {
    let read = 0;
    this.#isWithin = false;
    for (const found of text.matchAll(USAGE)) {
      if (found.index < read) continue;
      const from = found.index + found[0].length - 1;
      const end = endOfObject(text, from);
      if (end === null) {
        this.#isWithin = text.length - from < MAX_OBJECT;
        return this.#isWithin ? text.slice(found.index) : '';
      }
      this.#add(parsed(text.slice(from, end)));
      read = end;
    }
    return text.slice(Math.max(read, text.length - MAX_MARK));
  }

  #add(usage: Usage): void {
    const of = (...names: readonly string[]): number => names.reduce((sum, name) => sum + numberOf(usage[name]), 0);
    const { input_tokens: input, prompt_tokens: prompt } = usage;
    this.#isCounted = true;
    this.#input = Math.max(
      this.#input,
      of('cache_creation_input_tokens', 'cache_read_input_tokens') + numberOf(input ?? prompt),
      of('promptTokenCount', 'toolUsePromptTokenCount'),
    );
    this.#output = Math.max(
      this.#output,
      of('output_tokens'),
      of('completion_tokens'),
      of('candidatesTokenCount', 'thoughtsTokenCount'),
    );
    this.#total = Math.max(this.#total, of('total_tokens'), of('totalTokenCount'));
  }
}

/** Counts the tokens of an answer that passes, and adds them as they become known. */
export function countTokens(answer: Readable, add: (tokens: number) => void): void {
  const count = new TokenCount();
  answer.on('data', (chunk: Uint8Array) => add(count.push(chunk)));
  answer.once('close', () => add(count.end()));
}

// Where an object ends; null where that has not come yet.
function endOfObject(text: string, from: number): number | null {
  let depth = 0;
  for (let at = from; at < Math.min(text.length, from + MAX_OBJECT); at += 1) {
    const character = text[at];
    if (character === '"') {
      for (at += 1; at < text.length && text[at] !== '"'; at += 1) if (text[at] === '\\') at += 1;
    } else if (character === '{') depth += 1;
    else if (character === '}') {
      depth -= 1;
      if (depth === 0) return at + 1;
    }
  }
  return null;
}

function parsed(text: string): Usage {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? { ...value } : {};
  } catch {
    return {};
  }
}

function numberOf(value: unknown): number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value > 0 ? value : 0;
}
