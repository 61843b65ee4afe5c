// Persistent sandboxes of a fleet on a real engine: through the accounts of tenants on NATS, and over HTTP on PostgreSQL.

import { execFileSync, spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { connect, nkeyAuthenticator } from '@nats-io/transport-node';
import type { NatsConnection } from '@nats-io/transport-node';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import * as z from 'zod';
import {
  Fleet,
  Gate,
  NatsEngine,
  PostgresEngine,
  Worker,
  makeKeys,
  openEngine,
  packWorkspace,
  readFleetFile,
  readGateFile,
  workerFileFrom,
} from '@acode/fleet';
import type { FleetEngine, FleetFile, FleetSandbox } from '@acode/fleet';
import { AcodeError } from '@acode/sandbox';
import { signedCall, verifiedAnswer } from '../../packages/fleet/src/exec/protocol.ts';
import { BIN } from '../cli/bench.ts';
import { images, mainEngine, withEngine, withoutEngines } from '../support/engines.ts';
import { until } from '../support/waiting.ts';
import { ENGINES } from './engines.ts';
import type { EnginePlace } from './engines.ts';
import { NatsServers, PostgresServer, withoutServers } from './servers.ts';

const PROGRAM = new URL('worker-program.mjs', import.meta.url).pathname;
const WAIT_MS = 2000;
const SIZES = { log_bytes: 16 * 1024 ** 2, blob_bytes: 64 * 1024 ** 2 };

/** Sandboxes of this id that exist on the engine. */
async function sandboxesOf(task: string): Promise<number> {
  return withEngine(mainEngine, async engine => {
    const found = await engine.containers.list({
      labels: [`acode.task=${task}`],
      all: true,
      signal: AbortSignal.timeout(60_000),
    });
    return found.length;
  });
}

async function codeOf(work: Promise<unknown>): Promise<string> {
  return work.then(
    () => 'none',
    (error: unknown) => (error instanceof AcodeError ? error.code : String(error)),
  );
}

const sections = (directory: string): object => ({
  images: [images.busybox],
  slots: 3,
  warm: 0,
  shared_kernel: true,
  socket: mainEngine.socket,
  gate: true,
  tenants: Object.fromEntries(
    ['acme', 'evil'].map(name => {
      const { publicKey } = keysIn(directory, name);
      return [name, { keys: [publicKey] }];
    }),
  ),
});

function keysIn(directory: string, name: string): { publicKey: string; privateKey: string } {
  const text = readFileSync(join(directory, 'clients', `${name}.yml`), 'utf8');
  const [, publicKey = ''] = /publicKey: (\S+)/.exec(text) ?? [];
  const [, privateKey = ''] = /privateKey: (\S+)/.exec(text) ?? [];
  return { publicKey: publicKey.replaceAll('"', ''), privateKey: privateKey.replaceAll('"', '') };
}

describe.skipIf(withoutEngines || withoutServers)('a persistent sandbox of a fleet on NATS', () => {
  let top: string;
  let directory: string;
  let servers: NatsServers;
  let gate: Gate;
  let worker: ChildProcess;
  let acme: Fleet;
  let evil: Fleet;
  const raws: NatsConnection[] = [];
  const own = (): { servers: string[]; monitors: string[] } => ({ servers: servers.urls, monitors: servers.monitors });
  const seeds = (): { operator: string; gate: string; worker: string } =>
    z
      .object({ operator: z.string(), gate: z.string(), worker: z.string() })
      .parse(JSON.parse(readFileSync(join(directory, 'users.json'), 'utf8')));
  const fileOf = (name: string): Promise<FleetFile> => readFleetFile(join(directory, 'clients', `${name}.yml`));
  const seedOf = async (name: string): Promise<string> => {
    const { gate: way } = await fileOf(name);
    return way && 'nats' in way ? (way.nats.seed ?? '') : '';
  };
  const opened = async (name: string): Promise<Fleet> => {
    const { tenant, keys } = await fileOf(name);
    return Fleet.open({ tenant, keys, gate: { nats: { seed: await seedOf(name), servers: servers.urls } } });
  };
  const raw = async (seed: string, options: object = {}): Promise<NatsConnection> => {
    const authenticator = nkeyAuthenticator(new TextEncoder().encode(seed));
    const connection = await connect({ servers: servers.urls, authenticator, ignoreAuthErrorAbort: true, ...options });
    raws.push(connection);
    return connection;
  };
  let number = 0;
  const startWorker = async (): Promise<ChildProcess> => {
    number += 1;
    const settings = {
      file: { engine: { postgres: { url: 'postgres://nowhere' } }, ...sections(directory) },
      root: join(top, `root-${number}`),
      runtime: join(top, `run-${number}`),
      engine: { ...own(), seed: seeds().worker, hideMs: 3000 },
    };
    mkdirSync(settings.root);
    const child = spawn(process.execPath, [PROGRAM, JSON.stringify(settings)], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    await new Promise(resolve => void child.stdout?.once('data', resolve));
    return child;
  };

  beforeAll(async () => {
    top = mkdtempSync('/var/tmp/acode-fleet-');
    directory = join(top, 'tenants');
    const tenant = (...argv: readonly string[]): string =>
      execFileSync(process.execPath, [BIN, 'fleet', 'tenant', 'add', ...argv, '--directory', directory], {
        env: { ...process.env, HOME: top },
        encoding: 'utf8',
      });
    tenant('acme', '--server', 'nats://127.0.0.1:1', '--monitor', 'http://127.0.0.1:2');
    tenant('evil');
    servers = await NatsServers.start(1, { accounts: readFileSync(join(directory, 'accounts.conf'), 'utf8') });
    const operators = await openEngine({
      fleet: 'acode',
      engine: { nats: { ...own(), ...SIZES, seed: seeds().operator } },
    });
    await operators.close();
    const file = await readGateFile(join(directory, 'gate.yml'));
    gate = await Gate.start({
      file: { ...file, engine: { nats: { ...own(), seed: seeds().gate } } },
      engine: await NatsEngine.open({ ...own(), seed: seeds().gate }),
    });
    worker = await startWorker();
    [acme, evil] = await Promise.all([opened('acme'), opened('evil')]);
  });
  afterAll(async () => {
    worker?.kill('SIGKILL');
    await Promise.all([acme?.close(), evil?.close(), ...raws.map(one => one.close())]);
    await gate?.close();
    await servers?.[Symbol.asyncDispose]();
    rmSync(top, { recursive: true, force: true });
  });

  const project = async (): Promise<Uint8Array> => {
    const path = mkdtempSync(join(top, 'project-'));
    writeFileSync(join(path, 'in.txt'), 'of the submitter\n');
    return packWorkspace(path);
  };

  it('is created with a workspace, keeps what commands leave, streams, takes input, and is killed', async () => {
    const sandbox = await acme.create({ id: 'box', workspace: await project(), env: { X: 'x' } });
    expect(await sandbox.run('cat in.txt; echo $X >left.txt; echo err >&2; exit 3')).toMatchObject({
      exitCode: 3,
      stdout: 'of the submitter\n',
      stderr: 'err\n',
      level: 'docker',
    });
    expect(await sandbox.run(['cat', 'left.txt'])).toMatchObject({ exitCode: 0, stdout: 'x\n' });
    // Its output is here before it has its input.
    const running = await sandbox.spawn('echo ready; read line; echo "got $line"');
    const printed = running.stdout[Symbol.asyncIterator]();
    const next = async (): Promise<string> => Buffer.from((await printed.next()).value ?? '').toString();
    expect(await next()).toBe('ready\n');
    await running.write('this\n');
    expect(await next()).toBe('got this\n');
    expect(await running.result).toMatchObject({ exitCode: 0 });
    const stop = new AbortController();
    const long = sandbox.run('echo begun; sleep 600', { signal: stop.signal, onStdout: () => stop.abort() });
    expect(await codeOf(long)).toBe('ACODE-SBX-014');
    const large = Buffer.alloc(1_000_000, 'large');
    await sandbox.files.writeFile('large', large);
    expect((await sandbox.files.readFile('large')).equals(large)).toBe(true);
    await expect(sandbox.files.readFile('missing')).rejects.toMatchObject({ code: 'ENOENT' });
    expect(await acme.sandboxes()).toMatchObject([{ id: 'box', image: images.busybox, level: 'docker' }]);
    // One that only connects has the same sandbox.
    const connected = await acme.connect('box');
    expect(await connected.run('ls left.txt')).toMatchObject({ stdout: 'left.txt\n' });
    expect(await sandboxesOf('box')).toBe(1);
    await sandbox.kill();
    expect(await sandboxesOf('box')).toBe(0);
    expect(await codeOf(sandbox.run('true'))).toBe('ACODE-SBX-025');
    expect(await codeOf(acme.connect('box'))).toBe('ACODE-FLT-051');
  });

  describe('of another tenant', () => {
    let box: FleetSandbox;
    beforeAll(async () => {
      box = await acme.create({ id: 'private' });
      await box.run('echo secret >secret.txt');
    });
    afterAll(() => box?.kill());

    it('is neither seen, nor used, nor killed', async () => {
      expect(await evil.sandboxes()).toEqual([]);
      expect(await codeOf(evil.connect('private'))).toBe('ACODE-FLT-051');
      await expect(evil.task('private').cancel()).rejects.toMatchObject({ code: 'ACODE-FLT-011' });
      const hostile = await raw(await seedOf('evil'), { inboxPrefix: '_INBOX_evil' });
      const { keys } = await fileOf('evil');
      const call = { verb: 'begin', number: crypto.randomUUID(), command: 'cat secret.txt', input: false } as const;
      const message = signedCall({ tenant: 'acme', id: 'private' }, call, { keys });
      const subject = 'acode.exec.acme.private';
      await expect(hostile.request(subject, message, { timeout: WAIT_MS })).rejects.toThrow(/Permissions Violation/);
      const violations: string[] = [];
      void (async () => {
        for await (const status of hostile.status()) if (status.type === 'error') violations.push(String(status.error));
      })();
      for (const one of ['acode.exec.>', subject]) hostile.subscribe(one, { callback: () => undefined });
      await until(() => ['acode.exec.>', subject].every(one => violations.some(text => text.includes(`"${one}"`))));
      // The control: its own subject it may use, though it has no sandbox there.
      await expect(hostile.request('acode.exec.evil.none', message, { timeout: WAIT_MS })).rejects.toThrow(
        /no responders/i,
      );
      expect(await box.run('cat secret.txt')).toMatchObject({ stdout: 'secret\n' });
    });

    it('takes no call that its tenant has not signed, not even from its gate', async () => {
      const fleet = await raw(seeds().gate);
      const key = { tenant: 'acme', id: 'private' };
      const asked = async (message: Uint8Array): Promise<unknown> => {
        const { data } = await fleet.request('acode.exec.acme.private', message, { timeout: 10_000 });
        return verifiedAnswer('private', message, { answer: data, workers: undefined }).answer;
      };
      const call = { verb: 'get', number: crypto.randomUUID(), path: 'secret.txt', at: 0 } as const;
      const stranger = makeKeys();
      const [{ keys: acmes }, { keys: evils }] = await Promise.all([fileOf('acme'), fileOf('evil')]);
      for (const keys of [stranger, evils, { ...stranger, publicKey: acmes.publicKey }])
        expect(await asked(signedCall(key, call, { keys }))).toMatchObject({ failure: { code: 'ACODE-FLT-052' } });
      // The control: the same call, the same way, with the key of the tenant.
      expect(await asked(signedCall(key, call, { keys: acmes }))).toEqual({ value: { size: 'secret\n'.length } });
      // And a gate cannot put itself in the place of a sandbox.
      let denied = '';
      fleet.subscribe('acode.exec.>', { callback: error => void (denied = String(error)) });
      await fleet.flush();
      await expect.poll(() => denied, { timeout: WAIT_MS }).toMatch(/Permissions Violation/);
    });
  });

  it('is gone with a worker that is killed, is not begun again, and its callers hear why', async () => {
    const sandbox = await acme.create({ id: 'lost' });
    await using running = await sandbox.spawn('echo begun; sleep 600');
    for await (const _ of running.stdout) break;
    expect(await sandboxesOf('lost')).toBe(1);
    worker.kill('SIGKILL');
    expect(await codeOf(running.result)).toBe('ACODE-SBX-025');
    expect(await codeOf(sandbox.run('true'))).toBe('ACODE-SBX-025');
    expect(await acme.sandboxes()).toEqual([]);
    await until(async () => (await sandboxesOf('lost')) === 0);
    // Another worker creates none in its place.
    worker = await startWorker();
    expect(await acme.task('lost').end()).toMatchObject({ state: 'lost', attempt: 1 });
    expect(await sandboxesOf('lost')).toBe(0);
    await using next = await acme.create();
    expect(await next.run('echo next')).toMatchObject({ stdout: 'next\n' });
  });
});

describe.skipIf(withoutEngines || withoutServers)('a persistent sandbox of a fleet on PostgreSQL', () => {
  let top: string;
  let server: PostgresServer;
  let gate: Gate;
  let worker: Worker;
  let directory: string;
  const engine = (): Promise<FleetEngine> => PostgresEngine.open({ url: server.url });
  const opened = async (name: string): Promise<Fleet> => {
    const { tenant, keys, gate: way } = await readFleetFile(join(directory, 'clients', `${name}.yml`));
    const token = way && 'http' in way ? way.http.token : '';
    return Fleet.open({ tenant, keys, gate: { http: { token, urls: [`http://127.0.0.1:${gate.httpPort ?? 0}`] } } });
  };

  beforeAll(async () => {
    top = mkdtempSync('/var/tmp/acode-fleet-');
    directory = join(top, 'tenants');
    server = await PostgresServer.start();
    for (const argv of [['acme', '--postgres', server.url, '--gate', 'http://127.0.0.1:7443'], ['evil']])
      execFileSync(process.execPath, [BIN, 'fleet', 'tenant', 'add', ...argv, '--directory', directory], {
        env: { ...process.env, HOME: top },
      });
    const file = await readGateFile(join(directory, 'gate.yml'));
    gate = await Gate.start({ file: { ...file, http: { host: '127.0.0.1', port: 0 } }, engine: await engine() });
    const [root, runtime] = [join(top, 'root'), join(top, 'run')];
    mkdirSync(root);
    worker = await Worker.start({
      file: workerFileFrom({ engine: { postgres: { url: server.url } }, ...sections(directory) }, 'host'),
      engine: await engine(),
      root,
      runtime,
    });
  });
  afterAll(async () => {
    await worker?.close(0);
    await gate?.close();
    await server?.[Symbol.asyncDispose]();
    rmSync(top, { recursive: true, force: true });
  });

  it('is reached through a gate, and by its tenant alone', async () => {
    await using acme = await opened('acme');
    await using evil = await opened('evil');
    await using sandbox = await acme.create({ id: 'box' });
    expect(await sandbox.run('echo kept >left.txt; echo $((6 * 7))')).toMatchObject({ stdout: '42\n' });
    expect(await sandbox.files.readFile('left.txt', 'utf8')).toBe('kept\n');
    expect(await evil.sandboxes()).toEqual([]);
    expect(await codeOf(evil.connect('box'))).toBe('ACODE-FLT-051');
    // The control: the tenant’s other clients have it.
    expect(await (await acme.connect('box')).run('cat left.txt')).toMatchObject({ stdout: 'kept\n' });
  });
});

describe.skipIf(withoutEngines || withoutServers).each(['nats', 'postgres'] as const)(
  'a persistent sandbox of a fleet whose server on %s is killed and starts again',
  kind => {
    let top: string;
    let place: EnginePlace;
    let worker: Worker;
    let fleet: Fleet;
    const keys = makeKeys();
    beforeAll(async () => {
      top = mkdtempSync('/var/tmp/acode-fleet-');
      place = await ENGINES[kind]();
      const [root, runtime] = [join(top, 'root'), join(top, 'run')];
      mkdirSync(root);
      const tenants = { acme: { keys: [keys.publicKey] } };
      const own = { images: [images.busybox], warm: 0, socket: mainEngine.socket, tenants };
      worker = await Worker.start({
        file: workerFileFrom({ engine: { postgres: { url: 'postgres://nowhere' } }, ...own }, 'host'),
        engine: await place.open({ fleet: 'restarted' }),
        root,
        runtime,
        // The server is back before a lease is over, however slow this machine is.
        lease: { leaseMs: 300_000, renewMs: 1000 },
      });
      const engine = await place.open({ fleet: 'restarted' });
      fleet = await Fleet.open({ engine, tenant: 'acme', keys, workers: [worker.publicKey] });
    });
    afterAll(async () => {
      await fleet?.close();
      await worker?.close(0);
      await place?.[Symbol.asyncDispose]();
      rmSync(top, { recursive: true, force: true });
    });

    it('goes on, with the command that ran in it and its input', async () => {
      const sandbox = await fleet.create({ id: `kept-${kind}` });
      const running = await sandbox.spawn('echo before; read line; echo "$line"');
      const printed = running.stdout[Symbol.asyncIterator]();
      const next = async (): Promise<string> => Buffer.from((await printed.next()).value ?? '').toString();
      expect(await next()).toBe('before\n');
      await place.restart?.();
      await running.write('after\n');
      expect(await next()).toBe('after\n');
      expect(await running.result).toMatchObject({ exitCode: 0 });
      await sandbox.kill();
      expect(await sandboxesOf(sandbox.id)).toBe(0);
    });
  },
);
