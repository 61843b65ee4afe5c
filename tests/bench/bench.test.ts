// The bench itself leaves nothing on an engine when it is interrupted. What it measures, .ci/run shows with `--check`.

import { spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, it } from 'vitest';
import { mainEngine, withEngine, withoutEngines } from '../support/engines.ts';

const PROGRAM = fileURLToPath(new URL('../../bench/bench.mjs', import.meta.url));
const top = mkdtempSync('/var/tmp/acode-test-bench-');
afterAll(() => rmSync(top, { recursive: true, force: true }));

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
  return { child, began, ended, text: () => text };
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
