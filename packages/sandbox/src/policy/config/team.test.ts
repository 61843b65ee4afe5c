// The team’s defaults: who may have written them, what they may say, and how they stand below the user’s own file.

import { chmodSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { NO_LAYERS } from '../layers.ts';
import { resolvePolicy, resolveRules } from '../resolve.ts';
import { holdTo } from './check.ts';
import { loadTeamConfig, overTeam } from './load.ts';
import { parseConfig, rawConfig } from './parse.ts';
import { machineSchema, teamSchema } from './schema.ts';

const uid = process.getuid?.() ?? 0;
const refused = (part: string) => ({ code: 'ACODE-SBX-013', message: expect.stringContaining(part) as string });
const host = { caller: { uid: 1000, gid: 1000 }, cpus: 2 };

function write(text: string): string {
  const path = join(mkdtempSync(join(tmpdir(), 'acode-team-')), 'config.yml');
  writeFileSync(path, text, { mode: 0o644 });
  return path;
}

function layers(team: string, user = '', machine = '') {
  const loaded = holdTo(teamSchema, { ...rawConfig(team, '/etc/acode/config.yml'), kind: 'team' });
  const policy = holdTo(machineSchema, rawConfig(machine, '/etc/acode/policy.yml'));
  return { ...NO_LAYERS, machine: policy, user: overTeam(parseConfig(user, 'user.yml'), loaded) };
}

const resolve = (team: string, user = '', machine = '', request = {}) =>
  resolvePolicy(request, layers(team, user, machine), host);

describe('the team’s file', () => {
  it('may be absent, and is read with its places', async () => {
    expect(await loadTeamConfig('/nowhere/config.yml', uid)).toBeNull();
    const path = write('sandbox:\n  images:\n    default: x\n');
    expect((await loadTeamConfig(path, uid))?.where('sandbox.images.default')).toBe(`${path}:3:5`);
  });

  it('counts only if no one but root can write it or its directory, and says what to type', async () => {
    const path = write('sandbox.network.allow_bridge: true\n');
    expect((await loadTeamConfig(path, uid))?.config.sandbox?.network?.allow_bridge).toBe(true);
    await expect(loadTeamConfig(path, uid + 1)).rejects.toMatchObject({
      ...refused('does not belong to root, so it is not the team’s defaults'),
      hint: expect.stringContaining(`sudo chown root: ${path}`) as string,
    });
    chmodSync(path, 0o664);
    const open = {
      ...refused('can be written by others'),
      hint: expect.stringContaining(`sudo chmod go-w ${path}`) as string,
    };
    await expect(loadTeamConfig(path, uid)).rejects.toMatchObject(open);
    chmodSync(path, 0o644);
    chmodSync(join(path, '..'), 0o777);
    await expect(loadTeamConfig(path, uid)).rejects.toMatchObject(refused('can be written by others'));
  });

  it.each([
    ['allow_root: true', 'cannot be set in the team’s defaults', 'acode config set allow_root'],
    ['sandbox: { level: none }', 'cannot be set in the team’s defaults', '/etc/acode/policy.yml'],
    ['sandbox: { fallback: warn }', 'cannot be set', 'their own file'],
    ['sandbox: { network: { mode: bridge } }', 'cannot be set', 'their own file'],
    ['sandbox: { security: { allow_untrusted_registries: true } }', 'cannot be set', 'their own file'],
    ['sandbox: { defaults: { user: "0:0" } }', 'cannot be set', 'their own file'],
    ['sandbox: { containers: { labels: { acode.owner: x } } }', 'begins with acode.', ''],
    ['sandbox: { imagse: {} }', 'did you mean sandbox.images?', ''],
  ])('cannot say %s', async (text, said, remedy) => {
    await expect(loadTeamConfig(write(text), uid)).rejects.toMatchObject({
      ...refused(said),
      hint: expect.stringContaining(remedy) as string,
    });
  });
});

describe('the team’s defaults', () => {
  it('count below the user’s own file, with their place', () => {
    const team = 'sandbox:\n  defaults:\n    memory_mb: 1g\n    pids_limit: 64\n';
    const { limits } = resolve(team, 'sandbox.defaults.memory_mb: 2g');
    expect(limits.memoryBytes).toMatchObject({ value: 2 * 1024 ** 3, layer: 'user' });
    expect(limits.pids).toEqual({
      value: 64,
      layer: 'team',
      where: '/etc/acode/config.yml:4:5 (sandbox.defaults.pids_limit)',
    });
  });

  it('give consent, unless the user or the machine says otherwise', () => {
    const team = 'sandbox.network.allow_bridge: true';
    const bridge = { network: 'bridge' } as const;
    expect(resolve(team, '', '', bridge).network.value).toEqual({ kind: 'bridge' });
    expect(resolveRules(layers(team), host).bridge).toMatchObject({ value: true, layer: 'team' });
    const denied = expect.objectContaining({ code: 'ACODE-SBX-005' });
    expect(() => resolve('', '', '', bridge)).toThrow(denied);
    expect(() => resolve(team, 'sandbox.network.allow_bridge: false', '', bridge)).toThrow(denied);
    const machine = 'sandbox.network.allow_bridge: false';
    expect(() => resolve(team, 'sandbox.network.allow_bridge: true', machine, bridge)).toThrow(denied);
    expect(resolveRules(layers(team, '', machine), host).bridge).toMatchObject({ value: false, layer: 'machine' });
  });

  it('add to lists of what is allowed, and stay within the machine’s', () => {
    const team = 'sandbox: { security: { trusted_images: [r.example/t/*] }, mounts: { allowed_host_roots: [/srv] } }';
    const user = 'sandbox: { security: { trusted_images: [ghcr.io/me/x] } }';
    const { imageTrust, hostRoots } = resolve(team, user, 'sandbox.mounts.allowed_host_roots: [/data]');
    expect(imageTrust.repositories.value).toEqual(expect.arrayContaining(['r.example/t/*', 'ghcr.io/me/x']));
    expect(imageTrust.repositories.where).toContain('user.yml:1:24 and /etc/acode/config.yml:1:24');
    expect(hostRoots.value).toEqual([]);
    expect(resolve(team).hostRoots).toMatchObject({ value: ['/srv'], layer: 'team' });
  });

  it('name an image only where the user’s own file names none at all', () => {
    const found = [{ language: 'node', file: 'package.json' }] as const;
    const image = (user: string) =>
      resolvePolicy({}, layers('sandbox.images.node: team:1', user), { ...host, languages: found }).image;
    expect(image('')).toMatchObject({ value: 'team:1', layer: 'team' });
    expect(image('sandbox.images.default: mine:1')).toMatchObject({ value: 'mine:1', layer: 'user' });
  });

  it('give the CA, which the user’s and the machine’s override', () => {
    const team = 'sandbox.network.ca_file: /team.pem';
    expect(resolve(team).caFile).toMatchObject({ value: '/team.pem', layer: 'team' });
    expect(resolve(team, '', 'sandbox.network.ca_file: /machine.pem').caFile.value).toBe('/machine.pem');
    expect(
      resolve(team, 'sandbox.network.ca_file: /own.pem', 'sandbox.network.ca_file: /machine.pem').caFile.value,
    ).toBe('/own.pem');
  });
});

it('a limit for everyone in the wrong file is led to the right one', () => {
  const raw = { ...rawConfig('sandbox:\n  defaults:\n    memory_mb: 5\n', 'policy.yml'), kind: 'machine' as const };
  expect(() => holdTo(machineSchema, raw)).toThrow(
    expect.objectContaining({
      message: expect.stringContaining(
        'policy.yml:2:3: `sandbox.defaults` is not a key of the machine’s policy',
      ) as string,
      hint: expect.stringMatching(/`sandbox\.ceilings`.*\/etc\/acode\/config\.yml/) as string,
    }),
  );
});

it('the level that the machine demands is the machine’s in a policy that asks for none', () => {
  const { level } = resolve('', '', 'sandbox.level: docker');
  expect(level).toMatchObject({
    value: 'auto',
    layer: 'machine',
    where: expect.stringContaining('policy.yml:1:1') as string,
  });
});
