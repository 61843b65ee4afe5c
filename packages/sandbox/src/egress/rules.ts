// Rules of an allow-list: what each entry of a list stands for, and which rules are narrower than others. Pure, without Node.

import type { EgressProtocol, EgressRequests, EgressRule } from '../contract/egress.ts';
import type { Source } from '../contract/sourced.ts';
import { HOST_SERVICE, hostCovers, parseHost } from './host-name.ts';
import { FETCH, PUSH, parseRepository, requestsOf } from './repository.ts';
import { presetOf } from './presets.ts';

/** Why an entry of a list is not one, and what to write instead. */
export interface EntryFault {
  /** What the entry is, as a clause: `is an IP address`. */
  readonly reason: string;
  /** What to do, as a sentence without its full stop. */
  readonly remedy: string;
}

/** Why an entry of a list is not one; null where it is. What denies may name a whole top-level domain. */
export function entryFault(entry: string, verdict: 'allow' | 'deny' = 'allow'): EntryFault | null {
  const parsed = parseEntry(entry, verdict);
  return 'reason' in parsed ? parsed : null;
}

/** The rules that entries stand for. Entries that are not valid throw: check each with {@link entryFault} first. */
export function rulesOf(entries: readonly string[], verdict: 'allow' | 'deny', setBy: Source): EgressRule[] {
  const rules = entries.flatMap(entry => {
    const parsed = parseEntry(entry, verdict);
    if ('reason' in parsed) throw new TypeError(`an entry of an allow-list ${parsed.reason}`);
    if (verdict === 'allow') return parsed.rules.map(rule => ({ ...rule, verdict, setBy }));
    return parsed.rules.map(rule => denial(entry, rule, setBy));
  });
  return verdict === 'allow' ? merged(rules) : rules;
}

// Without a port of its own an entry denies every port: who denies a host means all of it.
function denial(entry: string, { host, port }: Draft, setBy: Source): EgressRule {
  const all = !/:\d+$/.test(entry);
  const id = `deny/${host}${all ? '' : `:${port}`}`;
  return { id, verdict: 'deny', host, port: all ? 0 : port, protocol: 'tcp', mode: 'pass', setBy };
}

type Draft = Omit<EgressRule, 'verdict' | 'setBy'>;

// The two presets of one host, such as `github:read` and `github:push`, allow what either allows. A bare host beside a preset
// stays a rule of its own; `conflictIn` finds it.
function merged(rules: readonly EgressRule[]): EgressRule[] {
  const found = new Map<string, EgressRule>();
  for (const rule of rules) {
    const key = [rule.host, rule.port, rule.protocol, rule.mode, rule.requests === undefined].join(' ');
    const before = found.get(key);
    found.set(key, before ? union(before, rule) : rule);
  }
  return [...found.values()];
}

function union(one: EgressRule, other: EgressRule): EgressRule {
  if (one.id === other.id) return one;
  const credential = one.credential ?? other.credential;
  // The credential of one preset is not for what another allows: with it, `github:read` would read private repositories.
  const own = ({ requests = [], ...rule }: EgressRule): EgressRequests[] =>
    requests.map(entry => (rule.credential === credential ? entry : { ...entry, anonymous: true }));
  const requests = [...own(one), ...own(other)];
  return {
    ...one,
    id: `${one.id}+${other.id}`,
    ...(requests.length > 0 ? { requests } : {}),
    ...(credential === undefined ? {} : { credential }),
  };
}

/** Two rules of one list for the same host and port that treat it differently: the wider would undo the narrower. */
export function conflictIn(rules: readonly EgressRule[]): readonly [EgressRule, EgressRule] | null {
  for (const [at, one] of rules.entries()) {
    const other = rules.slice(at + 1).find(({ host, port }) => host === one.host && port === one.port);
    if (other && one.verdict === 'allow' && other.verdict === 'allow') return [one, other];
  }
  return null;
}

/** Whether everything that one rule allows is allowed by another. */
export function covers(wider: EgressRule, narrower: EgressRule): boolean {
  const isSameService = wider.port === narrower.port && wider.protocol === narrower.protocol;
  return isSameService && hostCovers(wider.host, narrower.host) && treatmentCovers(wider, narrower);
}

function treatmentCovers(wider: EgressRule, narrower: EgressRule): boolean {
  const isUnread = wider.mode === 'pass';
  return (
    (isUnread || wider.mode === narrower.mode) &&
    (isUnread || narrower.websocket !== true || wider.websocket === true) &&
    // Who lets a host through has not lent a credential for it.
    (narrower.credential === undefined || narrower.credential === wider.credential) &&
    requestsCover(wider.requests, narrower.requests)
  );
}

function requestsCover(wider?: readonly EgressRequests[], narrower?: readonly EgressRequests[]): boolean {
  if (wider === undefined) return true;
  if (narrower === undefined) return false;
  return narrower.every(({ methods, path }) =>
    methods.every(method => wider.some(one => one.methods.includes(method) && (one.path === '/' || one.path === path))),
  );
}

/** What both lists allow: of each two rules of which one covers the other, the narrower, as set by who set that one. */
export function narrowed(rules: readonly EgressRule[], by: readonly EgressRule[]): EgressRule[] {
  return rules.flatMap(rule => {
    if (by.some(bound => covers(bound, rule))) return [rule];
    return by.filter(bound => covers(rule, bound));
  });
}

/**
 * Hosts of a layer that its own denials do not reach, because the layer allows them more specifically: what is granted there, as
 * if the layer granted it.
 */
export function exceptions(granted: readonly EgressRule[], allowed: readonly EgressRule[]): EgressRule[] {
  return granted.flatMap(grant =>
    allowed.flatMap(({ host, port, setBy }) => {
      if (port !== grant.port) return [];
      if (hostCovers(host, grant.host)) return [{ ...grant, setBy }];
      return hostCovers(grant.host, host) ? [{ ...grant, host, setBy }] : [];
    }),
  );
}

type Parsed = { readonly rules: readonly Draft[] } | EntryFault;

const MAX_ENTRY = 300;
const FORM =
  'Write a preset such as npm:install, or a host such as registry.npmjs.org, *.example.com or db.example:8443';
const PORTS: Readonly<Record<EgressProtocol, number | null>> = { tls: 443, http: 80, tcp: null, ssh: 22 };

function parseEntry(entry: string, verdict: 'allow' | 'deny'): Parsed {
  const preset = entry.length > MAX_ENTRY ? { fault: 'is too long' } : presetOf(entry);
  if (preset === null && /^(?:ssh|git\+ssh|git):/.test(entry)) return repositoryRule(entry, verdict);
  if (preset === null) return shapeFault(entry) ?? hostRule(entry, verdict);
  if ('fault' in preset) return { reason: preset.fault, remedy: '`acode egress presets` lists all presets' };
  return { rules: preset.hosts.map(host => ({ ...host, id: `${preset.name}/${host.host}` })) };
}

// What people write instead of a host, and what each of them meant.
function shapeFault(entry: string): EntryFault | null {
  const url = /^[a-z][a-z0-9+.-]*:\/\/([^/?#@:]+)/i.exec(entry);
  if (url) return { reason: 'is a URL', remedy: `Write the host alone: ${url[1] ?? ''}` };
  if (/[/?#]/.test(entry))
    return {
      reason: 'has a path',
      remedy:
        'Write the host alone, or git:<host>/<owner>/<repository> for one repository. Presets limit other requests',
    };
  if (/[\s;]/.test(entry))
    return { reason: 'has white space or a semicolon', remedy: 'Separate entries by commas: allow=npm:install,pypi' };
  if (/[^\u0021-\u007E]/.test(entry))
    return { reason: 'has signs that no host name has', remedy: 'Write an internationalised name in its xn-- form' };
  if (entry === '*' || entry === '*.*')
    return {
      reason: 'would allow every host',
      remedy:
        'Name the hosts or presets: allow=npm:install,example.com. To reach every host instead: --network bridge, after `acode config set sandbox.network.allow_bridge true`',
    };
  return null;
}

function hostRule(entry: string, verdict: 'allow' | 'deny'): Parsed {
  const [, scheme, rest = ''] = /^(?:(tcp|http|tls):)?(.*)$/.exec(entry) ?? [];
  const [, name = '', number] = /^(.*?)(?::(\d{1,5}))?$/.exec(rest) ?? [];
  if (name === HOST_SERVICE) return hostService(number);
  const isDomain = verdict === 'deny' && /^\*\.[a-z][a-z0-9-]*$/i.test(name);
  const fault = isDomain ? null : nameFault(name, number);
  return fault ?? namedRule(name.toLowerCase(), protocolOf(scheme), number);
}

// A repository is named as it is sent to the server: from the login’s own directory, or with two slashes from the root.
const REPOSITORY_ENTRY = /^ssh:(?:([A-Za-z0-9_][A-Za-z0-9._-]{0,63})@)?([^/:@*]+)(?::(\d{1,5}))?\/(.+?)(:push)?$/;
const REPOSITORY_FORM =
  'Write ssh:git@<host>/<owner>/<repository> to fetch from one repository, with :push at its end to push as well';
const OVER_HTTPS = /^git:([^/:@*]+)(?::(\d{1,5}))?\/([^/].*?)(:push)?$/;
const HTTPS_FORM =
  'Write git:<host>/<owner>/<repository> to fetch from one repository over HTTPS, with :push at its end to push as well';

function repositoryRule(entry: string, verdict: 'allow' | 'deny'): Parsed {
  if (verdict === 'deny')
    return { reason: 'denies a repository', remedy: 'Deny the host, with its port if you want: github.com:22' };
  if (entry.startsWith('git:')) return overHttps(entry);
  const [, login = 'git', name = '', number = '22', path = '', push] = REPOSITORY_ENTRY.exec(entry) ?? [];
  const repository = parseRepository(path);
  if (repository === null) return { reason: 'names no repository', remedy: REPOSITORY_FORM };
  return nameFault(name) ?? repositoryOf({ login, host: name.toLowerCase(), port: Number(number) }, repository, push);
}

function repositoryOf(
  { login, host, port }: { readonly login: string; readonly host: string; readonly port: number },
  repository: string,
  push = '',
): Parsed {
  if (!isPort(port)) return { reason: 'has a port that is none', remedy: 'Ports are 1 to 65535' };
  const id = `allow/ssh:${login}@${host}${port === 22 ? '' : `:${port}`}/${repository}${push}`;
  const requests = [{ methods: push === '' ? [FETCH] : [FETCH, PUSH], path: `${login}@${repository}` }];
  return { rules: [{ id, host, port, protocol: 'ssh', mode: 'pass', requests }] };
}

// The connection is inspected, as that of a preset: a host that is let through would take any path.
function overHttps(entry: string): Parsed {
  const [, name = '', number = '443', path = '', push = ''] = OVER_HTTPS.exec(entry) ?? [];
  const repository = parseRepository(path);
  if (repository === null) return { reason: 'names no repository', remedy: HTTPS_FORM };
  const fault = nameFault(name);
  if (fault) return fault;
  const [host, port] = [name.toLowerCase(), Number(number)];
  if (!isPort(port)) return { reason: 'has a port that is none', remedy: 'Ports are 1 to 65535' };
  const id = `allow/git:${host}${port === PORTS.tls ? '' : `:${port}`}/${repository}${push}`;
  return {
    rules: [{ id, host, port, protocol: 'tls', mode: 'inspect', requests: requestsOf(repository, push !== '') }],
  };
}

function protocolOf(scheme: string | undefined): EgressProtocol {
  return scheme === 'tcp' || scheme === 'http' ? scheme : 'tls';
}

function namedRule(host: string, protocol: EgressProtocol, number: string | undefined): Parsed {
  const port = number === undefined ? PORTS[protocol] : Number(number);
  if (port === null) return { reason: 'has no port', remedy: `Write the port as well, such as tcp:${host}:5432` };
  if (!isPort(port)) return { reason: 'has an invalid port', remedy: 'Ports are 1 to 65535' };
  const isTls = protocol === 'tls';
  const id = `allow/${isTls ? '' : `${protocol}:`}${host}${isTls && port === 443 ? '' : `:${port}`}`;
  return { rules: [{ id, host, port, protocol, mode: 'pass' }] };
}

function isPort(port: number): boolean {
  return port >= 1 && port <= 65_535;
}

// Who reaches an engine’s API has this host; the same is true of the API of a cluster’s node.
const ENGINE_PORTS = new Set([2375, 2376, 2377, 4243, 6443, 10_250]);

function hostService(number: string | undefined): Parsed {
  const port = Number(number);
  if (number === undefined || !isPort(port))
    return {
      reason: 'names this host without a port',
      remedy: 'Name one service of this host by its port: host:5432',
    };
  if (ENGINE_PORTS.has(port))
    return {
      reason: `is port ${port} of this host, where an engine’s API listens`,
      remedy: 'A sandbox never reaches an engine. Name another port',
    };
  return { rules: [{ id: `allow/host:${port}`, host: HOST_SERVICE, port, protocol: 'tcp', mode: 'pass' }] };
}

function nameFault(name: string, port = '<port>'): EntryFault | null {
  const bare = name.replace(/^\*\./, '');
  if (bare !== HOST_SERVICE && parseHost(bare) !== null) return null;
  // Of a service of this machine people write what they write outside.
  if (/^(?:.*\.)?localhost$|^(?:127\.[\d.]+|0\.0\.0\.0|\[?::1\]?)$/i.test(bare)) return ofThisMachine(port);
  if (/^[\d.]+$|^\[|^[\da-f]*:[\da-f:.]*(?:%|$)|^0x/i.test(bare))
    return {
      reason: 'is an IP address, and a list takes host names only',
      remedy:
        'Write the name of that machine. If it has none, give it one in /etc/hosts of this machine, such as db.internal. If its address is private, allow that: `acode config set --add sandbox.network.private_hosts <name>`',
    };
  if (name.startsWith('*.') && /^[a-z]+$/i.test(bare))
    return { reason: 'is a whole top-level domain', remedy: 'Name a domain of somebody’s own, such as *.example.com' };
  if (bare.includes('*')) return { reason: 'has * elsewhere than as its first label', remedy: FORM };
  if (bare.endsWith('.')) return { reason: 'ends in a dot', remedy: `Write ${bare.slice(0, -1)}` };
  return { reason: 'is neither a preset nor the full name of a host', remedy: FORM };
}

function ofThisMachine(port: string): EntryFault {
  const entry = `host:${port}`;
  return {
    reason: 'would be the sandbox itself, not this machine',
    remedy: `To let sandboxes reach port ${port} of this machine: \`acode config set --add sandbox.network.allow ${entry}\`. Then write ${entry} instead, in the command too: the word host is literal`,
  };
}
