// Policy table: every value with who set it, also in a narrow terminal.

import { formatBytes } from '@acode/sandbox';
import { networkName } from '@acode/sandbox';
import type {
  EffectivePolicy,
  EgressCredential,
  GitSsh,
  MountRequest,
  NetworkMode,
  PolicyRules,
  PortRequest,
  Sourced,
} from '@acode/sandbox';
import { POLICY_OPTIONS } from '../arguments/option-names.ts';
import type { Look } from '../terminal/look.ts';
import { table } from '../terminal/table.ts';
import { oneLine, pad, widthOf } from '../terminal/text.ts';
import { wrapped } from '../terminal/wrap.ts';

const TITLES = ['POLICY', 'VALUE', 'SET BY', 'WHERE'] as const;
// Side by side, less than this per line would cut what a reader came for: the file and the line.
const GAPS = 6;
const MIN_ROOM = 30;
const BELOW = 4;

type Row = readonly [name: string, value: string, layer: string, where: string];

/** The whole policy for a person. Values and places are never cut: where they do not fit side by side, they stand below each other. */
export function policyTable(policy: EffectivePolicy, look: Look, rules: PolicyRules): string {
  const rows = [...policyRows(policy), ...ruleRows(rules)];
  const widths = TITLES.map((title, column) =>
    Math.max(...[title, ...rows.map(cells => cells[column] ?? '')].map(widthOf)),
  );
  const needed = widths.reduce((sum, width) => sum + width, GAPS);
  return look.width === null || needed <= look.width ? table(TITLES, rows, look) : stacked(rows, look);
}

function stacked(rows: readonly Row[], look: Look): string {
  const beside = Math.max(...rows.map(([name]) => widthOf(name))) + 2;
  // With less room, values stand below their names.
  const isNarrow = (look.width ?? 0) - beside < MIN_ROOM;
  const left = isNarrow ? BELOW : beside;
  const room = Math.max(1, (look.width ?? 0) - left);
  const title = look.colours.bold(`${pad(TITLES[0], beside)}${TITLES.slice(1).join(', ')}`);
  const lines = rows.flatMap(([name, value, layer, where]) => {
    const origin = where === '' ? layer : `${layer}, ${where}`;
    // Side by side where both fit, so that only long rows take more than one line.
    const pair = `${oneLine(value)}  ${oneLine(origin)}`;
    if (!isNarrow && widthOf(pair) <= room)
      return [`${pad(name, left)}${oneLine(value)}  ${look.colours.dim(oneLine(origin))}`];
    const [first = '', ...more] = wrapped(oneLine(value), room);
    return [
      ...(isNarrow ? [name, ' '.repeat(left) + first] : [pad(name, left) + first]),
      ...[...more, ...wrapped(oneLine(origin), room).map(look.colours.dim)].map(line => ' '.repeat(left) + line),
    ];
  });
  return [title, ...lines, ''].join('\n');
}

function policyRows(policy: EffectivePolicy): Row[] {
  const { limits } = policy;
  return [
    row('mode', policy.mode, String),
    row('profile', policy.profile, String),
    row('level', policy.level, String),
    row('risk', policy.risk, risk => [risk, ...policy.riskReasons].join('; ')),
    row('required level', policy.required, String),
    row('without an engine', policy.fallback, fallback => (fallback === 'warn' ? 'bubblewrap' : 'refuse')),
    row('runtime', policy.runtime, name => name ?? 'the engine’s default'),
    row('image', policy.image, String),
    row('pull', policy.pull, String),
    row('offline', policy.offline, yesOrNo),
    ...imageTrustRows(policy.imageTrust),
    row('memory', limits.memoryBytes, formatBytes),
    row('swap', limits.swapBytes, formatBytes),
    row('cpus', limits.cpus, String),
    row('processes', limits.pids, String),
    row('open files', limits.openFiles, String),
    row('temporary files', limits.tmpBytes, formatBytes),
    row('output', limits.outputBytes, formatBytes),
    row('time', policy.timeoutMs, seconds),
    row('out of memory', policy.onOutOfMemory, action => (action === 'end' ? 'end the command' : 'report')),
    row('network', policy.network, networkText),
    ...egressRows(policy.network.value),
    row('network time', policy.networkTimeoutMs, ms => (ms === null ? 'as long as the command' : seconds(ms))),
    row('network rate', policy.networkRate, bytes =>
      bytes === null ? 'no limit' : `${formatBytes(bytes)}/s each way`,
    ),
    row('network bytes', policy.networkBytes, bytes => (bytes === null ? 'no limit' : formatBytes(bytes))),
    // Most commands have neither.
    ...(policy.networkRequests.value === null ? [] : [row('requests', policy.networkRequests, String)]),
    ...(policy.networkTokens.value === null ? [] : [row('tokens', policy.networkTokens, String)]),
    row('upstream proxy', policy.upstreamProxy, url => url ?? 'none'),
    row('git over ssh', policy.gitSsh, gitSshText),
    row('dns', policy.dns, listed),
    row('ca file', policy.caFile, path => path ?? 'the image’s own'),
    row('ports', policy.ports, ports => listed(ports.map(portText))),
    row('services', policy.services, services => listed(services.map(({ name, image }) => `${name} → ${image}`))),
    row('workspace', policy.workspace, String),
    row('workspace path', policy.workspacePath, String),
    row('fork', policy.fork, value => value ?? (policy.workspace.value === 'fork' ? 'the current one' : 'none')),
    row('fork copy', policy.forkCopy, value => (value ? 'of any size' : 'only where no overlay can be mounted')),
    row('fork size', policy.diskBytes, value => (value === null ? 'no limit' : formatBytes(value))),
    row('hard fork size', policy.diskHard, isHard => (isHard ? 'yes, in memory' : 'no')),
    row('disk reads', policy.diskReadRate, rateText),
    row('disk writes', policy.diskWriteRate, rateText),
    row('mounts', policy.mounts, mounts => listed(mounts.map(mountText))),
    row('caches', policy.caches, cachesText),
    row('programs', policy.programs, programs => listed(programs.map(({ id, target }) => `${id} → ${target}`))),
    row('state', policy.state, state => state?.name ?? 'none'),
    row('dependencies', policy.deps, deps => (deps ? 'of the project image' : 'of the workspace')),
    row('host roots', policy.hostRoots, listed),
    row('user', policy.user, ({ uid, gid }) => `${uid}:${gid}`),
  ];
}

function rateText(bytes: number | null): string {
  return bytes === null ? 'no limit' : `${formatBytes(bytes)}/s`;
}

function gitSshText({ identity, knownHosts }: GitSsh): string {
  return listed([identity ?? [], knownHosts ?? []].flat()) || 'your own keys';
}

function networkText(network: NetworkMode): string {
  return network.kind === 'allow' ? `allow ${listed(network.entries)}` : networkName(network);
}

// Each rule of an allow-list with who set it: what a denial names by its id.
function egressRows(network: NetworkMode): Row[] {
  if (network.kind !== 'allow') return [];
  const rules = network.rules.map(rule =>
    row(`network ${rule.verdict}`, { value: rule, ...rule.setBy }, ({ host, port, protocol, mode, id, ...more }) =>
      [
        port === 0 ? host : `${host}:${port}`,
        ...(rule.verdict === 'deny' ? [] : [protocol, ...(mode === 'pass' ? [] : [mode])]),
        ...(more.private ? ['private addresses'] : []),
        ...(more.credential === undefined ? [] : [`credential ${more.credential}`]),
        `rule ${id}`,
      ].join(', '),
    ),
  );
  return [
    ...rules,
    ...(network.credentials ?? []).map(one => row('credential', { value: one, ...one.setBy }, credentialText)),
  ];
}

// Where its value is, and never the value.
function credentialText({ name, as, from, variable }: EgressCredential): string {
  const [form = '', of] = typeof as === 'string' ? [as] : (Object.entries(as)[0] ?? []);
  const [kind = '', place] = Object.entries(from)[0] ?? [];
  const where = typeof place === 'string' ? place : Array.isArray(place) ? String(place[0]) : '';
  return [
    name,
    of === undefined ? form : `${form} ${of}`,
    `from ${[kind, where].filter(word => word !== '').join(' ')}`,
    ...(variable === undefined ? [] : [`placeholder in ${variable}`]),
  ].join(', ');
}

// What else may be asked for here.
function ruleRows({ bridge, networks, hosts, requireFor, riskRules, ceilings }: PolicyRules): Row[] {
  return [
    row('bridge allowed', bridge, yesOrNo),
    row('networks allowed', networks, listed),
    row('hosts allowed', hosts, listed),
    ...requireFor.map(risks => row('needs docker', risks, all => listed([...all].map(risk => `${risk} risk`)))),
    ...riskRules.map(rules =>
      row('risk rules', rules, all => listed(all.map(({ match, risk }) => `${match} → ${risk}`))),
    ),
    ...ceilingRows(ceilings),
  ];
}

const CEILINGS: readonly (readonly [keyof PolicyRules['ceilings'], (value: number) => string])[] = [
  ['memoryBytes', value => `memory ${formatBytes(value)}`],
  ['swapBytes', value => `swap ${formatBytes(value)}`],
  ['cpus', value => `${value} cpus`],
  ['pids', value => `${value} processes`],
  ['openFiles', value => `${value} open files`],
  ['tmpBytes', value => `temporary files ${formatBytes(value)}`],
  ['outputBytes', value => `output ${formatBytes(value)}`],
  ['timeoutMs', value => `time ${seconds(value)}`],
];

// One row for each that a file sets, and one for all the built-in ones.
function ceilingRows(ceilings: PolicyRules['ceilings']): Row[] {
  const all = CEILINGS.map(([name, shown]) => ({ ceiling: ceilings[name], shown: shown(ceilings[name].value) }));
  const builtIn = all.filter(({ ceiling }) => ceiling.layer === 'built-in').map(({ shown }) => shown);
  const set = all.filter(({ ceiling }) => ceiling.layer !== 'built-in');
  return [
    ...set.map(({ ceiling, shown }) => row('ceiling', ceiling, () => shown)),
    // In two rows, so that the table is no wider for them.
    ...[builtIn.slice(0, 4), builtIn.slice(4)].flatMap(some =>
      some.length === 0 ? [] : [['ceilings', some.join(', '), 'built-in', ''] as const],
    ),
  ];
}

function imageTrustRows(trust: EffectivePolicy['imageTrust']): Row[] {
  return [
    row('trusted images', trust.repositories, listed),
    ...(trust.machineRepositories === null ? [] : [row('machine images', trust.machineRepositories, listed)]),
    row('any image', trust.anywhere, yesOrNo),
    row('digest needed', trust.requireDigest, yesOrNo),
  ];
}

function row<Value>(name: string, sourced: Sourced<Value>, shown: (value: Value) => string): Row {
  const { layer, where, value } = sourced;
  const place = layer === 'request' ? (POLICY_OPTIONS[where] ?? where) : where;
  const by = layer !== 'request' ? layer : where === 'ACODE_MODE' ? 'environment' : 'this call';
  return [name, shown(value), by, layer === 'built-in' ? '' : place];
}

function seconds(milliseconds: number): string {
  return `${milliseconds / 1000} s`;
}

function yesOrNo(value: boolean): string {
  return value ? 'yes' : 'no';
}

function listed(items: readonly string[]): string {
  return items.length === 0 ? 'none' : items.join(', ');
}

function cachesText({ volumes, fill }: EffectivePolicy['caches']['value']): string {
  return `${listed(volumes.map(({ tool }) => tool))}${fill ? ' (to be filled)' : ''}`;
}

function portText({ container, host, protocol }: PortRequest): string {
  return `127.0.0.1:${host ?? 'any'} → ${container}/${protocol ?? 'tcp'}`;
}

function mountText({ source, target, readOnly }: MountRequest): string {
  return `${source} → ${target} (${readOnly === false ? 'writable' : 'read-only'})`;
}
