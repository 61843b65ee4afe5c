// Forks that are copies: random commands in a copy, and the diff of the layers that are made of it against a full listing.

import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, lstatSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { COPY_LIMITS, CopyTooLargeError, collectCopy, makeCopy } from './copy.ts';
import { ForkDiff } from './diff.ts';
import type { ForkDiffEntry } from './diff.ts';
import { LayerStack } from './layers.ts';
import { Chance, LISTING, SEEDS, expected, reported, script, treeOf } from './random.test.support.ts';
import type { Tree } from './random.test.support.ts';

const FACTOR = Number(process.env['ACODE_PROPERTY_FACTOR'] ?? 1);
const CASES = 2 * FACTOR;
const LAYERS = 3;
const home = realpathSync(mkdtempSync(join(tmpdir(), 'acode-copies-')));
const signal = new AbortController().signal;

function remove(directory: string): void {
  spawnSync('sh', ['-c', 'chmod -R u+rwx "$1"; rm -rf "$1"', 'sh', directory]);
}

afterAll(() => remove(home));

function inside(directory: string, text: string): Buffer {
  const input = Buffer.from(text, 'latin1');
  return execFileSync('sh', [], { cwd: directory, input, maxBuffer: 2 ** 26, timeout: 30_000 });
}

/** A workspace, and the layers over it. */
class Scene {
  readonly directory: string;
  readonly uppers: string[] = [];

  constructor(name: string) {
    this.directory = join(home, name);
    mkdirSync(join(this.directory, 'l'), { recursive: true });
  }

  at(name: string): string {
    return join(this.directory, name);
  }

  get layers(): { workspace: string; uppers: string[]; masked: string[] } {
    return { workspace: this.at('l'), uppers: [...this.uppers], masked: [] };
  }

  async copy(limits = COPY_LIMITS): Promise<void> {
    const options = { scratch: this.directory, signal };
    using stack = await LayerStack.open(this.layers, options);
    await makeCopy(stack, { copy: this.at('c'), list: this.at('c.list'), limits, ...options });
  }

  async run(text: string): Promise<Buffer> {
    await this.copy();
    const output = inside(this.at('c'), text);
    const target = this.at(String(this.uppers.length + 1));
    const options = { scratch: this.directory, signal };
    await collectCopy({ copy: this.at('c'), list: this.at('c.list'), target, ...options });
    this.uppers.push(target);
    remove(this.at('c'));
    remove(this.at('c.list'));
    return output;
  }

  async changes(): Promise<ForkDiffEntry[]> {
    using diff = await ForkDiff.open(this.layers, { scratch: this.directory, signal });
    const entries: ForkDiffEntry[] = [];
    for await (const entry of diff) entries.push(entry);
    return entries;
  }
}

describe('a fork that is a copy', () => {
  it(
    'has exactly the changes that a full listing shows, whatever commands did in it',
    async () => {
      let changes = 0;
      for (let seed = 1; seed <= CASES; seed += 1) {
        const chance = new Chance(seed);
        const scene = new Scene(String(seed));
        const before = treeOf(inside(scene.at('l'), [SEEDS, script(chance, 10), LISTING].join('\n')));
        let after: Tree = before;
        for (let layer = 1; layer <= LAYERS; layer += 1)
          after = treeOf(await scene.run(`( ${script(chance, 12)}\n) >/dev/null 2>&1\n${LISTING}`));
        const found = await scene.changes();
        expect(reported(found), `seed ${seed}`).toEqual(expected(before, after));
        changes += found.length;
        expect(treeOf(inside(scene.at('l'), LISTING)), `seed ${seed}`).toEqual(before);
        remove(scene.directory);
      }
      expect(changes).toBeGreaterThan(CASES * 5);
    },
    60_000 * FACTOR,
  );

  it('finds a change that left size and time as they were, and leaves out what was only read', async () => {
    const scene = new Scene('forged');
    for (const name of ['a', 'b']) writeFileSync(join(scene.at('l'), name), 'one');
    await scene.run('cat b; touch -r a t; printf two > a; touch -r t a; rm t');
    expect((await scene.changes()).map(({ change }) => `${change.change} ${change.path}`)).toEqual(['changed a']);
    expect(readFileSync(join(scene.at('l'), 'a'), 'utf8')).toBe('one');
    expect(existsSync(join(scene.uppers[0] ?? '', 'b'))).toBe(false);
  });

  it('is refused beyond its limits, and shares no file with the workspace', async () => {
    const scene = new Scene('limits');
    for (let count = 0; count < 20; count += 1) writeFileSync(join(scene.at('l'), `f${count}`), 'x'.repeat(100));
    await expect(scene.copy({ entries: 19, bytes: 2000 })).rejects.toBeInstanceOf(CopyTooLargeError);
    remove(scene.at('c'));
    await expect(scene.copy({ entries: 20, bytes: 1999 })).rejects.toBeInstanceOf(CopyTooLargeError);
    remove(scene.at('c'));
    // The control: exactly the limits.
    await scene.copy({ entries: 20, bytes: 2000 });
    const [own, other] = ['l', 'c'].map(part => lstatSync(join(scene.at(part), 'f0')));
    expect(own?.ino).not.toBe(other?.ino);
    expect(Math.trunc(own?.mtimeMs ?? 0)).toBe(Math.trunc(other?.mtimeMs ?? 1));
  });

  it('has no file that a link in the workspace leads to', async () => {
    const scene = new Scene('links');
    writeFileSync(scene.at('outside'), 'secret');
    inside(scene.at('l'), 'ln -s ../outside leads; ln -s .. above');
    expect((await scene.run('readlink leads above; ls -A; cat leads above/outside 2>&1 | head -c 6')).toString()).toBe(
      '../outside\n..\nabove\nleads\nsecret',
    );
    await scene.copy();
    expect(lstatSync(join(scene.at('c'), 'leads')).isSymbolicLink()).toBe(true);
  });
});
