// `acode fleet`: commands on many hosts, if the package of the fleet is installed.

import { Command, InvalidArgumentError, Option } from '@commander-js/extra-typings';
import { environmentOptions } from '../arguments/environment-options.ts';
import { cpus, size, texts } from '../arguments/sandbox-values.ts';
import { count, duration, seconds } from '../arguments/values.ts';
import type { Perform } from '../call.ts';
import { lifetimeOption } from './create.ts';
import { flagsOf } from './exec.ts';

const FILE = ['--file <path>', 'the fleet’s file (default: fleet.yml beside your configuration)'] as const;
const COMMAND = ['[command...]', 'one quoted line for the shell, or `-- program arguments…`'] as const;
const LEVELS = ['docker', 'gvisor', 'microvm'] as const;

/** The group. */
export function fleetCommands(perform: Perform) {
  return new Command('fleet')
    .description('Run commands on many hosts (needs the package @acode/fleet)')
    .enablePositionalOptions()
    .addCommand(upCommand(perform))
    .addCommand(joinCommand(perform))
    .addCommand(serveCommand(perform))
    .addCommand(taskCommand(perform, 'run'))
    .addCommand(taskCommand(perform, 'submit'))
    .addCommand(taskView(perform, 'logs', 'Print what a task prints, from its first byte, until it has ended'))
    .addCommand(taskView(perform, 'cancel', 'Cancel a task'))
    .addCommand(createCommand(perform))
    .addCommand(execCommand(perform))
    .addCommand(fleetView(perform, 'list', 'List your persistent sandboxes on the fleet'))
    .addCommand(killCommand(perform))
    .addCommand(statusCommand(perform))
    .addCommand(fleetView(perform, 'hosts', 'List the hosts of the fleet, and what they run'))
    .addCommand(drainCommand(perform))
    .addCommand(tenantCommands(perform))
    .addCommand(fleetView(perform, 'doctor', 'Check whether you can submit, and whether the fleet can run it'));
}

function upCommand(perform: Perform) {
  return new Command('up')
    .description('Start a fleet on this machine: a server that it has, and a worker; until a signal')
    .addOption(
      new Option('--image <image>', 'image that tasks may use, the first one by default; repeatable').argParser(texts),
    )
    .addOption(new Option('--slots <number>', 'tasks at once (default: 4)').argParser(count))
    .addOption(new Option('--level <level>', 'least isolation level (default: docker)').choices(LEVELS))
    .option('--name <name>', 'name of the fleet (default: acode)')
    .option('--nats-server <path>', 'the nats-server to start (default: the one in PATH)')
    .option('--postgres <url>', 'a PostgreSQL that runs already, in place of a server of its own')
    .option('--listen <address>', 'address that other hosts reach; needs a certificate (default: this machine only)')
    .option('--tls-cert <file>', 'certificate of the server')
    .option('--tls-key <file>', 'its key')
    .option('--tls-ca <file>', 'what the certificate is checked against')
    .action((options, command) =>
      perform(command, async call => (await import('../fleet/verbs.ts')).up(call, options)),
    );
}

function serveCommand(perform: Perform) {
  return new Command('serve')
    .description('Serve sandboxes of this machine to programs of another interface, over HTTP; until a signal')
    .option('--e2b', 'the interface of E2B: its SDK works with three variables set')
    .addOption(
      new Option(
        '--image <[name=]image>',
        'image that sandboxes are made of, or a template by its name; the first one is `base`; repeatable',
      ).argParser(texts),
    )
    .addOption(new Option('--port <number>', 'port; 0 for any free one (default: 49983)').argParser(portNumber))
    .option('--host <address>', 'address to listen on; others than loopback need a certificate (default: 127.0.0.1)')
    .option('--tls-cert <file>', 'certificate of the server')
    .option('--tls-key <file>', 'its key')
    .option('--keys <file>', 'API keys of tenants (default: one key, made for you)')
    .addOption(
      new Option('--sandboxes <number>', 'sandboxes at once, at most 128 (default: 16)').argParser(sandboxCount),
    )
    .addOption(new Option('--level <level>', 'least isolation level (default: docker)').choices(LEVELS))
    .addOption(new Option('--memory <size>', 'memory limit of each (default: 512m)').argParser(size))
    .addOption(new Option('--cpus <number>', 'CPU limit of each (default: 1)').argParser(cpus))
    .addOption(new Option('--pids <number>', 'process limit of each (default: 256)').argParser(count))
    .addOption(
      new Option('--allow <host>', 'host or preset that all may reach; repeatable (default: no network)').argParser(
        texts,
      ),
    )
    .action((options, command) =>
      perform(command, async call => (await import('../fleet/verbs.ts')).serve(call, options)),
    );
}

const MAX_PORT = 65_535;
const MAX_SANDBOXES = 128;

function sandboxCount(text: string): number {
  const value = count(text);
  if (value > MAX_SANDBOXES) throw new InvalidArgumentError(`Expected at most ${MAX_SANDBOXES}.`);
  return value;
}

function portNumber(text: string): number {
  const value = /^\d{1,5}$/.test(text) ? Number(text) : NaN;
  if (!(value <= MAX_PORT)) throw new InvalidArgumentError(`Expected a port from 0 to ${MAX_PORT}.`);
  return value;
}

function joinCommand(perform: Perform) {
  return new Command('join')
    .description('Make this machine a worker of a fleet; until a signal')
    .argument('<file>', 'the file that `acode fleet up --listen` or the operator wrote; - reads standard input')
    .option('--replace', 'replace the worker’s file of before')
    .action((file, { replace }, command) =>
      perform(command, async call => (await import('../fleet/verbs.ts')).join(call, file, replace === true)),
    );
}

function timeOption() {
  return new Option('--timeout <time>', 'time limit of a command: seconds, or 5m, 1h30m').argParser(seconds);
}

/** Options of everything that a worker runs: where, in what, and within which limits. */
function placed(command: Command) {
  return command
    .option('--pool <pool>', 'pool of workers')
    .addOption(new Option('--priority <priority>', 'how urgent it is').choices(['high', 'normal', 'low'] as const))
    .option('--image <image>', 'image, one that the pool allows (default: the pool’s)')
    .addOption(new Option('--level <level>', 'isolation level, the pool’s or stronger').choices(LEVELS))
    .addOption(timeOption())
    .addOption(new Option('--memory <size>', 'memory limit').argParser(size))
    .addOption(new Option('--cpus <number>', 'CPU limit').argParser(cpus))
    .addOption(new Option('--pids <number>', 'process limit').argParser(count))
    .addOption(
      new Option('--allow <host>', 'host or preset that it may reach; repeatable (default: no network)').argParser(
        texts,
      ),
    )
    .addOption(environmentOptions().env)
    .addOption(environmentOptions().file)
    .option('--empty', 'begin in an empty directory, not with this workspace')
    .option(...FILE);
}

function taskCommand(perform: Perform, verb: 'run' | 'submit') {
  const about =
    verb === 'run'
      ? 'Run one command on the fleet, as if it ran here; a signal cancels it'
      : 'Submit a command, print its id, and return';
  return placed(new Command(verb))
    .description(about)
    .argument(...COMMAND)
    .usage('[options] "<line>"  |  [options] -- <program> [arguments…]')
    .passThroughOptions()
    .option('--id <id>', 'id of the task; the same id again is the same task (default: a random one)')
    .addOption(
      new Option('--attempts <number>', 'most workers that begin it, if each dies (default: 3)').argParser(count),
    )
    .option('--stdin', 'pass standard input on, at most 64 KiB of text')
    .addOption(
      new Option('--files <archive>', 'write the workspace as the command left it, for `acode fork import`').hideHelp(
        verb === 'submit',
      ),
    )
    .action((argv, options, command) =>
      perform(command, async call =>
        (await import('../fleet/verbs.ts')).task(call, verb, argv, options, flagsOf(command)),
      ),
    );
}

function createCommand(perform: Perform) {
  return placed(new Command('create'))
    .description('Create a persistent sandbox on the fleet, and print its id')
    .option('--id <id>', 'id of the sandbox; the same id again is the same sandbox (default: a random one)')
    .addOption(lifetimeOption())
    .addOption(
      new Option('--idle <time>', 'how long it may be unused: 30m, 2h; at most 24h (default: 10m)').argParser(duration),
    )
    .action((options, command) =>
      perform(command, async call => (await import('../fleet/verbs.ts')).create(call, options)),
    );
}

function execCommand(perform: Perform) {
  return new Command('exec')
    .description('Run one command in a persistent sandbox of the fleet; a signal ends the command')
    .argument('<sandbox>', 'id of a sandbox')
    .argument(...COMMAND)
    .usage('[options] <sandbox> "<line>"  |  [options] <sandbox> -- <program> [arguments…]')
    .passThroughOptions()
    .addOption(timeOption())
    .addOption(environmentOptions().env)
    .addOption(environmentOptions().file)
    .option('--stdin', 'pass standard input on')
    .option(...FILE)
    .action((sandbox, argv, options, command) =>
      perform(command, async call =>
        (await import('../fleet/verbs.ts')).exec(call, sandbox, argv, options, flagsOf(command)),
      ),
    );
}

function killCommand(perform: Perform) {
  return new Command('kill')
    .description('End persistent sandboxes of the fleet')
    .argument('<sandbox...>', 'ids of sandboxes')
    .option(...FILE)
    .action((sandboxes, { file }, command) =>
      perform(command, async call => (await import('../fleet/verbs.ts')).kill(call, sandboxes, file)),
    );
}

/** A verb about one task. */
function taskView(perform: Perform, verb: 'logs' | 'cancel', description: string) {
  return new Command(verb)
    .description(description)
    .argument('<task>', 'id of a task')
    .option(...FILE)
    .action((id, { file }, command) =>
      perform(command, async call => (await import('../fleet/verbs.ts')).about(call, verb, id, file)),
    );
}

/** A verb about all there is. */
function fleetView(perform: Perform, verb: 'list' | 'hosts' | 'doctor', description: string) {
  return new Command(verb)
    .description(description)
    .option(...FILE)
    .action(({ file }, command) =>
      perform(command, async call => (await import('../fleet/verbs.ts'))[verb](call, file)),
    );
}

function statusCommand(perform: Perform) {
  return new Command('status')
    .description('Show the pools and your tasks, or one task')
    .argument('[task]', 'id of a task')
    .option(...FILE)
    .action((id, { file }, command) =>
      perform(command, async call => (await import('../fleet/verbs.ts')).about(call, 'status', id, file)),
    );
}

function drainCommand(perform: Perform) {
  return new Command('drain')
    .description('Have a host end what it runs, take no more, and leave the fleet')
    .argument('<host>', 'name of a host, or its worker')
    .option('--wait', 'return when it has left')
    .option(...FILE)
    .action((host, { wait, file }, command) =>
      perform(command, async call => (await import('../fleet/verbs.ts')).drain(call, host, wait === true, file)),
    );
}

const DIRECTORY = [
  '--directory <path>',
  'the files of all tenants (default: tenants beside your configuration)',
] as const;

/** For the operator: who may submit. */
function tenantCommands(perform: Perform) {
  return new Command('tenant')
    .description('Tenants of the fleet, for its operator: accounts on the server, keys, quotas')
    .enablePositionalOptions()
    .addCommand(tenantAddCommand(perform))
    .addCommand(
      new Command('list')
        .description('List the tenants, with their keys and quotas')
        .option(...DIRECTORY)
        .action((options, command) =>
          perform(command, async call => (await import('../fleet/verbs.ts')).tenants(call, 'list', undefined, options)),
        ),
    )
    .addCommand(
      new Command('remove')
        .description('Remove a tenant: its account, its key, its file')
        .argument('<tenant>', 'name of a tenant')
        .option(...DIRECTORY)
        .action((name, options, command) =>
          perform(command, async call => (await import('../fleet/verbs.ts')).tenants(call, 'remove', name, options)),
        ),
    );
}

function tenantAddCommand(perform: Perform) {
  return new Command('add')
    .description('Add a tenant: writes its account or token, the gate’s file, and a file for the tenant')
    .argument('<tenant>', 'name: small letters, digits and hyphens')
    .addOption(
      new Option('--server <url>', 'a server of the fleet; once, when the first tenant is added; repeatable').argParser(
        texts,
      ),
    )
    .addOption(new Option('--monitor <url>', 'monitoring port of a server; repeatable').argParser(texts))
    .option('--postgres <url>', 'the database of the fleet, in place of servers; once')
    .addOption(
      new Option('--gate <url>', 'with --postgres: address of a gate, as tenants reach it; repeatable').argParser(
        texts,
      ),
    )
    .option('--tls-ca <file>', 'what the servers’ certificates are checked against')
    .option('--name <name>', 'name of the fleet (default: acode)')
    .option('--key <key>', 'the tenant’s own public key (default: a new pair, whose private key is in its file)')
    .addOption(new Option('--quota <number>', 'most tasks that run at once on the whole fleet').argParser(count))
    .addOption(new Option('--weight <number>', 'share of the slots beside other tenants (default: 1)').argParser(cpus))
    .addOption(new Option('--queue <number>', 'most unfinished tasks (default: 10000)').argParser(count))
    .option('--replace', 'give a tenant that is there new keys and limits')
    .option(...DIRECTORY)
    .action((name, options, command) =>
      perform(command, async call => (await import('../fleet/verbs.ts')).tenants(call, 'add', name, options)),
    );
}
