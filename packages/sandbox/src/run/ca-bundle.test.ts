// CA bundle of the user: which files are accepted, and which layers of configuration may name one.

import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { rootCertificates } from 'node:tls';
import { afterAll, describe, expect, it } from 'vitest';
import { planCaBundle } from './user-files.ts';
import { parseConfig, rawConfig } from '../policy/config/parse.ts';
import { holdTo } from '../policy/config/check.ts';
import { machineSchema } from '../policy/config/schema.ts';

import type { NetworkMode } from '../contract/network.ts';
import { CA_TARGET, defaultEnvironment } from '../policy/environment.ts';
import { NO_LAYERS } from '../policy/layers.ts';
import { resolvePolicy } from '../policy/resolve.ts';

const base = mkdtempSync(join(tmpdir(), 'acode-ca-'));
afterAll(() => rmSync(base, { recursive: true, force: true }));
const [one = '', two = ''] = rootCertificates;
const host = {
  uid: process.getuid?.() ?? 0,
  directories: { home: base, config: join(base, 'config'), state: join(base, 'state'), runtime: join(base, 'run') },
};

function planned(
  content: string | null,
  network: NetworkMode = { kind: 'bridge' },
  level: 'docker' | 'bubblewrap' = 'docker',
) {
  const file = join(base, 'bundle.pem');
  rmSync(file, { recursive: true, force: true });
  if (content !== null) writeFileSync(file, content);
  const where = { layer: 'user' as const, where: 'config.yml:3:5 (sandbox.network.ca_file)' };
  return planCaBundle(host, level, { caFile: { value: file, ...where }, network: { value: network, ...where } }, []);
}

describe('a bundle of CA certificates', () => {
  it('is copied without what stands around the certificates, and mounted read-only', async () => {
    const [mount] = await planned(`# Issuer: somebody\nsecret text\n${one}\n\n${two}`);
    expect(mount).toMatchObject({ purpose: 'ca', target: CA_TARGET, readOnly: true });
    const source = mount?.source ?? '';
    expect(readFileSync(source, 'utf8')).toBe(`${one}\n${two}\n`);
    expect(statSync(source).mode & 0o777).toBe(0o444);
    expect(statSync(join(base, 'state', 'ca')).mode & 0o777).toBe(0o700);
    // The same certificates give the same file; others give another one.
    expect((await planned(`${one}\n${two}\n`))[0]?.source).toBe(source);
    expect((await planned(one))[0]?.source).not.toBe(source);
  });

  it('is one file for all who need it at once: what one of them mounts is not replaced by another', async () => {
    const all = await Promise.all(Array.from({ length: 8 }, () => planned(`${two}\n${one}\n`)));
    const [first] = all[0] ?? [];
    expect(new Set(all.map(([mount]) => JSON.stringify(mount)))).toEqual(new Set([JSON.stringify(first)]));
  });

  it('is only for a sandbox of an engine that has a network', async () => {
    expect(await planned(one, { kind: 'none' })).toEqual([]);
    expect(await planned(one, { kind: 'bridge' }, 'bubblewrap')).toEqual([]);
    expect(await planned(one, { kind: 'named', name: 'build-net' })).toHaveLength(1);
  });

  it.each([
    ['absent', null, 'cannot be read (ENOENT)'],
    ['empty', '', 'holds no certificate'],
    ['text', 'hello', 'holds no certificate'],
    ['a private key', '-----BEGIN PRIVATE KEY-----\nMC4C\n-----END PRIVATE KEY-----\n', 'holds a private key'],
    ['one behind a certificate', `${one}\n-----BEGIN RSA PRIVATE KEY-----\nMC4C\n`, 'holds a private key'],
    ['another kind of block', `${one}\n-----BEGIN PGP MESSAGE-----\n`, 'a block PGP MESSAGE'],
    ['damaged', `${one}\n${two.replace('MII', 'AAA')}`, 'certificate 2 is damaged'],
    ['cut off', one.slice(0, 200), 'certificate 1 is damaged'],
    ['too large', `${one}\n${'#'.repeat(5 * 1024 ** 2)}`, 'larger than 4 MiB'],
  ])('is refused where it is %s', async (_, content, part) => {
    await expect(planned(content)).rejects.toMatchObject({
      code: 'ACODE-SBX-013',
      message: expect.stringContaining(part),
      context: { source: 'your configuration, config.yml:3:5 (sandbox.network.ca_file)' },
      hint: expect.stringContaining('ca_file: /etc/ssl/certs/ca-certificates.crt'),
    });
  });

  it('is refused where a command could replace it, with or without a network', async () => {
    const workspace = join(base, 'workspace');
    const other = join(base, 'other');
    for (const directory of [workspace, other]) mkdirSync(directory);
    const inside = join(workspace, 'ca.pem');
    const outside = join(base, 'outside.pem');
    const elsewhere = join(other, 'ca.pem');
    for (const file of [inside, outside, elsewhere]) writeFileSync(file, one, { mode: 0o644 });
    symlinkSync(inside, join(base, 'to-inside.pem'));
    symlinkSync(outside, join(workspace, 'to-outside.pem'));
    symlinkSync(workspace, join(base, 'to-workspace'));
    const planFor = (file: string, readOnly: boolean, network: NetworkMode) => {
      const where = { layer: 'user' as const, where: 'config.yml:3:5 (sandbox.network.ca_file)' };
      const policy = { caFile: { value: file, ...where }, network: { value: network, ...where } };
      return planCaBundle(host, 'docker', policy, [
        { purpose: 'workspace', source: workspace, readOnly },
        { purpose: 'additional', source: other, readOnly },
      ]);
    };
    const refusal = { code: 'ACODE-SBX-013', message: expect.stringContaining('a command could replace it') };
    const within = [
      inside,
      join(base, 'to-inside.pem'),
      join(workspace, 'to-outside.pem'),
      join(base, 'to-workspace/ca.pem'),
    ];
    for (const file of within) {
      await expect(planFor(file, true, { kind: 'bridge' }), file).rejects.toMatchObject(refusal);
      await expect(planFor(file, false, { kind: 'none' }), file).rejects.toMatchObject(refusal);
    }
    await expect(planFor(elsewhere, false, { kind: 'bridge' })).rejects.toMatchObject(refusal);
    expect(await planFor(elsewhere, true, { kind: 'bridge' })).toHaveLength(1);
    expect(await planFor(outside, false, { kind: 'bridge' })).toHaveLength(1);
  });

  it('is refused where others than the user and root could change it', async () => {
    const file = join(base, 'shared.pem');
    const where = { layer: 'user' as const, where: 'config.yml:3:5 (sandbox.network.ca_file)' };
    const policy = { caFile: { value: file, ...where }, network: { value: { kind: 'bridge' }, ...where } } as const;
    writeFileSync(file, one);
    for (const mode of [0o664, 0o646]) {
      chmodSync(file, mode);
      await expect(planCaBundle(host, 'docker', policy, [])).rejects.toMatchObject({
        code: 'ACODE-SBX-013',
        message: expect.stringContaining('others may write'),
        hint: expect.stringContaining('chmod go-w'),
      });
    }
    chmodSync(file, 0o644);
    expect(await planCaBundle(host, 'docker', policy, [])).toHaveLength(1);
    const another = { ...host, uid: host.uid + 1 };
    if (host.uid !== 0)
      await expect(planCaBundle(another, 'docker', policy, [])).rejects.toMatchObject({
        message: expect.stringContaining('belongs to'),
      });
  });

  it('is refused where it is a directory', async () => {
    mkdirSync(join(base, 'directory'));
    const where = { layer: 'machine' as const, where: 'policy.yml' };
    const policy = {
      caFile: { value: join(base, 'directory'), ...where },
      network: { value: { kind: 'bridge' }, ...where },
    } as const;
    await expect(planCaBundle(host, 'docker', policy, [])).rejects.toMatchObject({ code: 'ACODE-SBX-013' });
    chmodSync(join(base, 'directory'), 0o700);
  });

  it('is named by the user, else by the machine', () => {
    const caller = { caller: { uid: 1, gid: 1 }, cpus: 1 };
    const text = (path: string) => `sandbox: { network: { ca_file: ${path} } }`;
    const machine = holdTo(machineSchema, rawConfig(text('/m.pem'), '/etc/acode/policy.yml'));
    const user = parseConfig(text('/u.pem'), 'user.yml');
    expect(resolvePolicy({}, NO_LAYERS, caller).caFile).toMatchObject({ value: null, layer: 'built-in' });
    expect(resolvePolicy({}, { ...NO_LAYERS, machine }, caller).caFile).toMatchObject({
      value: '/m.pem',
      layer: 'machine',
    });
    expect(resolvePolicy({}, { ...NO_LAYERS, machine, user }, caller).caFile).toMatchObject({
      value: '/u.pem',
      layer: 'user',
    });
    expect(() => parseConfig(text('relative.pem'), 'user.yml')).toThrow(
      expect.objectContaining({ code: 'ACODE-SBX-013' }),
    );
  });

  it('is named in the variables that clients read, before what the image sets', async () => {
    const spec = {
      network: { kind: 'bridge' },
      level: 'docker',
      image: { reference: 'x', id: 'x', digest: 'x', environment: ['SSL_CERT_FILE=/image.pem'], removed: [] },
    } as const;
    expect(defaultEnvironment({ ...spec, mounts: await planned(one) })).toMatchObject({
      NODE_EXTRA_CA_CERTS: CA_TARGET,
      SSL_CERT_FILE: CA_TARGET,
      PIP_CERT: CA_TARGET,
      npm_config_cafile: CA_TARGET,
    });
    expect(defaultEnvironment({ ...spec, mounts: [] })).toEqual({});
  });
});
