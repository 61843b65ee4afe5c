// `acode fleet tenant`: tenants of a fleet, their users on the server, their keys, and the files that each of the parties is given.

import { existsSync, mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { ensurePrivateDirectory, readPrivateFile, writePrivateFile } from '@acode/sandbox';
import { stringify } from 'yaml';
import * as z from 'zod';
import { FLEET_ERRORS } from '../errors.ts';
import { checkedName } from '../engine/names.ts';
import { accountsConfig } from '../engine/nats/accounts.ts';
import { isLoopback } from '../engine/address.ts';
import { makeToken } from '../engine/http/gate-link.ts';
import { makeNatsUser } from '../engine/nats/user.ts';
import type { GateAddress } from '../connect/open-gate.ts';
import { present } from '../connect/open-engine.ts';
import { readRegistry, registrySchema } from '../gate/file.ts';
import type { GateTenant, Registry } from '../gate/file.ts';
import { keySchema, makeKeys } from '../tasks/signature.ts';
import { places } from './places.ts';
import type { RequestOf, Terminal } from './requests.ts';

const MAX_SEEDS = 4096;
const OPERATOR = 'operator';
const OWN = 'acode-';

/** The files in the directory of tenants. */
function filesIn(directory: string) {
  return {
    registry: join(directory, 'tenants.yml'),
    seeds: join(directory, 'users.json'),
    accounts: join(directory, 'accounts.conf'),
    operator: join(directory, 'operator.yml'),
    gate: join(directory, 'gate.yml'),
    worker: join(directory, 'worker-sections.yml'),
    client: (name: string) => join(directory, 'clients', `${name}.yml`),
  };
}

const seedsSchema = z.strictObject({ operator: z.string(), gate: z.string(), worker: z.string() });
type Seeds = z.infer<typeof seedsSchema>;

/** `acode fleet tenant add`, `list` and `remove`. */
export async function tenant(request: RequestOf<'tenant'>, terminal: Terminal): Promise<number> {
  const directory = request.directory ?? places().tenants;
  const { registry: path } = filesIn(directory);
  const registry = existsSync(path) ? readRegistry(path) : null;
  if (request.action === 'list') {
    list(directory, registry, terminal);
    return 0;
  }
  const name = checkedName('tenant', request.name ?? '');
  await ensurePrivateDirectory(directory, process.getuid?.() ?? 0);
  if (request.action === 'add') add(directory, registry, { ...request, name }, terminal);
  else remove(directory, registry, name, terminal);
  return 0;
}

function list(directory: string, registry: Registry | null, terminal: Terminal): void {
  const items = Object.entries(registry?.tenants ?? {}).map(([name, one]) => ({ name, ...one }));
  terminal.value('acode.fleet-tenants/1', { directory, fleet: registry?.fleet ?? null, items });
}

// Of names that the fleet uses itself.
function assertFree(name: string): void {
  if (name !== OPERATOR && !name.startsWith(OWN)) return;
  const rule = `the name ${OPERATOR}, and names that begin with ${OWN}, are acode’s own`;
  throw FLEET_ERRORS.create('ACODE-FLT-004', { what: 'tenant', value: name, rule });
}

function add(
  directory: string,
  found: Registry | null,
  request: RequestOf<'tenant'> & { readonly name: string },
  terminal: Terminal,
): void {
  const { name } = request;
  const files = filesIn(directory);
  assertFree(name);
  const before = found?.tenants[name];
  if (before && !request.replace)
    throw FLEET_ERRORS.create('ACODE-FLT-022', {
      file: files.registry,
      reason: `the tenant ${name} is there already`,
      remedy: '`--replace` gives it new keys and other limits; its old keys are refused from then on.',
    });
  const registry = withServers(found, request, files.registry);
  const seeds = seedsIn(files.seeds);
  const keys = request.key === undefined ? makeKeys() : { publicKey: checkedKeyText(request.key), privateKey: null };
  const way = wayOf(registry);
  const { weight = 1, quota, queue = 10_000 } = request;
  const added: GateTenant = { keys: [keys.publicKey], weight, queue, ...way.known, ...present({ quota }) };
  const next: Registry = {
    ...registry,
    users: { operator: userOf(seeds.operator), gate: userOf(seeds.gate), worker: userOf(seeds.worker) },
    tenants: { ...registry.tenants, [name]: added },
  };
  const { fleet } = next;
  const client = {
    gate: way.gate,
    fleet,
    tenant: name,
    keys: { publicKey: keys.publicKey, privateKey: keys.privateKey ?? 'ed25519:YOURS' },
  };
  mkdirSync(join(directory, 'clients'), { recursive: true, mode: 0o700 });
  writePrivateFile(files.client(name), stringify(client));
  if (!existsSync(files.operator)) writeOperator(files.operator, next, seeds);
  write(directory, next, seeds);
  terminal.value('acode.fleet-tenant/1', {
    is: 'added',
    name,
    directory,
    client: files.client(name),
    accounts: registry.postgres === undefined ? files.accounts : null,
    gate: files.gate,
    operator: files.operator,
    worker: files.worker,
    certificate: registry.gates.some(isEncrypted),
    isFirst: found === null,
  });
}

function remove(directory: string, found: Registry | null, name: string, terminal: Terminal): void {
  const files = filesIn(directory);
  if (!found?.tenants[name])
    throw FLEET_ERRORS.create('ACODE-FLT-022', {
      file: files.registry,
      reason: `there is no tenant ${name}`,
      remedy: 'See which there are: `acode fleet tenant list`.',
    });
  const tenants = Object.fromEntries(Object.entries(found.tenants).filter(([other]) => other !== name));
  write(directory, { ...found, tenants }, seedsIn(files.seeds));
  rmSync(files.client(name), { force: true });
  const { worker } = files;
  const accounts = found.postgres === undefined ? files.accounts : null;
  terminal.value('acode.fleet-tenant/1', { is: 'removed', name, directory, accounts, worker });
}

/** How a new tenant reaches the gates, and what gates and servers know of that. */
function wayOf({ postgres, gates: urls, servers, ca_file }: Registry): {
  readonly gate: GateAddress;
  readonly known: Pick<GateTenant, 'user' | 'token'>;
} {
  if (postgres === undefined) {
    const user = makeNatsUser();
    return { gate: { nats: { servers, seed: user.seed, ...present({ ca_file }) } }, known: { user: user.publicKey } };
  }
  const { token, digest } = makeToken();
  return { gate: { http: { urls, token, ...present({ ca_file }) } }, known: { token: digest } };
}

function withServers(found: Registry | null, request: RequestOf<'tenant'>, file: string): Registry {
  const { servers, monitors, postgres, gates, caFile, fleet } = request;
  const known = found ?? registrySchema.parse({ fleet: checkedName('fleet', fleet ?? 'acode') });
  const next: Registry = {
    ...known,
    ...present({ servers, monitors, postgres, gates: gates?.map(checkedGate), ca_file: caFile }),
  };
  const refused = (reason: string, remedy: string): Error =>
    FLEET_ERRORS.create('ACODE-FLT-022', { file, reason, remedy });
  const nats = '`--server tls://10.0.0.1:4222 --monitor http://10.0.0.1:8222`';
  const database = '`--postgres postgres://acode@10.0.0.1/fleet?sslmode=verify-full --gate https://gate-1:7443`';
  if (next.postgres === undefined) {
    if (next.servers.length === 0)
      throw refused(
        'no server of the fleet is known',
        `Name each, and its monitoring port: ${nats}; or a database and the gates: ${database}.`,
      );
    if (next.gates.length > 0)
      throw refused(
        '`--gate` is for PostgreSQL',
        'Leave it out: on NATS, tenants reach the gates through the servers.',
      );
    if (next.monitors.length > 0) return next;
    throw refused(
      'no monitoring port of the servers is known, so gates and workers cannot check that they write to disk',
      `Name that of each: ${nats}.`,
    );
  }
  if (next.servers.length > 0)
    throw refused(
      'it names servers of NATS and a database',
      'A fleet has one engine: choose another `--directory` for the other fleet.',
    );
  if (next.gates.length > 0) return next;
  throw refused(
    'no gate is named',
    `Tenants reach the fleet through gates only. Name where each listens: ${database}.`,
  );
}

function checkedGate(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url && isHttp(url) && url.pathname === '/' && url.username === '' && url.search === '') return url.origin;
  throw FLEET_ERRORS.create('ACODE-FLT-004', {
    what: 'gate',
    value: text.slice(0, 80),
    rule: 'it is an address such as `https://gate-1:7443`',
  });
}

function isHttp({ protocol, hostname }: URL): boolean {
  return protocol === 'https:' || (protocol === 'http:' && isLoopback(hostname));
}

function isEncrypted(gate: string): boolean {
  return gate.startsWith('https:');
}

/** The section `http` of a gate’s file. */
function httpOf([first = '']: readonly string[]): object {
  const { hostname, port } = new URL(first);
  if (!isEncrypted(first)) return { listen: `${hostname}:${port === '' ? 80 : port}` };
  return { listen: `0.0.0.0:${port === '' ? 443 : port}`, cert_file: 'gate.pem', key_file: 'gate.key' };
}

function write(directory: string, registry: Registry, seeds: Seeds): void {
  const files = filesIn(directory);
  const { fleet, users, tenants } = registry;
  const natsUsers: Record<string, string> = {};
  for (const [name, { user }] of Object.entries(tenants)) if (user !== undefined) natsUsers[name] = user;
  const isNats = registry.postgres === undefined;
  if (users && isNats) writePrivateFile(files.accounts, accountsConfig({ fleet, users, tenants: natsUsers }));
  if (!existsSync(files.gate)) {
    const http = isNats ? {} : { http: httpOf(registry.gates) };
    const content = { engine: engineOf(registry, seeds.gate), fleet, ...http, tenants: 'tenants.yml' };
    writePrivateFile(files.gate, stringify(content));
  }
  const entries = Object.entries(tenants).map(([name, { keys }]) => [name, { keys }] as const);
  const sections = { engine: engineOf(registry, seeds.worker), fleet, tenants: Object.fromEntries(entries) };
  writePrivateFile(files.worker, `# Sections of each worker’s file (worker.yml).\n${stringify(sections)}`);
  // Last: with it a gate knows the tenant.
  writePrivateFile(files.registry, stringify(registry), { durable: 'name' });
}

function writeOperator(path: string, registry: Registry, seeds: Seeds): void {
  const { fleet } = registry;
  writePrivateFile(
    path,
    stringify({ engine: engineOf(registry, seeds.operator), fleet, tenant: OPERATOR, keys: makeKeys() }),
  );
}

function engineOf({ servers, monitors, ca_file, postgres }: Registry, seed: string): object {
  if (postgres !== undefined) return { postgres: { url: postgres } };
  return { nats: { servers, seed, ...(monitors.length > 0 ? { monitors } : {}), ...present({ ca_file }) } };
}

function seedsIn(path: string): Seeds {
  const found = readPrivateFile(path, { maxBytes: MAX_SEEDS });
  if (found) return seedsSchema.parse(JSON.parse(found.text));
  if (existsSync(path))
    throw FLEET_ERRORS.create('ACODE-FLT-022', {
      file: path,
      reason: 'it can be read by others, or belongs to another user',
      remedy: `Run \`chmod 600 ${path}\` as its owner.`,
    });
  const made = { operator: makeNatsUser().seed, gate: makeNatsUser().seed, worker: makeNatsUser().seed };
  writePrivateFile(path, JSON.stringify(made), { durable: 'name' });
  return made;
}

function userOf(seed: string): string {
  return makeNatsUser(seed).publicKey;
}

function checkedKeyText(key: string): string {
  const parsed = keySchema.safeParse(key);
  if (parsed.success) return parsed.data;
  throw FLEET_ERRORS.create('ACODE-FLT-004', {
    what: 'key',
    value: key.slice(0, 80),
    rule: 'it is `ed25519:` and 32 bytes in base64, as `acode worker --keys` prints it',
  });
}
