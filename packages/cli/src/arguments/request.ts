// Sandbox options: the options that commands share about a sandbox and about one run in it.

import { resolve } from 'node:path';
import { LEVELS, PROFILE_NAMES, RISKS, policyFrom } from '@acode/sandbox';
import type { CreateRequest, PolicyFields, PolicyInput, RunRequest } from '@acode/sandbox';
import { Command, Option } from '@commander-js/extra-typings';
import { count, seconds } from './values.ts';
import type { Place } from '../workspace.ts';
import { environmentOf, environmentOptions } from './environment-options.ts';
import {
  address,
  caches,
  cpus,
  mount,
  network,
  port,
  risk,
  service,
  size,
  someSize,
  texts,
  user,
} from './sandbox-values.ts';

/** A command with all options that say what a sandbox is to be. */
export function sandboxCommand(name: string) {
  return new Command(name)
    .optionsGroup('Sandbox options:')
    .option('--image <reference>', 'image of the sandbox')
    .addOption(new Option('--profile <profile>', 'built-in limits to start from (default: dev)').choices(PROFILE_NAMES))
    .addOption(new Option('--memory <size>', 'memory limit: MB, or 512m, 1.5g').argParser(someSize))
    .addOption(new Option('--swap <size>', 'swap in addition to memory: MB, or 512m (default: none)').argParser(size))
    .addOption(new Option('--cpus <number>', 'CPU limit, such as 0.5').argParser(cpus))
    .addOption(new Option('--pids <number>', 'maximum number of processes').argParser(count))
    .addOption(new Option('--open-files <number>', 'maximum number of open files per process').argParser(count))
    .addOption(new Option('--tmp <size>', 'size of /tmp and home, in memory: MB, or 512m').argParser(someSize))
    .addOption(new Option('--timeout <time>', 'time limit: seconds, or 5m, 1h30m').argParser(seconds))
    .addOption(
      new Option('--on-oom <action>', 'when memory runs out: report it and go on, or end the command').choices([
        'report',
        'end',
      ] as const),
    )
    .addOption(new Option('--max-output <size>', 'maximum output kept per stream: MB, or 512k').argParser(size))
    .addOption(
      new Option('--network <network>', 'network: none, allow=<hosts>, bridge, or the name of a network').argParser(
        network,
      ),
    )
    .addOption(
      new Option('--network-rate <size>', 'bytes a second, each way, of an allow-list: MB, or 512k').argParser(
        someSize,
      ),
    )
    .addOption(new Option('--network-bytes <size>', 'bytes of an allow-list in all: MB, or 2g').argParser(someSize))
    .addOption(
      new Option('--publish <port>', 'port to publish on 127.0.0.1: 3000, 8080:3000, 53/udp; repeatable').argParser(
        port,
      ),
    )
    .addOption(
      new Option('--dns <address>', 'name server of the sandbox, such as 1.1.1.1; repeatable').argParser(address),
    )
    .addOption(
      new Option(
        '--service <name=image>',
        'run this image beside the command, which reaches it by the name; none for none; repeatable (docs/services.md)',
      ).argParser(service),
    )
    .option('--readonly', 'mount the workspace read-only')
    .addOption(
      new Option(
        '--fork [name]',
        'write a copy-on-write fork in place of the workspace: the current one, =new, or =<name> (see `acode fork`)',
      ).conflicts(['readonly', 'deps']),
    )
    .addOption(
      new Option('--workspace-path <path>', 'path of the workspace inside, or same for its own (default: /workspace)'),
    )
    .option('--fork-copy', 'copy the workspace for the fork, whatever its size, where no overlay can be mounted')
    .addOption(new Option('--disk <size>', 'disk limit of the fork: MB, or 512m, 2g').argParser(someSize))
    .addOption(
      new Option('--disk-hard <size>', 'the same, in memory, so that writes beyond it fail: at most half of --memory')
        .argParser(someSize)
        .conflicts(['disk']),
    )
    .addOption(
      new Option(
        '--mount <source:target>',
        'extra directory, read-only: ./data:/data, or writable: ./out:/out:rw; repeatable',
      ).argParser(mount),
    )
    .addOption(
      new Option('--caches <tools>', 'package manager caches, such as npm,pip (default: by language)').argParser(
        caches,
      ),
    )
    .option('--no-caches', 'mount no package manager caches')
    .option('--deps', 'use the project image and its dependencies, such as node_modules (see `sandbox build-image`)')
    .addOption(
      new Option('--fill-cache <tools>', 'keep what the command puts into these caches, for every later run')
        .argParser(caches)
        .conflicts('caches'),
    )
    .addOption(new Option('--user <uid:gid>', 'user and group inside the sandbox').argParser(user))
    .addOption(new Option('--pull <when>', 'when to pull the image').choices(['missing', 'always', 'never'] as const))
    .option('--runtime <name>', 'runtime of the engine, such as runsc for gVisor')
    .addOption(new Option('--level <level>', 'isolation level').choices(['auto', ...LEVELS] as const))
    .addOption(
      new Option(
        '--risk <risk>',
        'risk of the command as you judge it; recorded, and matters only if your sandbox.require_for allows levels below docker',
      )
        .choices(RISKS)
        .argParser(risk),
    )
    .option('--session <id>', 'session id to label the sandbox with')
    .option('--task <id>', 'task id to label and name the sandbox with');
}

/** The values of those options. */
export type SandboxOptions = ReturnType<ReturnType<typeof sandboxCommand>['opts']>;

/** A command with all options of a run. */
export function optionsCommand(name: string) {
  return sandboxCommand(name)
    .addOption(environmentOptions().env)
    .addOption(environmentOptions().file)
    .option(...WORKDIR);
}

/** A command that takes a command to run, with all options of a run. They stand before it. */
export function requestCommand(name: string) {
  return optionsCommand(name)
    .argument('[command...]', 'one quoted line for the shell, or `-- program arguments…`')
    .usage('[options] "<line>"  |  [options] -- <program> [arguments…]')
    .passThroughOptions();
}

/** The option that brings files out of a fresh sandbox. */
export function artifactOption() {
  return new Option(
    '--artifact <inside:here>',
    'copy a file or directory out when the command has ended, such as /out/report:./report; repeatable',
  ).argParser(texts);
}

/** The option for the directory of a command. */
export const WORKDIR = ['--workdir <directory>', 'working directory, relative to the workspace'] as const;

/** The values of those options. */
export type RequestOptions = ReturnType<ReturnType<typeof optionsCommand>['opts']>;

/** The request that the options describe, called from a place with an environment. */
export async function requestOf(
  options: RequestOptions,
  place: Place,
  variables: Readonly<Record<string, string | undefined>>,
): Promise<RunRequest> {
  const env = await environmentOf(options, { env: variables, here: place.here });
  return {
    policy: policyOf(options, place.here),
    cwd: options.workdir ?? place.inside,
    ...present({ env, risk: options.risk, sessionId: options.session, taskId: options.task }),
  };
}

/** The request for a persistent sandbox, from the options and the place of the call. */
export function createRequestOf(options: SandboxOptions, place: Place): CreateRequest {
  return {
    policy: policyOf(options, place.here),
    ...present({ risk: options.risk, sessionId: options.session, taskId: options.task }),
  };
}

function policyOf(options: SandboxOptions, here: string): PolicyInput {
  const limits = present({
    memoryBytes: options.memory,
    swapBytes: options.swap,
    cpus: options.cpus,
    pids: options.pids,
    openFiles: options.openFiles,
    tmpBytes: options.tmp,
    outputBytes: options.maxOutput,
  });
  return policyFrom({
    ...present({
      profile: options.profile,
      image: options.image,
      runtime: options.runtime,
      timeoutMs: options.timeout,
      onOutOfMemory: options.onOom,
      network: options.network,
      networkLimits: networkLimitsOf(options),
      ports: options.publish,
      dns: options.dns,
      services: options.service,
      // As in a shell, a relative path begins where the user stands.
      mounts: options.mount?.map(({ source, ...rest }) => ({ source: resolve(here, source), ...rest })),
      caches: cachesOf(options),
      deps: options.deps,
      user: options.user,
      pull: options.pull,
      forkCopy: options.forkCopy,
      disk: diskOf(options),
      level: options.level,
      workspacePath: options.workspacePath,
      ...workspaceOf(options),
    }),
    limits,
  });
}

function diskOf({ disk, diskHard }: SandboxOptions): PolicyFields['disk'] {
  if (diskHard !== undefined) return { bytes: diskHard, hard: true };
  return disk === undefined ? undefined : { bytes: disk };
}

function networkLimitsOf({ networkRate, networkBytes }: SandboxOptions): PolicyFields['networkLimits'] {
  if (networkRate === undefined && networkBytes === undefined) return undefined;
  return present({ bytesPerSecond: networkRate, bytes: networkBytes });
}

function workspaceOf({ readonly: isReadonly, fork }: SandboxOptions): Pick<PolicyFields, 'workspace' | 'fork'> {
  if (fork === undefined) return { workspace: isReadonly ? 'readonly' : undefined };
  return { workspace: 'fork', fork: fork === true || fork === 'current' ? undefined : fork };
}

function cachesOf({ caches: named, fillCache }: SandboxOptions): PolicyFields['caches'] {
  return fillCache === undefined ? named : { fill: fillCache };
}

type Present<Value> = { [Key in keyof Value]?: Exclude<Value[Key], undefined> };

// A field that is there and undefined is not the same as one that is absent.
function present<Value extends object>(value: Value): Present<Value>;
function present(value: object): object {
  return Object.fromEntries(Object.entries(value).filter(([, item]) => item !== undefined));
}
