// The image of a workspace by the files in it, on real engines: chosen, explained, and missed with the reason.

import { writeFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import type { ConfigInput } from '@acode/sandbox';
import { TestHost, images, mainEngine, withoutEngines } from '../support/engines.ts';

const SYSTEM = ['sh', '-c', 'cat /etc/os-release 2>/dev/null || echo busybox'];

async function hostWith(files: readonly string[], sandbox: ConfigInput['sandbox']): Promise<TestHost> {
  const host = await TestHost.open(mainEngine, { config: { sandbox: { images: {}, ...sandbox } } });
  for (const file of files) writeFileSync(host.file(file), '');
  return host;
}

describe.skipIf(withoutEngines)('the image of a workspace', () => {
  it('is that of its language, and the default’s without one', async () => {
    const config = { images: { default: images.busybox, python: images.debian } };
    await using host = await hostWith(['setup.py'], config);
    expect((await host.acode.run(SYSTEM)).stdout).toContain('debian');
    await using other = await hostWith(['setup.txt'], config);
    expect((await other.acode.run(SYSTEM)).stdout).toBe('busybox\n');
    expect((await other.acode.run(SYSTEM, { policy: { image: images.debian } })).stdout).toContain('debian');
  });

  it('is explained by the file that led to it, and shown by the status', async () => {
    await using host = await hostWith(['requirements.txt'], { images: { python: images.debian } });
    const { policy, notes } = await host.acode.explain('true');
    expect(policy.image).toMatchObject({ value: images.debian, layer: 'user' });
    expect(notes).toContain(`The image is ${images.debian} because requirements.txt says python.`);
    expect((await host.acode.status()).defaultImage).toBe(images.debian);
  });

  it('is missed with its name and the file that led to it', async () => {
    await using host = await hostWith(['go.mod'], { images: { pull_policy: 'never' } });
    await expect(host.acode.run('true')).rejects.toMatchObject({
      code: 'ACODE-SBX-009',
      message: expect.stringMatching(/golang:1-bookworm \(because go\.mod says go\) is not on this engine/),
    });
    // The control: without the file another image is missed.
    await using other = await hostWith([], { images: { pull_policy: 'never' } });
    await expect(other.acode.run('true')).rejects.toMatchObject({ message: expect.stringContaining('ubuntu:22.04') });
  });

  it('of several languages is the combined one, and without one the run is refused', async () => {
    const files = ['package.json', 'App.csproj'];
    await using host = await hostWith(files, { images: { combined: { 'dotnet+node': images.debian } } });
    expect((await host.acode.run(SYSTEM)).stdout).toContain('debian');
    await using other = await hostWith(files, { images: { node: images.debian } });
    await expect(other.acode.run(SYSTEM)).rejects.toMatchObject({
      code: 'ACODE-SBX-017',
      message: expect.stringContaining('App.csproj says dotnet, package.json says node'),
    });
    expect((await other.acode.run(SYSTEM, { policy: { image: images.debian } })).stdout).toContain('debian');
  });
});
