// A stream of bytes that is taken from in pieces of a wanted length.

/** Takes bytes in the order in which they come, holding no more than the last chunk. */
export class ByteReader {
  readonly #source: AsyncIterator<Buffer>;
  #held: Buffer = Buffer.alloc(0);

  constructor(source: AsyncIterable<Buffer>) {
    this.#source = source[Symbol.asyncIterator]();
  }

  /** At least one byte and at most so many; null at the end. */
  async some(most: number): Promise<Buffer | null> {
    while (this.#held.length === 0) {
      const step = await this.#source.next();
      if (step.done) return null;
      this.#held = step.value;
    }
    const piece = this.#held.subarray(0, most);
    this.#held = this.#held.subarray(piece.length);
    return piece;
  }

  /** Exactly so many bytes, or fewer where the stream ends before. */
  async exactly(length: number): Promise<Buffer> {
    const pieces: Buffer[] = [];
    for (let left = length; left > 0;) {
      const piece = await this.some(left);
      if (!piece) break;
      pieces.push(piece);
      left -= piece.length;
    }
    const [only] = pieces;
    return only && pieces.length === 1 ? only : Buffer.concat(pieces);
  }

  /** A line without its end; null where there is none within so many bytes. */
  async line(longest: number): Promise<string | null> {
    let text = '';
    while (text.length < longest) {
      const byte = await this.some(1);
      if (!byte) return null;
      if (byte[0] === 0x0a) return text;
      text += byte.toString('latin1');
    }
    return null;
  }
}
