// The machine’s file and the repository’s: who may have written the one, and how little the other can lead us astray.

import { execFileSync } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { loadMachinePolicy, loadRepositoryConfig } from './load.ts';

const uid = process.getuid?.() ?? 0;
const directory = () => mkdtempSync(join(tmpdir(), 'acode-layers-'));
const refused = (part: string) => ({ code: 'ACODE-SBX-013', message: expect.stringContaining(part) as string });

describe('the machine’s policy', () => {
  const write = (text: string): string => {
    const path = join(directory(), 'policy.yml');
    writeFileSync(path, text, { mode: 0o644 });
    return path;
  };

  it('may be absent', async () => {
    expect(await loadMachinePolicy(join(directory(), 'policy.yml'), uid)).toBeNull();
  });

  it('is read with its places', async () => {
    const path = write('mode: airgapped\nsandbox:\n  ceilings:\n    memory_mb: 256\n');
    const loaded = await loadMachinePolicy(path, uid);
    expect(loaded?.config).toEqual({ mode: 'airgapped', sandbox: { ceilings: { memory_mb: 256 * 1024 ** 2 } } });
    expect(loaded?.where('sandbox.ceilings.memory_mb')).toBe(`${path}:4:5`);
  });

  it('counts only if no one but its owner can write it', async () => {
    const path = write('mode: airgapped\n');
    await expect(loadMachinePolicy(path, uid + 1)).rejects.toMatchObject(refused('does not belong to root'));
    chmodSync(path, 0o664);
    await expect(loadMachinePolicy(path, uid)).rejects.toMatchObject(refused('can be written by others'));
    chmodSync(path, 0o644);
    chmodSync(join(path, '..'), 0o777);
    await expect(loadMachinePolicy(path, uid)).rejects.toMatchObject(refused('can be written by others'));
  });

  it.each(['sandbox: { defaults: { memory_mb: 5 } }', 'allow_root: true', 'sandbox: { docker: { host: /x } }', '['])(
    'cannot say %s',
    async text => {
      await expect(loadMachinePolicy(write(text), uid)).rejects.toMatchObject(refused(''));
    },
  );
});

describe('the repository’s configuration', () => {
  const repository = (files: Readonly<Record<string, string>>): string => {
    const root = directory();
    for (const [name, text] of Object.entries(files)) {
      mkdirSync(join(root, name, '..'), { recursive: true });
      writeFileSync(join(root, name), text);
    }
    return root;
  };

  it('may be absent, with or without its folder', async () => {
    expect(await loadRepositoryConfig(directory())).toBeNull();
    expect(await loadRepositoryConfig(repository({ '.agent/other': '' }))).toBeNull();
  });

  it('is read with its places and the hash of its bytes', async () => {
    const root = repository({ '.agent/config.yml': 'sandbox:\n  images: { default: "node:20" }\n' });
    const loaded = await loadRepositoryConfig(root);
    expect(loaded).toMatchObject({ root, file: join(root, '.agent/config.yml'), source: '.agent/config.yml' });
    expect(loaded?.where('sandbox.images.default')).toBe('.agent/config.yml:2:13');
    expect(loaded?.hash).toMatch(/^sha256:[0-9a-f]{64}$/);
    writeFileSync(join(root, '.agent/config.yml'), 'sandbox:\n  images: { default: "node:20" } \n');
    expect((await loadRepositoryConfig(root))?.hash).not.toBe(loaded?.hash);
  });

  it('may have its old name, with a warning, and not both', async () => {
    const root = repository({ 'agent-config.yml': 'mode: airgapped' });
    expect(await loadRepositoryConfig(root)).toMatchObject({
      config: { mode: 'airgapped' },
      warnings: ['agent-config.yml is an old name; rename it to .agent/config.yml.'],
    });
    mkdirSync(join(root, '.agent'));
    writeFileSync(join(root, '.agent/config.yml'), '');
    await expect(loadRepositoryConfig(root)).rejects.toMatchObject(refused('keep one of the two'));
  });

  it('is never reached through a link', async () => {
    const elsewhere = repository({ 'config.yml': 'mode: airgapped' });
    const byFolder = directory();
    symlinkSync(elsewhere, join(byFolder, '.agent'));
    await expect(loadRepositoryConfig(byFolder)).rejects.toMatchObject(refused('links are not followed'));
    const byFile = repository({ '.agent/x': '' });
    symlinkSync(join(elsewhere, 'config.yml'), join(byFile, '.agent/config.yml'));
    await expect(loadRepositoryConfig(byFile)).rejects.toMatchObject(refused('links are not followed'));
    const byOldName = directory();
    symlinkSync(join(elsewhere, 'config.yml'), join(byOldName, 'agent-config.yml'));
    await expect(loadRepositoryConfig(byOldName)).rejects.toMatchObject(refused('links are not followed'));
    // The same file in place, as a control.
    rmSync(join(byFile, '.agent/config.yml'));
    writeFileSync(join(byFile, '.agent/config.yml'), 'mode: airgapped');
    expect((await loadRepositoryConfig(byFile))?.config.mode).toBe('airgapped');
  });

  it('is no FIFO, no device, no directory, not 10 MB, not binary', async () => {
    const root = repository({ '.agent/x': '' });
    const file = join(root, '.agent/config.yml');
    const cases: (readonly [() => void, string])[] = [
      [() => void execFileSync('mkfifo', [file]), 'cannot be read'],
      [() => mkdirSync(file), 'cannot be read'],
      [() => writeFileSync(file, 'a: 1\n'.repeat(2_000_000)), 'larger than 256 KiB'],
      [() => writeFileSync(file, Buffer.from([0x61, 0x3a, 0x20, 0xff])), 'is not UTF-8'],
    ];
    for (const [make, part] of cases) {
      make();
      // The best of three: other tests run at the same time.
      let best = Infinity;
      for (let attempt = 0; attempt < 3; attempt += 1) {
        const began = performance.now();
        await expect(loadRepositoryConfig(root)).rejects.toMatchObject(refused(part));
        best = Math.min(best, performance.now() - began);
      }
      expect(best).toBeLessThan(100);
      rmSync(file, { recursive: true });
    }
  });

  it.each([
    ['sandbox:\n  docker:\n    host: unix:///evil.sock\n', 'sandbox.docker.host', 3],
    ['allow_root: true\n', 'allow_root', 1],
    ['sandbox:\n  network:\n    allow_bridge: true\n', 'sandbox.network.allow_bridge', 3],
    ['sandbox:\n  network:\n    allowed_networks: [x]\n', 'sandbox.network.allowed_networks', 3],
    ['sandbox:\n  security:\n    trusted_images: ["evil.io/*"]\n', 'sandbox.security.trusted_images', 3],
    ['sandbox:\n  security:\n    allow_untrusted_registries: true\n', 'sandbox.security.allow_untrusted_registries', 3],
    ['sandbox:\n  security:\n    allowed_runtimes: [evil]\n', 'sandbox.security.allowed_runtimes', 3],
    ['sandbox:\n  security:\n    seccomp_profile: unconfined\n', 'sandbox.security.seccomp_profile', 3],
    ['sandbox:\n  security:\n    capabilities_add: [SYS_ADMIN]\n', 'sandbox.security.capabilities_add', 3],
    ['sandbox:\n  security:\n    no_new_privileges: false\n', 'sandbox.security.no_new_privileges', 3],
    ['sandbox:\n  mounts:\n    allowed_host_roots: [/]\n', 'sandbox.mounts.allowed_host_roots', 3],
    ['sandbox:\n  ceilings:\n    memory_mb: 8g\n', 'sandbox.ceilings.memory_mb', 3],
    ['sandbox:\n  cleanup:\n    timeout_seconds: 1\n', 'sandbox.cleanup.timeout_seconds', 3],
    ['sandbox:\n  output:\n    save: false\n', 'sandbox.output.save', 3],
    ['docker:\n  cleanup:\n    timeout_seconds: 1\n', 'sandbox.cleanup.timeout_seconds', 3],
    ['ReadOnlyRootFilesystem: false\n', 'sandbox.security.readonly_rootfs', 1],
  ])('may never say %j', async (text, key, line) => {
    const root = repository({ '.agent/config.yml': text });
    await expect(loadRepositoryConfig(root)).rejects.toMatchObject({
      code: 'ACODE-SBX-020',
      context: { key, where: expect.stringMatching(`^\\.agent/config\\.yml:${line}:\\d+$`) as string },
      hint: expect.stringContaining('Take the line out') as string,
    });
  });

  it('may repeat the built-in value of what it cannot set', async () => {
    const containers =
      'name_prefix: acode, cleanup_orphans: true, create_timeout_seconds: 30, pull_timeout_seconds: 300';
    const text = `sandbox: { containers: { ${containers} }, cleanup: { timeout_seconds: 30 }, docker: { host: null } }`;
    expect(await loadRepositoryConfig(repository({ '.agent/config.yml': text }))).not.toBeNull();
    const root = repository({ '.agent/config.yml': text.replace('acode,', 'mine,') });
    await expect(loadRepositoryConfig(root)).rejects.toMatchObject({ code: 'ACODE-SBX-020' });
  });

  it('may repeat what is fixed', async () => {
    const root = repository({ '.agent/config.yml': 'sandbox: { security: { capabilities_drop: [ALL] } }' });
    expect(await loadRepositoryConfig(root)).not.toBeNull();
  });

  it('cannot set yet what a host takes once', async () => {
    const root = repository({ '.agent/config.yml': 'sandbox: { containers: { max_concurrent: 16 } }' });
    await expect(loadRepositoryConfig(root)).rejects.toMatchObject({ code: 'ACODE-SBX-016' });
  });
});
