// Shows that files go in and come out of a container unchanged, and no faster than they are read.
import { createHash, randomBytes } from 'node:crypto';
import { Readable } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { Bench, engines, withoutEngines } from './engines.ts';
import { tarOf } from './tar.ts';

const megabyte = 1024 * 1024;

async function bytesOf(stream: Readable): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(Buffer.from(chunk));
  return Buffer.concat(chunks);
}

describe.skipIf(withoutEngines).each(engines)('archives on $name', engine => {
  it.each(['bytes', 'a stream'])('are put as %s and got back', async form => {
    await using bench = await Bench.at(engine);
    const { archive } = bench.engine;
    const content = randomBytes(3 * megabyte + 17);
    const digest = createHash('sha256').update(content).digest('hex');
    const id = await bench.container('sha256sum /tmp/in.bin | cut -c1-64');
    const tar = tarOf('in.bin', content);
    const chunks = Array.from({ length: Math.ceil(tar.length / 50_000) }, (_, index) =>
      tar.subarray(index * 50_000, (index + 1) * 50_000),
    );
    await archive.put(id, '/tmp', form === 'bytes' ? tar : Readable.from(chunks, { objectMode: false }), bench);
    const got = await bytesOf(await archive.get(id, '/tmp/in.bin', bench));
    expect(got.subarray(512, 512 + content.length).equals(content)).toBe(true);
    await expect(bench.run(id)).resolves.toMatchObject({ stdout: `${digest}\n` });
  });

  it('that are refused are refused before they are sent', async () => {
    await using bench = await Bench.at(engine);
    const { archive } = bench.engine;
    const endless = () =>
      new Readable({
        read() {
          this.push(Buffer.alloc(64 * 1024));
        },
      });
    const id = await bench.container('true', { HostConfig: { ReadonlyRootfs: true } });
    const refused = endless();
    // 500 on Docker 20.10, 400 on 28, 403 in the documentation.
    await expect(archive.put(id, '/tmp', refused, bench)).rejects.toMatchObject({
      kind: 'status',
      engineMessage: expect.stringContaining('read-only'),
    });
    await expect(archive.put(id, '/no/such/place', endless(), bench)).rejects.toMatchObject({
      kind: 'status',
      status: 404,
    });
    await expect(archive.get(id, '/no/such/place', bench)).rejects.toMatchObject({ kind: 'status', status: 404 });
    expect(refused.destroyed).toBe(true);
  });

  it('wait for their reader, and end when he leaves', async () => {
    await using bench = await Bench.at(engine);
    const { archive } = bench.engine;
    const id = await bench.container('dd if=/dev/zero of=/tmp/big bs=1M count=100 2>/dev/null');
    await bench.run(id);
    const before = process.memoryUsage().rss;
    const stream = await archive.get(id, '/tmp/big', bench);
    await new Promise(resolve => setTimeout(resolve, 300));
    expect(process.memoryUsage().rss - before).toBeLessThan(20 * megabyte);
    for await (const chunk of stream) {
      expect(Buffer.from(chunk).length).toBeGreaterThan(0);
      break;
    }
    expect(stream.destroyed).toBe(true);
  });
});
