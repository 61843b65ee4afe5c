// Random commands for forks, and the full listing of a tree that their diff is compared with. For tests.

import type { ForkChange } from '../../contract/fork.ts';

/** What each entry is, by its path as a byte string: two entries with the same text are the same. */
export type Tree = ReadonlyMap<string, { readonly kind: string; readonly text: string }>;

/** Numbers that are the same at every run. */
export class Chance {
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
    const item = items[this.below(items.length)];
    if (item === undefined) throw new Error('there is nothing to choose from');
    return item;
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

/** A script of random commands, as a byte string. */
export function script(chance: Chance, steps: number): string {
  return Array.from({ length: steps }, () => `{ ${step(chance)}; } 2>/dev/null`).join('\n');
}

/** Prints everything of the current directory, for `treeOf`. */
export const LISTING = String.raw`find . -mindepth 1 -printf '%y\0%m\0%l\0%P\0'; printf 'end\0'; find . -type f -exec sha256sum -z {} +`;

/** The tree that a listing shows. */
export function treeOf(listing: Buffer): Tree {
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

/** The changes between two trees, one line each. */
export function expected(before: Tree, after: Tree): string[] {
  const lines: string[] = [];
  for (const name of new Set([...before.keys(), ...after.keys()])) {
    const [one, other] = [before.get(name), after.get(name)];
    if (one?.text === other?.text) continue;
    lines.push(`${JSON.stringify(name)} ${whatOf(one?.kind, other?.kind)}`);
  }
  return lines.sort();
}

function whatOf(before = '', after = ''): string {
  if (before === '') return `added ${after}`;
  if (after === '') return `deleted ${before}`;
  return before === after ? `changed ${after}` : `changed ${after} was ${before}`;
}

/** The changes of a diff in the same form. */
export function reported(entries: readonly { readonly bytes: string; readonly change: ForkChange }[]): string[] {
  return entries
    .map(({ bytes, change: { change, kind, before } }) => {
      const was = before === undefined ? '' : ` was ${LETTERS[before]}`;
      return `${JSON.stringify(bytes)} ${change} ${LETTERS[kind]}${was}`;
    })
    .sort();
}

/** What a workspace of these tests has before random commands change it. */
export const SEEDS = 'mkdir -p a/b b/a c/c; for at in a/a a/b/c b/b b/a/a c/a c/c/b; do printf $at > $at; done';
