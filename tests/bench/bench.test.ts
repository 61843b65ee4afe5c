// The bench itself: it measures what it says on a real engine, and leaves nothing there, interrupted or not.

import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, it } from 'vitest';
import * as z from 'zod';
import { mainEngine, withEngine, withoutEngines } from '../support/engines.ts';

const PROGRAM = fileURLToPath(new URL('../../bench/bench.mjs', import.meta.url));
const top = mkdtempSync('/var/tmp/acode-test-bench-');
afterAll(() => rmSync(top, { recursive: true, force: true }));

const documentSchema = z.looseObject({
  schema: z.literal('acode.bench/1'),
  failure: z.string().nullable(),
  complaints: z.array(z.string()),
  rows: z.array(
    z.looseObject({
      group: z.string(),
      place: z.string(),
      name: z.string(),
      n: z.number().optional(),
      p50: z.number().optional(),
    }),
  ),
});

/** Starts a bench; `began` resolves at the first thing it says, which is what it measures first. */
function bench(name: string, words: readonly string[]) {
  const json = join(top, `${name}.json`);
  const child = spawn(process.execPath, [PROGRAM, '--quick', '--json', json, ...words], { timeout: 140_000 });
  let text = '';
  const began = new Promise<void>(resolve => {
    for (const stream of [child.stdout, child.stderr])
      stream.on('data', (chunk: Buffer) => {
        text += chunk.toString();
        resolve();
      });
  });
  const ended = new Promise<number | null>(resolve => child.on('close', resolve));
  const document = () => documentSchema.parse(JSON.parse(readFileSync(json, 'utf8')));
  return { child, began, ended, document, text: () => text };
}

async function left(label: string): Promise<number> {
  const signal = AbortSignal.timeout(10_000);
  return withEngine(
    mainEngine,
    async engine => (await engine.containers.list({ labels: [label], all: true, signal })).length,
  );
}

function scratch(): string[] {
  return readdirSync('/var/tmp').filter(name => name.startsWith('acode-bench-'));
}

const MINE = `acode-bench.uid=${process.getuid?.()}`;

describe.skipIf(withoutEngines)('the bench', () => {
  it('measures the bare engine, and acode cold and warm beside it, and leaves nothing', async () => {
    const before = scratch();
    const { ended, document, text } = bench('sequential', ['--only', mainEngine.name, 'sequential', 'output']);
    expect(await ended, text()).toBe(0);
    const { rows, failure, complaints } = document();
    expect({ failure, complaints }).toEqual({ failure: null, complaints: [] });
    for (const group of ['sequential.firstByte', 'sequential.result', 'output.bandwidth', 'output.line'])
      for (const name of ['bare engine', 'acode cold', 'acode warm']) {
        const row = rows.find(one => one.group === group && one.place === mainEngine.name && one.name === name);
        expect(row, `${group} of ${name}`).toMatchObject({ n: expect.any(Number) as number });
        expect(row?.p50).toBeGreaterThan(0);
      }
    expect(text()).toContain('FIGURE');
    expect(await left(MINE)).toBe(0);
    expect(scratch()).toEqual(before);
  });

  it('leaves nothing when it is interrupted in the middle of a burst', async () => {
    const before = scratch();
    const { child, began, ended, text } = bench('interrupted', ['--only', mainEngine.name, 'burst']);
    await began;
    // Without containers of its own at that moment there would be nothing to leave.
    await expect.poll(() => left(MINE), { timeout: 60_000, interval: 20 }).toBeGreaterThan(3);
    child.kill('SIGINT');
    expect(await ended, text()).toBe(130);
    expect(await left(MINE)).toBe(0);
    expect(scratch()).toEqual(before);
  });

  it('refuses a place that is not there, and measures nothing', async () => {
    const { ended, text } = bench('unknown', ['--only', 'no-such-engine']);
    expect(await ended).toBe(2);
    expect(text()).toContain('nothing here has the name no-such-engine');
  });
});
