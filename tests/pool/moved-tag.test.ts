// A name that comes to mean another image while sandboxes of the first one wait, and while its meaning is remembered.

import { request } from 'node:http';
import { describe, expect, it } from 'vitest';
import { TestHost, engines, images, withoutEngines } from '../support/engines.ts';
import { until } from '../support/waiting.ts';

const KIND = 'if [ -e /etc/debian_version ]; then echo debian; else echo busybox; fi';

function ask(socketPath: string, method: string, path: string): Promise<number> {
  return new Promise((resolve, reject) => {
    const asked = request({ socketPath, method, path, timeout: 20_000 }, response => {
      response.resume().on('end', () => resolve(response.statusCode ?? 0));
    });
    asked.on('timeout', () => asked.destroy(new Error(`${path}: no answer`)));
    asked.on('error', reject).end();
  });
}

for (const engine of engines)
  describe.skipIf(withoutEngines)(`a name on ${engine.name} that is given to another image`, () => {
    it('is noticed by the next command, whatever waits', async () => {
      const repository = `acode-test/moving-${process.pid}`;
      const image = `${repository}:1`;
      const name = (which: string): Promise<number> =>
        ask(engine.socket, 'POST', `/images/${encodeURIComponent(which)}/tag?repo=${repository}&tag=1`);
      expect(await name(images.busybox)).toBe(201);
      try {
        const config = { sandbox: { images: { default: image } } };
        await using host = await TestHost.open(engine, { config, pool: { min: 1, max: 2 } });
        const waits = async (): Promise<boolean> => (await host.acode.explain(KIND)).warm;
        for (let round = 0; round < 3; round += 1) {
          await until(waits);
          expect(await host.acode.run(KIND)).toMatchObject({ stdout: 'busybox\n', warm: true });
        }
        await until(waits);
        expect(await name(images.debian)).toBe(201);
        // The engine tells of it on another connection than it answers on.
        await new Promise(resolve => void setTimeout(resolve, 50));
        expect(await host.acode.run(KIND)).toMatchObject({ stdout: 'debian\n', warm: false });
        // What waited for the first image waits for nobody, and goes.
        await until(waits);
        expect(await host.acode.run(KIND)).toMatchObject({ stdout: 'debian\n', warm: true });
      } finally {
        expect(await ask(engine.socket, 'DELETE', `/images/${encodeURIComponent(image)}`)).toBe(200);
      }
    });
  });
