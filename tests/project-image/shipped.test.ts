// Shows the images we ship at work: in a sandbox, as nobody in particular, with what they promise and nothing beyond it.

import { createReadStream, existsSync, readFileSync } from 'node:fs';
import { request } from 'node:http';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import * as z from 'zod';
import { TestHost, engines, mainEngine, withEngine, withoutEngines } from '../support/engines.ts';
import type { TestEngine } from '../support/engines.ts';
import { ProjectBench } from './bench.ts';

// Where .ci/images/build leaves them; on another machine they may be elsewhere, or not be made at all.
const MADE = process.env['ACODE_TEST_IMAGES'] ?? '/var/lib/acode-engines/shipped';
const missing = withoutEngines || !existsSync(join(MADE, 'base.tar'));
const facts = z.object({ id: z.string(), layer: z.string(), madeOf: z.string() });

/** Loads an image that was made; it is removed when the test is over. */
async function load(engine: TestEngine, name: 'base' | 'small'): Promise<string> {
  const reference = `acode-sandbox:${name}`;
  onTestFinished(() =>
    withEngine(engine, on => on.images.remove(reference, { force: true, signal: AbortSignal.timeout(60_000) })),
  );
  await new Promise<void>((resolve, reject) => {
    const headers = { 'Content-Type': 'application/x-tar' };
    const call = request(
      { socketPath: engine.socket, method: 'POST', path: '/v1.41/images/load?quiet=1', headers, timeout: 120_000 },
      reply => {
        reply.resume();
        reply.once('end', () => (reply.statusCode === 200 ? resolve() : reject(new Error(`${reply.statusCode}`))));
      },
    );
    call.once('error', reject);
    createReadStream(join(MADE, `${name}.tar`)).pipe(call);
  });
  const { id } = facts.parse(JSON.parse(readFileSync(join(MADE, `${name}.json`), 'utf8')));
  const loaded = await withEngine(engine, on => on.images.inspect(reference, { signal: AbortSignal.timeout(60_000) }));
  expect(loaded.id).toBe(id);
  return reference;
}

// Everywhere but in what the sandbox itself mounts.
const LOOK =
  'find / -xdev \\( -perm -4000 -o -perm -2000 -o -perm -0002 \\) ! -type l ! -path /tmp ! -path "$HOME" 2>/dev/null; echo looked';

describe.skipIf(missing)('the small image', () => {
  it.each(engines)('runs commands on $name, writes where it may and nowhere else', async engine => {
    const reference = await load(engine, 'small');
    await using host = await TestHost.open(engine);
    const line =
      'id -u; touch /tmp/x "$HOME/x" /workspace/x && echo wrote; touch /etc/x /x 2>/dev/null || echo refused';
    const run = await host.acode.run(line, { policy: { image: reference } });
    expect(run).toMatchObject({ exitCode: 0, stdout: `${process.getuid?.()}\nwrote\nrefused\n` });
    expect((await host.acode.run(LOOK, { policy: { image: reference } })).stdout).toBe('looked\n');
  });
});

describe.skipIf(missing)('the base image', () => {
  it(
    'has git, Node.js, Python and an init, nothing setuid, and is what project images are built on',
    { timeout: 180_000 },
    async () => {
      const reference = await load(mainEngine, 'base');
      await using bench = await ProjectBench.at(mainEngine);
      const line =
        'git --version && node -p "1+1" && python3 -c "print(6*7)" && tini --version && test -s /etc/ssl/certs/ca-certificates.crt && touch /tmp/x && id -u';
      const run = await bench.run(reference, line);
      expect(run.stderr).toBe('');
      expect(run.stdout).toMatch(/^git version [\d.]+\n2\n42\ntini version [\d.]+.*\n\d+\n$/);
      expect((await bench.run(reference, LOOK)).stdout).toBe('looked\n');
      bench.put('main.py', 'print("from the project")');
      const image = await bench.build({
        base: reference,
        install: { command: 'python3 -m compileall -q . && echo done' },
      });
      expect((await bench.run(image.reference, 'python3 /project/main.py; ls /project')).stdout).toBe(
        'from the project\n__pycache__\nmain.py\n',
      );
    },
  );

  it.each(['base', 'small'])('%s comes with a list of what is in it', name => {
    const list = z.object({
      spdxVersion: z.string(),
      packages: z.array(z.object({ name: z.string(), versionInfo: z.string() })),
    });
    const { packages } = list.parse(JSON.parse(readFileSync(join(MADE, `${name}.spdx.json`), 'utf8')));
    const names = packages.map(one => one.name);
    expect(names).toEqual(
      expect.arrayContaining(name === 'small' ? ['busybox-static'] : ['git', 'nodejs', 'python3', 'tini', 'libc6']),
    );
  });
});
