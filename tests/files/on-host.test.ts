// The errors and effects of a sandbox’s files against those of node’s, with the tools of this host and with busybox.

import { execFileSync } from 'node:child_process';
import { chmodSync, lstatSync, mkdtempSync, readlinkSync, readdirSync, rmSync } from 'node:fs';
import * as real from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { filesOf } from '../../packages/sandbox/src/persistent/files/files.ts';
import { InsideHost, removeTools, toolSets } from './inside-host.ts';
import { ALIKE } from './options.ts';
import type { LooseFiles } from './options.ts';
import { ACTS, CLEARED, GROUND, NAMES_ANOTHER, PATHS, outcomeOf } from './mistakes.ts';

const sets = toolSets();
const grounds: string[] = [];

afterAll(() => {
  for (const made of grounds) {
    chmodSync(made, 0o700);
    execFileSync('/bin/sh', ['-c', CLEARED, 'sh', made]);
    rmSync(made, { recursive: true, force: true });
  }
  removeTools(sets);
});

function ground(): string {
  // As long as the other, or a path that is too long for one would not be for the other.
  const directory = mkdtempSync('/var/tmp/acode-test-ground-');
  grounds.push(directory);
  execFileSync('/bin/sh', ['-c', GROUND, 'sh', directory]);
  return directory;
}

// Everything that can be seen, whoever made it: kind, permissions, size, target.
function seen(directory: string, way = ''): Record<string, string> {
  const list: Record<string, string> = {};
  for (const name of readdirSync(directory)) {
    const path = join(directory, name);
    const stats = lstatSync(path);
    const size = stats.isDirectory() ? '' : ` ${stats.size}`;
    list[`${way}${name}`] = `${stats.mode.toString(8)}${size} ${stats.isSymbolicLink() ? readlinkSync(path) : ''}`;
    if (stats.isDirectory() && (stats.mode & 0o500) === 0o500) Object.assign(list, seen(path, `${way}${name}/`));
  }
  return list;
}

// The C library of this host finds the way itself, and so sees that there is nothing before it sees that the path is too long.
function pathsFor(name: string): [string, string][] {
  return Object.entries(PATHS).filter(([kind]) => name !== 'realpath' || kind !== 'a path that is too long');
}

function comparable(name: string, outcome: unknown): unknown {
  return NAMES_ANOTHER.test(name) ? { ...Object(outcome), message: '' } : outcome;
}

describe.skipIf(process.getuid?.() === 0).each(sets)('files with $name', tools => {
  const inside = new InsideHost(tools);

  it.each(Object.entries(ACTS))('%s of any path does what it does in node, and leaves the same', async (name, act) => {
    const [own, other] = [ground(), ground()];
    const files = filesOf(inside, { workdir: other });
    const expected: Record<string, unknown> = {};
    const found: Record<string, unknown> = {};
    for (const [kind, path] of pathsFor(name)) {
      expected[kind] = comparable(name, await outcomeOf(act, real, path, own));
      found[kind] = comparable(name, await outcomeOf(act, files, path, other));
    }
    expect(found).toEqual(expected);
    expect(seen(other)).toEqual(seen(own));
  });
});

describe.each(sets)('options with $name', tools => {
  it('are what they are in node', async () => {
    const did = async (act: (typeof ALIKE)[string], files: LooseFiles, directory: string): Promise<unknown> => {
      const outcome = await act(files, join(directory, 'file')).catch(
        ({ name, code, syscall }: NodeJS.ErrnoException) => ({ name, code, syscall }),
      );
      return { outcome, content: await real.readFile(join(directory, 'file')), left: seen(directory) };
    };
    for (const [name, act] of Object.entries(ALIKE)) {
      const [own, other] = [ground(), ground()];
      const files: unknown = filesOf(new InsideHost(tools), { workdir: other });
      const expected = await did(act, real as unknown as LooseFiles, own);
      expect(await did(act, files as LooseFiles, other), name).toEqual(expected);
    }
  });

  it('of a stream make text of it', async () => {
    const other = ground();
    const files = filesOf(new InsideHost(tools), { workdir: other });
    await files.writeFile('text', 'ä'.repeat(100_000));
    for (const options of ['utf8', { encoding: 'utf8' }] as const) {
      const chunks: unknown[] = await files.createReadStream('text', options).toArray();
      expect(chunks.every(chunk => typeof chunk === 'string')).toBe(true);
      expect(chunks.join('')).toBe('ä'.repeat(100_000));
    }
  });
});
