// The last lines about a run: what it hit or was denied, who set that, and the way on.

import type { Command, Denial, RunResult } from '@acode/sandbox';
import { inOptions } from '../arguments/option-names.ts';
import { inExisting } from './in-existing.ts';
import type { Existing } from './in-existing.ts';
import { riskyLines } from './risky-lines.ts';

const NOT_FOUND = 127;

/**
 * The lines about a run, without line ends; none for a run that hit nothing. With `existing`, of a command in a sandbox
 * that was there before.
 */
export function closingLines(result: RunResult, command: Command, existing: Existing | null = null): string[] {
  const denials = existing ? result.denials.map(denial => inExisting(denial, existing)) : result.denials;
  return [
    ...denials.map(denialLine),
    ...(typeof command === 'string' && result.exitCode === NOT_FOUND ? [missingLine(result, existing !== null)] : []),
    ...riskyLines(result.riskyChanges),
  ];
}

/** What was denied, who said so, and the way on, in the words of the command line. */
export function denialLine({ rule, setBy, remedy, detail }: Denial): string {
  // The detail may quote what the command printed: it stands last, where it can pass for nothing of ours.
  const seen = detail === undefined ? '' : ` [${detail.startsWith('suspected') ? detail : inOptions(detail)}]`;
  return `${codeOf(rule)}: ${inOptions(rule)}, set by ${inOptions(setBy)}. ${inOptions(remedy)}${seen}`;
}

function codeOf(rule: string): string {
  if (rule.startsWith('time limit of ')) return 'ACODE-SBX-007';
  return rule.includes(' limit of ') ? 'ACODE-SBX-004' : 'denied';
}

function missingLine(result: RunResult, exists: boolean): string {
  const image = result.image?.reference ?? 'the image';
  const another = exists ? '`acode sandbox create --image …` makes a sandbox of another.' : '--image chooses another.';
  return `hint: status 127 says that a command was not found; ${image} may not have it. ${another}`;
}
