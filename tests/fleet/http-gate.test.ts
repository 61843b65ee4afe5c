// Tenants on PostgreSQL: they reach gates over HTTP with a token each, and have no connection to the database.

import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:https';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import * as z from 'zod';
import { Fleet, Gate, PostgresEngine, gateFileFrom, readFleetFile, readGateFile } from '@acode/fleet';
import type { FleetEngine, GateFile } from '@acode/fleet';
import { BIN } from '../cli/bench.ts';
import { hand, ledger } from './hands.ts';
import { PostgresServer, withoutServers } from './servers.ts';

const clientSchema = z.object({
  gate: z.object({ http: z.object({ urls: z.array(z.string()), token: z.string() }) }),
  tenant: z.string(),
  keys: z.object({ publicKey: z.string(), privateKey: z.string() }),
});
type Client = z.infer<typeof clientSchema>;

const frame = (value: object): Buffer => {
  const content = Buffer.from(JSON.stringify(value));
  const head = Buffer.alloc(4);
  head.writeUInt32BE(content.length);
  return Buffer.concat([head, content]);
};

describe.skipIf(withoutServers)('tenants on PostgreSQL', () => {
  let top: string;
  let directory: string;
  let server: PostgresServer;
  let file: GateFile;
  let engine: FleetEngine;
  const gates: Gate[] = [];
  const tenant = (...argv: readonly string[]) =>
    spawnSync(process.execPath, [BIN, 'fleet', 'tenant', ...argv, '--directory', directory], {
      env: { ...process.env, HOME: top },
      encoding: 'utf8',
    });
  const clients = new Map<string, Client>();
  const client = (name: string): Client => {
    const found = clients.get(name);
    if (!found) throw new Error(`no ${name}`);
    return found;
  };
  const urls = (): string[] => gates.map(({ httpPort }) => `http://127.0.0.1:${httpPort ?? 0}`);
  const opened = (name: string, more: Partial<Client['gate']['http']> = {}): Promise<Fleet> => {
    const { tenant: own, keys, gate } = client(name);
    return Fleet.open({ tenant: own, keys, gate: { http: { ...gate.http, urls: urls(), ...more } } });
  };
  const start = async (): Promise<Gate> =>
    Gate.start({
      file: { ...file, http: { host: '127.0.0.1', port: 0 } },
      engine: await PostgresEngine.open({ url: server.url }),
    });
  const asked = (token: string, { path = '/gate/1', method = 'POST', body = frame({ verb: 'hello' }) } = {}) =>
    fetch(`${urls()[0] ?? ''}${path}`, {
      method,
      headers: { authorization: `Bearer ${token}` },
      ...(method === 'POST' ? { body: new Uint8Array(body) } : {}),
    });

  beforeAll(async () => {
    top = mkdtempSync('/var/tmp/acode-http-gate-');
    directory = join(top, 'tenants');
    server = await PostgresServer.start();
    tenant('add', 'acme', '--postgres', server.url, '--gate', 'http://127.0.0.1:7443');
    tenant('add', 'evil');
    file = await readGateFile(join(directory, 'gate.yml'));
    for (const name of ['acme', 'evil'])
      clients.set(name, clientSchema.parse(await readFleetFile(join(directory, 'clients', `${name}.yml`))));
    engine = await PostgresEngine.open({ url: server.url });
    gates.push(await start(), await start());
  });
  afterAll(async () => {
    await Promise.all(gates.map(gate => gate.close()));
    await engine?.close();
    await server?.[Symbol.asyncDispose]();
    rmSync(top, { recursive: true, force: true });
  });

  it('have a file that names gates and no database, and the operator’s files name no token', () => {
    expect(file.engine).toEqual({ postgres: { url: server.url } });
    expect(file.http).toEqual({ host: '127.0.0.1', port: 7443 });
    expect(client('acme').gate.http.urls).toEqual(['http://127.0.0.1:7443']);
    const own = readFileSync(join(directory, 'clients/acme.yml'), 'utf8');
    expect(own).not.toContain('postgres');
    const { token } = client('acme').gate.http;
    for (const name of ['tenants.yml', 'gate.yml', 'worker-sections.yml', 'operator.yml'])
      expect(readFileSync(join(directory, name), 'utf8')).not.toContain(token);
    // The control: what the gate keeps of it is there.
    const digest = createHash('sha256').update(token).digest('hex');
    expect(readFileSync(join(directory, 'tenants.yml'), 'utf8')).toContain(digest);
  });

  it('submit, follow and cancel tasks, also when the gate that they use is closed', async () => {
    const book = ledger();
    await using acme = await opened('acme');
    const first = await acme.submit('true', { id: 'first' });
    await using _ = await hand(engine, { slots: 2, taskMs: () => 20, book });
    expect(await first.result()).toMatchObject({ exitCode: 0 });
    await gates.shift()?.close();
    const second = await acme.submit('true', { id: 'second' });
    expect(await second.result()).toMatchObject({ exitCode: 0 });
    gates.push(await start());
    expect(book.order).toEqual(['first', 'second']);
  });

  it('see, read and cancel nothing of each other', async () => {
    await using acme = await opened('acme');
    await using evil = await opened('evil');
    await acme.submit('true', { id: 'victim', pool: 'default' });
    expect(await evil.task('victim').state()).toBeNull();
    await expect(evil.task('victim').cancel()).rejects.toMatchObject({ code: 'ACODE-FLT-011' });
    // The name in the file is not what counts: acme’s tasks need acme’s token.
    const { keys } = client('acme');
    const { token } = client('evil').gate.http;
    await using disguised = await Fleet.open({ tenant: 'acme', keys, gate: { http: { urls: urls(), token } } });
    await expect(disguised.submit('true', { id: 'stolen' })).rejects.toMatchObject({ code: 'ACODE-FLT-009' });
    expect(await engine.queued({ tenant: 'acme', id: 'victim' }, 'default')).not.toBeNull();
    expect(await engine.queued({ tenant: 'acme', id: 'stolen' }, 'default')).toBeNull();
    await acme.task('victim').cancel();
  });

  it('are refused without a token, with another, and for anything but a request', async () => {
    const { token } = client('acme').gate.http;
    const other = `acode-gate-${'A'.repeat(43)}`;
    expect((await asked(token)).status).toBe(200);
    expect((await asked(other)).status).toBe(401);
    expect((await asked('')).status).toBe(401);
    expect((await asked(token, { path: '/metrics' })).status).toBe(404);
    expect((await asked(token, { method: 'GET' })).status).toBe(404);
    expect((await asked(token, { body: Buffer.alloc(700 * 1024) })).status).toBe(413);
    await using stranger = await opened('acme', { token: other });
    await expect(stranger.submit('true', { id: 'x' })).rejects.toMatchObject({ code: 'ACODE-FLT-031' });
  });

  it('cannot keep a gate from answering another with a flood', async () => {
    await using acme = await opened('acme');
    const { token } = client('evil').gate.http;
    let isFlooding = true;
    const seen = new Set<number>();
    const flooding = Array.from({ length: 64 }, async () => {
      while (isFlooding) seen.add((await asked(token).catch(() => null))?.status ?? 0);
    });
    for (let number = 0; number < 10; number += 1) {
      await acme.submit('true', { id: `meanwhile-${number}`, pool: 'default' });
      await acme.task(`meanwhile-${number}`).cancel();
    }
    isFlooding = false;
    await Promise.all(flooding);
    expect(await acme.task('meanwhile-9').state()).toMatchObject({ state: 'cancelled' });
    expect(seen).toContain(200);
  });

  it('are refused within a second when they are removed', async () => {
    const { token } = client('evil').gate.http;
    expect((await asked(token)).status).toBe(200);
    tenant('remove', 'evil');
    await expect.poll(async () => (await asked(token)).status).toBe(401);
    expect((await asked(client('acme').gate.http.token)).status).toBe(200);
  });

  describe('beyond this machine', () => {
    const tls = (): { certFile: string; keyFile: string } => ({
      certFile: join(top, 'gate.pem'),
      keyFile: join(top, 'gate.key'),
    });
    beforeAll(() => {
      const { certFile, keyFile } = tls();
      const names = 'subjectAltName=DNS:localhost,IP:127.0.0.1';
      const words = ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2'];
      execFileSync('openssl', [...words, '-subj', '/CN=gate', '-addext', names, '-keyout', keyFile, '-out', certFile], {
        stdio: 'ignore',
      });
    });

    it('are reached with a certificate only', async () => {
      const open = { ...file, http: { host: '0.0.0.0', port: 0 } };
      const own = await PostgresEngine.open({ url: server.url });
      await expect(Gate.start({ file: open, engine: own })).rejects.toMatchObject({ code: 'ACODE-FLT-023' });
      await own.close();
      const gate = await Gate.start({
        file: { ...open, http: { ...open.http, tls: tls() } },
        engine: await PostgresEngine.open({ url: server.url }),
      });
      const https = [`https://localhost:${gate.httpPort ?? 0}`];
      const { tenant: name, keys, gate: way } = client('acme');
      const trusting = { http: { ...way.http, urls: https, ca_file: tls().certFile } };
      await using acme = await Fleet.open({ tenant: name, keys, gate: trusting });
      await acme.submit('true', { id: 'encrypted' });
      expect(await engine.queued({ tenant: 'acme', id: 'encrypted' }, 'default')).not.toBeNull();
      // Nobody else’s certificate, and no connection without one.
      const refused = await new Promise<string>(resolve => {
        request(https[0] ?? '', { method: 'POST' }, response => void text(response).then(() => resolve('answered')))
          .once('error', error => resolve(error.message))
          .end();
      });
      expect(refused).toMatch(/self.signed/);
      await expect(
        Fleet.open({ tenant: name, keys, gate: { http: { ...way.http, urls: ['http://gate.example:1'] } } }),
      ).rejects.toMatchObject({ code: 'ACODE-FLT-023' });
      await gate.close();
    });
  });
});

describe('the file of a gate', () => {
  const content = { engine: { postgres: { url: 'postgres://nowhere' } }, tenants: {} };
  it('names certificate and key together, and where to listen', () => {
    const read = (http: object) => gateFileFrom({ ...content, http }, '/etc/acode/gate.yml').http;
    expect(read({ listen: '[::1]:7443' })).toEqual({ host: '::1', port: 7443 });
    expect(read({ listen: '0.0.0.0:7443', cert_file: 'a.pem', key_file: '/b.key' })).toEqual({
      host: '0.0.0.0',
      port: 7443,
      tls: { certFile: '/etc/acode/a.pem', keyFile: '/b.key' },
    });
    for (const http of [{ listen: '7443' }, { listen: '0.0.0.0:7443', cert_file: 'a.pem' }])
      expect(() => read(http)).toThrow(expect.objectContaining({ code: 'ACODE-FLT-033' }));
  });
});

describe('acode fleet tenant add', () => {
  const add = (...argv: readonly string[]): string => {
    const directory = mkdtempSync('/var/tmp/acode-tenant-');
    writeFileSync(join(directory, 'x'), '');
    const { stderr } = spawnSync(
      process.execPath,
      [BIN, 'fleet', 'tenant', 'add', 'acme', '--directory', directory, ...argv],
      {
        encoding: 'utf8',
      },
    );
    rmSync(directory, { recursive: true });
    return stderr;
  };
  it('says what is missing, before it writes anything', () => {
    expect(add('--server', 'nats://127.0.0.1:1')).toMatch(/no monitoring port/);
    expect(add('--postgres', 'postgres://db/fleet')).toMatch(/no gate is named/);
    expect(add('--postgres', 'postgres://db/fleet', '--gate', 'http://gate:1')).toMatch(/https:/);
    const both = ['--server', 'nats://127.0.0.1:1', '--monitor', 'http://127.0.0.1:2'];
    expect(add(...both, '--postgres', 'postgres://db/fleet', '--gate', 'https://gate:1')).toMatch(
      /NATS and a database/,
    );
    expect(add(...both, '--gate', 'https://gate:1')).toMatch(/for PostgreSQL/);
  });
});
