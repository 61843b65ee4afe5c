// `acode sandbox create`: creates a persistent sandbox that exists until it expires or is removed.

import { createRequestFrom } from '@acode/sandbox';
import type { Sandbox } from '@acode/sandbox';
import { Option } from '@commander-js/extra-typings';
import { duration } from '../arguments/values.ts';
import { createRequestOf, sandboxCommand } from '../arguments/request.ts';
import type { SandboxOptions } from '../arguments/request.ts';
import { showPersistentOptions, refuseNonPersistentOptions } from '../arguments/persistent-options.ts';
import type { Call, Perform } from '../call.ts';
import { preparing } from '../execution/preparing.ts';
import { until } from '../terminal/age.ts';

const MAX_MS = 24 * 3600 * 1000;

/** The option that sets when a persistent sandbox expires. */
export function lifetimeOption() {
  return new Option('--for <time>', 'lifetime: 30m, 2h; at most 24h (default: 1h)').argParser(duration);
}

/** The command. */
export function createCommand(perform: Perform) {
  return showPersistentOptions(sandboxCommand('create'))
    .description('Create a persistent sandbox, and print its id')
    .addOption(lifetimeOption())
    .option('--name <name>', 'name of the sandbox, accepted wherever its id is')
    .action((options, command) => perform(command, call => create(call, options)));
}

type CreateOptions = SandboxOptions & { readonly for?: number | undefined; readonly name?: string | undefined };

async function create(call: Call, options: CreateOptions): Promise<number> {
  refuseNonPersistentOptions(options);
  const request = createRequestOf(options, await call.place());
  const expires = options.for === undefined ? {} : { expiresInMs: options.for };
  return call.withHost(async acode => {
    const { signal } = call.interruption;
    const named = options.name === undefined ? {} : { name: options.name };
    const asked = createRequestFrom({ ...request, ...expires, ...named, keep: true, signal });
    const sandbox = await preparing(call, acode, acode.create(asked));
    await call.print('acode.sandbox/1', factsOf(sandbox), () => `${sandbox.id}\n`);
    const wanted = options.for ?? 0;
    if (!call.options.json && wanted > MAX_MS) await call.say(MAX_LINE);
    if (!call.options.json) await call.say(expiryLine(call, sandbox.expiresAt, wanted >= MAX_MS));
    if (!call.options.json) await call.say(timeLine(call, sandbox.commandTimeoutMs));
    await sandbox.leave();
    return 0;
  });
}

/** The JSON output for a persistent sandbox. */
export function factsOf({ id, containerId, name, level, image, kept, expiresAt, commandTimeoutMs }: Sandbox): object {
  const expires = expiresAt.toISOString();
  return { sandboxId: id, containerId, name, level, image, kept, expiresAt: expires, commandTimeoutMs };
}

/** The notice that acode reduced the requested lifetime to the maximum. */
export const MAX_LINE = 'acode: limit reached: a sandbox expires at most 24 hours after its creation.\n';

/** The line that reports when a sandbox expires; `isMaximum` means that it cannot be extended. */
export function expiryLine(
  { errorLook: { colours, now } }: Pick<Call, 'errorLook'>,
  expiresAt: Date,
  isMaximum: boolean,
): string {
  const moment = expiresAt.toISOString();
  const longer = isMaximum ? '' : '`acode sandbox keep` extends that, ';
  return `${colours.cyan('acode:')} it expires ${until(moment, now)}, at ${moment.slice(0, 19)}Z; ${longer}\`acode sandbox kill\` removes it.\n`;
}

/** The line that reports how long a command in the sandbox may run. */
export function timeLine({ errorLook: { colours } }: Pick<Call, 'errorLook'>, timeoutMs: number | null): string {
  const time =
    timeoutMs === null
      ? 'a command in it may run until the sandbox ends; `--timeout` limits a single command'
      : `a command in it may take ${timeoutMs / 1000} s at most (set by --timeout or your configuration)`;
  return `${colours.cyan('acode:')} ${time}.\n`;
}
