// The last lines about a run: what it hit or was denied, who set that, and the way on.

import type { Command, Denial, RunResult } from '@acode/sandbox';
import { inOptions } from '../arguments/option-names.ts';
import { riskyLines } from './risky-lines.ts';

const NOT_FOUND = 127;

/** The lines about a run, without line ends; none for a run that hit nothing. */
export function closingLines(result: RunResult, command: Command): string[] {
  return [
    ...result.denials.map(denialLine),
    ...(typeof command === 'string' && result.exitCode === NOT_FOUND ? [missingLine(result)] : []),
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

function missingLine(result: RunResult): string {
  const image = result.image?.reference ?? 'the image';
  return `hint: status 127 says that a command was not found; ${image} may not have it. --image chooses another.`;
}
