// Files left by an unused warm sandbox: the host program is notified of them, and is not called if there are none.

import { mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import type { SandboxSpec } from '../contract/spec.ts';
import { UnusedScans } from './obtaining.ts';
import type { UnusedHost } from './obtaining.ts';

it.each([
  ['planted a file', '.envrc', ['evil:1 .envrc']],
  ['planted nothing', null, []],
] as const)('a warm sandbox that %s', async (_, planted, expected) => {
  const workspace = realpathSync(mkdtempSync(join(tmpdir(), 'acode-unused-')));
  onTestFinished(() => rmSync(workspace, { recursive: true }));
  const sinceMs = Date.now() - 1000;
  if (planted !== null) writeFileSync(join(workspace, planted), 'evil');
  // The clock that stamps files lags slightly behind.
  await new Promise(resolve => setTimeout(resolve, 50));
  const kept: Promise<unknown>[] = [];
  const logged: string[] = [];
  const host = {
    audit: { append: async () => undefined },
    closing: new AbortController().signal,
    keep: (work: Promise<unknown>) => void kept.push(work),
    session: { id: 's' },
    telemetry: { log: (level: string) => void logged.push(level) },
  } as unknown as UnusedHost;
  const heard: string[] = [];
  const scans = new UnusedScans(host, ({ riskyChanges }, image) => {
    heard.push(...riskyChanges.map(({ path }) => `${image} ${path}`));
    throw new Error('of the opener');
  });
  const identity = { device: 1, inode: 1 };
  const mounts = [{ purpose: 'workspace', source: workspace, target: '/workspace', readOnly: false, identity }];
  const image = { reference: 'evil:1' };
  const of = { sandboxId: 'a', correlationId: 'b' };
  scans.add({ mounts, image, level: 'docker', identity: of } as unknown as SandboxSpec, sinceMs);
  for (const work of kept) await work;
  expect(heard).toEqual(expected);
  // An error thrown by the host program’s callback is logged, and changes nothing.
  expect(logged).toEqual(planted === null ? ['debug'] : ['warn', 'error']);
});
