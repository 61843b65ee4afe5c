// Where signed checkpoints must stand in the chain: the one rule for who writes them and for who misses them. Pure.

import type { AuditKind } from '../../contract/audit.ts';

/** How many records there are to each signature, at the most. */
export const CHECKPOINT_EVERY = 256;

/** What a record is, and what it follows. */
export interface RecordPosition {
  readonly seq: number;
  readonly kind: AuditKind;
  /** Whether it is the first record of its file. */
  readonly beginsFile: boolean;
  /** The number of the last checkpoint before it; 0 where there is none. */
  readonly checkpoint: number;
}

/**
 * Whether a record stands where only a checkpoint can: at the beginning of a file that follows another, or further from the
 * last checkpoint than a writer ever goes. Two checkpoints never follow each other, so right after one there is none.
 */
export function isInPlaceOfCheckpoint({ seq, kind, beginsFile, checkpoint }: RecordPosition): boolean {
  if (kind === 'checkpoint') return false;
  return seq - checkpoint > CHECKPOINT_EVERY || (beginsFile && checkpoint !== seq - 1);
}
