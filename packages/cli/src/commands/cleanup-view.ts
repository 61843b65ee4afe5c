// What `acode sandbox cleanup` removed, for a person. Loaded by that command only.

import type { CleanupReport, SandboxInfo } from '@acode/sandbox';
import type { Look } from '../terminal/look.ts';
import { table } from '../terminal/table.ts';
import { oneLine, plural, shortId } from '../terminal/text.ts';
import { fitted } from '../terminal/wrap.ts';

/** What was removed, for a person. */
export function renderCleanup(report: CleanupReport, look: Look): string {
  const { removed, failed, kept, belongings, forks, dryRun } = report;
  const gone = dryRun ? 'would be removed' : 'removed';
  const rows = [
    ...removed.map(one => [...sandboxCells(one), gone]),
    ...failed.map(({ sandbox, reason }) => [...sandboxCells(sandbox), `failed: ${reason}`]),
    ...kept.map(one => [...sandboxCells(one), 'kept']),
    ...belongings.removed.map(({ name, kind }) => [name, '', kind, gone]),
    ...belongings.failed.map(({ belonging, reason }) => [belonging.name, '', belonging.kind, `failed: ${reason}`]),
    ...belongings.kept.map(({ name, kind }) => [name, '', kind, 'kept']),
    ...forks.map(({ id, name }) => [name ?? id, '', 'expired fork', gone]),
  ];
  const listed = rows.length > 0 ? table(['NAME', 'IMAGE', 'STATE', 'RESULT'], rows, look) : '';
  return `${listed}${fitted(summary(report), look)}\n`;
}

function sandboxCells({ name, givenName, image, state }: SandboxInfo): string[] {
  return [givenName ?? name, shortId(image), state];
}

function summary({ removed, failed, kept, belongings, forks, dryRun }: CleanupReport): string {
  const others = ['network', 'volume'].flatMap(kind => {
    const count = belongings.removed.filter(one => one.kind === kind).length;
    return count > 0 ? [plural(count, kind)] : [];
  });
  if (forks.length > 0) others.push(plural(forks.length, 'fork'));
  const doomed = [plural(removed.length, 'sandbox', 'sandboxes'), ...others].join(' and ');
  const parts = [`${dryRun ? 'Would remove' : 'Removed'} ${doomed}`];
  const notRemoved = failed.length + belongings.failed.length;
  if (notRemoved > 0) parts.push(`${notRemoved} could not be removed`);
  if (kept.length > 0)
    parts.push(
      `${kept.length} left alone (--force removes running ones too, --all-sessions those of your other sessions)`,
    );
  const volumes = belongings.kept.filter(({ kind }) => kind === 'volume').length;
  if (volumes > 0) parts.push(`${plural(volumes, 'volume')} kept (--volumes removes them)`);
  return oneLine(`${parts.join(', ')}.`);
}
