// The options that `exec`, `run` and `explain` share: everything that can be said about one run.

import { LEVELS, RISKS } from '@acode/sandbox';
import type { PolicyInput, RunRequest } from '@acode/sandbox';
import { Command, Option } from '@commander-js/extra-typings';
import { count } from './count.ts';
import { cpus } from './cpus.ts';
import { network } from './network.ts';
import { risk } from './risk.ts';
import { seconds } from './seconds.ts';
import { size } from './size.ts';
import { user } from './user.ts';
import { variable } from './variable.ts';

/** A command that takes a command to run, with all options of a run. They stand before it. */
export function requestCommand(name: string) {
  return new Command(name)
    .argument('[command...]', 'one quoted line for the shell, or `-- program arguments…`')
    .usage('[options] "<line>"  |  [options] -- <program> [arguments…]')
    .passThroughOptions()
    .optionsGroup('Sandbox options:')
    .option('--image <reference>', 'image of the sandbox')
    .addOption(new Option('--memory <size>', 'memory limit: MB, or 512m, 1.5g').argParser(size))
    .addOption(new Option('--cpus <number>', 'CPU limit, such as 0.5').argParser(cpus))
    .addOption(new Option('--pids <number>', 'most processes at once').argParser(count))
    .addOption(new Option('--timeout <seconds>', 'time limit, such as 30 or 0.5').argParser(seconds))
    .addOption(new Option('--max-output <size>', 'most output kept of each stream: MB, or 512k').argParser(size))
    .addOption(new Option('--network <network>', 'network: none, bridge or a name').argParser(network))
    .option('--readonly', 'the workspace cannot be written')
    .addOption(new Option('--user <uid:gid>', 'user and group inside the sandbox').argParser(user))
    .addOption(
      new Option('--env <NAME=value>', 'environment variable; may be repeated, nothing is inherited').argParser(
        variable,
      ),
    )
    .option('--workdir <directory>', 'working directory, relative to the workspace')
    .addOption(new Option('--pull <when>', 'when to pull the image').choices(['missing', 'always', 'never'] as const))
    .addOption(new Option('--level <level>', 'isolation level').choices(['auto', ...LEVELS] as const))
    .addOption(
      new Option(
        '--risk <risk>',
        'how dangerous you believe the command to be; recorded, high and critical need docker or stronger',
      )
        .choices(RISKS)
        .argParser(risk),
    )
    .option('--session <id>', 'session the sandbox is labelled with')
    .option('--task <id>', 'task the sandbox is labelled and named with');
}

/** The values of those options. */
export type RequestOptions = ReturnType<ReturnType<typeof requestCommand>['opts']>;

/** Which option sets which field of the policy. */
export const POLICY_OPTIONS: Readonly<Record<string, string>> = {
  'policy.image': '--image',
  'policy.limits.memoryBytes': '--memory',
  'policy.limits.cpus': '--cpus',
  'policy.limits.pids': '--pids',
  'policy.limits.outputBytes': '--max-output',
  'policy.timeoutMs': '--timeout',
  'policy.network': '--network',
  'policy.workspace': '--readonly',
  'policy.user': '--user',
  'policy.pull': '--pull',
  'policy.level': '--level',
};

/** A sentence of the library about fields of the policy, in the words of the command line. */
export function inOptions(text: string): string {
  let out = text;
  for (const [field, option] of Object.entries(POLICY_OPTIONS)) {
    out = out.replaceAll(field, option);
    const short = field.slice('policy.'.length);
    // Shorter names are ordinary words too.
    if (/[A-Z.]/.test(short)) out = out.replaceAll(short, option);
  }
  return out;
}

/** The request that the options describe. `inside` is where the user stands in the workspace. */
export function requestOf(options: RequestOptions, inside: string): RunRequest {
  return {
    policy: policyOf(options),
    cwd: options.workdir ?? inside,
    ...present({ env: options.env, risk: options.risk, sessionId: options.session, taskId: options.task }),
  };
}

function policyOf(options: RequestOptions): PolicyInput {
  const limits = present({
    memoryBytes: options.memory,
    cpus: options.cpus,
    pids: options.pids,
    outputBytes: options.maxOutput,
  });
  return {
    ...present({
      image: options.image,
      timeoutMs: options.timeout,
      network: options.network,
      user: options.user,
      pull: options.pull,
      level: options.level,
      workspace: options.readonly ? ('readonly' as const) : undefined,
    }),
    limits,
  };
}

type Present<Value> = { [Key in keyof Value]?: Exclude<Value[Key], undefined> };

// A field that is there and undefined is not the same as one that is absent.
function present<Value extends object>(value: Value): Present<Value>;
function present(value: object): object {
  return Object.fromEntries(Object.entries(value).filter(([, item]) => item !== undefined));
}
