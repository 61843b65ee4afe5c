// Signals: the run is stopped, its sandbox removed, and the exit status says why.

import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { engines, withoutEngines } from '../support/engines.ts';
import { Bench } from './bench.ts';

describe.skipIf(withoutEngines).each(engines)('a signal to acode on $name', engine => {
  let bench: Bench;

  beforeAll(async () => {
    bench = await Bench.at(engine);
  });

  afterAll(async () => {
    await bench[Symbol.asyncDispose]();
  });

  it.each([
    ['SIGINT', 130],
    ['SIGTERM', 143],
    ['SIGHUP', 129],
  ] as const)('%s ends the run with %i and leaves nothing', async (signal, expected) => {
    const { status, stdout, stderr } = await bench.exec(['echo started; sleep 60'], {
      onOutput: child => child.kill(signal),
    });
    expect({ status, stdout: stdout.toString() }).toEqual({ status: expected, stdout: 'started\n' });
    expect(stderr).toBe(`acode: stopped by ${signal}.\n`);
    expect(await bench.left()).toEqual([]);
  });

  it('leaves nothing either when it comes while the sandbox is being made', async () => {
    for (const wait of [350, 450, 550]) {
      const { child, ended } = bench.start(['run', 'sleep 60']);
      setTimeout(() => child.kill('SIGINT'), wait);
      const { status } = await ended;
      // Null: it came before Node had begun to listen, and so before there was anything to clean up.
      expect([130, null]).toContain(status);
      expect(await bench.left()).toEqual([]);
    }
  });

  it('is told in the JSON object, with what had been printed', async () => {
    const { child, ended } = bench.start(['run', '--json', 'echo partial; touch printed; sleep 60']);
    const printed = join(bench.workspace, 'printed');
    while (!existsSync(printed)) await new Promise(resolve => setTimeout(resolve, 50));
    setTimeout(() => child.kill('SIGINT'), 1000);
    const { status, stdout } = await ended;
    expect(status).toBe(130);
    expect(JSON.parse(stdout.toString())).toMatchObject({
      schema: 'acode.error/1',
      code: 'ACODE-SBX-014',
      context: { result: { stdout: 'partial\n', exitCode: null, scan: 'continuing' } },
    });
  });

  it('gets through when nobody reads the output', async () => {
    const { child, ended } = bench.start(['run', 'echo x; yes'], {
      read: async reader => {
        reader.stdout?.once('readable', () => setTimeout(() => reader.kill('SIGTERM'), 300));
        await new Promise(resolve => reader.once('exit', resolve));
        return Buffer.alloc(0);
      },
    });
    const { status } = await ended;
    child.stdout?.destroy();
    expect(status).toBe(143);
    expect(await bench.left()).toEqual([]);
  });
});
