// What files of a sandbox can do, with the tools of this host and with busybox.

import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { promisify } from 'node:util';
import { afterAll, describe, expect, it } from 'vitest';
import { AcodeError } from '@acode/sandbox';
import { filesOf } from '../../packages/sandbox/src/persistent/files/files.ts';
import { argvOf } from '../../packages/sandbox/src/persistent/files/scripts.ts';
import { PLACE_FILE } from '../../packages/sandbox/src/persistent/files/programs.ts';
import { everything } from '../support/targets.ts';
import { behaviours } from './behaviours.ts';
import type { FileTarget } from './behaviours.ts';
import { InsideHost, emptyTools, removeTools, toolSets } from './inside-host.ts';
import type { Tools } from './inside-host.ts';
import { moveMany, streamLarge } from './weights.ts';

const sets = toolSets();
const bare = emptyTools(['sh', 'stat', 'cat']);
const run = promisify(execFile);

afterAll(() => removeTools([...sets, bare]));

function targetWith(tools: Tools): Promise<FileTarget> {
  const root = mkdtempSync('/var/tmp/acode-test-inside-');
  return Promise.resolve({
    root,
    files: filesOf(new InsideHost(tools), { workdir: root }),
    sh: async (script: string) => void (await run('/bin/sh', ['-c', script])),
    [Symbol.asyncDispose]: () => Promise.resolve(rmSync(root, { recursive: true, force: true })),
  });
}

describe.each(sets)('files with $name', tools => {
  behaviours(() => targetWith(tools));

  it('leave nothing of a file whose sender is gone in the middle', async () => {
    await using ground = await targetWith(tools);
    const words = [`${ground.root}/file`, ground.root, '', '', `${ground.root}/part`, '10'];
    const send = async (text: string): Promise<number> => {
      const program = await new InsideHost(tools).open(argvOf(PLACE_FILE, words), AbortSignal.timeout(60_000));
      await program.write(text);
      await program.closeStdin();
      return (await program.ended).exitCode;
    };
    expect(await send('too short')).not.toBe(0);
    expect(await ground.files.readdir('.')).toEqual([]);
    // The control.
    expect(await send('ten of it.')).toBe(0);
    expect(await ground.files.readdir('.')).toEqual(['file']);
  });

  it('hold no more than a little of what streams through them', async () => {
    await using ground = await targetWith(tools);
    // Less than half of what goes through.
    expect(await streamLarge(ground.files, 'large', 256)).toBeLessThan(120);
  });
});

it.each(everything ? sets : sets.slice(0, 1))('ten thousand files are moved at once with $name', async tools => {
  await using ground = await targetWith(tools);
  expect(await moveMany(ground.files, 'many')).toEqual([10_100, 10_100]);
});

describe('an image that lacks a program', () => {
  it('is told which one, and what needs it', async () => {
    await using ground = await targetWith(bare);
    const { files } = ground;
    const missing = (program: string, operation: string): object =>
      expect.objectContaining({ code: 'ACODE-FIL-001', context: { program, operation } });
    await expect(files.upload(ground.root, 'x')).rejects.toEqual(missing('mkdir', 'upload'));
    await expect(files.download('.', `${ground.root}/y`)).rejects.toEqual(missing('tar', 'download'));
    await expect(files.readdir('.')).rejects.toEqual(missing('find', 'readdir'));
    await expect(files.writeFile('x', 'y')).rejects.toBeInstanceOf(AcodeError);
    // The control: what it does have is enough for what needs no more.
    expect((await files.stat('.')).isDirectory()).toBe(true);
  });
});
