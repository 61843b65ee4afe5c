// Removing what untrusted code has filled: deeper than a path can say, closed, and with links to what must stay.

import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  realpathSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { removeTree } from '../../workspace/removal.ts';
import { hashContents } from './contents.ts';
import { Stage, removeForgottenStages } from './stage.ts';

let top = '';
const before = process.env['TMPDIR'];

beforeEach(() => {
  top = realpathSync(mkdtempSync('/var/tmp/acode-removal-'));
});

afterEach(() => {
  if (before === undefined) delete process.env['TMPDIR'];
  else process.env['TMPDIR'] = before;
  // What a failed test has left may be what only a shell can reach.
  execFileSync('chmod', ['-R', 'u+rwx', top]);
  rmSync(top, { recursive: true, force: true });
});

/** A chain of directories that no path can name: 40 names of 250 characters. */
function deep(root: string): void {
  const script =
    'cd "$1" && for n in $(seq 40); do mkdir "$2" && cd -P "$2" || exit 1; done && echo x > file && chmod 000 .';
  execFileSync('bash', ['-c', script, 'sh', root, 'd'.repeat(250)]);
}

describe('a directory', () => {
  it('whose paths are longer than the kernel takes is removed', async () => {
    const root = join(top, 'stage');
    mkdirSync(root);
    deep(root);
    // The control: that is more than Node.js can remove.
    expect(() => rmSync(root, { recursive: true })).toThrow(/ENAMETOOLONG|EACCES|ENOTEMPTY/);
    expect(existsSync(root)).toBe(true);
    await removeTree(root);
    expect(readdirSync(top)).toEqual([]);
  });

  it('with closed directories is removed, and what its links lead to is not', async () => {
    const root = join(top, 'stage');
    mkdirSync(join(root, 'closed', 'inner', 'more'), { recursive: true });
    writeFileSync(join(root, 'closed', 'inner', 'file'), 'x');
    mkdirSync(join(top, 'of-the-host'), { mode: 0o755 });
    writeFileSync(join(top, 'of-the-host', 'file'), 'mine');
    symlinkSync(join(top, 'of-the-host'), join(root, 'closed', 'way'));
    symlinkSync(join(top, 'of-the-host'), join(root, 'way'));
    for (const path of ['closed/inner/more', 'closed/inner', 'closed', '.']) chmodSync(join(root, path), 0o000);
    await removeTree(root);
    expect(readdirSync(top)).toEqual(['of-the-host']);
    expect(readdirSync(join(top, 'of-the-host'))).toEqual(['file']);
  });

  it('that is a link is not touched, and a missing one is not an error', async () => {
    mkdirSync(join(top, 'of-the-host'));
    symlinkSync('of-the-host', join(top, 'link'));
    await removeTree(join(top, 'link'));
    await removeTree(join(top, 'nothing'));
    expect(readdirSync(top).sort()).toEqual(['link', 'of-the-host']);
  });
});

describe('copies that were forgotten', () => {
  const signal = new AbortController().signal;

  /** A copy of nothing, made by a host and forgotten. */
  async function forgotten(host: string): Promise<string> {
    const context = { root: top, entries: [], bytes: 0, withheld: [] };
    const uid = process.getuid?.() ?? 0;
    const hashes = await hashContents(context, { file: join(top, 'state', 'x'), uid }, signal);
    return (await Stage.of(context, hashes, { host, left: () => undefined }, signal)).root;
  }

  it('are removed however deep they are, and new ones only of a host without a running build', async () => {
    process.env['TMPDIR'] = top;
    const [own, others] = [await forgotten('here'), await forgotten('elsewhere')];
    deep(own);
    // Only the kernel sets the time that counts.
    utimesSync(own, 1, 1);
    expect(await removeForgottenStages(signal)).toEqual({ removed: [], failed: [] });
    expect(await removeForgottenStages(signal, 'here')).toEqual({ removed: [own], failed: [] });
    expect([existsSync(own), existsSync(others)]).toEqual([false, true]);
  });

  it('that cannot be removed are named, and do not block a build', async () => {
    mkdirSync(join(top, 'place'));
    process.env['TMPDIR'] = join(top, 'place');
    const both = [await forgotten('here'), await forgotten('here')].sort();
    // Its parent may not be changed: it can be emptied but not removed.
    chmodSync(join(top, 'place'), 0o500);
    const { failed } = await removeForgottenStages(signal, 'here');
    chmodSync(join(top, 'place'), 0o700);
    if (process.getuid?.() === 0) return;
    expect(failed.map(({ path }) => path).sort()).toEqual(both);
    expect(failed[0]?.reason).toContain('EACCES');
  });
});
