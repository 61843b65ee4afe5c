// A server says that a sandbox is warm when one is; where none can be, it says why and what to do.

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { Bench } from '../cli/bench.ts';
import { mainEngine, withoutEngines } from '../support/engines.ts';

/** What a server says until it knows whether a sandbox is warm. */
async function announced(bench: Bench): Promise<string> {
  const { child, ended } = bench.start(['serve']);
  let said = '';
  child.stderr?.on('data', (chunk: Buffer) => {
    said += chunk.toString();
    if (/ready:|no sandbox/.test(said)) child.kill('SIGTERM');
  });
  await ended;
  return said;
}

describe.skipIf(withoutEngines)('a server', () => {
  it('says that a sandbox is warm, and in a project with a cache which commands can have one', async () => {
    await using bench = await Bench.at(mainEngine);
    writeFileSync(join(bench.workspace, 'package.json'), '{}');
    expect(await announced(bench)).toContain('ready: a sandbox of acode-test/busybox:1 is warm');
    expect((await bench.exec(['--fill-cache', 'npm', '--', 'true'])).status).toBe(0);
    try {
      expect(await announced(bench)).toContain('`acode run --no-caches` can use a warm sandbox.');
    } finally {
      await bench.call(['sandbox', 'cleanup', '--volumes']);
    }
  });

  it('promises nothing where the image is not there, and says how to get it', async () => {
    await using bench = await Bench.at(mainEngine);
    await bench.configure({ images: { default: 'busybox:0.0-absent' } });
    const said = await announced(bench);
    expect(said).toContain('Reason: the image busybox:0.0-absent is not on this engine');
    expect(said).toMatch(/`acode sandbox pull \S*busybox:0\.0-absent` fetches it/);
    expect(said).not.toContain('at once');
  });
});
