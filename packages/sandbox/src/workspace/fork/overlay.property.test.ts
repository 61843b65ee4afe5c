// Random commands in real overlays, three layers each: the diff against a full listing of the merged view.

import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, realpathSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import type { ForkChange } from '../../contract/fork.ts';
import { ForkDiff } from './diff.ts';
import type { ForkDiffEntry } from './diff.ts';
import { gitPatch } from './patch.ts';
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

// What an entry is: two entries with the same text are the same.
type Tree = ReadonlyMap<string, { readonly kind: string; readonly text: string }>;

/** Numbers that are the same at every run. */
class Chance {
  /** Whether git can keep everything that is made. */
  readonly isTame: boolean;
  #state: number;

  constructor(seed: number) {
    this.isTame = seed % 2 === 0;
    this.#state = seed;
  }

  below(limit: number): number {
    this.#state = (this.#state * 1_103_515_245 + 12_345) % 2 ** 31;
    return Math.floor((this.#state / 2 ** 31) * limit);
  }

  of<Item>(items: readonly Item[]): Item {
    return items[this.below(items.length)]!;
  }
}

const NAMES = ['a', 'b', 'c', 'd-e', 'x y', 'nä', 'new\nline', '"q\\', '\xff\xfe', 'n'.repeat(255)].map(name =>
  name === 'nä' ? Buffer.from(name).toString('latin1') : name,
);
const TAME = NAMES.filter(name => !name.startsWith('\xff'));
const WORDS = ['one', 'two\nthree\n', 'one\ntwo\nthree\n', '', '\u0000\u0001binary'];

function randomPath(chance: Chance): string {
  const depth = 1 + chance.below(3);
  return Array.from({ length: depth }, () =>
    chance.below(4) > 0 ? chance.of(NAMES.slice(0, 3)) : chance.of(chance.isTame ? TAME : NAMES),
  ).join('/');
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", String.raw`'\''`)}'`;
}

// One random command of a shell.
function step(chance: Chance): string {
  const [one, two] = [quoted(randomPath(chance)), quoted(randomPath(chance))];
  const word = chance.of(WORDS).replaceAll('\u0000', String.raw`\0`);
  return chance.of([
    // A FIFO without a reader would be waited for.
    `[ -p ${one} ] || printf ${quoted(word)} > ${one}`,
    `[ -p ${one} ] || printf ${quoted(word)} > ${one}`,
    `[ -p ${one} ] || printf more >> ${one}`,
    `rm -rf ${one}`,
    `rm -rf ${one}; mkdir ${one}`,
    `rm -rf ${one}; mkdir -p ${one}; printf x > ${one}/a`,
    `rm -rf ${one}; printf file > ${one}`,
    `mkdir -p ${one}`,
    `ln -sfn ${two} ${one}`,
    `rm -rf ${one}; ln -s /nowhere ${one}`,
    chance.isTame ? `rm -rf ${one}` : `rm -rf ${one}; mkfifo ${one}`,
    `chmod ${chance.of(['755', '700', '775', '1777', '4755'])} ${one}`,
    `mv ${one} ${two}`,
    `mv -T ${one} ${two}`,
    `cp -a --remove-destination ${one} ${two}`,
    `ln ${one} ${two}`,
    `touch -d @1000 ${one}`,
    // Same size and same time, other content.
    `[ -f ${one} ] && touch -r ${one} .t && tr a-z b-za < ${one} > .n && cat .n > ${one} && touch -r .t ${one}; rm -f .t .n`,
    `truncate -s ${chance.of(['5', '100000'])} ${one}`,
  ]);
}

function script(chance: Chance, steps: number): string {
  return Array.from({ length: steps }, () => `{ ${step(chance)}; } 2>/dev/null`).join('\n');
}

const LISTING = String.raw`find . -mindepth 1 -printf '%y\0%m\0%l\0%P\0'; printf 'end\0'; find . -type f -exec sha256sum -z {} +`;

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

function treeOf(listing: Buffer): Tree {
  const fields = listing.toString('latin1').split('\0');
  const end = fields.indexOf('end');
  const hashes = new Map(fields.slice(end + 1).map(line => [line.slice(68), line.slice(0, 64)]));
  const tree = new Map<string, { kind: string; text: string }>();
  for (let at = 0; at + 3 < end; at += 4) {
    const [kind = '', mode, link, name = ''] = fields.slice(at, at + 4);
    // The mode of a link means nothing.
    tree.set(name, { kind, text: kind === 'l' ? `l ${link}` : `${kind} ${mode} ${hashes.get(name) ?? ''}` });
  }
  return tree;
}

const LETTERS = { file: 'f', directory: 'd', link: 'l', fifo: 'p', socket: 's', device: 'c' };

function expected(before: Tree, after: Tree): string[] {
  const lines: string[] = [];
  for (const name of new Set([...before.keys(), ...after.keys()])) {
    const [one, other] = [before.get(name), after.get(name)];
    if (one?.text === other?.text) continue;
    const what = !one ? 'added' : other ? 'changed' : 'deleted';
    lines.push(
      `${JSON.stringify(name)} ${what} ${(other ?? one)!.kind}${one && other && one.kind !== other.kind ? ` was ${one.kind}` : ''}`,
    );
  }
  return lines.sort();
}

function reported(entries: readonly { readonly bytes: string; readonly change: ForkChange }[]): string[] {
  return entries
    .map(({ bytes, change: { change, kind, before } }) => {
      const was = before === undefined ? '' : ` was ${LETTERS[before]}`;
      return `${JSON.stringify(bytes)} ${change} ${LETTERS[kind]}${was}`;
    })
    .sort();
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
  const seeds = 'mkdir -p a/b b/a c/c; for at in a/a a/b/c b/b b/a/a c/a c/c/b; do printf $at > $at; done';
  const before = inNamespace([make, seeds, script(chance, 10), LISTING].join('\n'));
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
