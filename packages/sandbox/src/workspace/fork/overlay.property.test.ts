// Random commands in real overlays, three layers each: the diff against a full listing of the merged view.

import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, realpathSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { ForkDiff } from './diff.ts';
import type { ForkDiffEntry } from './diff.ts';
import { gitPatch } from './patch.ts';
import { Chance, LISTING, SEEDS, expected, reported, script, treeOf } from './random.test.support.ts';
import type { Tree } from './random.test.support.ts';
import { squashLayers } from './squash.ts';

const FACTOR = Number(process.env['ACODE_PROPERTY_FACTOR'] ?? 1);
const CASES = 2 * FACTOR;
const LAYERS = 3;
const home = realpathSync(mkdtempSync(join(tmpdir(), 'acode-overlay-')));
const never = new AbortController().signal;

// The kernel leaves a directory without any rights in each work directory.
function remove(directory: string): void {
  spawnSync('sh', ['-c', 'chmod -R u+rwx "$1"; rm -rf "$1"', 'sh', directory]);
}

afterAll(() => remove(home));

// A name that leads nowhere is an error of find’s, and in no line of its output.
const STRICT = `{ ${LISTING}; } 2>../errors; [ ! -s ../errors ]`;

function overlay(directory: string, lowers: readonly string[], upper: string): string {
  const options = `lowerdir=${lowers.join(':')},upperdir=${upper},workdir=${upper}w,userxattr`;
  return `cd ${directory} && mount -t overlay overlay -o ${options} m && cd m`;
}

function inNamespace(text: string): Buffer {
  return execFileSync('unshare', ['-Urm', 'sh'], {
    input: Buffer.from(text, 'latin1'),
    maxBuffer: 2 ** 26,
    timeout: 30_000,
  });
}

interface Case {
  readonly directory: string;
  readonly before: Tree;
  readonly after: Tree;
}

// A workspace, and three layers over it that random commands wrote.
function makeCase(seed: number): Case {
  const chance = new Chance(seed);
  const directory = join(home, String(seed));
  mkdirSync(directory);
  const parts = Array.from({ length: LAYERS }, (_, index) => index + 1);
  const make = `cd ${directory} && mkdir m l base ${parts.map(part => `${part} ${part}w`).join(' ')} && cd l`;
  const before = inNamespace([make, SEEDS, script(chance, 10), LISTING].join('\n'));
  const commands = parts.map(part => {
    const lowers = [...parts.filter(other => other < part).reverse(), 'l'].map(String);
    const last = part === LAYERS ? LISTING : 'true';
    return `( ${overlay(directory, lowers, String(part))} || exit 1\n${script(chance, 12)}\n${last}\n) || exit 1; umount ${directory}/m`;
  });
  const after = inNamespace(commands.join('\n'));
  return { directory, before: treeOf(before), after: treeOf(after) };
}

function layersOf(
  directory: string,
  uppers: readonly string[] = ['1', '2', '3'],
): { workspace: string; uppers: string[]; masked: string[] } {
  return { workspace: join(directory, 'l'), uppers: uppers.map(upper => join(directory, upper)), masked: [] };
}

const canMount = ((): boolean => {
  mkdirSync(join(home, 'probe'));
  const program = `cd ${home}/probe && mkdir m l 1 1w && ${overlay(join(home, 'probe'), ['l'], '1')}`;
  return spawnSync('unshare', ['-Urm', 'sh'], { input: program }).status === 0;
})();

async function entriesOf(diff: ForkDiff): Promise<ForkDiffEntry[]> {
  const entries: ForkDiffEntry[] = [];
  for await (const entry of diff) entries.push(entry);
  return entries;
}

async function idOf(directory: string, uppers: readonly string[]): Promise<string> {
  using diff = await ForkDiff.open(layersOf(directory, uppers), { scratch: directory, signal: never });
  return (await diff.collect('k7m2x9qd')).id;
}

// Files and links, with what git keeps of a mode.
function asGit(tree: Tree): string[] {
  return [...tree]
    .filter(([, { kind }]) => kind === 'f' || kind === 'l')
    .map(([name, { text }]) => {
      const [kind, mode = '', ...rest] = text.split(' ');
      const executable = (Number.parseInt(mode, 8) & 0o100) === 0 ? 'plain' : 'executable';
      return JSON.stringify([name, kind === 'f' ? [executable, ...rest].join(' ') : text]);
    })
    .sort();
}

// The patch applied by git to a plain copy of the workspace; null where the patch lacks something.
async function applied(directory: string): Promise<Tree | null> {
  using diff = await ForkDiff.open(layersOf(directory), { scratch: directory, signal: never });
  const omitted: string[] = [];
  const pieces: Buffer[] = [];
  const patch = gitPatch(diff, {
    signal: never,
    omitted: (path, reason) => (reason === 'mode' || reason === 'directory' ? undefined : omitted.push(path)),
  });
  for await (const piece of patch) pieces.push(piece);
  if (omitted.length > 0) return null;
  execFileSync('cp', ['-a', 'l', 'p'], { cwd: directory });
  const env = {
    PATH: process.env['PATH'],
    HOME: directory,
    GIT_CONFIG_NOSYSTEM: '1',
    GIT_CEILING_DIRECTORIES: directory,
  };
  const input = Buffer.concat(pieces);
  if (input.length > 0)
    execFileSync('git', ['apply', '--binary', '--whitespace=nowarn', '-'], {
      cwd: join(directory, 'p'),
      env,
      input,
      timeout: 30_000,
    });
  return treeOf(inNamespace(`cd ${directory}/p\n${LISTING}`));
}

describe.runIf(canMount)('forks in a real overlay', () => {
  it(
    'have exactly the changes that a full listing shows, as a diff, as a patch and squashed',
    async () => {
      const figures = { changes: 0, patches: 0 };
      for (let seed = 1; seed <= CASES; seed++) {
        const { directory, before, after } = makeCase(seed);
        using diff = await ForkDiff.open(layersOf(directory), { scratch: directory, signal: never });
        const entries = await entriesOf(diff);
        expect(reported(entries), `seed ${seed}`).toEqual(expected(before, after));
        figures.changes += entries.length;

        const patched = await applied(directory);
        if (patched) {
          expect(asGit(patched), `patch of seed ${seed}`).toEqual(asGit(after));
          figures.patches += 1;
        }

        const options = { scratch: directory, signal: never };
        await squashLayers(layersOf(directory), { ...options, from: 0, to: 3, target: join(directory, 'all') });
        await squashLayers(layersOf(directory), { ...options, from: 1, to: 3, target: join(directory, 'upper') });
        expect(await idOf(directory, ['all']), `seed ${seed}`).toBe(diff.summary.id);
        expect(await idOf(directory, ['1', 'upper']), `seed ${seed}`).toBe(diff.summary.id);
        // The kernel sees the same in the squashed layer.
        const listed = (lowers: string[]): Tree =>
          treeOf(
            inNamespace(`mkdir -p ${directory}/e ${directory}/ew; ${overlay(directory, lowers, 'e')} && ${STRICT}`),
          );
        expect(listed(['all', 'l']), `seed ${seed}`).toEqual(after);
        expect(listed(['upper', '1', 'l']), `seed ${seed}`).toEqual(after);
        remove(directory);
      }
      expect(figures.changes).toBeGreaterThan(CASES * 5);
      expect(figures.patches).toBeGreaterThan(0);
      if (FACTOR > 1) process.stdout.write(`${CASES} cases of ${LAYERS} layers: ${JSON.stringify(figures)}\n`);
    },
    60_000 * FACTOR,
  );

  it('leave no name of a file that a later layer removed, in a directory that the workspace has not', async () => {
    const directory = join(home, 'ghost');
    const layer = (part: string, lowers: string[], commands: string): string =>
      `( ${overlay(directory, lowers, part)} && ${commands} ) || exit 1; umount ${directory}/m`;
    const make = `mkdir -p ${directory} && cd ${directory} && mkdir m l 1 1w 2 2w e ew`;
    const first = layer('1', ['l'], 'mkdir d && touch d/x d/y');
    inNamespace([make, first, layer('2', ['1', 'l'], 'rm d/x')].join('\n'));
    const options = { scratch: directory, signal: never, from: 0, to: 2, target: join(directory, 'all') };
    await squashLayers(layersOf(directory, ['1', '2']), options);
    const listed = treeOf(inNamespace(`${overlay(directory, ['all', 'l'], 'e')} && ${STRICT}`));
    expect([...listed.keys()].sort()).toEqual(['d', 'd/y']);
  });
});
