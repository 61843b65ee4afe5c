// Sizes that every engine refuses alike, before anything is sent.

import { FLEET_ERRORS } from '../errors.ts';
import { MAX_BLOB_BYTES, MAX_LOG_BATCH_BYTES, MAX_MESSAGE_BYTES, MAX_TEXT_BYTES } from './engine.ts';

const LIMITS = {
  'The task': MAX_TEXT_BYTES,
  'The state of the task': MAX_TEXT_BYTES,
  'The workspace': MAX_BLOB_BYTES,
  'The piece of the log': MAX_LOG_BATCH_BYTES,
  'The message': MAX_MESSAGE_BYTES,
} as const;

/** Refuses what is larger than the fleet takes. */
export function assertSize(what: keyof typeof LIMITS, content: string | Uint8Array): void {
  const bytes = Buffer.byteLength(content);
  const maxBytes = LIMITS[what];
  if (bytes > maxBytes) throw FLEET_ERRORS.create('ACODE-FLT-007', { what, bytes, maxBytes });
}
