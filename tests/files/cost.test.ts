// Ten thousand files in and out of a sandbox within three seconds each way, on every engine.

import { describe, expect, it } from 'vitest';
import { TestHost, engines, images, withoutEngines } from '../support/engines.ts';
import { moveMany } from './weights.ts';

const MOST_MS = 3000;
const places = engines.flatMap(engine =>
  [images.busybox, images.debian].map(image => ({ engine, image, name: `${engine.name} with ${image}` })),
);

describe.skipIf(withoutEngines).each(places)('10,000 files on $name', ({ engine, image }) => {
  it('go in and come out in time', async () => {
    await using host = await TestHost.open(engine, { config: { sandbox: { images: { default: image } } } });
    await using sandbox = await host.acode.create();
    const { upMs, downMs } = await moveMany(sandbox.files, '/tmp/many');
    process.stderr.write(`10,000 files, ${engine.name}, ${image}: up ${upMs} ms, down ${downMs} ms\n`);
    expect(upMs).toBeLessThan(MOST_MS);
    expect(downMs).toBeLessThan(MOST_MS);
  });
});
