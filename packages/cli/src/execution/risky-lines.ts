// Risky changes of a run, in a few lines: files that tools of the host might execute or follow.

import { chooseChanges } from '@acode/sandbox';
import type { RiskyChange } from '@acode/sandbox';
import { quoted } from '../arguments/command-arguments.ts';
import { cut, oneLine } from '../terminal/text.ts';

const LEFT =
  'check the workspace before you use it: tools on this machine might execute or follow what the command left there.';
const MAX_SHOWN = 10;
const MAX_PATH = 100;
const MAX_REASON = 600;

/**
 * The lines about risky changes, grouped by what is risky about them, and one about what was not scanned. `rest` says
 * where to find the changes for which there is no room.
 */
export function riskyLines(changes: readonly RiskyChange[], rest = '--json lists all.', head = LEFT): string[] {
  const { shown, incomplete, omitted } = chooseChanges(changes, MAX_SHOWN);
  return [
    ...(shown.length === 0 ? [] : [head]),
    ...groupLines(shown),
    ...(omitted > 0 ? [`  and ${omitted} more; ${rest}`] : []),
    // Always said: a command that hides something would do it where the scan did not reach.
    ...(incomplete.length === 0 ? [] : [`not everything was scanned: ${incompleteText(incomplete)}`]),
  ];
}

/** Why not everything was scanned. It may hold names that a command chose. */
export function incompleteText(incomplete: readonly RiskyChange[]): string {
  return cut(incomplete.map(({ reason }) => oneLine(reason)).join('; '), MAX_REASON);
}

/**
 * A path as a reader may be shown it. A command chooses it: it may hold what drives a terminal, a line break, or words that
 * look like acode’s own.
 */
export function shownPath(path: string): string {
  return quoted(cut(oneLine(path), MAX_PATH));
}

function groupLines(shown: readonly RiskyChange[]): string[] {
  const groups = new Map<string, string[]>();
  for (const { kind, reason, path } of shown) {
    const group = `${kind} (${oneLine(reason).replace(/\.$/, '')})`;
    groups.set(group, [...(groups.get(group) ?? []), shownPath(path)]);
  }
  return [...groups].map(([group, paths]) => `  ${group}: ${paths.join(', ')}`);
}
