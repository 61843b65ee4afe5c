// Names and labels can be read by anybody who may ask the engine, so they say session and task and nothing secret.

import { userInfo } from 'node:os';
import { basename } from 'node:path';
import { describe, expect, it } from 'vitest';
import { TestHost, images, mainEngine, withoutEngines } from '../support/engines.ts';

describe.skipIf(withoutEngines)('a name', () => {
  it('says session and task, and nothing of the command, the workspace, the image or the user', async () => {
    await using host = await TestHost.open(mainEngine, { sessionId: 'a1b2c3d4-0000-4000-8000-000000000000' });
    const { spec } = await host.acode.explain(['deploy', '--token', 'hunter2'], {
      taskId: 'build',
      env: { SECRET: 'hunter3' },
      policy: { image: images.debian },
    });
    expect(spec.identity.name).toBe('acode-a1b2c3d4-build-001');
    const told = JSON.stringify(spec.identity);
    for (const secret of ['deploy', 'hunter', basename(host.workspace), 'debian', userInfo().username])
      expect(told).not.toContain(secret);
  });

  it.each([
    ['a GitHub token', `ghp_${'a1B2'.repeat(9)}`],
    ['a model key', `sk-ant-api03-${'x1Y2'.repeat(10)}`],
    ['an AWS key id', 'AKIAIOSFODNN7EXAMPLE'],
  ])('is never made of %s', async (_, secret) => {
    await using host = await TestHost.open(mainEngine);
    for (const ids of [{ taskId: secret }, { sessionId: secret }])
      await expect(host.acode.explain(['true'], ids)).rejects.toMatchObject({ code: 'ACODE-SBX-017' });
    await expect(TestHost.open(mainEngine, { sessionId: secret, workspace: host.workspace })).rejects.toMatchObject({
      code: 'ACODE-SBX-017',
    });
  });
});

describe.skipIf(withoutEngines)('a label', () => {
  const labelled = (labels: Readonly<Record<string, string>>) => ({
    config: { sandbox: { images: { default: images.busybox }, containers: { labels } } },
  });

  it('holds nothing of the command, its environment or its input, as the engine has it', async () => {
    await using host = await TestHost.open(mainEngine, labelled({ team: 'blue' }));
    await using command = await host.acode.spawn(['sh', '-c', 'echo "$SECRET"; cat', 'hunter1'], {
      env: { SECRET: 'hunter2' },
    });
    await command.write('hunter3\n');
    const labels = (await host.acode.list()).find(({ sessionId }) => sessionId === host.session)?.labels;
    expect(labels).toMatchObject({ team: 'blue', 'acode.session': host.session });
    expect(JSON.stringify(labels)).not.toContain('hunter');
    await command.closeStdin();
    expect((await command.result).stdout).toBe('hunter2\nhunter3\n');
  });

  it.each([
    ['a known token', { ci: `ghp_${'a1B2'.repeat(9)}` }],
    ['a name that says so', { 'deploy-token': 'hunter2' }],
    ['an address with a password', { mirror: 'https://me:hunter2@example.invalid/' }],
  ])('of one’s own that looks like a secret is refused and not repeated: %s', async (_, labels) => {
    const [[name, secret] = ['', '']] = Object.entries(labels);
    await using other = await TestHost.open(mainEngine);
    const opening = TestHost.open(mainEngine, { ...labelled(labels), workspace: other.workspace });
    const refused = await opening.catch((error: unknown) => error);
    expect(refused).toMatchObject({ code: 'ACODE-SBX-013', context: { key: `sandbox.containers.labels.${name}` } });
    expect(String(refused)).not.toContain(secret);
  });
});
