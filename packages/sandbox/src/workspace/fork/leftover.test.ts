// Leftovers of an interrupted apply: what is said, and what to type, where the journal is not at hand.

import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { open } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { applyChanges, resumeApply, rollBackApply } from './apply.ts';
import type { ApplySettings } from './apply.ts';
import { hasLeftover, leftoverOf } from './leftover.ts';

let top = '';
beforeEach(() => {
  top = mkdtempSync(join(tmpdir(), 'acode-leftover-'));
});
afterEach(() => rmSync(top, { recursive: true, force: true }));

const at = (name: string): string => join(top, name);
const settings = (workspace = at('project')): ApplySettings => ({
  stateDirectory: at('state'),
  workspace,
  durable: false,
});
const change = { path: 'a', change: 'changed', kind: 'file' } as const;

/** An apply that ends before its first step is taken. */
async function interrupted(): Promise<void> {
  mkdirSync(at('project'));
  writeFileSync(at('project/a'), 'one\n');
  writeFileSync(at('base'), 'one\n');
  writeFileSync(at('new'), 'two\n');
  const applied = { change, open: () => open(at('new')), openBase: () => open(at('base')) };
  const killed = applyChanges([applied], {
    ...settings(),
    ...{ forkId: 'k7m2pqrt', diffId: 'd', startedAt: 0, signal: AbortSignal.timeout(10_000) },
    onProgress: () => {
      throw new Error('killed');
    },
  });
  await expect(killed).rejects.toThrow('killed');
}

describe('an interrupted apply', () => {
  it('of a directory that was renamed names the earlier path, where it is then finished', async () => {
    await interrupted();
    renameSync(at('project'), at('another name'));
    const elsewhere = settings(at('another name'));
    for (const end of [resumeApply, rollBackApply]) {
      const error = await end(elsewhere).catch((reason: unknown) => reason);
      expect(error).toMatchObject({
        code: 'ACODE-FRK-022',
        context: { earlier: at('project') },
        hint: expect.stringContaining(`mv '${at('another name')}' ${at('project')}`) as string,
      });
    }
    renameSync(at('another name'), at('project'));
    expect(await resumeApply(settings())).toMatchObject({ outcome: 'applied' });
    expect(readFileSync(at('project/a'), 'utf8')).toBe('two\n');
  });

  it('is not looked for in another directory', async () => {
    await interrupted();
    cpSync(at('project'), at('copy'), { recursive: true });
    await expect(resumeApply(settings(at('copy')))).rejects.toMatchObject({ code: 'ACODE-FRK-012' });
    renameSync(at('project'), at('moved'));
    mkdirSync(at('project'));
    // Something else has the earlier name: a rename would be refused, or worse.
    await expect(resumeApply(settings(at('moved')))).rejects.toMatchObject({ code: 'ACODE-FRK-012' });
  });
});

describe('files that an apply had replaced', () => {
  beforeEach(() => {
    mkdirSync(at('project/.acode-apply/old'), { recursive: true });
    writeFileSync(at('project/.acode-apply/old/0'), 'mine\n');
  });

  it('are named with what to type, if no journal says where they belong', async () => {
    expect(hasLeftover(at('project'))).toBe(true);
    const error = leftoverOf(at('project'), at('state/applies/x'));
    expect(error).toMatchObject({ code: 'ACODE-FRK-022', context: { directory: at('project/.acode-apply') } });
    expect(error?.hint).toContain(`rm -r ${at('project/.acode-apply')}`);
    await expect(rollBackApply(settings())).rejects.toMatchObject({ code: 'ACODE-FRK-022' });
    expect(readFileSync(at('project/.acode-apply/old/0'), 'utf8')).toBe('mine\n');
    rmSync(at('project/.acode-apply'), { recursive: true });
    await expect(rollBackApply(settings())).rejects.toMatchObject({ code: 'ACODE-FRK-012' });
  });

  it('are none where there is only what acode itself had made, or a link', () => {
    rmSync(at('project/.acode-apply/old/0'));
    mkdirSync(at('project/.acode-apply/new'));
    writeFileSync(at('project/.acode-apply/new/0'), 'x\n');
    expect(hasLeftover(at('project'))).toBe(false);
    rmSync(at('project/.acode-apply/old'), { recursive: true });
    symlinkSync('/', at('project/.acode-apply/old'));
    expect(hasLeftover(at('project'))).toBe(false);
    rmSync(at('project/.acode-apply'), { recursive: true });
    symlinkSync('/', at('project/.acode-apply'));
    expect(hasLeftover(at('project'))).toBe(false);
    expect(existsSync(at('state'))).toBe(false);
    expect(readdirSync(at('project'))).toEqual(['.acode-apply']);
  });
});
