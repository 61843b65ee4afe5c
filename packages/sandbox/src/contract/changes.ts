// Selection of risky changes for a short list: the one rule for terminal, MCP, log and audit record. Pure.

import type { RiskyChange } from './result.ts';

/** The risky changes that are shown, and what is said about the others. */
export interface ChosenChanges {
  /** The changes to show. */
  readonly shown: readonly RiskyChange[];
  /** The notes that not everything was scanned. They take no room, and are never left out. */
  readonly incomplete: readonly RiskyChange[];
  /** How many risky changes are not shown. */
  readonly omitted: number;
}

/**
 * Chooses at most `max` risky changes, each kind in turn and within a kind each reason in turn, so that a thousand harmless
 * changes cannot push the one that matters out of sight. One of each kind is always shown, even where that is more than `max`.
 *
 * @example
 * const result = await acode.run('npm ci');
 * const { shown, incomplete, omitted } = chooseChanges(result.riskyChanges, 10);
 */
export function chooseChanges(changes: readonly RiskyChange[], max: number): ChosenChanges {
  const found = changes.filter(({ kind }) => kind !== 'scan-incomplete');
  const kinds = groupsOf(found, ({ kind }) => kind).map(group => inTurn(groupsOf(group, ({ reason }) => reason)));
  const shown = inTurn(kinds).slice(0, Math.max(max, kinds.length));
  return {
    shown,
    incomplete: changes.filter(({ kind }) => kind === 'scan-incomplete'),
    omitted: found.length - shown.length,
  };
}

function groupsOf(changes: readonly RiskyChange[], by: (change: RiskyChange) => string): RiskyChange[][] {
  const groups = new Map<string, RiskyChange[]>();
  for (const change of changes) {
    const group = groups.get(by(change));
    if (group) group.push(change);
    else groups.set(by(change), [change]);
  }
  return [...groups.values()];
}

// The first of each group, then the second of each, and so on.
function inTurn(groups: readonly (readonly RiskyChange[])[]): RiskyChange[] {
  const rounds = Math.max(0, ...groups.map(({ length }) => length));
  return Array.from({ length: rounds }, (_, round) => groups.flatMap(group => group.slice(round, round + 1))).flat();
}
