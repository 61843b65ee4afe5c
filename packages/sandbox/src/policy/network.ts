// Network of a sandbox: none by default, and otherwise only with the consent that its kind needs.

import type { LoadedConfig } from './config/check.ts';
import { PRESET_NAMES } from '../egress/presets.ts';
import { nearestWord } from './config/keys.ts';
import type { Config } from './config/schema.ts';
import { address, listFault } from './config/values.ts';
import { HOST_SERVICE, hostCovers } from '../egress/host-name.ts';
import { conflictIn, covers, exceptions, narrowed, rulesOf } from '../egress/rules.ts';
import { decideHost } from '../egress/decide.ts';
import type { EgressRule } from '../contract/egress.ts';
import { AcodeError } from '../contract/errors.ts';
import { networkName } from '../contract/network.ts';
import type { EffectivePolicy, PolicyFields, PortRequest, Sourced } from '../contract/policy.ts';
import type { PolicyRules } from '../contract/host.ts';
import type { NetworkMode } from '../contract/network.ts';
import type { Denial, Remedy } from '../contract/denials.ts';
import { text } from '../contract/wording.ts';
import type { FieldReference, SettingReference, Text } from '../contract/wording.ts';
import { withCredentials } from './credentials.ts';
import { builtInValue, pick, placeOf, resolveMode, setting, sourceIn, sourceOf } from './layers.ts';
import type { Layers, Mode, SandboxSection } from './layers.ts';

/** The part of a policy that is about the network. */
export type NetworkPolicy = Pick<EffectivePolicy, 'network' | 'dns' | 'ports' | 'denials'>;

/**
 * The bundle of CA certificates: the user’s own, else the machine’s, else the team’s. A repository names none, and neither
 * does a request.
 */
export function resolveCaFile({ machine, user }: Layers): EffectivePolicy['caFile'] {
  const own = user.config.sandbox?.network?.ca_file;
  const set = own === undefined ? builtInValue(null) : { value: own, ...sourceIn(user, CA_FILE) };
  const machines = machine?.config.sandbox?.network?.ca_file;
  if (set.layer === 'user' || !machine || machines === undefined) return set;
  return { value: machines, layer: 'machine', where: placeOf(machine, CA_FILE) };
}

const CA_FILE = 'sandbox.network.ca_file';

/** The proxy of a company: the machine’s own, else the user’s, else the team’s. A repository names none, and neither does a request. */
export function resolveUpstreamProxy({ machine, user }: Layers): EffectivePolicy['upstreamProxy'] {
  const machines = machine?.config.sandbox?.network?.upstream_proxy;
  if (machine && machines !== undefined)
    return { value: machines, layer: 'machine', where: placeOf(machine, UPSTREAM) };
  const own = user.config.sandbox?.network?.upstream_proxy;
  return own === undefined ? builtInValue(null) : { value: own, ...sourceIn(user, UPSTREAM) };
}

const UPSTREAM = 'sandbox.network.upstream_proxy';

/** How acode runs `ssh` for repositories of an allow-list. Only the user’s own file says so: it is the user’s key. */
export function resolveGitSsh({ user }: Layers): EffectivePolicy['gitSsh'] {
  const { ssh } = user.config.sandbox?.network ?? {};
  if (ssh === undefined) return builtInValue({});
  const value = {
    ...(ssh.known_hosts === undefined ? {} : { knownHosts: ssh.known_hosts }),
    ...(ssh.identity_file === undefined ? {} : { identity: ssh.identity_file }),
  };
  return { value, ...sourceIn(user, 'sandbox.network.ssh') };
}

/** Which networks a run may ask for: the bridge by consent, others by name, hosts. The machine’s policy bounds all. */
export function allowedNetworks(layers: Layers): Pick<PolicyRules, 'bridge' | 'networks' | 'hosts'> {
  return { bridge: bridgeConsent(layers), networks: namedNetworks(layers), hosts: listedHosts(layers) };
}

function listedHosts({ user }: Layers): Sourced<readonly string[]> {
  const entries = user.config.sandbox?.network?.allow;
  return entries ? { value: entries, ...sourceIn(user, ALLOW) } : builtInValue([]);
}

function bridgeConsent({ machine, user }: Layers): Sourced<boolean> {
  if (machine?.config.sandbox?.network?.allow_bridge === false)
    return { value: false, layer: 'machine', where: placeOf(machine, CONSENT) };
  const consent = user.config.sandbox?.network?.allow_bridge;
  return consent === undefined ? builtInValue(false) : { value: consent, ...sourceIn(user, CONSENT) };
}

function namedNetworks({ machine, user }: Layers): Sourced<readonly string[]> {
  const names = user.config.sandbox?.network?.allowed_networks;
  if (!names) return builtInValue([]);
  const bound = machine?.config.sandbox?.network?.allowed_networks;
  const value = names.filter(name => bound?.includes(name) !== false);
  if (!machine || value.length === names.length) return { value, ...sourceIn(user, NAMES) };
  return { value, layer: 'machine', where: placeOf(machine, NAMES) };
}

const MAX_SERVERS = 3;
const MAX_PORTS = 16;
// Names that mean something else to an engine than a network of the user’s.
const RESERVED = /^(?:host|none|allow|default|bridge|ingress|nat|container(?::.*)?)$/i;

/** Decides about the network. Air-gapped mode wins over everything, and says what it denied. */
export function resolveNetwork(request: PolicyFields, layers: Layers, mode: Sourced<Mode>): NetworkPolicy {
  const network = askedNetwork(request, layers);
  const dns = pick<readonly string[]>(layers, {
    field: 'dns',
    request: request.dns,
    key: 'sandbox.network.dns_servers',
    read: sandbox => sandbox.network?.dns_servers,
    builtIn: [],
  });
  const ports = pick<readonly PortRequest[]>(layers, {
    field: 'ports',
    request: request.ports,
    key: 'sandbox.network.ports',
    read: sandbox => sandbox.network?.ports,
    builtIn: [],
  });
  checkServers(dns);
  checkPorts(ports);
  if (mode.value === 'airgapped') return airgapped({ network, dns, ports }, mode);
  assertAllowed(network, layers);
  if (network.value.kind === 'bridge' || network.value.kind === 'named') return { network, dns, ports, denials: [] };
  // What a file says about servers and ports is for the runs that have a network; a request means this one.
  for (const [field, asked] of [
    ['dns', dns],
    ['ports', ports],
  ] as const) {
    if (asked.layer !== 'request' || asked.value.length === 0) continue;
    throw new AcodeError('ACODE-SBX-017', {
      field: `policy.${field}`,
      reason:
        network.value.kind === 'none'
          ? 'needs a network, and there is none'
          : 'needs a network of the engine, and an allow-list is none',
      remedy: text`Leave it out, or also ask for ${bridgeAsked(layers)}.`,
    });
  }
  const listed = withRules(network, request, layers);
  return { network: listed, dns: builtInValue([]), ports: builtInValue([]), denials: [] };
}

function askedNetwork(request: PolicyFields, layers: Layers): Sourced<NetworkMode> {
  const asked = request.network;
  const mode = pick<NetworkMode | undefined>(layers, {
    field: 'network',
    request: asked === undefined ? undefined : networkOf(asked),
    key: 'sandbox.network.mode',
    // A list of a repository’s only narrows that of the user; it gives no network.
    read: section => configuredNetwork(section, section === layers.user.config.sandbox),
    builtIn: undefined,
  });
  if (mode.value === undefined) return builtInValue({ kind: 'none' });
  return { value: mode.value, ...sourceAsked(mode, layers) };
}

// A file may ask by the shorthand or by its list, which are other keys.
function sourceAsked({ layer, where }: Sourced, { repository, user }: Layers): Pick<Sourced, 'layer' | 'where'> {
  if (layer === 'user' || layer === 'team') return sourceIn(user, networkKey(user.config));
  if (layer !== 'repository' || !repository) return { layer, where };
  return { layer, where: placeOf(repository, networkKey(repository.config)) };
}

function networkKey({ sandbox }: Config): string {
  if (sandbox?.network?.mode !== undefined) return 'sandbox.network.mode';
  return sandbox?.defaults?.network === undefined ? ALLOW : 'sandbox.defaults.network';
}

function configuredNetwork(
  { network: { mode: named, allow = [] } = {}, defaults: { network: enabled } = {} }: SandboxSection,
  isOwn: boolean,
): NetworkMode | undefined {
  if (named !== undefined) return networkOf(namedNetwork(named, allow));
  if (enabled !== undefined) return { kind: enabled ? 'bridge' : 'none' };
  return isOwn && allow.length > 0 ? networkOf({ allow }) : undefined;
}

function namedNetwork(named: string, allow: readonly string[]): NonNullable<PolicyFields['network']> {
  if (named === 'allow') return { allow };
  return named === 'none' || named === 'bridge' ? named : { name: named };
}

function networkOf(asked: NonNullable<PolicyFields['network']>): NetworkMode {
  if (typeof asked === 'string') return { kind: asked };
  if ('name' in asked) return { kind: 'named', name: asked.name };
  return { kind: 'allow', entries: asked.allow, rules: [] };
}

// An allow-list with the rules that count: what was asked for or the user’s own list, within what the machine allows, and the
// denials of every layer. Every other network is left as it is.
function withRules(network: Sourced<NetworkMode>, request: PolicyFields, layers: Layers): Sourced<NetworkMode> {
  if (network.value.kind !== 'allow') return network;
  const own = listOf(layers.user, 'allow');
  const granted =
    network.layer === 'request'
      ? requestedRules(network.value.entries, own, request, layers)
      : byRepository(own, layers);
  const lasting = byMachine(granted, network, layers);
  const passing = grantedRules(layers).filter(rule => !lasting.some(one => isSamePlace(one, rule)));
  const bounded = [...lasting, ...passing];
  const denials = deniedRules(layers);
  const isDenying = denials.some(({ setBy }) => setBy.layer === 'user' || setBy.layer === 'team');
  const rules = [...bounded, ...denials, ...(isDenying ? exceptions(bounded, own) : [])].map(rule =>
    isPrivate(rule, layers) ? { ...rule, private: true } : rule,
  );
  const lent = withCredentials(rules, request, layers);
  const { credentials } = lent;
  const entries = [...new Set([...network.value.entries, ...(layers.grants ?? [])])];
  // The servers of logins may have come to the list.
  const all = lent.rules.map(rule => (isPrivate(rule, layers) ? { ...rule, private: true } : rule));
  const value = { ...network.value, entries, rules: all, ...(credentials.length > 0 ? { credentials } : {}) };
  return { ...network, value };
}

/** Who set what a person granted for some time. Like what is typed: what any file denies stays denied. */
const GRANTED = { layer: 'request', where: 'acode egress allow' } as const;

/** The rules of what a person granted for some time, within what the machine allows. */
function grantedRules({ grants = [], machine }: Pick<Layers, 'grants' | 'machine'>): EgressRule[] {
  const rules = rulesOf(grants, 'allow', GRANTED);
  const entries = machine?.config.sandbox?.network?.allow;
  if (!machine || !entries) return rules;
  return narrowed(rules, rulesOf(entries, 'allow', { layer: 'machine', where: placeOf(machine, ALLOW) }));
}

/** Refuses to grant what a file forbids. */
export function assertGrantable(entry: string, layers: Layers, host: string, port: number): readonly EgressRule[] {
  const { machine } = layers;
  const mode = resolveMode(layers);
  if (mode.value === 'airgapped')
    throw denied(entry, 'no sandbox has a network in air-gapped mode', mode, 'Ask who set that mode.');
  const rules = grantedRules({ grants: [entry], machine });
  const by = machine ? { layer: 'machine' as const, where: placeOf(machine, ALLOW) } : null;
  if (rules.length === 0) throw denied(entry, 'this machine does not list it', by, ASK);
  const decision = decideHost({ rules: [...rules, ...deniedRules(layers)] }, { host, port, via: 'any' });
  if (decision.allowed) return rules.map(rule => (isPrivate(rule, layers) ? { ...rule, private: true } : rule));
  throw denied(entry, 'a rule denies it', decision.rule?.setBy ?? null, 'Ask who set that rule.');
}

function isSamePlace(one: EgressRule, other: EgressRule): boolean {
  return one.host === other.host && one.port === other.port;
}

function isPrivate({ verdict, host }: EgressRule, layers: Layers): boolean {
  return verdict === 'allow' && isPrivateHost(host, layers);
}

/** Whether the user’s own file lets a name have a private address. */
export function isPrivateHost(host: string, { user }: Layers): boolean {
  return (user.config.sandbox?.network?.private_hosts ?? []).some(name => hostCovers(name, host));
}

function listOf(layer: LoadedConfig, verdict: 'allow' | 'deny'): EgressRule[] {
  const key = `sandbox.network.${verdict}`;
  const rules = rulesOf(layer.config.sandbox?.network?.[verdict] ?? [], verdict, sourceIn(layer, key));
  const both = conflictIn(rules);
  if (both) throw new AcodeError('ACODE-SBX-013', { source: layer.where(key), key, reason: conflict(both) });
  return rules;
}

function conflict([one, other]: readonly [EgressRule, EgressRule]): string {
  return `has ${one.id} and ${other.id} for one host and port, which treat it differently: leave one of them out`;
}

// What a person typed or a program asked for counts. What a model asks for must be in the list of the user’s file.
function requestedRules(
  entries: readonly string[],
  own: readonly EgressRule[],
  { askedBy }: PolicyFields,
  layers: Layers,
): EgressRule[] {
  const setBy = { layer: 'request', where: 'policy.network' } as const;
  const consented = askedBy === 'model' ? [...byRepository(own, layers), ...grantedRules(layers)] : null;
  for (const entry of entries) {
    const fault = listFault(entry);
    if (fault) throw notAnEntry(entry, fault.reason, fault.remedy);
    const rules = rulesOf([entry], 'allow', setBy);
    if (consented && !rules.every(rule => consented.some(one => covers(one, rule))))
      throw denied(
        entry,
        'a model may ask only for what your configuration lists',
        listSource(layers),
        addTo(layers, entry),
      );
    if (rules.some(({ host }) => host === HOST_SERVICE) && !rules.every(rule => own.some(one => covers(one, rule))))
      throw denied(
        entry,
        'a service of this host is reached only if your configuration lists it',
        listSource(layers),
        addTo(layers, entry),
      );
  }
  const rules = rulesOf(entries, 'allow', setBy);
  const both = conflictIn(rules);
  if (both) throw new AcodeError('ACODE-SBX-017', { field: 'policy.network', reason: conflict(both) });
  return rules;
}

function notAnEntry(entry: string, reason: string, remedy: string): AcodeError {
  return new AcodeError('ACODE-SBX-017', {
    field: 'policy.network',
    reason: `${JSON.stringify(entry.slice(0, 80))} ${reason}`,
    remedy: `${remedy}.`,
  });
}

function listSource({ user }: Layers): Pick<Sourced, 'layer' | 'where'> {
  return user.config.sandbox?.network?.allow ? sourceIn(user, ALLOW) : builtInValue([]);
}

function addTo({ user }: Layers, entry: string): Text {
  return text`If sandboxes may reach it: ${setting(user, { key: ALLOW, value: [entry], add: true })}.`;
}

function byRepository(rules: readonly EgressRule[], { repository }: Layers): readonly EgressRule[] {
  return repository?.config.sandbox?.network?.allow ? narrowed(rules, repositoryList(repository, 'allow')) : rules;
}

function repositoryList(repository: LoadedConfig, verdict: 'allow' | 'deny'): EgressRule[] {
  const key = `sandbox.network.${verdict}`;
  const entries = repository.config.sandbox?.network?.[verdict] ?? [];
  return rulesOf(entries, verdict, { layer: 'repository', where: placeOf(repository, key) });
}

function byMachine(
  rules: readonly EgressRule[],
  { layer }: Sourced<NetworkMode>,
  { machine }: Layers,
): readonly EgressRule[] {
  const entries = machine?.config.sandbox?.network?.allow;
  if (!machine || !entries) return rules;
  const by = { layer: 'machine', where: placeOf(machine, ALLOW) } as const;
  const bound = rulesOf(entries, 'allow', by);
  const beyond = rules.find(rule => !bound.some(one => covers(one, rule)));
  if (beyond && layer === 'request') throw denied(beyond.id, 'this machine does not list it', by, ASK);
  return narrowed(rules, bound);
}

function deniedRules({ machine, user, repository }: Layers): EgressRule[] {
  const machines = machine?.config.sandbox?.network?.deny ?? [];
  return [
    ...(machine ? rulesOf(machines, 'deny', { layer: 'machine', where: placeOf(machine, DENY) }) : []),
    ...listOf(user, 'deny'),
    ...(repository ? repositoryList(repository, 'deny') : []),
  ];
}

function assertAllowed(network: Sourced<NetworkMode>, layers: Layers): void {
  switch (network.value.kind) {
    case 'none':
    case 'allow':
      return;
    case 'bridge':
      return assertBridge(layers);
    case 'named':
      return assertNamed({ ...network, value: network.value.name }, layers);
  }
}

function assertBridge({ machine, user }: Layers): void {
  if (machine?.config.sandbox?.network?.allow_bridge === false) {
    throw denied(
      'bridge',
      'this machine allows no bridge',
      { layer: 'machine', where: placeOf(machine, CONSENT) },
      ASK,
    );
  }
  const consent = user.config.sandbox?.network?.allow_bridge;
  if (consent === true) return;
  throw denied(
    'bridge',
    'a bridge reaches services of this host, so it needs your consent',
    consent === false ? sourceIn(user, CONSENT) : builtInValue(false),
    text`If you accept that: ${consentTo(user)}.`,
  );
}

function assertNamed(network: Sourced<string>, layers: Layers): void {
  const { machine, user, repository } = layers;
  const name = network.value;
  refuseReserved(name, layers);
  const machines = machine?.config.sandbox?.network?.allowed_networks;
  if (machine && machines && !machines.includes(name)) {
    throw denied(name, 'this machine does not list it', { layer: 'machine', where: placeOf(machine, NAMES) }, ASK);
  }
  const file = network.layer === 'repository' ? repository : network.layer === 'user' ? user : null;
  assertListed(network, layers, file);
}

function refuseReserved(name: string, layers: Layers): void {
  if (/^host$/i.test(name)) {
    const list = (value: string): FieldReference => ({ field: 'policy.network', value: `allow=${value}` });
    const remedy = text`To reach certain hosts: ${list('<host>')}. To reach a service of this machine: ${list('host:<port>')} (the word host is literal), after \`acode config set --add ${ALLOW} host:<port>\`. For no network: ${{ field: 'policy.network', value: 'none' }}. To reach every host, or to publish a port of the sandbox here (${{ field: 'policy.ports', value: 3000 }}): ${bridgeAsked(layers)}.`;
    throw denied(name, 'a sandbox never shares the network of this machine', null, remedy);
  }
  if (RESERVED.test(name)) {
    const remedy = 'Use none, bridge, or the name of a network that you made yourself.';
    throw denied(name, 'it is not a network of its own', null, remedy);
  }
}

// What belongs on an allow-list, and stands where a network is named.
function refuseEntry(name: string): void {
  const list = { field: 'policy.network', value: `allow=${name}` } as const;
  if (PRESET_NAMES.includes(name))
    throw denied(name, 'it is an allow-list preset', null, text`To reach its hosts and nothing else, use ${list}.`);
  if (DOMAIN.test(name))
    throw denied(
      name,
      'it looks like a host',
      null,
      text`To reach ${name} and nothing else, use ${list}. If it is the name of a network of the engine, add it to \`${NAMES}\`.`,
    );
}

// In a file a name that is nearly one of ours is a slip of the pen, and the place of it is what the writer needs.
function assertListed({ value: name }: Sourced<string>, layers: Layers, file: LoadedConfig | null): void {
  const { user } = layers;
  const allowed = user.config.sandbox?.network?.allowed_networks;
  if (allowed?.includes(name)) return;
  const meant = nearestWord(name, ['none', 'bridge']);
  if (meant !== null && file) {
    const key = 'sandbox.network.mode';
    const reason = `is ${name}, which ${NAMES} does not list (did you mean ${meant}?)`;
    throw new AcodeError('ACODE-SBX-013', { source: file.where(key), key, reason });
  }
  refuseEntry(name);
  throw denied(
    name,
    'your configuration does not list it',
    allowed ? sourceIn(user, NAMES) : builtInValue([]),
    text`${meant === null ? 'If' : `Did you mean ${meant}? Otherwise, if`} sandboxes may reach what is on it: ${setting(user, { key: NAMES, value: [name], add: true })}.`,
  );
}

// A name with dots that ends in letters: networks of engines may be called so and hardly ever are.
const DOMAIN = /^(?:\*\.)?(?:[a-z0-9-]+\.)+[a-z]{2,}$/i;
const BRIDGE = { field: 'policy.network', value: 'bridge' } as const;
const CONSENT = 'sandbox.network.allow_bridge';
const NAMES = 'sandbox.network.allowed_networks';
const ALLOW = 'sandbox.network.allow';
const DENY = 'sandbox.network.deny';

// The bridge, and the consent that it needs where nobody gave it yet.
function bridgeAsked(layers: Layers): Text {
  if (bridgeConsent(layers).value) return text`${BRIDGE}`;
  return text`${BRIDGE}, which needs your consent once: ${consentTo(layers.user)}`;
}

function consentTo(user: LoadedConfig): SettingReference {
  return setting(user, { key: CONSENT, value: true });
}

const ASK = 'Run without a network, or ask the administrator of this machine.';

// Null for what no layer can allow.
function denied(network: string, rule: string, by: Pick<Sourced, 'layer' | 'where'> | null, remedy: Text): AcodeError {
  const setBy = by === null ? {} : { setBy: sourceOf(by) };
  return new AcodeError('ACODE-SBX-005', { network: network.slice(0, 128), rule, ...setBy, remedy });
}

function airgapped({ network, dns, ports }: Omit<NetworkPolicy, 'denials'>, mode: Sourced<Mode>): NetworkPolicy {
  const { layer, where } = mode;
  const none = <Value>(value: Value): Sourced<Value> => ({ value, layer, where });
  const asked =
    network.value.kind === 'none'
      ? [dns, ports].find(({ value, layer: by }) => by === 'request' && value.length > 0)
      : network;
  const denials: Denial[] = asked ? [ignored(network, asked, mode)] : [];
  return { network: none({ kind: 'none' }), dns: none([]), ports: none([]), denials };
}

function ignored(network: Sourced<NetworkMode>, { layer, where }: Sourced, mode: Sourced<Mode>): Denial {
  const value = network.value.kind === 'none' ? 'a port or a name server' : `the network ${networkName(network.value)}`;
  return {
    rule: 'network.air-gapped',
    setBy: mode,
    effect: { kind: 'request-ignored', asked: { value, layer, where } },
    count: 1,
    remedies: [{ kind: 'work-offline' }, allowNetworks(mode)],
  };
}

/** The way out of air-gapped mode, by who set it. */
export function allowNetworks({ layer, where }: Sourced<Mode>): Remedy {
  if (layer === 'machine') return { kind: 'ask-administrator' };
  if (layer === 'request') return { kind: 'unset-variable', field: where };
  return { kind: 'change-setting', field: 'mode: airgapped', where };
}

function checkServers({ value, where }: Sourced<readonly string[]>): void {
  if (value.length > MAX_SERVERS) throw invalid(where, `has more than ${MAX_SERVERS} name servers`);
  for (const server of value) {
    if (!address.safeParse(server).success)
      throw invalid(where, `${JSON.stringify(server.slice(0, 80))} is not an IP address`);
  }
}

function checkPorts({ value, where }: Sourced<readonly PortRequest[]>): void {
  if (value.length > MAX_PORTS) throw invalid(where, `has more than ${MAX_PORTS} ports`);
  const seen = new Set<string>();
  for (const { container, host, protocol = 'tcp' } of value) {
    for (const port of [
      `${container}/${protocol} of the sandbox`,
      ...(host ? [`${host}/${protocol} of the host`] : []),
    ]) {
      if (seen.has(port)) throw invalid(where, `names port ${port} twice`);
      seen.add(port);
    }
  }
}

function invalid(field: string, reason: string): AcodeError {
  return new AcodeError('ACODE-SBX-017', { field, reason });
}
