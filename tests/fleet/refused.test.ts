// Servers that the fleet refuses: each would lose what it has acknowledged, or keep it in another way than acode expects.

import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { NatsEngine, PostgresEngine } from '@acode/fleet';
import { DiscardPolicy, jetstreamManager } from '@nats-io/jetstream';
import { connect } from '@nats-io/transport-node';
import { connected } from '../../packages/fleet/src/engine/nats/connection.ts';
import { until } from '../support/waiting.ts';
import { NatsServers, PostgresServer, withoutServers } from './servers.ts';

const SIZES = { logBytes: 16 * 1024 ** 2, blobBytes: 64 * 1024 ** 2 };

describe.skipIf(withoutServers)('servers of NATS', () => {
  let careful: NatsServers;
  let careless: NatsServers;
  let plain: NatsServers;
  beforeAll(async () => {
    [careful, careless, plain] = await Promise.all([
      NatsServers.start(),
      NatsServers.start(1, { sync: '"2m"' }),
      NatsServers.start(1, { jetstream: false }),
    ]);
  });
  afterAll(() => Promise.all([careful, careless, plain].map(servers => servers?.[Symbol.asyncDispose]())));

  const open = ({ urls, monitors }: NatsServers, more = {}): Promise<NatsEngine> =>
    NatsEngine.open({ ...SIZES, servers: urls, monitors, ...more });

  it('refuses one that answers before it has written to disk, or that does not say', async () => {
    const refused = { code: 'ACODE-FLT-002', context: { setting: 'sync_interval' }, exitStatus: 125 };
    await expect(open(careless)).rejects.toMatchObject(refused);
    await expect(open(careful, { monitors: [] })).rejects.toMatchObject(refused);
    await expect(open(plain)).rejects.toMatchObject({
      ...refused,
      context: { found: 'absent, because JetStream is off' },
    });
    // The controls: one that writes first, and one that its operator vouches for.
    await (await open(careful)).close();
    await (await open(careless, { monitors: [], unsynced: true })).close();
  });

  it('refuses streams that would drop or mix tasks', async () => {
    const connection = await connect({ servers: careful.urls });
    const manager = await jetstreamManager(connection);
    await manager.streams.add({ name: 'OTHER_TASKS', subjects: ['other.task.>'], discard: DiscardPolicy.Old });
    await connection.close();
    await expect(open(careful, { fleet: 'other' })).rejects.toMatchObject({
      code: 'ACODE-FLT-003',
      context: { name: 'The stream OTHER_TASKS' },
    });
    await (await open(careful, { fleet: 'another' })).close();
  });

  it('refuses one on another machine that does not encrypt', async () => {
    // An address that is no loopback, and leads to this machine all the same.
    const servers = careful.urls.map(url => url.replace('127.0.0.1', '0.0.0.0'));
    await expect(open(careful, { servers })).rejects.toMatchObject({ code: 'ACODE-FLT-023' });
    const tls = careful.urls.map(url => url.replace('nats:', 'tls:'));
    await expect(open(careful, { servers: tls })).rejects.toMatchObject({ code: 'ACODE-FLT-023' });
    // The controls: this machine’s own, and one whose network its operator vouches for.
    await (await open(careful)).close();
    await (await open(careful, { servers, unencrypted: true })).close();
  });

  it('goes on with no server that another one names, where that would not be encrypted', async () => {
    await using servers = await NatsServers.start(3, { advertise: true });
    const [url = ''] = servers.urls;
    const own = await connected({ servers: [url] });
    // The control: whose operator vouches for the network goes on with the next one.
    const accepted = await connected({ servers: [url], unencrypted: true });
    const before = own.getServer();
    await until(
      async () => (accepted.info?.connect_urls?.length ?? 0) > 1 && (own.info?.connect_urls?.length ?? 0) > 1,
    );
    await servers.processes[0]?.end();
    await until(async () => accepted.getServer() !== before && (await accepted.rtt().catch(() => 0)) > 0);
    expect(await own.request('nothing', '', { timeout: 500 }).catch(() => 'no answer')).toBe('no answer');
    expect(own.getServer()).toBe(before);
    await Promise.all([own.close(), accepted.close()]);
  });

  it('says what is wrong with an address', async () => {
    const away = { servers: ['nats://127.0.0.1:1'], unsynced: true };
    await expect(NatsEngine.open(away)).rejects.toMatchObject({
      code: 'ACODE-FLT-001',
      context: { engine: away.servers[0] },
    });
    await expect(open(careful, { monitors: ['http://127.0.0.1:1'] })).rejects.toMatchObject({ code: 'ACODE-FLT-001' });
  });
});

describe.skipIf(withoutServers)('a server of PostgreSQL', () => {
  let server: PostgresServer;
  beforeAll(async () => {
    server = await PostgresServer.start();
  });
  afterAll(() => server?.[Symbol.asyncDispose]());

  it('is refused on another machine without encryption', async () => {
    const url = server.url.replace('127.0.0.1', '0.0.0.0');
    const refused = { code: 'ACODE-FLT-023' };
    const otherHost = `${server.url}?host=0.0.0.0`;
    for (const one of [url, `${url}?sslmode=prefer`, `${url}?sslmode=disable`, `${url}?sslmode=no-verify`, otherHost])
      await expect(PostgresEngine.open({ url: one }), one).rejects.toMatchObject(refused);
    // What the URL says comes before the file of certificates.
    const caFile = '/etc/ssl/certs/ca-certificates.crt';
    await expect(PostgresEngine.open({ url: `${url}?sslmode=disable`, caFile })).rejects.toMatchObject(refused);
    // The server has no certificate: what asks for one gets no connection.
    await expect(PostgresEngine.open({ url: `${url}?sslmode=verify-full` })).rejects.toMatchObject({
      code: 'ACODE-FLT-001',
    });
    // The controls.
    await (await PostgresEngine.open({ url: server.url })).close();
    await (await PostgresEngine.open({ url, unencrypted: true })).close();
  });

  it('is refused while it does not write to disk', async () => {
    server.set('fsync', 'off');
    const refused = { code: 'ACODE-FLT-002', context: { setting: 'fsync', found: 'off' } };
    await expect
      .poll(() => PostgresEngine.open({ url: server.url }).catch((error: unknown) => error))
      .toMatchObject(refused);
    server.set('fsync', 'on');
    await expect
      .poll(async () => (await PostgresEngine.open({ url: server.url })).close().then(() => 'open'))
      .toBe('open');
  });

  it('is refused with tables of another version, and never named with its password', async () => {
    const engine = await PostgresEngine.open({ url: server.url, fleet: 'old' });
    await engine.close();
    server.query('update old.about set version = 99');
    await expect(PostgresEngine.open({ url: server.url, fleet: 'old' })).rejects.toMatchObject({
      code: 'ACODE-FLT-003',
      context: { found: '99' },
    });
    const error = await PostgresEngine.open({ url: 'postgres://acode:of-the-test@127.0.0.1:1/x' }).catch(
      (caught: unknown) => caught,
    );
    expect(error).toMatchObject({ code: 'ACODE-FLT-001', context: { engine: 'postgres://127.0.0.1:1/x' } });
    expect(JSON.stringify(error)).not.toContain('of-the-test');
  });
});
