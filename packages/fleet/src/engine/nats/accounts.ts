// Accounts of a fleet on NATS: one for the fleet itself, one for each tenant, which reaches its own subjects of gates and sandboxes, and nothing else.

import { checkedName } from '../names.ts';
import { inboxPrefixOf } from './gate-link.ts';
import { namesOf } from './streams.ts';

/** Who has an account: public keys of nkeys. */
export interface NatsAccounts {
  /** The fleet’s name. */
  readonly fleet: string;
  /** Users of the fleet itself. */
  readonly users: Readonly<Record<'operator' | 'gate' | 'worker', string>>;
  /** The user of each tenant. */
  readonly tenants: Readonly<Record<string, string>>;
}

const MAX_CONNECTIONS = 100;
const MAX_SUBSCRIPTIONS = 500;
const MAX_PAYLOAD = 700 * 1024;

/**
 * The part of a server’s configuration. A tenant has an account of its own, and not only permissions: a request may name any
 * subject for its answer, and in a shared account the server would send the answer there, past all permissions.
 */
export function accountsConfig({ fleet, users, tenants }: NatsAccounts): string {
  const names = namesOf(checkedName('fleet', fleet));
  const { control, gate, exec } = names.subject;
  const own = quoted(`${fleet}-fleet`);
  const streams = [names.tasks, names.states, names.leases, names.logs, names.blobs];
  // Workers and gates use the streams. Only the operator makes, changes and removes them, and tells a host what to do.
  const operators = [
    `${control}.>`,
    '$JS.API.STREAM.DELETE.*',
    '$JS.API.STREAM.UPDATE.*',
    '$JS.API.STREAM.CREATE.*',
    '$JS.API.STREAM.RESTORE.*',
    '$JS.API.STREAM.SNAPSHOT.*',
    ...streams.filter(name => name !== names.leases).map(name => `$JS.API.STREAM.PURGE.${name}`),
    '$JS.API.STREAM.PEER.>',
    '$JS.API.STREAM.LEADER.>',
    '$JS.API.CONSUMER.LEADER.>',
    '$JS.API.META.>',
    '$JS.API.ACCOUNT.>',
    '$JS.API.SERVER.>',
  ];
  const denied = operators.map(quoted).join(', ');
  const members = Object.entries(tenants).map(
    ([tenant, user]) => [checkedName('tenant', tenant), checkedUser(user)] as const,
  );
  const exported = members.flatMap(([tenant]) =>
    [gate, exec].map(
      subject =>
        `      { service: ${quoted(`${subject}.${tenant}.*`)}, accounts: [${quoted(accountOf(fleet, tenant))}] }`,
    ),
  );
  return [
    '# Written by `acode fleet tenant`, which replaces it. Beside the configuration of each server, with `include ./accounts.conf` in that.',
    'accounts {',
    `  ${own}: {`,
    '    jetstream: enabled',
    '    users: [',
    `      { nkey: ${checkedUser(users.operator)} }`,
    `      { nkey: ${checkedUser(users.gate)}, permissions: { publish: { deny: [${denied}] }, subscribe: { deny: [${quoted(`${exec}.>`)}] } } }`,
    `      { nkey: ${checkedUser(users.worker)}, permissions: { publish: { deny: [${denied}] }, subscribe: { deny: [${quoted(`${gate}.>`)}] } } }`,
    '    ]',
    ...(exported.length === 0 ? [] : ['    exports: [', ...exported, '    ]']),
    '  }',
    ...members.flatMap(([tenant, user]) => tenantAccount({ fleet, own, services: [gate, exec], tenant, user })),
    '}',
    '',
  ].join('\n');
}

function tenantAccount(of: {
  readonly fleet: string;
  readonly own: string;
  /** Subjects of the fleet’s own account that it answers tenants on. */
  readonly services: readonly string[];
  readonly tenant: string;
  readonly user: string;
}): string[] {
  const { fleet, own, services, tenant, user } = of;
  const subjects = services.map(subject => quoted(`${subject}.${tenant}.*`));
  const imports = subjects.map(subject => `{ service: { account: ${own}, subject: ${subject} } }`);
  return [
    `  ${quoted(accountOf(fleet, tenant))}: {`,
    `    limits: { max_connections: ${MAX_CONNECTIONS}, max_subscriptions: ${MAX_SUBSCRIPTIONS}, max_payload: ${MAX_PAYLOAD} }`,
    `    users: [ { nkey: ${user}, permissions: { publish: { allow: [${subjects.join(', ')}] }, subscribe: { allow: [${quoted(`${inboxPrefixOf(tenant)}.>`)}] } } } ]`,
    `    imports: [ ${imports.join(', ')} ]`,
    '  }',
  ];
}

function accountOf(fleet: string, tenant: string): string {
  return `${fleet}-tenant-${tenant}`;
}

// What is not a public key would be a part of the configuration.
function checkedUser(user: string): string {
  if (/^U[A-Z2-7]{55}$/.test(user)) return user;
  return checkedName('hash', user);
}

function quoted(text: string): string {
  return JSON.stringify(text);
}
