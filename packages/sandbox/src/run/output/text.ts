// Bytes as text where they are text, and as bytes where they are not.

/** Output as text, with the bytes beside it where decoding would lose something. */
export interface DecodedOutput {
  readonly text: string;
  readonly bytes?: Uint8Array;
}

/** Decodes output. `cut` says that the end was dropped, so that half a character at the end is no sign of binary data. */
export function decodeOutput(data: Uint8Array, cut: boolean): DecodedOutput {
  const whole = cut ? data.subarray(0, data.length - incompleteTail(data)) : data;
  try {
    const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(whole);
    if (!text.includes('\0')) return { text };
    return { text, bytes: Uint8Array.from(data) };
  } catch {
    return { text: new TextDecoder('utf-8', { ignoreBOM: true }).decode(data), bytes: Uint8Array.from(data) };
  }
}

// How many bytes at the end begin a character that was cut off.
function incompleteTail(data: Uint8Array): number {
  for (let back = 1; back <= Math.min(3, data.length); back += 1) {
    const byte = data[data.length - back] ?? 0;
    if ((byte & 0b1100_0000) === 0b1000_0000) continue;
    const length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return length > back ? back : 0;
  }
  return 0;
}
