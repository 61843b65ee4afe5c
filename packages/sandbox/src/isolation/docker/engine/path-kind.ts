// What an engine says is at a path of a container, without following a link at its end.

import * as z from 'zod';

/** What is at a path; `other` also where the engine does not say. */
export type PathKind = 'absent' | 'directory' | 'file' | 'symbolic link' | 'other';

/** The header that describes a path, in base64. Podman sends it with status 404 for a link that leads nowhere. */
export const PATH_STAT = 'x-docker-container-path-stat';

// The bits of a file mode as Go has them.
const TYPES = 0x8f280000;
const DIRECTORY = 0x80000000;
const LINK = 0x08000000;

const statSchema = z.object({ mode: z.int().min(0).max(0xffffffff) });

/** Reads an answer about a path. */
export function pathKind(status: number, header: string | readonly string[] | undefined): PathKind {
  if (header === undefined) return status === 404 ? 'absent' : 'other';
  const mode = modeIn(String(header));
  if (mode === null) return 'other';
  const type = (mode & TYPES) >>> 0;
  if (type === LINK) return 'symbolic link';
  if (status === 404) return 'other';
  if (type === DIRECTORY) return 'directory';
  return type === 0 ? 'file' : 'other';
}

function modeIn(header: string): number | null {
  try {
    return statSchema.parse(JSON.parse(Buffer.from(header, 'base64').toString('utf8'))).mode;
  } catch {
    return null;
  }
}
