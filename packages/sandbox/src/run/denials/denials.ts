// What the sandbox would not let a command do, told so that an agent does not try the same again. Pure.
//
// A sandbox sees no attempts, only what they leave behind: counters, and what programs print when something is refused
// to them. What is read from output is called suspected, since a program can print anything.

import { posix } from 'node:path';
import { formatBytes } from '../../policy/config/units.ts';
import type { Command } from '../../contract/command.ts';
import type { EffectivePolicy, Sourced } from '../../contract/policy.ts';
import type { Denial } from '../../contract/result.ts';
import type { MountSpec, SandboxSpec } from '../../contract/spec.ts';
import type { NetworkCut } from '../../isolation/supervise.ts';
import { quotedPath } from '../output/capture.ts';
import { setBy } from '../../policy/layers.ts';
import { suspectedNetwork } from './without-network.ts';

/** What is known of a run that has ended. */
export interface DenialFacts {
  readonly policy: EffectivePolicy;
  readonly spec: SandboxSpec;
  /** The command’s working directory inside. */
  readonly cwd: string;
  readonly command: Command;
  /** Null where the command was killed by us. */
  readonly exitCode: number | null;
  readonly stdout: string;
  readonly stderr: string;
  readonly timedOut: boolean;
  readonly oomKilled: boolean;
  readonly pidsRefused: boolean;
  readonly droppedBytes: number;
  readonly networkCut: NetworkCut;
}

/** What was denied, the network apart because it is counted apart. */
export interface Denials {
  readonly network: readonly Denial[];
  readonly other: readonly Denial[];
}

// How much of the output is looked at: what explains an end stands at the end.
const TAIL = 64 * 1024;
const MAX_LINE = 1000;
const MAX_LINES = 50;
const MIB = 1024 ** 2;
// For what no layer can change.
const BUILT_IN = 'the built-in rules';

const READ_ONLY_WORDS = /read-only file ?system|\bEROFS\b/i;
const REFUSED_BEFORE = /[\s:]['"‘`]?([^\s:'"‘’`]+)['"’`]?: +read-only file ?system/i;
const REFUSED_BEHIND = /(?:read-only file ?system|\bEROFS\b)[^'"]{0,80}['"]([^'"]{1,400})['"]/i;
const NO_SPACE_WORDS = /no space left on device|\bENOSPC\b/i;
const OPEN_FILES_WORDS = /too many open files|\b(?:EMFILE|ENFILE)\b/i;

// What programs say that want to be root: package managers of systems, and what is to make somebody root.
const ROOT_WORDS =
  /^(?:\S*sh: (?:line )?(?:\d+: )?)?(?:sudo|su|doas): (?:command )?not found|^sudo: .*(?:setuid|effective uid|no new privileges)|^su: .*(?:setuid|cannot set (?:groups|user)|authentication failure|must be suid)|could not open lock file \/var\/lib\/|unable to (?:acquire the dpkg frontend lock|lock directory \/var\/lib\/)|requires? superuser privilege|unable to lock database|has to be run (?:with superuser privileges|under the root user)|you (?:need to|must) be root|are you root\?|must be run as root/i;

/** Everything that was denied, in an order that depends on nothing but what it is, each once. */
export function denialsOf(facts: DenialFacts): Denials {
  const lines = lastLines(facts.stderr);
  return {
    network: unique([
      ...facts.policy.denials,
      ...suspectedNetwork({ ...facts, lines, printed: () => lastLines(facts.stdout) }),
      ...cutNetwork(facts),
    ]),
    other: unique([
      ...withoutRoot(facts, lines),
      ...readOnlyWrites(facts, lines),
      ...limitsHit(facts),
      ...suspectedLimits(facts, lines),
    ]),
  };
}

function lastLines(output: string): string[] {
  return output
    .slice(-TAIL)
    .split('\n')
    .map(line => line.slice(0, MAX_LINE));
}

function cutNetwork({ networkCut, policy: { networkTimeoutMs } }: DenialFacts): Denial[] {
  if (networkCut === 'none') return [];
  const remedy =
    'Fetch less or faster, or fetch once and keep it in the workspace. The user can raise `sandbox.network.timeout_seconds` in their own configuration.';
  const detail =
    networkCut === 'disconnected'
      ? 'the network was disconnected and the command went on without it'
      : 'the network could not be disconnected, so the command was ended';
  return [
    {
      rule: `network time limit of ${seconds(networkTimeoutMs.value ?? 0)}`,
      setBy: setBy(networkTimeoutMs),
      remedy,
      detail,
    },
  ];
}

function withoutRoot({ exitCode }: DenialFacts, lines: readonly string[]): Denial[] {
  const sign = exitCode === 0 ? undefined : lines.find(line => ROOT_WORDS.test(line));
  if (sign === undefined) return [];
  return [
    {
      rule: 'a sandbox has no root',
      setBy: BUILT_IN,
      remedy:
        'Leave sudo out: the command can write to the workspace, /tmp and its home directory. System packages (apt, apk, yum) belong in the image: choose one that has them with policy.image (on the command line --image).',
      detail: `suspected: ${sign.trim().slice(0, 200)}`,
    },
  ];
}

// The words come from the kernel; which rule is behind them is known from the path that the program printed beside them.
function readOnlyWrites(facts: DenialFacts, lines: readonly string[]): Denial[] {
  return lines
    .filter(line => READ_ONLY_WORDS.test(line))
    .slice(0, MAX_LINES)
    .flatMap(line => refusedIn(line, facts.cwd))
    .flatMap(path => readOnlyRule(facts, path));
}

// What stands right before the kernel’s words, or in quotes behind them, is what was to be written, slash or not.
function refusedIn(line: string, cwd: string): string[] {
  const subject = REFUSED_BEHIND.exec(line)?.[1] ?? REFUSED_BEFORE.exec(line)?.[1];
  return subject === undefined ? pathsIn(line, cwd) : [posix.resolve(cwd, subject)];
}

function readOnlyRule({ spec, policy }: DenialFacts, path: string): Denial[] {
  const mount = deepest(spec.mounts, path);
  if (!mount) return inMemory(spec, path) ? [] : [rootDenial(path)];
  if (!mount.readOnly) return [];
  return [{ ...READ_ONLY_RULES[mount.purpose](mount, policy), detail: `suspected write to ${quotedPath(path)}` }];
}

type ReadOnlyRule = (mount: MountSpec, policy: EffectivePolicy) => Denial;

const protectedRule: ReadOnlyRule = ({ target }) => ({
  rule: `${target} is protected: tools on the host trust what is in it`,
  setBy: BUILT_IN,
  remedy:
    'Trying again cannot help, whatever the permissions. Leave it as it is and write elsewhere in the workspace; the user changes it on the host.',
});

const ROOT_RULE: Denial = {
  rule: 'the sandbox’s own file system is read-only',
  setBy: BUILT_IN,
  remedy:
    'Write to the workspace, to /tmp or to the home directory. What must be installed belongs in the image: choose one that has it with policy.image (on the command line --image).',
};

const READ_ONLY_RULES: Readonly<Record<MountSpec['purpose'], ReadOnlyRule>> = {
  protected: protectedRule,
  worktree: protectedRule,
  workspace: (_, policy) => ({
    rule: 'the workspace is read-only',
    setBy: setBy(policy.workspace),
    remedy:
      'Write to /tmp or the home directory, which are empty again next time; or ask for policy.workspace: direct (on the command line, leave --readonly out).',
  }),
  ca: ({ target }, policy) => ({
    rule: `${target}, the bundle of CA certificates, is read-only`,
    setBy: setBy(policy.caFile),
    remedy:
      'Copy it to /tmp, add your certificates to the copy, and set the variable that your program reads, such as SSL_CERT_FILE, to its path.',
  }),
  additional: ({ target }, policy) => ({
    rule: `the mount ${target} is read-only`,
    setBy: setBy(policy.mounts),
    remedy:
      'Write to the workspace or to /tmp; or ask for the mount with readOnly: false in policy.mounts (on the command line --mount source:target:rw).',
  }),
  // To the command it is a file of the image like those around it.
  identity: () => ROOT_RULE,
};

function rootDenial(path: string): Denial {
  return { ...ROOT_RULE, detail: `suspected write to ${quotedPath(path)}` };
}

function limitsHit(facts: DenialFacts): Denial[] {
  const { limits, timeoutMs } = facts.policy;
  const hit: Denial[] = [];
  if (facts.timedOut)
    hit.push(
      limit('time', timeoutMs, seconds, 'policy.timeoutMs', value => `--timeout ${(value * 2) / 1000}`, {
        detail: 'the command was ended',
      }),
    );
  if (facts.oomKilled) hit.push(memoryDenial(limits.memoryBytes));
  if (facts.pidsRefused)
    hit.push(limit('process', limits.pids, String, 'policy.limits.pids', value => `--pids ${value * 2}`));
  if (facts.droppedBytes > 0)
    hit.push(
      limit('output', limits.outputBytes, formatBytes, 'policy.limits.outputBytes', size('--max-output'), {
        detail: `${facts.droppedBytes === 1 ? '1 byte was' : `${facts.droppedBytes} bytes were`} left out; the command went on`,
      }),
    );
  return hit;
}

function memoryDenial(memory: Sourced<number>): Denial {
  return limit('memory', memory, formatBytes, 'policy.limits.memoryBytes', size('--memory'), {
    detail: 'a process was killed for want of memory',
  });
}

function suspectedLimits(facts: DenialFacts, lines: readonly string[]): Denial[] {
  const { limits } = facts.policy;
  const found: Denial[] = [];
  if (lines.some(line => NO_SPACE_WORDS.test(line) && mayBeInMemory(facts, line)))
    found.push(
      limit('temporary storage', limits.tmpBytes, formatBytes, 'policy.limits.tmpBytes', size('--tmp'), {
        detail: 'suspected: /tmp and the home directory are in memory, and one of them was full',
      }),
    );
  if (lines.some(line => OPEN_FILES_WORDS.test(line)))
    found.push(
      limit('open file', limits.openFiles, String, 'policy.limits.openFiles', value => `--open-files ${value * 2}`, {
        detail: 'suspected: a program said that it may not open more files',
      }),
    );
  return found;
}

function limit(
  name: string,
  sourced: Sourced<number>,
  shown: (value: number) => string,
  field: string,
  option: (value: number) => string,
  { detail }: { readonly detail?: string } = {},
): Denial {
  return {
    rule: `${name} limit of ${shown(sourced.value)}`,
    setBy: setBy(sourced),
    remedy: `Use less, or ask for more: ${field} (on the command line ${option(sourced.value)}). A ceiling of the user or the machine still counts.`,
    ...(detail === undefined ? {} : { detail }),
  };
}

function seconds(ms: number): string {
  return `${ms / 1000} s`;
}

function size(option: string): (bytes: number) => string {
  return bytes =>
    bytes * 2 >= MIB ? `${option} ${Math.ceil((bytes * 2) / MIB)}` : `${option} ${Math.max(1, bytes * 2)}b`;
}

// A full disk of the host says the same words; a path on it shows that it was not the memory.
function mayBeInMemory({ spec, cwd }: DenialFacts, line: string): boolean {
  const paths = pathsIn(line, cwd);
  return paths.length === 0 || paths.some(path => !deepest(spec.mounts, path));
}

// The program that speaks stands first in its messages and is not what it speaks about, unless nothing else is named.
function pathsIn(line: string, cwd: string): string[] {
  const spoken = pathsNamed(line.replace(/^[^\s:'"]+:\s+/, ''), cwd);
  return spoken.length > 0 ? spoken : pathsNamed(line, cwd);
}

// What looks like a path in a message: between quotes, or a word with a slash or a leading dot.
function pathsNamed(line: string, cwd: string): string[] {
  const quoted = [...line.matchAll(/['"‘`]([^'"’`]{1,400})['"’`]/g)].map(match => match[1] ?? '');
  const words = line.split(/[\s'"‘’`]+/).map(word => word.replaceAll(/^[([<]+|[)\]>:,;.]+$/g, ''));
  const paths = [...quoted.filter(word => !/\s\s/.test(word)), ...words]
    .filter(word => /^(?:\/|\.{1,2}\/|\.[A-Za-z])|^[\w.@-]+\//.test(word) && !word.includes('://'))
    .map(word => posix.resolve(cwd, word));
  return [...new Set(paths)];
}

function deepest(mounts: readonly MountSpec[], path: string): MountSpec | null {
  return mounts
    .filter(({ target }) => isBelow(path, target))
    .reduce<MountSpec | null>((best, mount) => (mount.target.length > (best?.target.length ?? 0) ? mount : best), null);
}

function inMemory({ tmpfs }: SandboxSpec, path: string): boolean {
  return ['/dev', '/proc', '/sys', ...tmpfs.map(({ target }) => target)].some(target => isBelow(path, target));
}

function isBelow(path: string, directory: string): boolean {
  return path === directory || path.startsWith(`${directory}/`);
}

// One entry for each rule: ten refused writes below one directory are one thing to know.
function unique(denials: readonly Denial[]): Denial[] {
  return denials.filter((denial, index) => denials.findIndex(({ rule }) => rule === denial.rule) === index);
}
