// Ten thousand files in and out of a sandbox within three seconds each way, on every engine.

import { describe, expect, it } from 'vitest';
import { TestHost, engines, images, withoutEngines } from '../support/engines.ts';
import { moveMany } from './weights.ts';

const MOST_MS = 3000;
const places = engines.flatMap(engine =>
  [images.busybox, images.debian].map(image => ({ engine, image, name: `${engine.name} with ${image}` })),
);

describe.skipIf(withoutEngines).each(places)('10,000 files on $name', ({ engine, image }) => {
  // ext4 does not give out an inode again for a minute, and looks through all of those for each new file: after a test that
  // removed many, any program takes seconds to write 10,000.
  it('go in and come out in time, or as fast as the disk takes them', async () => {
    await using host = await TestHost.open(engine, { config: { sandbox: { images: { default: image } } } });
    await using sandbox = await host.acode.create();
    const { upMs, downMs, plainMs } = await moveMany(sandbox.files, '/tmp/many');
    process.stderr.write(
      `FIGURE 10,000 files, ${engine.name}, ${image}: up ${upMs} ms, down ${downMs} ms, written without a sandbox ${plainMs} ms\n`,
    );
    expect(upMs).toBeLessThan(MOST_MS);
    expect(downMs).toBeLessThan(Math.max(MOST_MS, 2 * plainMs));
  });
});
