// Connections that an allow-list refused, as denials: the host, who set the list, and the entry that it lacks. Pure.

import type { EgressConnection, EgressRefusal } from '../../contract/egress.ts';
import type { Denial, Remedy } from '../../contract/denials.ts';
import type { EffectivePolicy } from '../../contract/policy.ts';
import type { Sourced } from '../../contract/sourced.ts';
import { BUILT_IN_RULE } from '../../contract/wording.ts';
import { entryFor } from '../../egress/presets.ts';

// A command that asks for ever new hosts does not fill the terminal; the result lists every connection.
const MAX_HOSTS = 4;
// The row of the proxy for hosts that it no longer tells apart.
const OTHERS = '*';

type Refused = EgressConnection & { readonly reason: EgressRefusal };

/** What the proxy of a command refused; nothing where the server or its name was the cause. */
export function refusedConnections(policy: EffectivePolicy, connections: readonly EgressConnection[]): Denial[] {
  const refused = connections.filter(isRefused);
  const of = (...reasons: readonly EgressRefusal[]): Refused[] =>
    refused.filter(({ reason }) => reasons.includes(reason));
  return [
    ...unlisted(policy, of('not-listed', 'other-port')),
    ...each(of('denied-by-rule'), row => deniedByRule(policy, row)),
    ...each(of('private-address'), row => ({
      rule: 'network.private-address',
      value: placeOf(row),
      setBy: { value: null, ...BUILT_IN_RULE },
      count: row.count,
      remedies: [{ kind: 'add-setting', field: 'sandbox.network.private_hosts', suggested: row.host }],
    })),
    ...each(of(...REQUEST), row => ({
      rule: 'network.request',
      value: placeOf(row),
      setBy: listOf(policy),
      count: row.count,
      remedies: [{ kind: 'leave-out', suggested: 'the request' }],
    })),
    ...limits(policy, of('limit')),
  ];
}

// What the list says of requests and connections to a host that it has.
const REQUEST: readonly EgressRefusal[] = [
  'bad-host',
  'not-tls',
  'not-http',
  'sni-differs',
  'host-differs',
  'bad-request',
  'method',
  'path',
  'upgrade',
  'foreign-credential',
];

function isRefused(row: EgressConnection): row is Refused {
  return row.verdict === 'denied' && row.reason !== undefined;
}

function each(rows: readonly Refused[], denial: (row: Refused) => Denial): Denial[] {
  return rows.slice(0, MAX_HOSTS).map(row => denial(row));
}

/** A list without what the command wanted, and the list that has it. */
export function unlisted(policy: EffectivePolicy, rows: readonly Pick<Refused, 'host' | 'port' | 'count'>[]): Denial[] {
  const named = rows.filter(({ host }) => host !== OTHERS).slice(0, MAX_HOSTS);
  const others = rows.filter(row => !named.includes(row));
  // One remedy for all of them: with one host alone the command would fail at the next.
  const remedies = [widerList(policy, [...new Set(named.flatMap(row => entryFor(row) ?? []))])];
  const rule = { rule: 'network.not-listed', setBy: listOf(policy), remedies } as const;
  const denials: Denial[] = named.map(row => ({ ...rule, value: placeOf(row), count: row.count }));
  const count = others.reduce((sum, row) => sum + row.count, 0);
  return count === 0 ? denials : [...denials, { ...rule, value: null, count }];
}

function widerList({ network }: EffectivePolicy, missing: readonly string[]): Remedy {
  const entries = missing.length > 0 ? missing : ['<host>'];
  if (network.layer === 'machine') return { kind: 'ask-administrator' };
  // What a request has replaces the list of a file.
  if (network.layer === 'request') {
    const before = network.value.kind === 'allow' ? network.value.entries : [];
    return { kind: 'change-request', field: 'policy.network', suggested: `allow=${[...before, ...entries].join(',')}` };
  }
  return { kind: 'add-setting', field: 'sandbox.network.allow', suggested: entries.join(' ') };
}

function deniedByRule(policy: EffectivePolicy, row: Refused): Denial {
  const { value } = policy.network;
  const rule =
    value.kind === 'allow' ? value.rules.find(({ id, verdict }) => verdict === 'deny' && id === row.rule) : undefined;
  const setBy = rule ? { value: rule.host, ...rule.setBy } : listOf(policy);
  const remedy: Remedy =
    setBy.layer === 'machine'
      ? { kind: 'ask-administrator' }
      : { kind: 'change-setting', field: 'sandbox.network.deny', where: setBy.where };
  return { rule: 'network.denied-host', value: placeOf(row), setBy, count: row.count, remedies: [remedy] };
}

function limits({ networkBytes }: EffectivePolicy, rows: readonly Refused[]): Denial[] {
  if (rows.length === 0) return [];
  const count = rows.reduce((sum, row) => sum + row.count, 0);
  const { value, layer } = networkBytes;
  if (value === null) return [];
  const more: Remedy =
    layer === 'machine'
      ? { kind: 'ask-administrator' }
      : { kind: 'raise-limit', field: 'policy.networkLimits.bytes', suggested: value * 2 };
  return [
    {
      rule: 'limit.network-bytes',
      value,
      setBy: { ...networkBytes, value },
      count,
      remedies: [{ kind: 'use-less' }, more],
    },
  ];
}

function listOf({ network }: EffectivePolicy): Sourced<string> {
  const { layer, where } = network;
  return { value: 'allow', layer, where };
}

function placeOf({ host, port }: Pick<Refused, 'host' | 'port'>): string {
  return `${host}:${port}`;
}
