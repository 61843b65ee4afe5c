// Access to hosts on an opened host without an engine: decisions, what waits for a person, grants and whom they reach.

import { mkdirSync, mkdtempSync, readdirSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import type { AddressInfo, Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { AuditEntry, AuditRecord } from '../contract/audit.ts';
import type { EgressConnection } from '../contract/egress.ts';
import type { PendingAccess } from '../contract/network-access.ts';
import { systemClock } from '../lifecycle/clock.ts';
import { Grants } from '../policy/trust.ts';
import { offerNetwork } from '../persistent/relay/network.ts';
import { AuditLog } from '../records/audit/log.ts';
import { Acode } from './acode.ts';

const isRoot = process.getuid?.() === 0;
const SANDBOX = 'a1b2c3d4-0000-4000-8000-000000000000';
const CONSENT = { how: 'terminal', parent: 'bash' } as const;
let top = '';
let project = '';
let ending: (() => void)[] = [];

beforeEach(() => {
  top = realpathSync(mkdtempSync(join(tmpdir(), 'acode-access-')));
  project = join(top, 'project');
  mkdirSync(join(project, '.git'), { recursive: true });
  for (const name of ['XDG_CONFIG_HOME', 'XDG_STATE_HOME', 'XDG_RUNTIME_DIR']) {
    mkdirSync(join(top, name, 'acode'), { recursive: true, mode: 0o700 });
    vi.stubEnv(name, join(top, name));
  }
});

afterEach(async () => {
  for (const end of ending) end();
  ending = [];
  vi.unstubAllEnvs();
  rmSync(top, { recursive: true });
});

const open = (): Promise<Acode> => Acode.open({ workspace: project, engine: { socket: join(top, 'no.sock') } });

const denied = (host: string, port = 443, reason: EgressConnection['reason'] = 'not-listed'): EgressConnection => ({
  host,
  port,
  verdict: 'denied',
  ...(reason === undefined ? {} : { reason }),
  count: 2,
  bytesIn: 0,
  bytesOut: 0,
  ms: 0,
});

/** Records a command that was refused these connections. */
async function ran(connections: readonly EgressConnection[], taskId?: string): Promise<void> {
  const log = new AuditLog({
    directory: join(top, 'XDG_STATE_HOME', 'acode', 'audit'),
    uid: process.getuid?.() ?? 0,
    clock: systemClock,
  });
  const about = { correlationId: 'c', operation: 'run', ...(taskId === undefined ? {} : { taskId }) } as const;
  const intent = {
    ...about,
    kind: 'intent',
    sandboxId: SANDBOX,
    sandbox_level: 'docker',
    command: ['npm', 'ci'],
    workspace: project,
  } as unknown as AuditEntry;
  const { seq } = await log.append(intent);
  await log.append({ ...about, kind: 'outcome', intent: seq, exitCode: 1, durationMs: 1, connections });
  await log.close();
}

const hostsOf = (all: readonly PendingAccess[]): string[] => all.map(({ host, port }) => `${host}:${port}`);
const eventsOf = async (acode: Acode): Promise<AuditRecord[]> =>
  (await acode.audit.tail()).filter(({ kind }) => kind === 'event');

describe.skipIf(isRoot)('a request that is only tested', () => {
  it('is decided as the proxy would: by rule, list, method and path, with the entry that is missing', async () => {
    await using acode = await open();
    const { network } = acode;
    const allow = ['npm:install', '*.example.com', 'tcp:db.example:5432'];
    const test = async (target: string, method = 'GET') => {
      const { allowed, rule, reason, entry } = await network.test({ target, method, network: { allow } });
      return [allowed, rule ?? entry ?? reason];
    };
    expect(await test('https://registry.npmjs.org/left-pad')).toEqual([true, 'npm:install/registry.npmjs.org']);
    expect(await test('https://registry.npmjs.org/left-pad', 'PUT')).toEqual([false, 'npm:install/registry.npmjs.org']);
    expect(await test('https://a.example.com')).toEqual([true, 'allow/*.example.com']);
    expect(await test('http://a.example.com:443/')).toEqual([false, 'allow/*.example.com']);
    expect(await test('db.example:5432')).toEqual([true, 'allow/tcp:db.example:5432']);
    expect(await test('db.example:5433')).toEqual([false, 'tcp:db.example:5433']);
    expect(await test('https://pypi.org/simple/')).toEqual([false, 'pypi']);
    expect(await test('http://deb.debian.org/')).toEqual([false, 'debian']);
    const none = await network.test({ target: 'pypi.org' });
    expect(none).toMatchObject({ allowed: false, network: 'none', reason: 'no-network', entry: 'pypi' });
    expect(none.text).toBe('The command has no network. Allow the host: --network allow=pypi.');
    await expect(network.test({ target: 'https://user@pypi.org' })).rejects.toMatchObject({ code: 'ACODE-SBX-017' });
  });

  it('names who set what, and dials only if asked', async () => {
    const server: Server = createServer();
    await new Promise<void>(resolve => void server.listen(0, '127.0.0.1', resolve));
    ending.push(() => server.close());
    let dials = 0;
    server.on('connection', socket => {
      dials += 1;
      socket.destroy();
    });
    const { port } = server.address() as AddressInfo;
    const file = join(top, 'XDG_CONFIG_HOME', 'acode', 'config.yml');
    writeFileSync(file, `sandbox: { network: { allow: ['host:${port}'], deny: ['*.corp.example'] } }`, { mode: 0o600 });
    await using acode = await open();
    const asked = { target: `host:${port}` };
    expect(await acode.network.test(asked)).toMatchObject({ allowed: true, setBy: { layer: 'user' } });
    expect(dials).toBe(0);
    expect(await acode.network.test({ ...asked, connect: true })).toMatchObject({
      allowed: true,
      addresses: ['127.0.0.1'],
      text: expect.stringContaining('It answered.') as string,
    });
    await vi.waitFor(() => expect(dials).toBe(1));
    const refused = await acode.network.test({ target: 'a.corp.example' });
    expect(refused).toMatchObject({ allowed: false, reason: 'denied-by-rule', setBy: { layer: 'user' } });
    expect(refused).not.toHaveProperty('entry');
  });
});

describe.skipIf(isRoot)('what waits for a person', () => {
  it('are hosts that a list could have, at most 20 of a task, newest first', async () => {
    await ran([denied('10.0.0.1'), denied('a.example', 443, 'denied-by-rule'), denied('plain')]);
    await ran([denied('registry.npmjs.org'), denied('db.example', 5432)]);
    await ran(
      Array.from({ length: 30 }, (_, index) => denied(`h${index}.example`)),
      'flood',
    );
    await using acode = await open();
    const all = await acode.network.pending();
    expect(all.filter(({ taskId }) => taskId === 'flood')).toHaveLength(20);
    expect(hostsOf(all.slice(-2))).toEqual(['db.example:5432', 'registry.npmjs.org:443']);
    expect(all.at(-1)).toMatchObject({
      id: expect.stringMatching(/^[0-9a-f]{8}$/) as string,
      entry: 'npm:install',
      by: 'command',
      count: 2,
      command: ['npm', 'ci'],
      workspace: project,
      isRunning: false,
    });
  });

  it('is what a model asks for: 20 of a session, in ASCII, and the same host once', async () => {
    await using acode = await open();
    const { network } = acode;
    const first = await network.request({ host: 'Registry.npmjs.org', why: 'inställ \u202e packages' });
    expect(first).toMatchObject({
      host: 'registry.npmjs.org',
      by: 'model',
      why: 'inst ll   packages',
      isRunning: false,
    });
    expect((await network.request({ host: 'registry.npmjs.org', why: 'again' })).id).toBe(first.id);
    for (const host of ['10.0.0.1', 'localhost', 'аpple.com', 'https://a.example', 'host'])
      await expect(network.request({ host, why: '' })).rejects.toMatchObject({ code: 'ACODE-EGR-002' });
    for (let index = 1; index < 20; index += 1) await network.request({ host: `h${index}.example`, why: '' });
    await expect(network.request({ host: 'more.example', why: '' })).rejects.toMatchObject({ code: 'ACODE-EGR-002' });
    expect(await network.pending()).toHaveLength(20);
  });
});

describe.skipIf(isRoot)('a grant', () => {
  it('for once is the next command’s with a list, is recorded first, and reaches no other workspace', async () => {
    await ran([denied('registry.npmjs.org')]);
    await using acode = await open();
    const [wanted] = await acode.network.pending();
    const id = wanted?.id ?? '';
    await expect(acode.network.allow('00000000', { for: 'once', consent: CONSENT })).rejects.toMatchObject({
      code: 'ACODE-EGR-001',
    });
    const granted = await acode.network.allow(id, { for: 'once', consent: CONSENT });
    expect(granted).toMatchObject({ isInEffect: false, until: expect.any(String) as string });
    expect((await eventsOf(acode)).at(-1)).toMatchObject({
      event: 'network access granted',
      workspace: project,
      detail: { id, entry: 'npm:install', for: 'once', consent: 'terminal', parent: 'bash' },
    });
    expect(await acode.network.pending()).toEqual([]);
    const list = { allow: ['pypi'] };
    const with_ = await acode.network.test({ target: 'https://registry.npmjs.org/a', network: list });
    expect(with_).toMatchObject({ allowed: true, setBy: { where: 'acode egress allow' } });
    // Who has no network has none: a grant adds to lists.
    expect(await acode.network.test({ target: 'https://registry.npmjs.org/a' })).toMatchObject({ network: 'none' });
    const grants = new Grants(join(top, 'XDG_STATE_HOME', 'acode'), Date.now);
    expect(grants.for(join(top, 'other'), undefined)).toEqual([]);
    const [one] = grants.for(project, undefined);
    expect(grants.take(one ? [one] : [])).toHaveLength(1);
    expect(grants.take(one ? [one] : [])).toHaveLength(0);
    expect(await acode.network.test({ target: 'https://registry.npmjs.org/a', network: list })).toMatchObject({
      allowed: false,
    });
  });

  it('for a task is that task’s, expires, and never undoes what a file denies', async () => {
    await ran([denied('a.example'), denied('b.corp.example')], 'nightly');
    await using acode = await open();
    const [second, first] = await acode.network.pending();
    await acode.network.allow(first?.id ?? '', { for: 'task', consent: CONSENT });
    const state = join(top, 'XDG_STATE_HOME', 'acode');
    const now = new Grants(state, Date.now);
    expect(now.for(project, undefined)).toEqual([]);
    expect(now.for(project, 'nightly')).toMatchObject([{ entry: 'a.example', once: false }]);
    expect(now.take(now.for(project, 'nightly'))).toHaveLength(1);
    expect(now.for(project, 'nightly')).toHaveLength(1);
    expect(new Grants(state, () => Date.now() + 9 * 3_600_000).for(project, 'nightly')).toEqual([]);
    expect(readdirSync(join(state, 'grants'))).toEqual([]);
    const file = join(top, 'XDG_CONFIG_HOME', 'acode', 'config.yml');
    writeFileSync(file, `sandbox: { network: { deny: ['*.corp.example'] } }`, { mode: 0o600 });
    await using strict = await open();
    await expect(strict.network.allow(second?.id ?? '', { for: 'task', consent: CONSENT })).rejects.toMatchObject({
      code: 'ACODE-SBX-005',
    });
    expect(readdirSync(join(state, 'grants'))).toEqual([]);
  });

  it('of a running sandbox goes to the process that has its proxy; what that refuses is for later commands', async () => {
    const granted: string[] = [];
    let end: () => void = () => undefined;
    const about = { sandboxId: SANDBOX, command: ['sh'], workspace: project, taskId: null, startedAt: '2026-01-01' };
    await offerNetwork(
      { directories: { home: top, config: top, state: top, runtime: join(top, 'XDG_RUNTIME_DIR', 'acode') } },
      {
        about,
        report: async () => [denied('a.example'), denied('registry.npmjs.org')],
        grant: async ({ entry }) => {
          const { AcodeError } = await import('../contract/errors.ts');
          if (entry === 'npm:install') throw new AcodeError('ACODE-EGR-002', { host: 'x', reason: 'it is inspected' });
          granted.push(entry);
        },
        ended: new Promise<void>(resolve => (end = resolve)),
      },
    );
    await using acode = await open();
    expect(await acode.network.running()).toMatchObject([{ ...about, connections: [{ host: 'a.example' }, {}] }]);
    const waits = await acode.network.pending();
    expect(waits).toMatchObject([{ host: 'registry.npmjs.org', isRunning: true }, { host: 'a.example' }]);
    const [npm, other] = await Promise.all(
      waits.map(({ id }) => acode.network.allow(id, { for: 'once', consent: CONSENT })),
    );
    expect(npm).toMatchObject({ isInEffect: false, until: expect.any(String) as string });
    expect(other).toMatchObject({ isInEffect: true });
    expect(other).not.toHaveProperty('until');
    expect(granted).toEqual(['a.example']);
    end();
    await vi.waitFor(async () => expect(await acode.network.running()).toEqual([]));
  });
});
