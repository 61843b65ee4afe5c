// Redaction of answers: a server that repeats a credential must not tell it to the sandbox. Each occurrence becomes stars of the same
// length, so that lengths of bodies stay what they were.

import { Transform } from 'node:stream';
import type { TransformCallback } from 'node:stream';

const STAR = 0x2a;
const MIN_PATTERN = 6;

/** What is looked for in answers: values as they are, and as URLs, base64, hexadecimal digits and JSON write them. */
export class Redaction {
  readonly #patterns: readonly Buffer[];

  constructor(values: readonly string[]) {
    const texts = new Set(values.flatMap(formsOf).filter(({ length }) => length >= MIN_PATTERN));
    this.#patterns = [...texts].map(text => Buffer.from(text, 'utf8'));
  }

  /** A text such as the value of a header, with stars. */
  text(text: string): string {
    const bytes = Buffer.from(text, 'latin1');
    for (const [from, to] of this.found(bytes)) bytes.fill(STAR, from, to);
    return bytes.toString('latin1');
  }

  /** Where the bytes hold a value. */
  found(bytes: Buffer): (readonly [from: number, to: number])[] {
    return this.#patterns.flatMap(pattern => {
      const found: [number, number][] = [];
      for (let at = bytes.indexOf(pattern); at !== -1; at = bytes.indexOf(pattern, at + 1))
        found.push([at, at + pattern.length]);
      return found;
    });
  }

  /** How many bytes at the end could be the beginning of a value. */
  unfinished(bytes: Buffer): number {
    return Math.max(0, ...this.#patterns.map(pattern => unfinishedOf(bytes, pattern)));
  }

  /** A stream that replaces values, also those that come in several pieces. It keeps back only what could be the beginning of one. */
  stream(): Transform {
    return new RedactingStream(this);
  }
}

class RedactingStream extends Transform {
  readonly #redaction: Redaction;
  // The end of what came, as it came and as it is passed on: a value may begin inside another occurrence.
  #raw: Buffer = Buffer.alloc(0);
  #shown: Buffer = Buffer.alloc(0);

  constructor(redaction: Redaction) {
    super();
    this.#redaction = redaction;
  }

  override _transform(chunk: Buffer, _encoding: BufferEncoding, done: TransformCallback): void {
    const raw = this.#raw.length > 0 ? Buffer.concat([this.#raw, chunk]) : chunk;
    const found = this.#redaction.found(raw);
    const held = this.#redaction.unfinished(raw);
    let shown = raw;
    if (found.length > 0 || this.#raw.length > 0) {
      shown = Buffer.concat([this.#shown, chunk]);
      for (const [from, to] of found) shown.fill(STAR, from, to);
    }
    const end = raw.length - held;
    this.#raw = raw.subarray(end);
    this.#shown = shown.subarray(end);
    done(null, end > 0 ? shown.subarray(0, end) : undefined);
  }

  override _flush(done: TransformCallback): void {
    done(null, this.#shown.length > 0 ? this.#shown : undefined);
  }
}

// The longest beginning of a pattern, but not all of it, that the bytes end with.
function unfinishedOf(bytes: Buffer, pattern: Buffer): number {
  const [first = 0] = pattern;
  const from = Math.max(0, bytes.length - pattern.length + 1);
  for (let at = bytes.indexOf(first, from); at !== -1; at = bytes.indexOf(first, at + 1)) {
    const length = bytes.length - at;
    if (bytes.compare(pattern, 0, length, at) === 0) return length;
  }
  return 0;
}

function formsOf(value: string): string[] {
  const bytes = Buffer.from(value, 'utf8');
  const all = [...bytes].map(byte => `%${byte.toString(16).padStart(2, '0')}`).join('');
  const escaped = encodeURIComponent(value);
  const json = JSON.stringify(value).slice(1, -1);
  const hex = bytes.toString('hex');
  const strict = strictly(escaped);
  return [
    value,
    escaped,
    lowerEscapes(escaped),
    escaped.replaceAll('%20', '+'),
    // What encodeURIComponent leaves as it is and other libraries encode.
    strict,
    lowerEscapes(strict),
    all,
    all.toUpperCase(),
    json,
    json.replaceAll('/', '\\/'),
    hex,
    hex.toUpperCase(),
    ...base64Forms(bytes),
  ];
}

function lowerEscapes(text: string): string {
  return text.replaceAll(/%[0-9A-F]{2}/g, sign => sign.toLowerCase());
}

function strictly(text: string): string {
  return text.replaceAll(/[!'()*~._-]/g, sign => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`);
}

// Inside a longer text a value begins at one of three places of a group of four signs; what its own bytes alone decide is looked for.
function base64Forms(bytes: Buffer): string[] {
  return [0, 1, 2].flatMap(before => {
    const text = Buffer.concat([Buffer.alloc(before), bytes])
      .toString('base64')
      .replaceAll('=', '');
    const start = before === 0 ? 0 : before + 1;
    const end = Math.floor(((before + bytes.length) * 8) / 6);
    const inner = text.slice(start, end);
    return [inner, inner.replaceAll('+', '-').replaceAll('/', '_')];
  });
}
