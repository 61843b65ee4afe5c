// Reads a small file without trusting it: never a FIFO or a device, which would never end, and never more than asked for.

import { constants } from 'node:fs';
import { open } from 'node:fs/promises';

/** What a bounded read found. */
export interface BoundedFile {
  readonly text: string;
  /** The bytes as they are, where text could hide a difference. */
  readonly bytes: Buffer;
  readonly size: number;
  readonly uid: number;
  readonly mode: number;
}

/** Reads the first `most` bytes of an ordinary file; throws where it is anything else. */
export async function readBoundedFile(path: string, most: number, flags = 0): Promise<BoundedFile> {
  // Without O_NONBLOCK, opening a FIFO waits for a writer that may never come.
  const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK | flags);
  try {
    const found = await file.stat();
    if (!found.isFile()) throw new Error(`${path} is not an ordinary file`);
    const { buffer, bytesRead } = await file.read(Buffer.alloc(Math.min(most, found.size)), 0);
    const bytes = buffer.subarray(0, bytesRead);
    return { text: bytes.toString('utf8'), bytes, size: found.size, uid: found.uid, mode: found.mode };
  } finally {
    await file.close();
  }
}
