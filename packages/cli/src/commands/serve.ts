// `acode serve`: keeps a warm pool for one workspace, and runs the commands of `acode run` there.

import type { WarmPool } from '@acode/sandbox';
import { Command, Option } from '@commander-js/extra-typings';
import { count, seconds } from '../arguments/values.ts';
import type { Call, Perform } from '../call.ts';
import { UsageError } from '../failure/usage.ts';
import { oneLine } from '../terminal/text.ts';
import { serveStatusCommand, serveStopCommand } from './serve-status.ts';

/** The command, with those about a server that runs. */
export function serveCommand(perform: Perform) {
  return (
    new Command('serve')
      .description('Keep pre-started sandboxes for a workspace, so that commands in it start at once')
      .optionsGroup('Pool options:')
      .addOption(new Option('--min <number>', 'minimum number of pre-started sandboxes (default: 1)').argParser(count))
      .addOption(new Option('--max <number>', 'maximum number of pre-started sandboxes (default: 4)').argParser(count))
      .addOption(
        new Option(
          '--idle <time>',
          'idle time after which a sandbox beyond --min is removed: seconds, or 5m (default: 300)',
        ).argParser(seconds),
      )
      // How a command that ended starts it.
      .addOption(new Option('--background').hideHelp())
      .addCommand(serveStatusCommand(perform))
      .addCommand(serveStopCommand(perform))
      .action((options, command) => perform(command, call => serve(call, options)))
  );
}

interface ServeOptions {
  readonly min?: number | undefined;
  readonly max?: number | undefined;
  readonly idle?: number | undefined;
  readonly background?: true | undefined;
}

async function serve(call: Call, { min, max, idle, background }: ServeOptions): Promise<number> {
  if (min !== undefined && max !== undefined && min > max)
    throw new UsageError(`--min ${min} is more than --max ${max}.`, 'Raise --max, or lower --min.');
  const pool = {
    ...(min === undefined ? {} : { min }),
    ...(max === undefined ? {} : { max }),
    ...(idle === undefined ? {} : { idleMs: idle }),
  };
  // What only a server needs is loaded by a server only.
  const { serveCalls } = await import('../serve/serve-calls.ts');
  await serveCalls(call, {
    pool,
    background: background === true,
    listening: async ({ workspace }) => {
      if (!call.options.json) await call.say(`acode: serving ${oneLine(workspace)}. Ctrl-C ends it.\n`);
    },
    settled: async (facts, found) => {
      const { state, cause, reason, image } = found;
      const shown = { ...facts, ready: state === 'ready', reason, image, caches: cause === 'caches' };
      if (call.options.json) await call.printJson('acode.serve/1', shown);
      else await call.say(`acode: ${oneLine(readiness(found))}\n`);
    },
  });
  return 0;
}

// Said when it is so, and where it is not, why.
function readiness({ state, cause, reason, image }: WarmPool): string {
  const of = image === null ? '' : ` of ${image}`;
  if (state === 'ready') return `ready: a sandbox${of} is warm, and \`acode run\` starts in it at once.`;
  const remedy = {
    'no image': `\`acode sandbox pull ${image ?? ''}\` fetches it.`,
    caches: '`acode run --no-caches` can use a warm sandbox.',
    other: 'Commands still run; acode creates a sandbox for each.',
  }[cause ?? 'other'];
  return `no sandbox is warm. ${remedy} Reason: ${reason}`;
}
