// Somebody on the host replaces a file that lies under a protected mount, as every editor does that saves it: the kernel takes
// the mount away then. A persistent sandbox must not go on with that.

import { linkSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openHost } from '../conformance/host.ts';
import type { ConformanceHost } from '../conformance/host.ts';
import { withoutEngines } from '../support/engines.ts';
import { until } from '../support/waiting.ts';
import { places } from './places.ts';

const BEFORE = '{"mcpServers":{}}\n';
const AFTER = '{"mcpServers":{"own":{}}}\n';

describe.skipIf(withoutEngines).each(places)('a protected file on $name', place => {
  let host: ConformanceHost;
  let file: string;
  beforeEach(async () => {
    host = await openHost(place);
    file = join(host.workspace, '.mcp.json');
    writeFileSync(file, BEFORE);
  });
  afterEach(() => host[Symbol.asyncDispose]());

  const replace = (): void => {
    writeFileSync(`${file}.new`, AFTER);
    renameSync(`${file}.new`, file);
  };

  it('that is replaced on the host ends a persistent sandbox, before its next command', async () => {
    const sandbox = await host.acode.create();
    const plant = 'echo planted > .mcp.json';
    // The control: as long as it is the same file, the sandbox cannot write it and goes on.
    expect((await sandbox.commands.run(plant)).exitCode).not.toBe(0);
    expect(readFileSync(file, 'utf8')).toBe(BEFORE);
    replace();
    await expect(sandbox.commands.run(plant)).rejects.toMatchObject({
      code: expect.stringMatching(/^ACODE-SBX-0(?:10|25)$/) as string,
    });
    await expect(sandbox.files.writeFile('.mcp.json', 'planted')).rejects.toThrow(
      /replaced|not what was checked|mounts are not|ended|removed/,
    );
    expect(readFileSync(file, 'utf8')).toBe(AFTER);
    await sandbox.ended;
  });

  it('that is replaced on the host ends a command under way within seconds', async () => {
    const sandbox = await host.acode.create();
    const command = await sandbox.commands.run('while :; do sleep 0.2; done', { background: true });
    replace();
    await expect(command.result).rejects.toMatchObject({ code: 'ACODE-SBX-025' });
    await until(async () => (await host.remains()).length === 0);
  });

  it('that was replaced lets nobody connect to a kept sandbox', async () => {
    const kept = await host.acode.create({ keep: true });
    try {
      await kept.leave();
      const again = await host.acode.connect(kept.id);
      expect((await again.commands.run('cat .mcp.json')).stdout).toBe(BEFORE);
      await again.leave();
      replace();
      await expect(host.acode.connect(kept.id)).rejects.toMatchObject({
        code: expect.stringMatching(/^ACODE-SBX-0(?:10|26)$/) as string,
      });
    } finally {
      await host.acode.kill(kept.id);
    }
  });
});

const shown = places.filter(({ lacks }) => lacks['kernel walls'] === undefined);

describe.skipIf(withoutEngines).each(shown)('a kept sandbox on $name', place => {
  it('that has lost a mount, although everything on the host looks the same, is ended when it is looked for', async () => {
    await using host = await openHost(place);
    const file = join(host.workspace, '.mcp.json');
    writeFileSync(file, BEFORE);
    const kept = await host.acode.create({ keep: true });
    const violations: string[] = [];
    using _ = host.acode.events.on('SecurityViolation', ({ violation }) => violations.push(violation));
    await kept.leave();
    // The control: as it was made, it can be used.
    await (await host.acode.connect(kept.id)).leave();
    // The mount goes with the name it lies on; what was there gets it back, and is the same file.
    linkSync(file, `${file}.same`);
    rmSync(file);
    renameSync(`${file}.same`, file);
    await expect(host.acode.connect(kept.id)).rejects.toMatchObject({
      code: 'ACODE-SBX-010',
      hint: expect.stringContaining('acode removed it') as string,
    });
    expect(violations).toEqual(['MountMismatch']);
    await until(async () => (await host.remains()).length === 0);
  });
});
