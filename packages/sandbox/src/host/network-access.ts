// Access to hosts: presets, decisions without a connection, what waits for a person, and what a person grants.

import { createHash, randomUUID } from 'node:crypto';
import { availableParallelism } from 'node:os';
import * as z from 'zod';
import type { Audit, AuditEvent, AuditRecord } from '../contract/audit.ts';
import { AcodeError } from '../contract/errors.ts';
import type { Consent } from '../contract/configuration.ts';
import type { EgressConnection, EgressRule } from '../contract/egress.ts';
import type {
  AccessAnswer,
  AccessGrantRequest,
  AccessQuestion,
  GrantedAccess,
  NetworkAccess,
  PendingAccess,
  RunningNetwork,
} from '../contract/network-access.ts';
import type { EffectivePolicy } from '../contract/policy.ts';
import { redact } from '../contract/redact.ts';
import { decideAddress, decideHost, decideRequest } from '../egress/decide.ts';
import type { HostDecision } from '../egress/decide.ts';
import { parseHost } from '../egress/host-name.ts';
import { EGRESS_LIMITS, upstreamOf } from '../egress/plan.ts';
import { PRESETS, entryFor } from '../egress/presets.ts';
import { refusalText } from '../egress/proxy/refusal-text.ts';
import type { OpenNetwork } from '../persistent/relay/network.ts';
import { assertGrantable } from '../policy/network.ts';
import { resolvePolicy } from '../policy/resolve.ts';
import type { Host } from '../run/host.ts';
import { layersFor, workspaceOf } from '../run/repository.ts';
import { connectionOf, targetOf } from './network-question.ts';
import type { Target } from './network-question.ts';
import { nearestReal } from '../workspace/locate.ts';

const HOUR_MS = 3_600_000;
const TASK_MS = 8 * HOUR_MS;
// Records that are looked through: what is older was ended long ago, or nobody waits for it.
const MAX_RECORDS = 2000;
const MAX_PENDING = 20;
const MAX_WHY = 200;
const REQUESTED = 'network access requested';
const GRANTED = 'network access granted';
const GRANTABLE: ReadonlySet<string> = new Set(['not-listed', 'other-port']);

/** Access of the sandboxes of a user, on one host. */
export function networkAccessOf(host: Host, audit: Audit, assertOpen: (name: string) => void): NetworkAccess {
  const checked = <Given extends unknown[], Value>(name: string, work: (...given: Given) => Promise<Value>) => {
    return async (...given: Given): Promise<Value> => {
      assertOpen(`network.${name}`);
      return work(...given);
    };
  };
  return {
    presets: checked('presets', async () => PRESETS),
    test: checked('test', question => test(host, question)),
    pending: checked('pending', async () => (await waiting(host, audit)).map(({ access }) => access)),
    running: checked('running', async () => (await networks(host, host.closing)).map(({ now }) => now)),
    request: checked('request', wanted => request(host, audit, wanted)),
    allow: checked('allow', (id, grant) => allow(host, audit, id, grant)),
  };
}

async function networks(host: Host, signal: AbortSignal): Promise<OpenNetwork[]> {
  const { openNetworks } = await import('../persistent/relay/network.ts');
  return openNetworks(host.directories.runtime, signal);
}

async function test(host: Host, question: AccessQuestion): Promise<AccessAnswer> {
  const target = targetOf(question.target);
  if (target === null)
    throw new AcodeError('ACODE-SBX-017', {
      field: 'target',
      reason: `${JSON.stringify(question.target.slice(0, 80))} is neither a URL nor the full name of a host`,
      remedy: 'Write a URL such as https://registry.npmjs.org/left-pad, or a host such as db.example:5432.',
    });
  const policy = await policyOf(host, question.network);
  const { value: network } = policy.network;
  const { layer, where } = policy.network;
  const about = { host: target.host, port: target.port, network: network.kind, list: [], setBy: { layer, where } };
  if (network.kind !== 'allow') return { ...about, inspected: false, ...withoutList(network.kind, target) };
  const listed = { ...about, list: network.entries };
  const decision = decideHost(network, connectionOf(target));
  if (!decision.allowed) return refused(listed, decision);
  const { rule } = decision;
  const asked = decided(rule, target, question.method ?? 'GET');
  if (!asked.allowed) return refused(listed, asked);
  const answer: AccessAnswer = { ...listed, ...byRule(rule), allowed: true, text: allowedText(rule, target) };
  return question.connect === true ? dialled(host, policy, answer, rule, question.signal) : answer;
}

async function policyOf(host: Host, network: AccessQuestion['network']): Promise<EffectivePolicy> {
  const root = nearestReal(await workspaceOf(host));
  const grants = host.grants.for(root, undefined).map(({ entry }) => entry);
  const layers = { ...(await layersFor(host, root)), ...(grants.length > 0 ? { grants } : {}) };
  const facts = { caller: host.caller, profile: host.profile, cpus: availableParallelism() };
  return resolvePolicy(network === undefined ? {} : { network }, layers, facts);
}

// Requests are judged where the proxy reads them, as it would.
function decided(rule: EgressRule, target: Target, method: string): ReturnType<typeof decideRequest> {
  const isRead = target.scheme !== null && (rule.mode !== 'pass' || rule.protocol === 'http');
  if (!isRead) return { allowed: true };
  const { host, port, path } = target;
  return decideRequest(rule, {
    method: method.toUpperCase(),
    target: path,
    host,
    port,
    headers: ['Host', `${host}:${port}`],
  });
}

type Listed = Pick<AccessAnswer, 'host' | 'port' | 'network' | 'list' | 'setBy'>;

function byRule(rule: EgressRule): Pick<AccessAnswer, 'rule' | 'setBy' | 'inspected'> {
  return { rule: rule.id, setBy: rule.setBy, inspected: rule.mode !== 'pass' };
}

function refused(listed: Listed, { reason, rule }: Exclude<HostDecision, { readonly allowed: true }>): AccessAnswer {
  const { host, port } = listed;
  const entry = GRANTABLE.has(reason) ? entryFor({ host, port }) : null;
  const facts = { host, port, reason, isLast: false, ...(rule ? { rule: rule.id } : {}) };
  return {
    ...listed,
    inspected: false,
    ...(rule ? byRule(rule) : {}),
    allowed: false,
    reason,
    text: refusalText({ ...facts, ...(entry === null ? {} : { entry }) }),
    ...(entry === null ? {} : { entry }),
  };
}

function withoutList(
  kind: 'none' | 'bridge' | 'named',
  target: Target,
): Pick<AccessAnswer, 'allowed' | 'reason' | 'text' | 'entry'> {
  if (kind !== 'none')
    return { allowed: true, text: `acode does not decide about hosts on a ${kind} network: all of it can be reached.` };
  const entry = entryFor(target);
  const text = 'The command has no network.';
  if (entry === null) return { allowed: false, reason: 'no-network', text };
  return { allowed: false, reason: 'no-network', entry, text: `${text} Allow the host: --network allow=${entry}.` };
}

function allowedText({ id, mode }: EgressRule, { scheme }: Target): string {
  const read = mode === 'pass' ? '' : ' acode reads its requests, and other methods and paths may be refused.';
  return `Rule ${id} allows ${scheme === null ? 'the connection' : 'the request'}.${read}`;
}

// The name is resolved and its addresses are checked as the proxy does it, and the connection is closed at once.
async function dialled(
  host: Host,
  policy: EffectivePolicy,
  answer: AccessAnswer,
  rule: EgressRule,
  callers: AbortSignal | undefined,
): Promise<AccessAnswer> {
  const { Refused, checkedAddresses, dial, resolveHere } = await import('../egress/proxy/dial.ts');
  const signal = AbortSignal.any([
    host.closing,
    AbortSignal.timeout(EGRESS_LIMITS.connectMs),
    ...(callers ? [callers] : []),
  ]);
  const check = (of: EgressRule, address: string, own: readonly string[]): void => {
    const decision = decideAddress(of, address, own);
    if (!decision.allowed) throw new Refused(decision.reason, of.id);
  };
  const options = { resolve: resolveHere, check, connectMs: EGRESS_LIMITS.connectMs, signal };
  try {
    const upstream = upstreamOf(policy);
    const addresses = upstream ? [] : await checkedAddresses(rule, answer.host, options);
    (await dial(rule, answer.host, answer.port, { ...options, upstream })).destroy();
    return { ...answer, addresses, text: `${answer.text} It answered.` };
  } catch (error) {
    callers?.throwIfAborted();
    if (!(error instanceof Refused)) throw error;
    return refused(answer, { allowed: false, reason: error.reason, rule });
  }
}

/** What waits for a person, with the network of its sandbox where that still runs. */
interface Waiting {
  readonly access: PendingAccess;
  readonly network: OpenNetwork | null;
}

const connectionSchema = z.object({
  host: z.string(),
  port: z.int(),
  verdict: z.string(),
  reason: z.string().optional(),
  count: z.int(),
});
const contextSchema = z.object({
  command: z.array(z.string()).optional(),
  workspace: z.string().optional(),
  taskId: z.string().optional(),
  sandboxId: z.string().optional(),
});
const outcomeSchema = z.object({ intent: z.int(), connections: z.array(z.unknown()) });
const detailSchema = z.object({
  id: z.string(),
  host: z.string(),
  port: z.int(),
  why: z.string().exactOptional(),
});

type Context = z.output<typeof contextSchema>;

async function waiting(host: Host, audit: Audit): Promise<Waiting[]> {
  const [records, open] = await Promise.all([recent(host, audit), networks(host, host.closing)]);
  const bySandbox = new Map(open.map(network => [network.now.sandboxId, network]));
  const { recorded, granted } = recordedIn(records);
  const found = new Map<string, PendingAccess>();
  for (const one of [...recorded, ...open.flatMap(({ now }) => pendingIn(now))])
    found.set(one.id, { ...found.get(one.id), ...one });
  const all = [...found.values()]
    .filter(({ id }) => !granted.has(id))
    .map(access => {
      const network = bySandbox.get(access.sandboxId ?? '') ?? null;
      return { access: { ...access, isRunning: network !== null }, network };
    });
  return ofEachTask(all).toReversed();
}

// What records say was refused and asked for, and the ids of what was granted since.
function recordedIn(records: readonly AuditRecord[]) {
  const contexts = new Map<number, Context>();
  const granted = new Set<string>();
  const recorded: PendingAccess[] = [];
  for (const record of records) {
    if (record.kind === 'intent') contexts.set(record.seq, contextSchema.catch({}).parse(record));
    else if (record.kind === 'outcome') recorded.push(...refusedIn(record, contexts));
    else if (record['event'] === GRANTED) granted.add(String(detailSchema.safeParse(record['detail']).data?.id));
    else if (record['event'] === REQUESTED) recorded.push(...requestedIn(record));
  }
  return { recorded, granted };
}

function pendingIn({ sandboxId, command, workspace, taskId, startedAt, connections }: RunningNetwork): PendingAccess[] {
  const of = { sandboxId, command: [...command], ...(workspace ? { workspace } : {}), ...(taskId ? { taskId } : {}) };
  return pendingOf(connections, of, startedAt);
}

async function recent(host: Host, audit: Audit): Promise<AuditRecord[]> {
  const since = host.telemetry.clock.now() - HOUR_MS;
  const records = await audit.tail({ count: MAX_RECORDS });
  // An intent may be older than the outcome that is looked for.
  return records.filter(({ kind, ts }) => kind === 'intent' || Date.parse(ts) >= since);
}

function refusedIn(record: AuditRecord, contexts: ReadonlyMap<number, Context>): PendingAccess[] {
  const { data } = outcomeSchema.safeParse(record);
  return data ? pendingOf(data.connections, contexts.get(data.intent) ?? {}, record.ts) : [];
}

function pendingOf(rows: readonly unknown[] | readonly EgressConnection[], of: Context, at: string): PendingAccess[] {
  return rows.flatMap(row => {
    const { data } = connectionSchema.safeParse(row);
    if (data?.verdict !== 'denied' || !GRANTABLE.has(data.reason ?? '')) return [];
    const { host, port, count } = data;
    const entry = entryFor({ host, port });
    if (entry === null) return [];
    const id = idOf(of.sandboxId ?? at, host, port);
    return [{ id, host, port, entry, by: 'command', count, isRunning: false, at, ...defined(of) }];
  });
}

function defined({ command, workspace, taskId, sandboxId }: Context) {
  return {
    ...(command === undefined ? {} : { command }),
    ...(workspace === undefined ? {} : { workspace }),
    ...(taskId === undefined ? {} : { taskId }),
    ...(sandboxId === undefined ? {} : { sandboxId }),
  };
}

function requestedIn(record: AuditRecord): PendingAccess[] {
  const { data } = detailSchema.safeParse(record['detail']);
  const entry = data ? entryFor(data) : null;
  if (!data || entry === null) return [];
  const of = contextSchema.catch({}).parse(record);
  return [{ ...data, entry, by: 'model', count: 0, isRunning: false, at: record.ts, ...defined(of) }];
}

// A command that asks for ever new hosts does not bury what others wait for.
function ofEachTask(all: readonly Waiting[]): Waiting[] {
  const counts = new Map<string, number>();
  return all.filter(({ access: { taskId, sandboxId, workspace } }) => {
    const task = taskId ?? sandboxId ?? workspace ?? '';
    const count = (counts.get(task) ?? 0) + 1;
    counts.set(task, count);
    return count <= MAX_PENDING;
  });
}

function idOf(owner: string, host: string, port: number): string {
  return createHash('sha256').update(`${owner} ${host}:${port}`).digest('hex').slice(0, 8);
}

async function request(
  host: Host,
  audit: Audit,
  { host: name, port = 443, why, sessionId = host.session.id }: Parameters<NetworkAccess['request']>[0],
): Promise<PendingAccess> {
  const shown = name.slice(0, 80).replaceAll(/[^\x21-\x7e]/g, '?');
  const parsed = parseHost(name);
  const entry = parsed === null ? null : entryFor({ host: parsed, port });
  if (parsed === null || entry === null)
    throw new AcodeError('ACODE-EGR-002', {
      host: shown,
      reason: 'it is not the full name of a host',
      remedy: 'Name one host, such as registry.npmjs.org, without a scheme and a path. Addresses are never granted.',
    });
  const workspace = nearestReal(await workspaceOf(host));
  assertGrantable(entry, await layersFor(host, workspace), parsed, port);
  const asked = (await recent(host, audit)).filter(one => one['event'] === REQUESTED && one['sessionId'] === sessionId);
  if (asked.length >= MAX_PENDING)
    throw new AcodeError('ACODE-EGR-002', {
      host: parsed,
      reason: `this session has asked for ${MAX_PENDING} hosts within an hour`,
      remedy: 'Wait until the user has answered. Do not ask for the same again.',
    });
  const waits = await waiting(host, audit);
  const same = waits.find(({ access }) => access.by === 'model' && access.host === parsed && access.port === port);
  if (same) return same.access;
  const correlationId = randomUUID();
  const id = idOf(correlationId, parsed, port);
  const text = redact(why.replaceAll(/[^\x20-\x7e]+/g, ' ').slice(0, MAX_WHY));
  const event: AuditEvent = {
    kind: 'event',
    operation: 'network',
    correlationId,
    sessionId,
    event: REQUESTED,
    workspace,
    detail: { id, host: parsed, port, entry, why: text },
  };
  await host.audit.append(event);
  const at = new Date(host.telemetry.clock.now()).toISOString();
  return { id, host: parsed, port, entry, by: 'model', why: text, count: 0, workspace, isRunning: false, at };
}

async function allow(
  host: Host,
  audit: Audit,
  id: string,
  { for: until, consent, signal = host.closing }: AccessGrantRequest,
): Promise<GrantedAccess> {
  const found = (await waiting(host, audit)).find(({ access }) => access.id === id);
  if (!found) throw new AcodeError('ACODE-EGR-001', { id: id.slice(0, 40).replaceAll(/[^\x21-\x7e]/g, '?') });
  const { access, network } = found;
  const { machine, config: user, environmentMode } = host;
  const { host: name, port, entry, workspace, taskId = null } = access;
  assertGrantable(entry, { machine, user, repository: null, environmentMode }, name, port);
  // Recorded before it takes effect: without the record nothing is granted.
  await host.audit.append(grantedEvent(access, until, consent), signal);
  const isInEffect = network !== null && (await inEffect(network, access, signal));
  if (until === 'once' && isInEffect) return { access, isInEffect };
  if (workspace === undefined)
    throw new AcodeError('ACODE-EGR-002', { host: name, reason: 'its workspace is not known' });
  const once = until === 'once';
  const expiresAt = new Date(host.telemetry.clock.now() + (once ? HOUR_MS : TASK_MS)).toISOString();
  host.grants.add({ id, entry, workspace, taskId, once, expiresAt });
  return { access, isInEffect, until: expiresAt };
}

function grantedEvent(
  { id, host, port, entry, workspace, sandboxId }: PendingAccess,
  until: AccessGrantRequest['for'],
  { how, parent }: Consent,
): AuditEvent {
  return {
    kind: 'event',
    operation: 'network',
    correlationId: randomUUID(),
    event: GRANTED,
    ...(workspace === undefined ? {} : { workspace }),
    ...(sandboxId === undefined ? {} : { sandboxId }),
    detail: { id, host, port, entry, for: until, consent: how, parent: parent ?? 'unknown' },
  };
}

// What cannot be added to a running sandbox is for commands that start later.
async function inEffect(
  network: OpenNetwork,
  { host, port, entry }: PendingAccess,
  signal: AbortSignal,
): Promise<boolean> {
  try {
    await network.grant({ host, port, entry }, signal);
    return true;
  } catch (error) {
    if (error instanceof AcodeError && error.is('ACODE-EGR-002')) return false;
    throw error;
  }
}
