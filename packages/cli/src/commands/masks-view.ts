// Masks of a workspace for a person. Loaded by `acode masks` only.

import { maskWarningText } from '@acode/sandbox';
import type { MaskedPath, MaskReport } from '@acode/sandbox';
import type { Call } from '../call.ts';
import type { Look } from '../terminal/look.ts';
import { table } from '../terminal/table.ts';
import { oneLine } from '../terminal/text.ts';
import { fitted } from '../terminal/wrap.ts';

/** Shows them, after a search, and returns the exit status. */
export async function showMasks(call: Call, how: 'list' | 'rescan'): Promise<number> {
  const report = await call.withHost(({ masks }) => call.progress.during('Searching the workspace…', masks[how]()));
  await call.print('acode.masks/1', report, look => renderMasks(report, look));
  return 0;
}

/** Masks for a person. */
export function renderMasks({ masked, warnings, forgotten }: MaskReport, look: Look): string {
  const rows = masked.map(one => [
    pathOf(one),
    one.rule,
    one.setBy.layer === 'built-in' ? 'built-in' : one.setBy.where,
  ]);
  const list =
    rows.length === 0 ? 'Nothing is masked in this workspace.\n' : table(['PATH', 'RULE', 'SET BY'], rows, look);
  const gone = forgotten.map(path => `${oneLine(path)} is not in the workspace any more, and is forgotten.`);
  return [list, ...[...gone, ...warnings.map(maskWarningText)].map(line => fitted(`${line}\n`, look))].join('');
}

function pathOf({ path, kind, link }: MaskedPath): string {
  return `${oneLine(path)}${kind === 'directory' ? '/' : ''}${link === undefined ? '' : ` (linked from ${oneLine(link)})`}`;
}
