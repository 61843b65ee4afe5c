// A gigabyte through this process in both directions, which does not grow by it.

import { describe, expect, it } from 'vitest';
import { TestHost, engines, withoutEngines } from '../support/engines.ts';
import { streamLarge } from './weights.ts';

const MEBIBYTES = 1024;
const MAX_GROWTH_MEBIBYTES = 150;

describe.skipIf(withoutEngines).each(engines)('a gigabyte on $name', engine => {
  it('goes in and comes out with flat memory', async () => {
    await using host = await TestHost.open(engine);
    await using sandbox = await host.acode.create();
    // In the workspace: what is only inside is in memory, and counts as the sandbox’s.
    const growth = await streamLarge(sandbox.files, 'large', MEBIBYTES);
    process.stderr.write(`1 GiB both ways, ${engine.name}: ${Math.round(growth)} MiB more at most\n`);
    expect(growth).toBeLessThan(MAX_GROWTH_MEBIBYTES);
  });
});
