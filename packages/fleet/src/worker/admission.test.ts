import { describe, expect, it } from 'vitest';
import type { QueuedTask } from '../engine/engine.ts';
import { makeKeys, signed, verified } from '../tasks/signature.ts';
import { admittedPolicy, admittedSpec } from './admission.ts';
import { mayUseImage, workerFileFrom } from './file.ts';

const [acme, other, stranger] = [makeKeys(), makeKeys(), makeKeys()];
const content = (more: object = {}): object => ({
  engine: { postgres: { url: 'postgres://one/fleet' } },
  images: ['node:20-alpine', 'ghcr.io/acme/*'],
  shared_kernel: true,
  tenants: { acme: { keys: [acme.publicKey] }, other: { keys: [other.publicKey] } },
  ...more,
});
const file = workerFileFrom(content(), 'host');
const NOW = Date.parse('2026-01-10T00:00:00.000Z');
const spec = (more: object = {}): object => ({
  schema: 'acode.fleet.task/1',
  tenant: 'acme',
  id: 'one',
  pool: 'default',
  priority: 'normal',
  submittedAt: '2026-01-09T00:00:00.000Z',
  command: 'true',
  ...more,
});
const queued = (body: string, more: Partial<QueuedTask> = {}): QueuedTask => ({
  tenant: 'acme',
  id: 'one',
  pool: 'default',
  priority: 'normal',
  body,
  ...more,
});
const admit = (more: object = {}, keys = acme): unknown =>
  admittedSpec(file, queued(signed('task', JSON.stringify(spec(more)), keys)), NOW);

describe('a worker', () => {
  it('takes a task that a registered key of its tenant has signed, and no other', () => {
    expect(admit()).toMatchObject({ id: 'one', command: 'true' });
    const body = JSON.stringify(spec());
    const refused = [
      queued(signed('task', body, stranger)),
      queued(signed('task', body, other)),
      queued(signed('result', body, acme)),
      queued(body),
      queued(''),
      // Names the key of the tenant, and is signed with another one.
      queued(signed('task', body, { publicKey: acme.publicKey, privateKey: stranger.privateKey })),
      queued(signed('task', body, acme).replace('true', 'evil')),
      // The task of one subject under another.
      queued(signed('task', body, acme), { id: 'two' }),
      queued(signed('task', body, acme), { tenant: 'other' }),
      queued(signed('task', body, acme), { pool: 'gpu' }),
      queued(signed('task', body, acme), { priority: 'high' }),
      queued(signed('task', JSON.stringify(spec({ tenant: 'nobody' })), acme), { tenant: 'nobody' }),
      // Its result may have been forgotten by now, or its clock is wrong.
      queued(signed('task', JSON.stringify(spec({ submittedAt: '2026-01-03T00:00:00.000Z' })), acme)),
      queued(signed('task', JSON.stringify(spec({ submittedAt: '2026-01-10T01:00:00.000Z' })), acme)),
    ];
    for (const task of refused)
      expect(() => admittedSpec(file, task, NOW), task.body).toThrow(
        expect.objectContaining({ code: 'ACODE-FLT-009' }),
      );
  });

  it('refuses a task that names anything of its machine', () => {
    const refused: object[] = [
      { policy: { mounts: [{ source: '/etc', target: '/x' }] } },
      { policy: { network: 'bridge' } },
      { policy: { network: { name: 'backend' } } },
      { policy: { network: { allow: ['npm:install'], credentials: { npm: { from: { env: 'TOKEN' } } } } } },
      { policy: { ports: [{ container: 80 }] } },
      { policy: { services: { db: 'postgres:16' } } },
      { policy: { caches: ['npm'] } },
      { policy: { fork: 'of-another' } },
      { policy: { state: { name: 'notes' } } },
      { policy: { programs: [{ id: 'x' }] } },
      { policy: { runtime: 'runc' } },
      { policy: { user: '0:0' } },
      { policy: { workspace: 'direct' } },
      { policy: { profile: 'agent' } },
      { policy: { level: 'none' } },
      { policy: { level: 'bubblewrap' } },
      { policy: { pull: 'always' } },
      { artifacts: [{ from: '/etc/passwd', to: 'x' }] },
      { sessionId: 'of-another' },
      { workspace: { hash: '../../etc', bytes: 1 } },
    ];
    for (const more of refused)
      expect(() => admit(more), JSON.stringify(more)).toThrow(expect.objectContaining({ code: 'ACODE-FLT-008' }));
    expect(() => admit({ policy: { image: 'node:20-alpine', network: { allow: ['npm:install'] } } })).not.toThrow();
  });

  it('gives the library a policy of its own writing, and refuses other images and weaker levels', () => {
    const policyOf = (policy: object, from = file) => {
      const body = signed('task', JSON.stringify(spec({ policy })), acme);
      return admittedPolicy(from, admittedSpec(from, queued(body), NOW));
    };
    expect(policyOf({ limits: { pids: 10 }, timeoutMs: 5 })).toEqual({
      image: 'node:20-alpine',
      level: 'docker',
      network: 'none',
      limits: { pids: 10, outputBytes: 10 * 1024 ** 2 },
      timeoutMs: 5,
      workspace: 'fork',
      caches: false,
      ports: [],
      mounts: [],
      services: {},
    });
    expect(policyOf({ image: 'ghcr.io/acme/tool:1', level: 'gvisor' })).toMatchObject({ level: 'gvisor' });
    const code = expect.objectContaining({ code: 'ACODE-FLT-008' });
    for (const image of ['node:20', 'sha256:abc', 'acode-project-x', 'ghcr.io/acmeX/tool', ''])
      expect(() => policyOf({ image }), image).toThrow(code);
    const strict = workerFileFrom(content({ level: 'gvisor' }), 'host');
    expect(() => policyOf({ level: 'docker' }, strict)).toThrow(code);
    expect(policyOf({}, strict)).toMatchObject({ level: 'gvisor' });
    expect(mayUseImage(['a:1'], 'a:1')).toBe(true);
  });
});

describe('the file of a worker', () => {
  it('lets tenants share a kernel only if it says so', () => {
    expect(() => workerFileFrom(content({ shared_kernel: false }), 'host')).toThrow(
      expect.objectContaining({ code: 'ACODE-FLT-013' }),
    );
    expect(workerFileFrom(content({ shared_kernel: false, level: 'gvisor' }), 'host').tenants.size).toBe(2);
    const alone = { tenants: { acme: { keys: [acme.publicKey] } }, shared_kernel: false };
    expect(workerFileFrom(content(alone), 'host')).toMatchObject({
      name: 'host',
      pool: 'default',
      slots: 4,
      level: 'docker',
    });
  });

  it('says what is wrong with it', () => {
    for (const [more, what] of [
      [{ tenants: {} }, 'tenants'],
      [{ tenants: { acme: { keys: ['ed25519:short'] } } }, 'tenants.acme.keys.0'],
      [{ images: [] }, 'images'],
      [{ slots: 17 }, 'slots'],
      [{ level: 'none' }, 'level'],
      [{ solts: 1 }, 'solts'],
      [{ engine: { redis: {} } }, 'engine'],
    ] as const)
      expect(() => workerFileFrom(content(more), 'host', 'w.yml')).toThrow(
        new RegExp(`w\\.yml cannot be used: .*${what}`),
      );
    expect(() => workerFileFrom(content({ pool: 'a.b' }), 'host')).toThrow(
      expect.objectContaining({ code: 'ACODE-FLT-004' }),
    );
  });
});

it('a signature is of one purpose, one key and one text', () => {
  const envelope = signed('result', 'text', acme);
  expect(verified('result', envelope, [other.publicKey, acme.publicKey])).toBe('text');
  expect(verified('task', envelope, [acme.publicKey])).toBeNull();
  expect(verified('result', envelope, [])).toBeNull();
  expect(verified('result', '{}', [acme.publicKey])).toBeNull();
});
