// Risky changes for a model: files in the workspace that the user’s tools might execute.

import { chooseChanges } from '@acode/sandbox';
import type { RiskyChange } from '@acode/sandbox';
import { incompleteText, shownPath } from '../execution/risky-lines.ts';
import { cut, oneLine } from '../terminal/text.ts';

const MAX_TOLD = 50;
// Longer than the paths of real projects. It is data here and in no sentence of acode’s.
const MAX_PATH = 300;

/** The risky changes of a command, as an answer holds them; without any, nothing. */
export interface ToldRisks {
  readonly riskyChanges?: readonly { readonly path: string; readonly kind: string; readonly reason: string }[];
  /** How many more there are. */
  readonly riskyChangesOmitted?: number;
}

/** Those that an answer has room for: each kind in turn, and always the note that not everything was scanned. */
export function toldRisks(changes: readonly RiskyChange[]): ToldRisks {
  const { shown, incomplete, omitted } = chooseChanges(changes, MAX_TOLD);
  const notes: readonly RiskyChange[] =
    incomplete.length === 0 ? [] : [{ path: '.', kind: 'scan-incomplete', reason: incompleteText(incomplete) }];
  const riskyChanges = [...shown, ...notes].map(({ path, kind, reason }) => ({
    path: cut(oneLine(path), MAX_PATH),
    kind,
    reason: oneLine(reason),
  }));
  return {
    ...(riskyChanges.length > 0 ? { riskyChanges } : {}),
    ...(omitted > 0 ? { riskyChangesOmitted: omitted } : {}),
  };
}

/** The same in lines. A command chooses the paths, and so they stand last in their line, in quotes. */
export function riskTexts({ riskyChanges = [], riskyChangesOmitted = 0 }: ToldRisks): string[] {
  return [
    ...riskyChanges.map(({ path, kind, reason }) =>
      kind === 'scan-incomplete'
        ? `Not everything in the workspace was scanned for risky changes: ${shownReason(reason)}`
        : `Left in the workspace (${kind}: ${reason}): ${shownPath(path)}`,
    ),
    ...(riskyChangesOmitted > 0
      ? [`And ${riskyChangesOmitted} more risky changes. The user can list them with \`acode changes\`.`]
      : []),
  ];
}

// It may name directories that a command made.
function shownReason(reason: string): string {
  return `“${reason.replaceAll(/[“”]/g, '"')}”`;
}
