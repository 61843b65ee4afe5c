// Pieces of a log: both output streams in the order they came, in one piece for a tenth of a second.

/** A part of a log. */
export interface LogChunk {
  /** 1 for standard output, 2 for standard error. */
  readonly stream: 1 | 2;
  /** What was printed. */
  readonly bytes: Uint8Array;
}

/** Bytes of a piece before each of its parts. */
export const HEAD = 5;

/** The bytes of one piece. */
export function encodePiece(chunks: readonly LogChunk[]): Uint8Array {
  return Buffer.concat(
    chunks.flatMap(({ stream, bytes }) => {
      const head = Buffer.alloc(HEAD);
      head.writeUInt8(stream);
      head.writeUInt32BE(bytes.length, 1);
      return [head, bytes];
    }),
  );
}

/** The parts in a piece. What is damaged is left out. */
export function decodePiece(piece: Uint8Array): LogChunk[] {
  const bytes = Buffer.from(piece.buffer, piece.byteOffset, piece.byteLength);
  const chunks: LogChunk[] = [];
  for (let at = 0; at + HEAD <= bytes.length;) {
    const stream = bytes.readUInt8(at);
    const end = at + HEAD + bytes.readUInt32BE(at + 1);
    if ((stream !== 1 && stream !== 2) || end > bytes.length) break;
    chunks.push({ stream, bytes: bytes.subarray(at + HEAD, end) });
    at = end;
  }
  return chunks;
}
