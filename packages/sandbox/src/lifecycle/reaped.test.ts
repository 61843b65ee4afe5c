// Reports of reapers: each entry is reported once, whatever else is in the file.

import { appendFileSync, mkdtempSync, readdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { reapedPath, takeReaped } from './orphans.ts';

it('is taken once, without what cannot be read', async () => {
  const state = mkdtempSync(join(tmpdir(), 'acode-reaped-'));
  expect(await takeReaped(state)).toEqual([]);
  const network = { kind: 'network', id: 'n', name: 'net', sandboxId: '' };
  const container = { kind: 'container', id: 'c', name: 'one', sandboxId: 's' };
  const lines = [JSON.stringify(network), 'half a li', '{"kind":"image"}', JSON.stringify(container), ''];
  appendFileSync(reapedPath(state), lines.join('\n'));
  expect(await takeReaped(state)).toEqual([network, container]);
  expect(await takeReaped(state)).toEqual([]);
  expect(readdirSync(state)).toEqual([]);
});
