// Keys that loosen the policy: which change of which key needs a person’s consent, and what it allows. Data beside the schema.

import { isDeepStrictEqual } from 'node:util';
import type { LooseningChange } from '../../contract/configuration.ts';
import { LEVELS, RISKS, isAtLeast } from '../../contract/levels.ts';
import type { Level } from '../../contract/levels.ts';
import { valueAt } from './check.ts';
import { keysOf } from './keys.ts';
import { configSchema } from './schema.ts';
import type { Config } from './schema.ts';

/** Whether a change from one value to another loosens; undefined is a key that is not set. */
type Loosens = (before: unknown, after: unknown) => boolean;

interface Rule {
  readonly loosens: Loosens;
  readonly allows: string;
}

const becomes =
  (loose: unknown): Loosens =>
  (_, after) =>
    after === loose;
const leaves =
  (strict: unknown): Loosens =>
  (before, after) =>
    before === strict && after !== strict;
const isSet: Loosens = (_, after) => after !== undefined;
const gains: Loosens = (before, after) => listOf(after).some(entry => !has(listOf(before), entry));
const loses: Loosens = (before, after) => listOf(before).some(entry => !has(listOf(after), entry));
// A ceiling that was set is there to bound others: to raise it or to take it away gives them more.
const rises: Loosens = (before, after) => typeof before === 'number' && (typeof after !== 'number' || after > before);

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

function has(list: readonly unknown[], entry: unknown): boolean {
  return list.some(one => isDeepStrictEqual(one, entry));
}

// `auto` promises docker at least, and so does a file that says nothing.
function weaker(before: unknown, after: unknown): boolean {
  const least = (value: unknown): Level => LEVELS.find(level => level === value) ?? 'docker';
  return !isAtLeast(least(after), least(before)) || !isAtLeast(least(after), 'docker');
}

// Without a list, every risk needs docker. With one, what it leaves out may run at a weaker level.
function asksLess(before: unknown, after: unknown): boolean {
  if (after === undefined) return false;
  const required = before === undefined ? RISKS : listOf(before);
  return required.some(risk => !has(listOf(after), risk));
}

const STRONG_RUNTIME = /^(?:runsc|kata|io\.containerd\.(?:kata|runsc))(?:[.-]|$)/;

function weakerRuntime(before: unknown, after: unknown): boolean {
  if (typeof after === 'string') return !STRONG_RUNTIME.test(after);
  return typeof before === 'string' && STRONG_RUNTIME.test(before);
}

const CEILING: Rule = { loosens: rises, allows: 'Repositories and requests may ask for more than before.' };
const NETWORK = 'Every command gets a network without asking for one.';

/**
 * Every key of the configuration: the rule, or null where no value loosens. Limits for one’s own commands are not here:
 * the built-in ceilings bound them, and any run may ask for as much with an option.
 */
const RULES: Readonly<Record<string, Rule | null>> = {
  allow_root: {
    loosens: becomes(true),
    allows: 'acode may run as root: a mistake in acode then has root’s rights.',
  },
  mode: {
    loosens: (before, after) => leaves('airgapped')(before, after) || (before !== 'burst' && after === 'burst'),
    allows: 'Sandboxes may have a network again; with `burst`, your fleet gets commands and copies of workspaces.',
  },
  'sandbox.level': { loosens: weaker, allows: 'Commands may run with weaker isolation than a container.' },
  'sandbox.serve': null,
  'sandbox.require_for': {
    loosens: asksLess,
    allows: 'Commands of the risks that the list leaves out may run without a container.',
  },
  'sandbox.fallback': {
    loosens: becomes('warn'),
    allows: 'Without an engine, commands run in bubblewrap instead of being refused.',
  },
  'sandbox.risk_rules': { loosens: loses, allows: 'Commands that the rule matched no longer count as riskier.' },
  'sandbox.mask': { loosens: loses, allows: 'Commands can read what the pattern masked.' },
  'sandbox.unmask': {
    loosens: gains,
    allows: 'Commands can read the files, secrets included, that match the pattern.',
  },
  'sandbox.bubblewrap.accept_process_limits': {
    loosens: becomes(true),
    allows: 'At level bubblewrap, memory is limited for each process, not for all together.',
  },
  'sandbox.max_file_size_mb': null,
  'sandbox.max_cpu_seconds': null,
  'sandbox.max_virtual_memory': null,
  'sandbox.runtime': { loosens: weakerRuntime, allows: 'Sandboxes share the kernel of this host.' },
  'sandbox.docker.host': {
    loosens: isSet,
    allows: 'Every command runs on this engine, and acode believes what it says about its sandboxes.',
  },
  'sandbox.defaults.cpu_limit': null,
  'sandbox.defaults.memory_mb': null,
  'sandbox.defaults.memory_swap_mb': null,
  'sandbox.defaults.pids_limit': null,
  'sandbox.defaults.open_files': null,
  'sandbox.defaults.timeout_seconds': null,
  'sandbox.defaults.on_out_of_memory': null,
  'sandbox.defaults.blkio.read_bps': null,
  'sandbox.defaults.blkio.write_bps': null,
  'sandbox.defaults.network': { loosens: becomes(true), allows: NETWORK },
  'sandbox.defaults.user': {
    loosens: (_, after) => after !== undefined && after !== 'host',
    allows: 'Commands run as another user than you.',
  },
  'sandbox.network.mode': { loosens: (_, after) => after !== undefined && after !== 'none', allows: NETWORK },
  'sandbox.network.allow': { loosens: gains, allows: 'Every command, and every agent, may reach these hosts.' },
  'sandbox.network.deny': { loosens: loses, allows: 'Commands may reach these hosts if a list allows them.' },
  'sandbox.network.private_hosts': {
    loosens: gains,
    allows: 'Where these names have private addresses, commands reach machines of your own network, or this one.',
  },
  'sandbox.network.credentials': {
    loosens: (before, after) => !isDeepStrictEqual(before ?? {}, after ?? {}),
    allows: 'Commands that may reach these hosts use them with your credentials, without knowing those.',
  },
  'sandbox.network.logins': {
    loosens: (before, after) => !isDeepStrictEqual(before ?? {}, after ?? {}),
    allows: 'acode logs in to these servers, and refreshes what it got there.',
  },
  'sandbox.network.allow_credentials': {
    loosens: leaves(false),
    allows: 'acode adds credentials to requests again.',
  },
  'sandbox.network.dns_servers': {
    loosens: gains,
    allows: 'These servers learn every name that a sandbox with a network asks for, and answer it.',
  },
  'sandbox.network.ports': { loosens: gains, allows: 'Programs of this host reach servers inside a sandbox.' },
  'sandbox.network.allowed_networks': {
    loosens: gains,
    allows: 'Sandboxes may join the network, and reach everything that is on it.',
  },
  'sandbox.network.timeout_seconds': null,
  'sandbox.network.rate': null,
  'sandbox.network.max_bytes': null,
  'sandbox.network.upstream_proxy': {
    loosens: isSet,
    allows:
      'This proxy learns every host that a sandbox with an allow-list reaches, and resolves its name: acode cannot check the address.',
  },
  'sandbox.network.ssh.known_hosts': {
    loosens: isSet,
    allows: 'acode believes that a server is a host if this file has its key.',
  },
  'sandbox.network.ssh.identity_file': {
    loosens: isSet,
    allows: 'Commands with an allow-list of repositories fetch, and push where it says so, with this key.',
  },
  'sandbox.network.allow_bridge': {
    loosens: becomes(true),
    allows: 'A sandbox that asks for the bridge reaches the internet and services of this host and its network.',
  },
  'sandbox.network.allow_learning': {
    loosens: becomes(true),
    allows: '`acode run --learn=open` lets its command reach every public host that it asks for, and tell it anything.',
  },
  'sandbox.network.ca_file': {
    loosens: isSet,
    allows: 'Programs in sandboxes trust every server whose certificate these CAs signed.',
  },
  'sandbox.images.default': null,
  'sandbox.images.node': null,
  'sandbox.images.python': null,
  'sandbox.images.dotnet': null,
  'sandbox.images.go': null,
  'sandbox.images.rust': null,
  'sandbox.images.combined': null,
  'sandbox.images.pull_policy': { loosens: leaves('never'), allows: 'acode may pull images again.' },
  'sandbox.images.offline': { loosens: leaves(true), allows: 'acode may ask registries for images again.' },
  'sandbox.cache_volumes.enabled': null,
  'sandbox.cache_volumes.npm': null,
  'sandbox.cache_volumes.yarn': null,
  'sandbox.cache_volumes.pnpm': null,
  'sandbox.cache_volumes.pip': null,
  'sandbox.cache_volumes.nuget': null,
  'sandbox.cache_volumes.cargo': null,
  'sandbox.cache_volumes.go': null,
  'sandbox.mounts.workspace_mode': { loosens: leaves('ro'), allows: 'Commands can write the workspace again.' },
  'sandbox.mounts.workspace_path': null,
  'sandbox.mounts.tmpfs_size': null,
  'sandbox.mounts.fork_size': null,
  'sandbox.mounts.additional': { loosens: gains, allows: 'Every command gets this directory of the host.' },
  'sandbox.mounts.allowed_host_roots': {
    loosens: gains,
    allows: 'Commands may be given everything below this directory of the host.',
  },
  'sandbox.services': {
    loosens: (before, after) => after !== undefined && !isDeepStrictEqual(before, after),
    allows: 'The programs of these images run beside every command.',
  },
  'sandbox.containers.name_prefix': null,
  'sandbox.containers.labels': null,
  'sandbox.containers.create_timeout_seconds': null,
  'sandbox.containers.pull_timeout_seconds': null,
  'sandbox.containers.stop_timeout_seconds': null,
  'sandbox.containers.max_concurrent': null,
  'sandbox.containers.on_limit': null,
  'sandbox.containers.queue_timeout_seconds': null,
  'sandbox.containers.cleanup_orphans': null,
  'sandbox.cleanup.timeout_seconds': null,
  'sandbox.retry.attempts': null,
  'sandbox.retry.base_ms': null,
  'sandbox.retry.factor': null,
  'sandbox.output.max_bytes': null,
  'sandbox.output.save': null,
  'sandbox.output.retention_days': null,
  'sandbox.terminal.clipboard': {
    loosens: becomes('write'),
    allows: 'Programs that have your terminal can replace what you paste next, into any window.',
  },
  'sandbox.terminal.mouse': null,
  'sandbox.security.trusted_images': {
    loosens: gains,
    allows: 'Images of this repository may be pulled and run, and repositories and models may name them.',
  },
  'sandbox.security.allow_untrusted_registries': {
    loosens: becomes(true),
    allows: 'Images from anywhere may be pulled and run.',
  },
  'sandbox.security.require_digest': { loosens: leaves(true), allows: 'Images may be named by tag, which can move.' },
  'sandbox.security.allowed_runtimes': {
    loosens: gains,
    allows: 'Sandboxes may run on a runtime that acode does not know.',
  },
  'sandbox.security.no_new_privileges': null,
  'sandbox.security.capabilities_drop': null,
  'sandbox.security.capabilities_add': null,
  'sandbox.security.seccomp_profile': null,
  'sandbox.security.readonly_rootfs': null,
  'sandbox.ceilings.cpu_limit': CEILING,
  'sandbox.ceilings.memory_mb': CEILING,
  'sandbox.ceilings.memory_swap_mb': CEILING,
  'sandbox.ceilings.pids_limit': CEILING,
  'sandbox.ceilings.open_files': CEILING,
  'sandbox.ceilings.timeout_seconds': CEILING,
  'sandbox.ceilings.tmpfs_size': CEILING,
  'sandbox.ceilings.output_bytes': CEILING,
};

/** What of a change of the user’s configuration loosens the policy. A key without a rule counts as loosening. */
export function loosenings(before: Config, after: Config): LooseningChange[] {
  return keysOf(configSchema).flatMap(key => {
    const [was, is] = [valueAt(before, key), valueAt(after, key)];
    if (isDeepStrictEqual(was, is)) return [];
    const rule = RULES[key];
    const value = is === undefined ? {} : { value: is };
    if (rule === undefined) return [{ key, ...value, allows: 'It may loosen the policy.' }];
    return rule?.loosens(was, is) ? [{ key, ...value, allows: rule.allows }] : [];
  });
}

/** The keys that have a rule or are known to need none. */
export function ruledKeys(): string[] {
  return Object.keys(RULES);
}
