// A name can be read by anybody who may ask the engine, so it says session and task and nothing else.

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
