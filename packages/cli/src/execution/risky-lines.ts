// Risky changes of a run, in a few lines: files that tools on this machine might execute or follow.

import { chooseChanges } from '@acode/sandbox';
import type { RiskyChange } from '@acode/sandbox';
import { quoted } from '../arguments/command-arguments.ts';
import type { Look } from '../terminal/look.ts';
import { cut, oneLine } from '../terminal/text.ts';
import { hanging, proseWidth } from '../terminal/wrap.ts';

const LEFT =
  'check the workspace before you use it: tools on this machine might execute or follow what the command left there.';
const MAX_SHOWN = 10;
const MAX_PATH = 100;
const MAX_REASON = 600;
// What wraps messages leaves lines with an indent as they are, so those are wrapped here.
const INDENT = '  ';
const REST = '    ';

/**
 * The lines that report risky changes, grouped by kind and reason, and one line about anything that was not scanned.
 * `rest` tells the user where to find the changes that are not shown. `look` is that of the stream they are written to as
 * they are; without it, every line stays whole.
 */
export function riskyLines(
  changes: readonly RiskyChange[],
  rest = '--json lists all.',
  head = LEFT,
  look?: Pick<Look, 'terminal' | 'width'>,
): string[] {
  const width = look ? proseWidth(look) : null;
  const { shown, incomplete, omitted } = chooseChanges(changes, MAX_SHOWN);
  return [
    ...(shown.length === 0 ? [] : [head]),
    ...[...groupTexts(shown), ...(omitted > 0 ? [`and ${omitted} more; ${rest}`] : [])].map(text =>
      hanging(INDENT, text, width, REST),
    ),
    // Always printed: a command that hides files would put them where the scan did not reach.
    ...(incomplete.length === 0 ? [] : [`not everything was scanned: ${incompleteText(incomplete)}`]),
  ];
}

/** Why the scan is incomplete. The text may contain names that a command chose. */
export function incompleteText(incomplete: readonly RiskyChange[]): string {
  return cut(incomplete.map(({ reason }) => oneLine(reason)).join('; '), MAX_REASON);
}

/**
 * A path that is safe to print. The command chose it, so it may contain terminal control sequences, line breaks, or
 * text that imitates acode’s own messages.
 */
export function shownPath(path: string): string {
  return quoted(cut(oneLine(path), MAX_PATH));
}

function groupTexts(shown: readonly RiskyChange[]): string[] {
  const groups = new Map<string, string[]>();
  for (const { kind, reason, path } of shown) {
    const group = `${kind} (${oneLine(reason).replace(/\.$/, '')})`;
    groups.set(group, [...(groups.get(group) ?? []), shownPath(path)]);
  }
  return [...groups].map(([group, paths]) => `${group}: ${paths.join(', ')}`);
}
