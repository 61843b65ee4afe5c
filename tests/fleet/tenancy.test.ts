// Tenants on NATS: one that is hostile, with a raw connection and its own credentials, against the accounts that `acode fleet tenant` writes.

import { execFileSync } from 'node:child_process';
import { createHash, createPrivateKey, sign } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { jetstreamManager } from '@nats-io/jetstream';
import { connect, nkeyAuthenticator } from '@nats-io/transport-node';
import type { NatsConnection } from '@nats-io/transport-node';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import * as z from 'zod';
import { Fleet, Gate, NatsEngine, openEngine, readFleetFile, readGateFile } from '@acode/fleet';
import type { FleetEngine, KeyPair } from '@acode/fleet';
import { BIN } from '../cli/bench.ts';
import { until } from '../support/waiting.ts';
import { NatsServers, withoutServers } from './servers.ts';

const WAIT_MS = 2000;
const SMALL = { perSecond: 500, burst: 500, atOnce: 50, bytesPerSecond: 1, bytesBurst: 1000 };
const SIZES = { log_bytes: 16 * 1024 ** 2, blob_bytes: 64 * 1024 ** 2 };
interface Client {
  readonly seed: string;
  readonly keys: KeyPair;
}

const frame = (value: object, bytes: Buffer = Buffer.alloc(0)): Buffer => {
  const text = Buffer.from(JSON.stringify(value));
  const head = Buffer.alloc(4);
  head.writeUInt32BE(text.length);
  return Buffer.concat([head, text, bytes]);
};
const unframed = (answer: Uint8Array): { value?: Record<string, unknown>; failure?: { code: string } } => {
  const all = Buffer.from(answer);
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion
  return JSON.parse(all.toString('utf8', 4, 4 + all.readUInt32BE())) as never;
};

// What a client signs, without the checks of the client.
function signedBy({ publicKey, privateKey }: Client['keys'], spec: object): string {
  const key = createPrivateKey({
    key: Buffer.concat([
      Buffer.from('302e020100300506032b657004220420', 'hex'),
      Buffer.from(privateKey.slice('ed25519:'.length), 'base64'),
    ]),
    format: 'der',
    type: 'pkcs8',
  });
  const body = JSON.stringify(spec);
  const signature = sign(null, Buffer.from(`acode.fleet.task/1\n${body}`), key).toString('base64');
  return JSON.stringify({ key: publicKey, signature, body });
}

describe.skipIf(withoutServers)('a hostile tenant on NATS', () => {
  let top: string;
  let directory: string;
  let servers: NatsServers;
  let engine: FleetEngine;
  let gate: Gate;
  let acme: Fleet;
  let evil: NatsConnection;
  let operator: NatsConnection;
  const violations: string[] = [];
  const clients = new Map<string, Client>();
  const client = (name: string): Client => {
    const found = clients.get(name);
    if (!found) throw new Error(`no ${name}`);
    return found;
  };
  const seeds = (): { operator: string; gate: string; worker: string } =>
    z
      .object({ operator: z.string(), gate: z.string(), worker: z.string() })
      .parse(JSON.parse(readFileSync(join(directory, 'users.json'), 'utf8')));
  const tenant = (...argv: readonly string[]): string =>
    execFileSync(process.execPath, [BIN, 'fleet', 'tenant', ...argv, '--directory', directory], {
      env: { ...process.env, HOME: top },
      encoding: 'utf8',
    });
  const raw = async (seed: string, options: object = {}): Promise<NatsConnection> => {
    const connection = await connect({
      servers: servers.urls,
      authenticator: nkeyAuthenticator(new TextEncoder().encode(seed)),
      ignoreAuthErrorAbort: true,
      ...options,
    });
    return connection;
  };
  const toGate = async (value: object, bytes?: Buffer): Promise<Uint8Array> =>
    (await evil.request(`acode.gate.evil.${gate.id}`, frame(value, bytes), { timeout: WAIT_MS })).data;
  const asked = async (value: object, bytes?: Buffer) => unframed(await toGate(value, bytes));
  const task = (id: string, of: object = {}) => ({
    schema: 'acode.fleet.task/1',
    tenant: 'evil',
    id,
    pool: 'default',
    priority: 'normal',
    submittedAt: new Date().toISOString(),
    command: 'true',
    ...of,
  });
  const submitted = (spec: { id: string }, keys = client('evil').keys) =>
    asked({ verb: 'submit', id: spec.id, pool: 'default', priority: 'normal', body: signedBy(keys, spec) });

  beforeAll(async () => {
    top = mkdtempSync('/var/tmp/acode-tenancy-');
    directory = join(top, 'tenants');
    // The addresses are known when the servers run: they are started with accounts, which need none.
    tenant('add', 'acme', '--server', 'nats://127.0.0.1:1', '--monitor', 'http://127.0.0.1:2');
    tenant('add', 'evil', '--queue', '5');
    const accounts = readFileSync(join(directory, 'accounts.conf'), 'utf8');
    servers = await NatsServers.start(1, { accounts });
    for (const name of ['acme', 'evil']) {
      const { gate: way, keys } = await readFleetFile(join(directory, 'clients', `${name}.yml`));
      clients.set(name, { seed: way && 'nats' in way ? (way.nats.seed ?? '') : '', keys });
    }
    const own = { servers: servers.urls, monitors: servers.monitors };
    const fleetFile = await readFleetFile(join(directory, 'operator.yml'));
    const operators = await openEngine({
      fleet: fleetFile.fleet,
      engine: { nats: { ...own, ...SIZES, seed: seeds().operator } },
    });
    await operators.close();
    engine = await NatsEngine.open({ ...own, seed: seeds().gate });
    const file = await readGateFile(join(directory, 'gate.yml'));
    gate = await Gate.start({
      file: { ...file, engine: { nats: { ...own, seed: seeds().gate } } },
      engine,
      limits: SMALL,
    });
    const { seed, keys } = client('acme');
    acme = await Fleet.open({ tenant: 'acme', keys, gate: { nats: { seed, servers: servers.urls } } });
    evil = await raw(client('evil').seed, { inboxPrefix: '_INBOX_evil' });
    operator = await raw(seeds().operator);
    void (async () => {
      for await (const status of evil.status()) if (status.type === 'error') violations.push(String(status.error));
    })();
  });
  afterAll(async () => {
    await acme?.close();
    await gate?.close();
    await Promise.all([evil?.close(), operator?.close()]);
    await servers?.[Symbol.asyncDispose]();
    rmSync(top, { recursive: true, force: true });
  });

  it('hears nothing of others, whatever it subscribes to', async () => {
    const subjects = [
      '>',
      '*.>',
      'acode.>',
      'acode.gate.acme.>',
      '$KV.>',
      '$JS.>',
      '$SYS.>',
      '_INBOX.>',
      '_INBOX_acme.>',
      '_R_.>',
    ];
    const heard = { evil: [] as string[], operator: [] as string[] };
    for (const subject of subjects)
      evil.subscribe(subject, { callback: (error, message) => void (error ?? heard.evil.push(message.subject)) });
    const all = operator.subscribe('>', {
      callback: (error, message) => void (error ?? heard.operator.push(message.subject)),
    });
    await Promise.all([evil.flush(), operator.flush()]);
    await acme.submit('true', { id: 'private' });
    // The control: there is something to hear.
    await until(async () => heard.operator.some(subject => subject.includes('acme')));
    await evil.flush();
    expect(heard.evil).toEqual([]);
    for (const subject of subjects.filter(one => !one.startsWith('_INBOX_evil')))
      expect(
        violations.some(text => text.includes(`"${subject}"`)),
        subject,
      ).toBe(true);
    all.unsubscribe();
  });

  it('cannot publish, claim, cancel, read, drain or manage anything past its gate', async () => {
    await acme.submit('true', { id: 'victim' });
    const worker = 'host_000000000000';
    const subjects = [
      'acode.task.default.high.acme.forged',
      'acode.task.default.high.evil.past-the-gate',
      '$KV.acode_task.acme.victim',
      '$KV.acode_lease.forged',
      'acode.log.acme.victim.1',
      `acode.blob.acme.${'0'.repeat(64)}.0`,
      'acode.notice.tenant.acme',
      `acode.notice.worker.${worker}`,
      `acode.ctl.host.${worker}`,
      'acode.gate.acme.any',
      '$JS.API.STREAM.MSG.GET.ACODE_TASKS',
      '$JS.API.DIRECT.GET.KV_acode_task.$KV.acode_task.acme.victim',
      '$JS.API.CONSUMER.CREATE.ACODE_TASKS.x.acode.task.>',
      '$JS.API.STREAM.PURGE.ACODE_TASKS',
      '$JS.API.STREAM.DELETE.ACODE_TASKS',
      '$JS.API.STREAM.LIST',
      '$SYS.REQ.SERVER.PING',
    ];
    for (const subject of subjects)
      await expect(evil.request(subject, 'drain', { timeout: WAIT_MS }), subject).rejects.toThrow(
        /Permissions Violation/,
      );
    expect(await acme.task('victim').state()).toBeNull();
    expect(await engine.queued({ tenant: 'acme', id: 'victim' }, 'default')).not.toBeNull();
    expect(await engine.queued({ tenant: 'acme', id: 'forged' }, 'default')).toBeNull();
    // The controls: the operator reaches the same, and may; a worker may not manage.
    const reached = await operator.request(
      '$JS.API.STREAM.MSG.GET.ACODE_TASKS',
      JSON.stringify({ last_by_subj: 'acode.task.default.normal.acme.victim' }),
    );
    expect(reached.json()).toHaveProperty('message');
    const connection = await raw(seeds().worker);
    for (const subject of [
      `acode.ctl.host.${worker}`,
      '$JS.API.STREAM.DELETE.NOTHING',
      '$JS.API.STREAM.PURGE.ACODE_TASKS',
    ])
      await expect(connection.request(subject, '', { timeout: WAIT_MS }), subject).rejects.toThrow(
        /Permissions Violation/,
      );
    expect((await connection.request('$JS.API.STREAM.INFO.ACODE_TASKS')).json()).toHaveProperty('state');
    expect((await operator.request('$JS.API.STREAM.DELETE.NOTHING')).json()).toMatchObject({ error: { code: 404 } });
    await connection.close();
  });

  it('cannot have an answer sent to a subject that it may not use', async () => {
    const manager = await jetstreamManager(operator);
    const count = async (): Promise<number> => (await manager.streams.info('ACODE_TASKS')).state.messages;
    const before = await count();
    const reply = 'acode.task.default.high.acme.injected';
    evil.publish(`acode.gate.evil.${gate.id}`, frame({ verb: 'hello' }), { reply });
    await evil.flush();
    await toGate({ verb: 'hello' });
    expect(await count()).toBe(before);
    // The control: in the fleet’s own account the same answer becomes a task.
    operator.publish(`acode.gate.evil.${gate.id}`, frame({ verb: 'hello' }), { reply });
    await until(async () => (await count()) === before + 1);
    await manager.streams.purge('ACODE_TASKS', { filter: reply });
  });

  it('reads, cancels and follows nothing of others through its gate', async () => {
    const blob = Buffer.from('of acme');
    const hash = createHash('sha256').update(blob).digest('hex');
    await engine.putBlob('acme', hash, blob);
    await engine.write(
      { tenant: 'acme', id: 'known' },
      0,
      JSON.stringify({
        schema: 'acode.fleet.state/1',
        state: 'cancelled',
        attempt: 0,
        worker: null,
        claim: null,
        at: new Date().toISOString(),
      }),
    );
    await engine.appendLog({ tenant: 'acme', id: 'known', attempt: 1 }, { sequence: 1, bytes: blob });
    expect(await asked({ verb: 'state', id: 'known' })).toEqual({ value: { state: null } });
    expect(await asked({ verb: 'queued', id: 'victim', pool: 'default' })).toEqual({ value: { queued: false } });
    expect(await asked({ verb: 'cancel', id: 'victim' })).toMatchObject({ failure: { code: 'ACODE-FLT-011' } });
    expect(await asked({ verb: 'get', hash, at: 0 })).toEqual({ value: { size: null } });
    for (const id of ['../acme', 'acme.known', '*', '>', 'known acme'])
      expect(await asked({ verb: 'state', id }), id).toMatchObject({ failure: { code: 'ACODE-FLT-004' } });
    expect(await asked({ verb: 'state', id: 'known', tenant: 'acme' })).toMatchObject({
      failure: { code: 'ACODE-FLT-031' },
    });
    // The controls: its own tenant has all of it.
    expect(await acme.task('known').state()).toMatchObject({ state: 'cancelled' });
    expect(await engine.getBlob('acme', hash)).not.toBeNull();
  });

  it('submits nothing in the name of another, and nothing that reaches what others or the host have', async () => {
    const signedByAcme = signedBy(client('acme').keys, { ...task('replayed'), tenant: 'acme' });
    const submit = { verb: 'submit', pool: 'default', priority: 'normal' };
    const refused = { failure: { code: 'ACODE-FLT-009' } };
    expect(await asked({ ...submit, id: 'replayed', body: signedByAcme })).toMatchObject(refused);
    expect(await submitted({ ...task('forged'), tenant: 'acme' } as never)).toMatchObject(refused);
    expect(await submitted(task('foreign'), client('acme').keys)).toMatchObject(refused);
    expect(await asked({ ...submit, id: 'other', body: signedBy(client('evil').keys, task('one')) })).toMatchObject(
      refused,
    );
    expect(await submitted(task('old', { submittedAt: '2020-01-01T00:00:00.000Z' }))).toMatchObject(refused);
    const policies = [
      { caches: 'shared' },
      { fork: 'of-acme' },
      { workspace: 'direct' },
      { pool: { min: 1 } },
      { credentials: ['npm'] },
      { mounts: [{ source: '/', target: '/host' }] },
      { ports: [8080] },
      { services: { db: {} } },
      { user: 0 },
      { runtime: 'runc' },
      { network: 'host' },
      { network: 'bridge' },
      { level: 'none' },
    ];
    for (const policy of policies)
      expect(await submitted(task('reaching', { policy })), JSON.stringify(policy)).toMatchObject({
        failure: { code: 'ACODE-FLT-008' },
      });
    expect(await engine.unfinished('evil')).toBe(0);
    // The control: a task that asks for nothing of that.
    expect(await submitted(task('plain', { policy: { network: 'none' } }))).toEqual({ value: { is: 'queued' } });
  });

  it('fills neither the queue, nor the store of workspaces, nor the gate', async () => {
    const answers = await Promise.all([1, 2, 3, 4, 5, 6].map(async number => submitted(task(`many-${number}`))));
    const failures = answers.filter(one => one.failure?.code === 'ACODE-FLT-005').length;
    expect(failures).toBeGreaterThan(0);
    expect(await engine.unfinished('evil')).toBeLessThanOrEqual(5);
    const bytes = Buffer.alloc(2000);
    const hash = createHash('sha256').update(bytes).digest('hex');
    expect(await asked({ verb: 'put', hash, size: bytes.length, at: 0 }, bytes)).toMatchObject({
      failure: { code: 'ACODE-FLT-032' },
    });
    // The flood: far more than the gate answers, while another tenant does its work.
    let isFlooding = true;
    const flooding = (async () => {
      for (let sent = 0; isFlooding && sent < 200; sent += 1) {
        for (let one = 0; one < 1000; one += 1)
          evil.publish(`acode.gate.evil.${gate.id}`, frame({ verb: 'state', id: 'x' }), { reply: '_INBOX_evil.x' });
        await evil.flush();
      }
    })();
    for (let number = 0; number < 20; number += 1) {
      await acme.submit('true', { id: `meanwhile-${number}` });
      await acme.task(`meanwhile-${number}`).cancel();
    }
    isFlooding = false;
    await flooding;
    expect(await acme.task('meanwhile-19').state()).toMatchObject({ state: 'cancelled' });
  });

  it('is disconnected and refused when it is removed', async () => {
    tenant('remove', 'evil');
    servers.setAccounts(readFileSync(join(directory, 'accounts.conf'), 'utf8'));
    await until(
      async () =>
        // The server that reads its accounts again may refuse anybody for a moment.
        (await raw(client('acme').seed).then(
          async one => {
            await one.close();
            return true;
          },
          () => false,
        )) &&
        (await evil.flush().then(
          () => false,
          () => true,
        )),
    );
    // The control: who is left is served.
    expect(await acme.task('victim').state()).toBeNull();
  });
});
