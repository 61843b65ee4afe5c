// What the sandbox would not let a command do, told so that an agent does not try the same again. Pure.
//
// A sandbox sees no attempts, only what they leave behind: counters, and what programs print when something is refused
// to them. What is read from output is called suspected, since a program can print anything.

import { posix } from 'node:path';
import type { Command } from '../../contract/command.ts';
import type { EgressConnection, SpentBudget } from '../../contract/egress.ts';
import type { Denial, DenialEffect, Remedy, RuleId, RuleValue } from '../../contract/denials.ts';
import type { EffectivePolicy } from '../../contract/policy.ts';
import type { Sourced } from '../../contract/sourced.ts';
import type { MountSpec, SandboxSpec } from '../../contract/spec.ts';
import { BUILT_IN_RULE } from '../../contract/wording.ts';
import type { NetworkCut } from '../../isolation/supervise.ts';
import type { DiskCut } from '../disk.ts';
import { STATE_BYTES } from '../state.ts';
import { refusedConnections, unlisted } from './refused-connections.ts';
import { quotable, quotablePath } from '../output/capture.ts';
import { allowNetworks } from '../../policy/network.ts';
import { MaskPattern } from '../../workspace/masks/rules.ts';

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
  /** The connections of a command with an allow-list; empty for one without. */
  readonly connections: readonly EgressConnection[];
  /** Which limit of the disk ended the command; null for none. */
  readonly diskCut: DiskCut | null;
  /** Which budget ended the command; null for none. */
  readonly spent: SpentBudget | null;
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
// For what no layer can change.
const BUILT_IN: Sourced<RuleValue> = { value: null, ...BUILT_IN_RULE };

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
      ...(facts.connections.length > 0 ? refusedConnections(facts.policy, facts.connections) : []),
      ...unresolvedName(facts, lines),
      ...cutNetwork(facts),
    ]),
    other: unique([
      ...withoutRoot(facts, lines),
      ...readOnlyWrites(facts, lines),
      ...limitsHit(facts),
      ...diskLimits(facts),
      ...spentBudget(facts),
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
  return [
    {
      rule: 'limit.network-time',
      value: networkTimeoutMs.value,
      setBy: networkTimeoutMs,
      effect: { kind: networkCut === 'disconnected' ? 'network-disconnected' : 'command-ended' },
      count: 1,
      remedies: [
        { kind: 'use-less' },
        { kind: 'change-setting', field: 'sandbox.network.timeout_seconds', suggested: 'raise' },
      ],
    },
  ];
}

function withoutRoot({ exitCode, spec }: DenialFacts, lines: readonly string[]): Denial[] {
  const signs = exitCode === 0 ? [] : lines.filter(line => ROOT_WORDS.test(line));
  const [sign] = signs;
  if (sign === undefined) return [];
  return [
    {
      rule: 'root.none',
      setBy: BUILT_IN,
      suspected: quotable(sign),
      count: signs.length,
      remedies: [...becomingRoot(sign), spec.image ? { ...IMAGE, image: spec.image.reference } : IMAGE],
    },
  ];
}

function becomingRoot(sign: string): Remedy[] {
  const [, program] = /\b(sudo|su|doas)\b/.exec(sign) ?? [];
  return program === undefined ? [] : [{ kind: 'leave-out', suggested: program }];
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
  if (mount ? !mount.readOnly : inMemory(spec, path)) return [];
  const rule = mount ? READ_ONLY_RULES[mount.purpose](mount, policy) : ROOT_RULE;
  return [{ ...rule, suspected: quotablePath(path), count: 1 }];
}

type Rule = Omit<Denial, 'suspected' | 'count' | 'effect'>;
type ReadOnlyRule = (mount: MountSpec, policy: EffectivePolicy) => Rule;

const IMAGE = { kind: 'choose-image', field: 'policy.image' } as const;
const EVERYWHERE: Remedy = { kind: 'write-elsewhere', suggested: ['workspace', 'tmp', 'home'] };

// A fork has a .git of its own, where git can commit.
const IN_FORK: Remedy = { kind: 'change-request', field: 'policy.fork', suggested: 'current' };

const protectedRule: ReadOnlyRule = ({ target }) => ({
  rule: 'read-only.protected',
  value: target,
  setBy: BUILT_IN,
  remedies: [
    { kind: 'change-on-host' },
    posix.basename(target) === '.git' ? IN_FORK : { kind: 'write-elsewhere', suggested: ['workspace'] },
  ],
});

const ROOT_RULE: Rule = { rule: 'read-only.root', setBy: BUILT_IN, remedies: [EVERYWHERE, IMAGE] };

const READ_ONLY_RULES: Readonly<Record<MountSpec['purpose'], ReadOnlyRule>> = {
  protected: protectedRule,
  worktree: protectedRule,
  workspace: (_, { workspace }) => ({
    rule: 'read-only.workspace',
    setBy: workspace,
    remedies: [
      { kind: 'write-elsewhere', suggested: ['tmp', 'home'] },
      { kind: 'change-request', field: 'policy.workspace', suggested: 'direct' },
    ],
  }),
  ca: ({ target }, { caFile }) => ({
    rule: 'read-only.ca-bundle',
    value: target,
    setBy: caFile,
    remedies: [{ kind: 'copy-file', suggested: 'SSL_CERT_FILE' }],
  }),
  additional: ({ target }, { mounts: { layer, where } }) => ({
    rule: 'read-only.mount',
    value: target,
    setBy: { value: 'read-only', layer, where },
    remedies: [
      { kind: 'write-elsewhere', suggested: ['workspace', 'tmp'] },
      { kind: 'change-request', field: 'policy.mounts', suggested: 'readOnly: false' },
    ],
  }),
  masked: (mount, policy) => ({
    rule: 'read-only.masked',
    value: mount.target,
    setBy: maskedBy(mount, policy),
    remedies: [{ kind: 'change-on-host' }, { kind: 'write-elsewhere', suggested: ['workspace', 'tmp'] }],
  }),
  // To the command they are files of the image like those around them.
  identity: () => ROOT_RULE,
  egress: () => ROOT_RULE,
  program: () => ROOT_RULE,
  // It can always be written.
  state: () => ROOT_RULE,
};

// The pattern of a configuration file that masks it, or the built-in table.
function maskedBy({ target }: MountSpec, policy: EffectivePolicy): Sourced<RuleValue> {
  const path = posix.relative(policy.workspacePath.value, target);
  return policy.masks.add.find(({ value }) => new MaskPattern(value).covers(path, true)) ?? BUILT_IN;
}

function limitsHit(facts: DenialFacts): Denial[] {
  const { limits, timeoutMs } = facts.policy;
  const { timedOut, oomKilled, pidsRefused, droppedBytes } = facts;
  return [
    ...(timedOut ? [limit('limit.time', timeoutMs, 'policy.timeoutMs', { kind: 'command-ended' })] : []),
    ...(oomKilled
      ? [limit('limit.memory', limits.memoryBytes, 'policy.limits.memoryBytes', { kind: 'process-killed' })]
      : []),
    ...(pidsRefused ? [limit('limit.pids', limits.pids, 'policy.limits.pids', { kind: 'process-refused' })] : []),
    ...(droppedBytes > 0
      ? [
          limit(
            'limit.output',
            limits.outputBytes,
            'policy.limits.outputBytes',
            { kind: 'output-dropped', bytes: droppedBytes },
            enoughOutput(limits.outputBytes.value, droppedBytes),
          ),
        ]
      : []),
  ];
}

function spentBudget({ spent, policy }: DenialFacts): Denial[] {
  if (spent === null) return [];
  const budget = { requests: policy.networkRequests, tokens: policy.networkTokens }[spent];
  const effect = { kind: 'command-ended' } as const;
  return [limit(`limit.${spent}`, { ...budget, value: budget.value ?? 0 }, `policy.networkLimits.${spent}`, effect)];
}

function diskLimits({ diskCut, policy: { diskBytes, state } }: DenialFacts): Denial[] {
  if (diskCut === null) return [];
  const effect = { kind: 'command-ended' } as const;
  if (diskCut.by === 'limit' && diskCut.of === 'state')
    return [limit('limit.disk', { ...state, value: state.value?.bytes ?? STATE_BYTES }, 'policy.state.bytes', effect)];
  const { value } = diskBytes;
  if (diskCut.by === 'limit' && value !== null)
    return [limit('limit.disk', { ...diskBytes, value }, 'policy.disk.bytes', effect)];
  const remedies: Remedy[] = [{ kind: 'free-space' }, { kind: 'use-less' }];
  return [{ rule: 'limit.free-space', value: diskCut.floorBytes, setBy: BUILT_IN, effect, count: 1, remedies }];
}

function suspectedLimits(facts: DenialFacts, lines: readonly string[]): Denial[] {
  const { limits, diskBytes, diskHard } = facts.policy;
  const isHard = diskHard.value && diskBytes.value !== null;
  const without = lines.filter(line => NO_SPACE_WORDS.test(line));
  const full = without.filter(line => (isHard ? isOutside(facts, line) : mayBeInMemory(facts, line)));
  const inFork = isHard ? without.filter(line => !isOutside(facts, line)) : [];
  const open = lines.filter(line => OPEN_FILES_WORDS.test(line));
  return [
    ...suspectedLimit(limit('limit.tmp', limits.tmpBytes, 'policy.limits.tmpBytes'), full),
    ...suspectedLimit(limit('limit.disk', { ...diskBytes, value: diskBytes.value ?? 0 }, 'policy.disk.bytes'), inFork),
    ...suspectedLimit(limit('limit.open-files', limits.openFiles, 'policy.limits.openFiles'), open),
  ];
}

function suspectedLimit(denial: Denial, [sign, ...more]: readonly string[]): Denial[] {
  return sign === undefined ? [] : [{ ...denial, suspected: quotable(sign), count: 1 + more.length }];
}

// All of the output where that is not too much to keep in memory: twice the limit might be too little again.
function enoughOutput(limitBytes: number, droppedBytes: number): number {
  const needed = limitBytes + droppedBytes;
  if (needed <= limitBytes * 2 || needed > MAX_OUTPUT_SUGGESTED) return limitBytes * 2;
  return needed < MIB ? needed : Math.ceil(needed / MIB) * MIB;
}

const MIB = 1024 ** 2;
const MAX_OUTPUT_SUGGESTED = 256 * MIB;

function limit(
  rule: RuleId,
  setBy: Sourced<number>,
  field: string,
  effect?: DenialEffect,
  suggested = setBy.value * 2,
): Denial {
  const { value, layer } = setBy;
  // What the machine’s policy says is a ceiling: no request is given more.
  const more: Remedy = layer === 'machine' ? { kind: 'ask-administrator' } : { kind: 'raise-limit', field, suggested };
  return {
    rule,
    value,
    setBy,
    ...(effect ? { effect } : {}),
    count: 1,
    remedies: rule === 'limit.time' ? [more, { kind: 'use-less' }] : [{ kind: 'use-less' }, more],
  };
}

// A full disk of the host says the same words; a path on it shows that it was not the memory.
function mayBeInMemory({ spec, cwd }: DenialFacts, line: string): boolean {
  const paths = pathsIn(line, cwd);
  return paths.length === 0 || paths.some(path => !deepest(spec.mounts, path));
}

// Whether it can only be about /tmp or the home directory.
function isOutside({ spec, cwd }: DenialFacts, line: string): boolean {
  const paths = pathsIn(line, cwd);
  return paths.length > 0 && paths.every(path => !deepest(spec.mounts, path));
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

// One entry for each rule and what it is about: ten refused writes below one directory are one thing to know.
function unique(denials: readonly Denial[]): Denial[] {
  const found = new Map<string, Denial>();
  for (const denial of denials) {
    const key = JSON.stringify([denial.rule, denial.value]);
    const before = found.get(key);
    found.set(key, before ? { ...before, count: before.count + denial.count } : denial);
  }
  return [...found.values()];
}

/** What the policy says about networks. */
export type NetworkRules = Pick<EffectivePolicy, 'network' | 'mode'>;

/** How a command without a network ended. */
export interface WithoutNetwork {
  readonly policy: NetworkRules;
  readonly command: Command;
  readonly timedOut: boolean;
  /** Null where the command was killed by us. */
  readonly exitCode: number | null;
  /** The last lines of its standard error. */
  readonly lines: readonly string[];
  /** The last lines of its standard output. */
  readonly printed: () => readonly string[];
}

const NETWORK_WORDS =
  /bad address|could ?n[o']t resolve|could not resolve|failed to resolve|temporary failure (?:in name resolution|resolving)|name or service not known|name does not resolve|nodename nor servname|no address associated with hostname|network is unreachable|network unreachable|failed to lookup address|unknownhostexception|no such host|name resolution|\b(?:ENOTFOUND|EAI_AGAIN|EAI_NONAME|ENETUNREACH|getaddrinfo)\b/i;

// What package managers say that were told to work offline (policy/environment.ts) and do not have what they need; and
// npm’s crash, which is what some of its versions make of a registry that cannot be reached.
const OFFLINE_WORDS =
  /\bENOTCACHED\b|Exit handler never called|\bERR_PNPM_NO_OFFLINE_|\bYN0080\b|no matching distribution found for|network was disabled|you're using offline mode|disabled by GOPROXY=off|network disabled, request cancell?ed/i;

// A package manager with a verb that fetches: what only builds or tests may take its time for reasons of its own.
const FETCHES =
  /(?:^|[\s;&|(/'"])((?:npm|pnpm|bun)(?: +-\S+)* +(?:ci|i|install|add|update|up|upgrade)|yarn +(?:install|add|up|upgrade|dlx)|yarn(?= *(?:$|[;&|]| -))|npx|(?:pip3?|pipx|uv|poetry|pdm)(?: +-\S+| +pip)* +(?:install|download|sync|add|update|lock)|cargo +(?:fetch|install|update|add)|go +(?:get|install|mod +(?:download|tidy))|dotnet +(?:restore|add)|nuget +(?:restore|install)|(?:apt|apt-get|apk|dnf|yum)(?: +-\S+)* +(?:install|update|upgrade|add)|gem +install|bundle +(?:install|update)|composer +(?:install|update|require))(?=$|[\s;&|)'"])/;
// A command that says this chose to work offline.
const OFFLINE = /(?:^|\s)--(?:offline|no-index)(?=$|[\s;&|)'"=])/;
const MAX_COMMAND = 4096;

/** The rule that is suspected to have stopped a command; none where nothing points to it. */
function suspectedNetwork(ended: WithoutNetwork): Denial[] {
  if (ended.policy.network.value.kind !== 'none') return [];
  const sign = ended.timedOut ? waitedInVain(ended) : saidSo(ended);
  if (sign === null) return [];
  const effect = ended.timedOut ? ({ effect: { kind: 'command-ended' } } as const) : {};
  return [{ ...noNetwork(ended.policy, ended.command), ...effect, suspected: quotable(sign) }];
}

// A program that asks for no proxy asks for the address of a name, and is told that there is none: only its words show that.
function unresolvedName({ policy, exitCode, connections }: DenialFacts, lines: readonly string[]): Denial[] {
  const isListed = policy.network.value.kind === 'allow';
  const sign = exitCode === 0 || !isListed ? undefined : lines.find(line => NETWORK_WORDS.test(line));
  if (sign === undefined || connections.some(({ verdict }) => verdict === 'denied')) return [];
  return unlisted(policy, [{ host: '*', port: 0, count: 1 }]).map(denial => ({ ...denial, suspected: quotable(sign) }));
}

/** The rule by which a sandbox has no network, who set it, and the ways to do without or to get one for the command. */
export function noNetwork({ network, mode }: NetworkRules, command: Command): Denial {
  if (mode.value === 'airgapped')
    return {
      rule: 'network.air-gapped',
      setBy: mode,
      count: 1,
      remedies: [{ kind: 'provide-offline' }, allowNetworks(mode)],
    };
  const { layer, where } = network;
  return {
    rule: 'network.none',
    setBy: { value: 'none', layer, where },
    count: 1,
    remedies: [
      { kind: 'provide-offline' },
      { kind: 'change-request', field: 'policy.network', suggested: `allow=${hostsFor(command)}` },
    ],
  };
}

// What the tools that fetch packages reach by default. Yarn has a registry of its own.
const HOSTS: readonly (readonly [RegExp, string])[] = [
  [/^yarn/, 'npm:install,registry.yarnpkg.com'],
  [/^(?:npm|npx|pnpm|bun)/, 'npm:install'],
  [/^(?:pip|uv|poetry|pdm)/, 'pypi'],
  [/^cargo/, 'crates'],
  [/^go /, 'go'],
  [/^apt/, 'debian'],
];

// From the command alone: a name that the command printed could be anything.
function hostsFor(command: Command): string {
  const tool = fetching(command) ?? '';
  return HOSTS.find(([name]) => name.test(tool))?.[1] ?? '<host>';
}

/** The part of a command that fetches packages, as far as its words tell; null where none does. */
export function fetching(command: Command): string | null {
  const line = lineOf(command);
  if (OFFLINE.test(line)) return null;
  // Without its options, which may hold anything.
  return FETCHES.exec(line)?.[1]?.replaceAll(/ +-\S+/g, '') ?? null;
}

function saidSo(ended: WithoutNetwork): string | null {
  return ended.exitCode === 0 ? null : (signOf(ended) ?? null);
}

// Some try for minutes and say nothing meanwhile, so that what a program is for has to do.
function waitedInVain(ended: WithoutNetwork): string | null {
  return signOf(ended) ?? fetching(ended.command);
}

// Some package managers (Yarn, pnpm) print their errors to standard output, where other programs print anything at all.
function signOf({ command, lines, printed }: WithoutNetwork): string | undefined {
  const offline = !OFFLINE.test(lineOf(command));
  return signIn(lines, offline) ?? (fetching(command) === null ? undefined : signIn(printed(), offline));
}

function signIn(lines: readonly string[], offline: boolean): string | undefined {
  return lines.find(line => NETWORK_WORDS.test(line) || (offline && OFFLINE_WORDS.test(line)));
}

function lineOf(command: Command): string {
  return (typeof command === 'string' ? command : command.join(' ')).slice(0, MAX_COMMAND);
}
