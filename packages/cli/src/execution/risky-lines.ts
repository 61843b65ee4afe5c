// What a run left in the workspace that tools of the host might execute or follow, in a few lines.

import type { RiskyChange } from '@acode/sandbox';
import { quoted } from '../arguments/command-words.ts';
import { cut, oneLine } from '../terminal/text.ts';

const MOST_SHOWN = 10;
const LONGEST_PATH = 100;
const LONGEST_REASON = 600;

/** The lines about risky changes, grouped by what is risky about them, and one about what was not looked at. */
export function riskyLines(changes: readonly RiskyChange[]): string[] {
  const found = changes.filter(({ kind }) => kind !== 'scan-incomplete');
  return [...foundLines(found), ...incompleteLine(changes)];
}

function foundLines(found: readonly RiskyChange[]): string[] {
  if (found.length === 0) return [];
  const hidden = found.length - MOST_SHOWN;
  return [
    'look before you use the workspace: tools on this machine might execute or follow what the command left there.',
    ...shownOf(grouped(found)).map(([group, paths]) => `  ${group}: ${paths.map(shown).join(', ')}`),
    ...(hidden > 0 ? [`  and ${hidden} more; --json has all.`] : []),
  ];
}

// Always said: a command that hides something would do it where the look did not reach.
function incompleteLine(changes: readonly RiskyChange[]): string[] {
  const reasons = changes.flatMap(({ kind, reason }) => (kind === 'scan-incomplete' ? [oneLine(reason)] : []));
  if (reasons.length === 0) return [];
  return [`not everything was looked at: ${cut(reasons.join('; '), LONGEST_REASON)}`];
}

type Groups = readonly (readonly [group: string, paths: readonly string[]])[];

function grouped(changes: readonly RiskyChange[]): Groups {
  const groups = new Map<string, string[]>();
  for (const { kind, reason, path } of changes) {
    const group = `${kind} (${oneLine(reason).replace(/\.$/, '')})`;
    const paths = groups.get(group);
    if (paths) paths.push(path);
    else groups.set(group, [path]);
  }
  return [...groups];
}

// One of each group before the second of any: a thousand harmless changes may not push the one that matters out of sight.
function shownOf(groups: Groups): Groups {
  const room = new Map<string, number>();
  let left = MOST_SHOWN;
  for (let round = 1; left > 0 && groups.some(([, paths]) => paths.length >= round); round += 1)
    for (const [group, paths] of groups) {
      if (left === 0 || paths.length < round) continue;
      room.set(group, round);
      left -= 1;
    }
  return groups.flatMap(([group, paths]) => {
    const count = room.get(group) ?? 0;
    return count === 0 ? [] : [[group, paths.slice(0, count)] as const];
  });
}

// A path is chosen by the command: it may hold what drives a terminal, or end in what looks like our own words.
function shown(path: string): string {
  return quoted(cut(oneLine(path), LONGEST_PATH));
}
