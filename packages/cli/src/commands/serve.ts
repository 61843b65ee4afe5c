// `acode serve`: keeps sandboxes waiting for one workspace, and runs the commands that `acode run` is called with there.

import { Command, Option } from '@commander-js/extra-typings';
import { count } from '../arguments/count.ts';
import { seconds } from '../arguments/seconds.ts';
import type { Call, Perform } from '../call.ts';
import { UsageError } from '../failure/usage.ts';
import { oneLine } from '../terminal/text.ts';

/** The command. */
export function serveCommand(perform: Perform) {
  return new Command('serve')
    .description('Keep sandboxes waiting for a workspace, so that commands in it begin at once')
    .optionsGroup('Pool options:')
    .addOption(new Option('--min <number>', 'sandboxes that always wait; 1 unless you say').argParser(count))
    .addOption(new Option('--max <number>', 'sandboxes that wait at most; 4 unless you say').argParser(count))
    .addOption(
      new Option('--idle <time>', 'how long one beyond --min waits for nobody: seconds, or 5m; 300').argParser(seconds),
    )
    .action((options, command) => perform(command, call => serve(call, options)));
}

interface ServeOptions {
  readonly min?: number | undefined;
  readonly max?: number | undefined;
  readonly idle?: number | undefined;
}

async function serve(call: Call, { min, max, idle }: ServeOptions): Promise<number> {
  if (min !== undefined && max !== undefined && min > max)
    throw new UsageError(`--min ${min} is more than --max ${max}.`, 'Raise --max, or lower --min.');
  const pool = {
    ...(min === undefined ? {} : { min }),
    ...(max === undefined ? {} : { max }),
    ...(idle === undefined ? {} : { idleMs: idle }),
  };
  // What only a server needs is loaded by a server only.
  const { serveCalls } = await import('../serve/serve-calls.ts');
  await serveCalls(call, pool, async ({ workspace, socket, caches }) => {
    if (call.options.json) await call.printJson('acode.serve/1', { workspace, socket, caches });
    else await call.say(`acode: serving ${oneLine(workspace)}: ${promise(caches)} Ctrl-C ends it.\n`);
  });
  return 0;
}

function promise(caches: boolean): string {
  return caches
    ? '`acode run --no-caches` begins at once here. With the project’s caches, each command has its sandbox made.'
    : '`acode run` begins at once here.';
}
