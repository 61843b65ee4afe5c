// Refused hosts that a person can allow: the list, and the grant.

import type { GrantedAccess, PendingAccess } from '@acode/sandbox';
import type { Call } from '../call.ts';
import { change } from '../commands/config-actions.ts';
import { consentTo } from '../consent.ts';
import type { Loosened } from '../consent.ts';
import { age } from '../terminal/age.ts';
import type { Look } from '../terminal/look.ts';
import { fields, table } from '../terminal/table.ts';
import { oneLine } from '../terminal/text.ts';
import { fitted } from '../terminal/wrap.ts';

const NOT_DONE = 1;
const ALLOW = 'sandbox.network.allow';

/** Shows what waits. */
export async function showPending(call: Call): Promise<number> {
  const items = await call.withObserver(({ network }) => network.pending());
  await call.print('acode.egress-pending/1', { items }, look => renderPending(items, look));
  return 0;
}

function renderPending(items: readonly PendingAccess[], look: Look): string {
  if (items.length === 0)
    return fitted(
      'Nothing waits: in the last hour no command was refused a host that can be allowed here. `acode egress log` shows every connection.\n',
      look,
    );
  const rows = items.map(access => [
    access.id,
    access.isRunning ? 'running' : age(access.at, look.now),
    `${access.host}:${access.port}`,
    access.entry,
    aboutText(access),
  ]);
  const all = table(['ID', 'WHEN', 'HOST', 'ENTRY', 'FOR'], rows, look, ['ENTRY']);
  return `${all}${fitted(look.colours.dim('`acode egress allow <id>` allows one once; --task and --save for longer.'), look)}\n`;
}

// What a model writes is its own text, and says so.
function aboutText({ by, why, command = [] }: PendingAccess): string {
  return by === 'model' ? `a model: "${why ?? ''}"` : command.join(' ');
}

/** For how long a person allows something. */
interface Choice {
  readonly once?: true | undefined;
  readonly task?: true | undefined;
  readonly save?: true | undefined;
  readonly yes?: true | undefined;
}

/** Allows one, after asking. */
export async function allow(call: Call, id: string, { task, save, yes }: Choice): Promise<number> {
  const found = await call.withObserver(async ({ network }) => (await network.pending()).find(one => one.id === id));
  // An id that does not exist is refused by the library, which knows why.
  if (save && found) return change(call, { kind: 'add', key: ALLOW, values: [found.entry] }, yes === true);
  const how = task ? 'task' : 'once';
  const consent = found
    ? await consentTo(call, [loosened(found, how)], { question: 'acode: Allow it?', yes: yes === true })
    : { how: 'option' as const, parent: null };
  if (consent === null) {
    await call.say('acode: Nothing was allowed.\n');
    return NOT_DONE;
  }
  const granted = await call.withObserver(({ network }) =>
    network.allow(id, { for: how, consent, signal: call.interruption.signal }),
  );
  await call.print('acode.egress-allow/1', granted, look => renderGranted(granted, how, look));
  return 0;
}

function loosened(access: PendingAccess, how: 'once' | 'task'): Loosened {
  const { host, port, entry, isRunning, by, why = '' } = access;
  const whose = by === 'model' ? ` A model asks for it: "${oneLine(why)}"` : '';
  return { what: `${host}:${port} (allow=${entry})`, allows: `${forWhom(how, isRunning)}${whose}` };
}

function forWhom(how: 'once' | 'task', isRunning: boolean): string {
  if (how === 'task') return 'Commands of the task, or of the workspace if it has none, reach it for eight hours.';
  return isRunning
    ? 'The sandbox that runs reaches it until it ends.'
    : 'The next command in the workspace that has an allow-list reaches it, within an hour.';
}

function renderGranted({ access, isInEffect, until }: GrantedAccess, how: 'once' | 'task', look: Look): string {
  const { green, bold } = look.colours;
  const who = how === 'once' ? 'the next command with an allow-list' : 'commands of the task or workspace';
  return `${green(bold('allowed'))}\n${fields(
    [
      ['Host', `${access.host}:${access.port}`],
      ...(isInEffect ? [['Now', 'the sandbox that runs has it'] as const] : []),
      ...(access.isRunning && !isInEffect
        ? [
            [
              'Now',
              'not for the sandbox that runs: programs in it would have to trust its inspection from the start',
            ] as const,
          ]
        : []),
      ...(until === undefined ? [] : [['Later', `${who}, until ${until}`] as const]),
    ],
    look,
  )}`;
}
