// What a caller brings along (a logger, metrics) may fail as it likes: sandboxes go, and closing comes to its end.

import { expect, it } from 'vitest';
import { TestHost, mainEngine, withoutEngines } from '../support/engines.ts';
import { reapersIn } from '../support/remains.ts';

const soon = 10_000;

it.skipIf(withoutEngines).each(['debug', 'info', 'warn', 'error', 'metrics'])(
  'a caller’s %s that throws costs no sandbox',
  async what => {
    const quiet = (): void => undefined;
    let failed = 0;
    const fails = (): never => {
      failed += 1;
      throw new Error('disk full');
    };
    const logger = {
      debug: quiet,
      info: quiet,
      warn: quiet,
      error: quiet,
      ...(what === 'metrics' ? {} : { [what]: fails }),
    };
    const metrics = what === 'metrics' ? { increment: fails, observe: fails, gauge: fails } : undefined;
    const host = await TestHost.open(mainEngine, { logger, ...(metrics ? { metrics } : {}) });
    expect((await host.acode.run(['echo', 'hi'])).stdout).toBe('hi\n');
    await expect(host.acode.run(['/nonexistent'])).rejects.toMatchObject({ code: 'ACODE-SBX-015' });
    await host.acode.close();
    expect(await host.containers()).toEqual([]);
    if (what !== 'warn') expect(failed).toBeGreaterThan(0);
    // Dismissed, and not let loose or left waiting.
    await expect.poll(() => reapersIn(process.env['XDG_RUNTIME_DIR'] ?? ''), { timeout: soon }).toEqual([]);
    await host[Symbol.asyncDispose]();
  },
);
