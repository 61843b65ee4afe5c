// An engine that is started anew while sandboxes wait on it: they are gone, and the next command has one that was made since.

import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { TestHost } from '../support/engines.ts';
import { heal, make, trouble, withoutTrouble } from '../support/trouble.ts';
import { until } from '../support/waiting.ts';

describe.skipIf(withoutTrouble)('pre-started sandboxes on an engine', () => {
  beforeAll(() => heal());
  afterAll(() => heal());

  for (const what of ['restart', 'kill'] as const)
    it(`are not used any more after a ${what} of it`, async () => {
      await using host = await TestHost.open(trouble, { pool: { min: 1, max: 2 } });
      const waits = async (): Promise<boolean> => (await host.acode.explain(['true'])).warm;
      await until(waits);
      const before = (await host.containers()).map(({ id }) => id);
      expect(before.length).toBeGreaterThan(0);
      await make(what);
      await heal();
      const result = await host.acode.run(['echo', 'again']);
      expect(result).toMatchObject({ stdout: 'again\n', exitCode: 0 });
      expect(before).not.toContain(result.containerId);
      await until(waits);
      expect(await host.acode.run(['echo', 'warm'])).toMatchObject({ stdout: 'warm\n', warm: true });
    });
});
