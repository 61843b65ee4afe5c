// `acode sandbox inspect`: shows one sandbox in detail.

import { formatBytes } from '@acode/sandbox';
import type { SandboxDetails } from '@acode/sandbox';
import { Command } from '@commander-js/extra-typings';
import type { Call, Perform } from '../call.ts';
import { age, until } from '../terminal/age.ts';
import type { Look } from '../terminal/look.ts';
import { fields } from '../terminal/table.ts';

/** The command. */
export function inspectCommand(perform: Perform) {
  return new Command('inspect')
    .description('Show one sandbox in detail')
    .argument('<ref>', 'name or id of a sandbox')
    .action((reference, _options, command) => perform(command, call => showSandbox(call, reference)));
}

async function showSandbox(call: Call, reference: string): Promise<number> {
  const details = await call.withObserver(observer =>
    call.progress.during('Asking the engine…', observer.inspect(reference)),
  );
  await call.print('acode.inspect/1', details, look => renderSandbox(details, look));
  return 0;
}

/** Formats the details of a sandbox for a terminal. */
export function renderSandbox(details: SandboxDetails, look: Look): string {
  const { limits } = details;
  const mounts = details.mounts.map(
    ({ source, target, readOnly }) => ['Mount', `${source} → ${target}${readOnly ? ' (read-only)' : ''}`] as const,
  );
  const { expiresAt } = details;
  const expires = expiresAt === undefined ? [] : [['Expires', `${expiresAt} (${until(expiresAt, look.now)})`] as const];
  const about = fields(
    [
      ['Sandbox', details.sandboxId],
      ['Container', details.containerId],
      ...(details.givenName === undefined ? [] : [['Container name', details.name] as const]),
      ['State', details.state],
      ['Image', details.image],
      // If the requested name is unknown, the engine reports the id in both fields.
      ...(details.imageId === details.image ? [] : [['Image id', details.imageId] as const]),
      ['Level', details.level],
      ['Session', details.sessionId],
      ['Task', details.taskId],
      ['Created', `${details.createdAt} (${age(details.createdAt, look.now)})`],
      ['Started', details.startedAt],
      ...expires,
      ['User', details.user],
      ['Memory', formatBytes(limits.memoryBytes)],
      ['CPUs', String(limits.cpus)],
      ['Processes', `at most ${limits.pids}`],
      ['Network', details.network],
      ...mounts,
    ],
    look,
  );
  return `${look.colours.bold(details.givenName ?? details.name)}\n${about}`;
}
