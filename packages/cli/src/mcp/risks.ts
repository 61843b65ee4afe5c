// What was left in the workspace that tools of the user might execute, as a model is told of it.

import type { RiskyChange } from '@acode/sandbox';
import * as z from 'zod';

const MOST_TOLD = 50;

/** Such changes, in an answer. */
export const riskySchema = z.array(z.object({ path: z.string(), kind: z.string(), reason: z.string() }));

type Told = z.input<typeof riskySchema>;

/** Those that an answer has room for. */
export function toldRisks(changes: readonly RiskyChange[]): Told {
  return changes.slice(0, MOST_TOLD).map(({ path, kind, reason }) => ({ path, kind, reason }));
}

/** One of them in a line. */
export function riskText({ path, reason }: Told[number]): string {
  return `Left in the workspace: ${path}: ${reason}.`;
}
