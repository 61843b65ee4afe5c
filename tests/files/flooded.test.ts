// Commands that stop the programs which list files for acode, and write into their output: a typed refusal, and nothing of this
// process is lost.

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { Sandbox } from '@acode/sandbox';
import { TestHost, mainEngine, withoutEngines } from '../support/engines.ts';
import { until } from '../support/waiting.ts';

const MAX_GROWTH = 200 * 1024 ** 2;

// Catches a program as soon as it runs, and prints in its place for as long as anybody reads.
const CATCHER = `#!/bin/sh
while :; do
  for p in $(pidof "$1"); do
    kill -STOP "$p" && sh -c "$2" >"/proc/$p/fd/1"
    kill -KILL "$p"
  done
done 2>/dev/null
`;
const NULS = 'head -c 250000000 /dev/zero';
const LONG_NAMES = `while head -c 4000000 /dev/zero | tr '\\0' n && printf '\\0'; do :; done`;

// As often as it takes: the catcher may come too late for one of them.
async function refusalOf(attempt: () => Promise<unknown>): Promise<unknown> {
  let error: unknown = null;
  await until(async () => {
    error = await attempt().then(
      () => null,
      (reason: unknown) => reason,
    );
    return error !== null;
  });
  return error;
}

async function firstLook(sandbox: Sandbox): Promise<void> {
  const stop = AbortSignal.timeout(3000);
  for await (const change of sandbox.files.watch('/tmp/d', { recursive: true, signal: stop }))
    expect(change).toBeDefined();
}

const FLOODS: readonly (readonly [
  call: string,
  caught: string,
  flood: string,
  act: (sandbox: Sandbox) => Promise<unknown>,
])[] = [
  ['readdir', 'find', NULS, ({ files }) => files.readdir('/tmp/d')],
  ['readdir with types', 'xargs', NULS, ({ files }) => files.readdir('/tmp/d', { withFileTypes: true })],
  ['watch', 'xargs', LONG_NAMES, firstLook],
];

describe.skipIf(withoutEngines)('a flood in place of a listing', () => {
  it.each(FLOODS)('of %s is refused, in bounded memory', async (_, caught, flood, act) => {
    await using host = await TestHost.open(mainEngine);
    writeFileSync(join(host.workspace, 'catcher'), CATCHER, { mode: 0o755 });
    await using sandbox = await host.acode.create();
    await sandbox.commands.run('mkdir /tmp/d && cd /tmp/d && seq 5000 | xargs touch');
    const stop = new AbortController();
    const catching = sandbox.commands.run(['./catcher', caught, flood], { signal: stop.signal });
    catching.catch(() => undefined);
    const before = process.memoryUsage.rss();
    let most = before;
    const timer = setInterval(() => (most = Math.max(most, process.memoryUsage.rss())), 10);
    const error = await refusalOf(() => act(sandbox));
    clearInterval(timer);
    expect(error).toMatchObject({ code: 'ACODE-FIL-002', context: { path: '/tmp/d' } });
    expect(most - before).toBeLessThan(MAX_GROWTH);
    stop.abort();
    await expect(catching).rejects.toMatchObject({ code: 'ACODE-SBX-014' });
    // The control: without it, the same directory is listed.
    expect(await sandbox.files.readdir('/tmp/d')).toHaveLength(5000);
  });
});
