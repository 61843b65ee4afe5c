// Path of the workspace inside: another one than /workspace, with all that is protected and masked at it.

import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { Acode, policyFrom } from '@acode/sandbox';
import type { PolicyInput } from '@acode/sandbox';
import { TestHost, images, mainEngine, makeWorkspace, withoutEngines } from '../support/engines.ts';

const withoutBubblewrap = process.getuid?.() === 0 || !existsSync('/usr/bin/bwrap');
const SCRIPT = 'pwd; cat .env; cat sub/a; echo new > written; echo x > .git/config';

function filled(workspace: string): string {
  for (const name of ['.git', 'sub']) mkdirSync(join(workspace, name));
  writeFileSync(join(workspace, '.git/config'), '[core]\n');
  writeFileSync(join(workspace, '.env'), 'SECRET=1\n');
  writeFileSync(join(workspace, 'sub/a'), 'one\n');
  return workspace;
}

async function expectAt(acode: Acode, inside: string, policy: PolicyInput): Promise<void> {
  const workspace = (await acode.status()).workspace ?? '';
  const result = await acode.run(['sh', '-c', SCRIPT], { policy, risk: 'low' });
  expect(result.stdout).toBe(`${inside}\none\n`);
  // The control: what is not protected was written, on the host.
  expect(result.stderr).toContain('Read-only file system');
  expect(readFileSync(join(workspace, 'written'), 'utf8')).toBe('new\n');
  expect(readFileSync(join(workspace, '.git/config'), 'utf8')).toBe('[core]\n');
  const fork = { policy: policyFrom({ ...policy, workspace: 'fork' }), risk: 'low', cwd: `${inside}/sub` } as const;
  expect((await acode.run(['sh', '-c', 'pwd; cat ../.env; rm a; echo x > ../.git/config'], fork)).stdout).toBe(
    `${inside}/sub\n`,
  );
  expect((await acode.forks.diff()).changes.map(({ path }) => path)).toEqual(['.git/config', 'sub/a']);
  expect(existsSync(join(workspace, 'sub/a'))).toBe(true);
  await acode.forks.discard();
}

describe.skipIf(withoutEngines)('the path of the workspace inside', () => {
  it('is the one of the configuration or of the request, and the word same is its own', async () => {
    const workspace = filled(makeWorkspace());
    const config = { sandbox: { mounts: { workspace_path: '/src/app' } } };
    await using host = await TestHost.open(mainEngine, { workspace, config });
    await expectAt(host.acode, '/src/app', {});
    await expectAt(host.acode, workspace, { workspacePath: 'same' });
    const refused = host.acode.run(['true'], { policy: { workspacePath: '/usr/src' } });
    await expect(refused).rejects.toMatchObject({ code: 'ACODE-SBX-003', context: { violation: 'ForbiddenTarget' } });
    const outside = host.acode.run(['true'], { cwd: '/workspace' });
    await expect(outside).rejects.toMatchObject({ code: 'ACODE-SBX-003', context: { workdir: true } });
  });

  it('holds for a persistent sandbox, its files and its commands', async () => {
    const workspace = filled(makeWorkspace());
    await using host = await TestHost.open(mainEngine, { workspace });
    const policy = { workspacePath: 'same', image: images.debian };
    await using sandbox = await host.acode.create({ policy });
    expect((await sandbox.run(['pwd'], { cwd: `${workspace}/sub` })).stdout).toBe(`${workspace}/sub\n`);
    expect(await sandbox.files.readFile('sub/a', 'utf8')).toBe('one\n');
    const { containerId } = sandbox;
    expect(await host.acode.inspect(containerId)).toMatchObject({ workspace });
  });
});

describe.skipIf(withoutBubblewrap)('the path of the workspace inside, at level bubblewrap', () => {
  it('is its own with `same`, below /tmp too', async () => {
    const workspace = filled(mkdtempSync('/tmp/acode-path-'));
    await using acode = await Acode.open({
      workspace,
      engine: { socket: '/nonexistent/docker.sock' },
      config: { sandbox: { level: 'bubblewrap', bubblewrap: { accept_process_limits: true } } },
    });
    await expectAt(acode, workspace, { workspacePath: 'same' });
    await expectAt(acode, '/src', { workspacePath: '/src' });
    expect(readFileSync(join(workspace, '.env'), 'utf8')).toBe('SECRET=1\n');
    rmSync(workspace, { recursive: true });
  });
});
