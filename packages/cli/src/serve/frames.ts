// Frames of the serving socket: a kind, a length, and so many bytes. Every call loads this file, so it is small.

/** The version of everything below: ends that do not agree on it do not talk. */
export const PROTOCOL = 2;

/** What a frame is. */
export const FRAME = {
  /** From the client: what it was called with. */
  request: 1,
  /** From the client: the server runs the call, and no other process will. */
  go: 2,
  /** From the client: some of its standard input. */
  input: 3,
  /** From the client: there is no more of it. */
  inputEnd: 4,
  /** From the client: how much of an output is with its reader. */
  taken: 5,
  /** From the client: an output that cannot be written, and why. */
  broken: 6,
  /** From the client: the name of a signal it got. */
  signal: 7,
  /** From the client, in place of a request: how the server is. */
  ask: 8,
  /** From the client, in place of a request: the server is to end. */
  stop: 9,
  /** From the server: it would do it. */
  ready: 16,
  /** From the server: it will not, and why. */
  declined: 17,
  /** From the server: bytes for standard output. */
  stdout: 18,
  /** From the server: bytes for standard error. */
  stderr: 19,
  /** From the server: the next piece of standard input is wanted. */
  wantInput: 20,
  /** From the server: the exit status; nothing comes after it. */
  exit: 21,
  /** From the server: how it is. Nothing comes after it but the end of the connection. */
  state: 22,
} as const;

/** One frame. */
export interface Frame {
  readonly kind: number;
  readonly body: Buffer;
}

/** The most that one frame carries of a stream. */
export const PIECE = 64 * 1024;

const HEAD = 5;
// The arguments of a call may be long; nothing else is.
const MAX_BYTES = 4 * 1024 ** 2;

/** The bytes of a frame. */
export function frame(kind: number, body: string | Uint8Array = ''): Buffer {
  const bytes = typeof body === 'string' ? Buffer.from(body) : body;
  const whole = Buffer.allocUnsafe(HEAD + bytes.length);
  whole.writeUInt8(kind, 0);
  whole.writeUInt32BE(bytes.length, 1);
  whole.set(bytes, HEAD);
  return whole;
}

/** Puts frames together from the pieces in which they arrive. */
export class FrameReader {
  #rest: Buffer = Buffer.alloc(0);

  /** The frames that are whole now; throws where the other end does not speak this language. */
  push(chunk: Buffer): Frame[] {
    this.#rest = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk]);
    const frames: Frame[] = [];
    while (this.#rest.length >= HEAD) {
      const length = this.#rest.readUInt32BE(1);
      if (length > MAX_BYTES) throw new Error(`a frame of ${length} bytes`);
      if (this.#rest.length < HEAD + length) break;
      frames.push({ kind: this.#rest.readUInt8(0), body: this.#rest.subarray(HEAD, HEAD + length) });
      this.#rest = this.#rest.subarray(HEAD + length);
    }
    return frames;
  }
}

/** The body of a `taken` frame. */
export function takenBody(stream: 1 | 2, bytes: number): Buffer {
  const body = Buffer.alloc(HEAD);
  body.writeUInt8(stream, 0);
  body.writeUInt32BE(bytes, 1);
  return body;
}
