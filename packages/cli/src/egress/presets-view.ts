// Presets of allow-lists for a person.

import type { PresetInfo } from '@acode/sandbox';
import type { Call } from '../call.ts';
import type { Look } from '../terminal/look.ts';
import { hanging, proseWidth } from '../terminal/wrap.ts';

const INDENT = '    ';

/** Shows every preset. */
export async function showPresets(call: Call): Promise<number> {
  const items = await call.withObserver(({ network }) => network.presets());
  await call.print('acode.egress-presets/1', { items }, look => renderPresets(items, look));
  return 0;
}

function renderPresets(items: readonly PresetInfo[], look: Look): string {
  const width = proseWidth(look);
  const { bold, dim } = look.colours;
  const lines = items.map(({ name, version, title, risk, hosts }) =>
    [
      bold(name),
      hanging('  ', `${title}.`, width),
      dim(`  version ${version}, hosts:`),
      hanging(INDENT, hostsText(hosts), width),
      dim('  does not prevent:'),
      hanging(INDENT, risk, width),
    ].join('\n'),
  );
  return `${lines.join('\n\n')}\n`;
}

function hostsText(hosts: PresetInfo['hosts']): string {
  const text = (one: PresetInfo['hosts'][number]): string => {
    const scheme = one.protocol === 'http' ? 'http:' : '';
    return `${scheme}${one.host}${one.mode === 'inspect' ? ' (inspected)' : ''}`;
  };
  return [...new Set(hosts.map(text))].join(', ');
}
