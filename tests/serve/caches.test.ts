// With caches nothing can wait: the server says so, instead of promising what no command would see.

import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { Bench } from '../cli/bench.ts';
import { mainEngine, withoutEngines } from '../support/engines.ts';

describe.skipIf(withoutEngines)('a server of a project with a cache', () => {
  it('says which commands begin at once', { timeout: 90_000 }, async () => {
    await using bench = await Bench.at(mainEngine);
    writeFileSync(join(bench.workspace, 'package.json'), '{}');
    const announced = async (): Promise<string> => {
      const { child, ended } = bench.start(['serve']);
      const [said] = (await once(child.stderr ?? child, 'data')) as [Buffer];
      child.kill('SIGTERM');
      await ended;
      return said.toString();
    };
    expect(await announced()).toContain('`acode run` begins at once here.');
    expect((await bench.exec(['--fill-cache', 'npm', '--', 'true'])).status).toBe(0);
    try {
      expect(await announced()).toContain('`acode run --no-caches` begins at once here.');
    } finally {
      await bench.call(['sandbox', 'cleanup', '--volumes']);
    }
  });
});
