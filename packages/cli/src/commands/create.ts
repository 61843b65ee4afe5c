// `acode sandbox create`: creates a persistent sandbox that exists until it expires or is removed.

import { AcodeError, createRequestFrom } from '@acode/sandbox';
import type { Acode, Sandbox } from '@acode/sandbox';
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
  const { signal } = call.interruption;
  const named = options.name === undefined ? {} : { name: options.name };
  const made = async (acode: Acode, how: 'keep' | 'shared'): Promise<Sandbox> => {
    const asked = createRequestFrom({ ...request, ...expires, ...named, [how]: true, signal });
    return preparing(call, acode, acode.create(asked));
  };
  return call.withHost(async acode => {
    try {
      const sandbox = await made(acode, 'keep');
      await report(call, sandbox, options.for);
      await sandbox.leave();
      return 0;
    } catch (error) {
      if (!needsProcess(error)) throw error;
      if (!call.hasLender) return elsewhere(call, acode, error);
      const sandbox = await made(acode, 'shared');
      call.hold(acode, sandbox.ended);
      await report(call, sandbox, options.for);
      if (!call.options.json) await call.say(sharedLine(call));
      return 0;
    }
  });
}

// What the sandbox asks for belongs to a process that goes on, such as the proxy of an allow-list.
function needsProcess(error: unknown): error is AcodeError<'ACODE-SBX-016'> {
  return error instanceof AcodeError && error.is('ACODE-SBX-016') && error.context.outlives === true;
}

async function elsewhere(call: Call, acode: Acode, error: AcodeError<'ACODE-SBX-016'>): Promise<number> {
  const { inBackground } = await import('../serve/start.ts');
  const setting = await acode.serveSetting();
  const work = inBackground(call, call.program, setting);
  const outcome = await call.progress.during('Starting the background process…', work);
  if (typeof outcome === 'number') return outcome;
  throw new AcodeError('ACODE-SBX-016', {
    ...error.context,
    instead: `A background process of acode would own it, and there is none: ${outcome.reason}. Start one with \`acode serve\` in another terminal and try again, or run single commands with \`acode run\`.`,
  });
}

async function report(call: Call, sandbox: Sandbox, wanted = 0): Promise<void> {
  await call.print('acode.sandbox/1', factsOf(sandbox), () => `${sandbox.id}\n`);
  if (call.options.json) return;
  if (wanted > MAX_MS) await call.say(MAX_LINE);
  await call.say(expiryLine(call, sandbox.expiresAt, wanted >= MAX_MS));
  await call.say(timeLine(call, sandbox.commandTimeoutMs));
}

function sharedLine({ errorLook: { colours } }: Pick<Call, 'errorLook'>): string {
  return `${colours.cyan('acode:')} it belongs to the background process of this workspace, and ends with it (\`acode serve stop\`).\n`;
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
