// `acode sandbox keep`: changes when a persistent sandbox expires.

import { Command, Option } from '@commander-js/extra-typings';
import { duration, reference } from '../arguments/values.ts';
import type { Call, Perform } from '../call.ts';
import { MAX_LINE, factsOf, expiryLine } from './create.ts';

// A little less than was asked for is what the way to the engine took.
const NOTICEABLE_MS = 60_000;

/** The command. */
export function keepCommand(perform: Perform) {
  return new Command('keep')
    .description('Change when a persistent sandbox expires')
    .argument('<sandbox>', 'id or name of a persistent sandbox', reference)
    .addOption(
      new Option('--for <time>', 'time from now: 30m, 2h; at most 24h after its creation')
        .argParser(duration)
        .makeOptionMandatory(),
    )
    .action((named, options, command) => perform(command, call => keep(call, named, options.for)));
}

async function keep(call: Call, named: string, milliseconds: number): Promise<number> {
  return call.withHost(async acode => {
    const { signal } = call.interruption;
    const sandbox = await call.progress.during('Asking the engine…', acode.connect(named, { signal }));
    const expiresAt = await sandbox.extend(milliseconds);
    const short = call.io.now() + milliseconds - expiresAt.getTime() > NOTICEABLE_MS;
    await call.print('acode.sandbox/1', factsOf(sandbox), () => `${expiresAt.toISOString()}\n`);
    if (!call.options.json && short) await call.say(MAX_LINE);
    if (!call.options.json) await call.say(expiryLine(call, expiresAt, short));
    await sandbox.leave();
    return 0;
  });
}
