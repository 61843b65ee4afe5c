// `acode sandbox list`: the sandboxes that exist now.

import type { SandboxInfo } from '@acode/sandbox';
import { Command } from '@commander-js/extra-typings';
import type { Call, Perform } from '../call.ts';
import { age, until } from '../terminal/age.ts';
import { shortId } from '../terminal/text.ts';
import type { Look } from '../terminal/look.ts';
import { table } from '../terminal/table.ts';

/** The command. */
export function listCommand(perform: Perform) {
  return new Command('list')
    .description('List the sandboxes that exist')
    .action((_options, command) => perform(command, showList));
}

async function showList(call: Call): Promise<number> {
  const items = await call.withObserver(observer => call.progress.during('Asking the engine…', observer.list()));
  await call.print('acode.list/1', { items }, look => renderList(items, look));
  return 0;
}

/** The sandboxes for a person. */
export function renderList(items: readonly SandboxInfo[], look: Look): string {
  if (items.length === 0) return 'There are no sandboxes.\n';
  // Most lists hold no persistent sandbox.
  const kept = items.some(({ expiresAt }) => expiresAt !== undefined);
  const rows = items.map(item => [
    // A persistent sandbox is listed by its own id, which `create` printed.
    item.expiresAt === undefined ? shortId(item.containerId) : item.sandboxId.slice(0, 12),
    item.name,
    shortId(item.image),
    item.state,
    age(item.createdAt, look.now),
    ...(kept ? [item.expiresAt === undefined ? '' : until(item.expiresAt, look.now, 'letters')] : []),
  ]);
  return table(['ID', 'NAME', 'IMAGE', 'STATE', 'CREATED', ...(kept ? ['EXPIRES'] : [])], rows, look, [
    'IMAGE',
    'CREATED',
  ]);
}
