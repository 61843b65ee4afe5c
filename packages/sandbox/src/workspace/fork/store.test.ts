// Forks on disk: layers written through real overlays, squashed, undone, and found again after a process was killed.

import { execFileSync, spawnSync } from 'node:child_process';
import {
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  realpathSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { build } from 'esbuild';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { OverlaySpec } from '../../contract/spec.ts';
import { identityOf } from '../file-identity.ts';
import { headerBlock, tarEnd, tarPadding } from '../archive/tar-read.ts';
import { ForkArchiveError, exportLayers, importLayer } from './archive.ts';
import { recordBase } from './base.ts';
import { ForkDiff } from './diff.ts';
import { LayerStack } from './layers.ts';
import { paxRecord } from './marks.ts';
import { squashLayers } from './squash.ts';
import { historyOf } from './record.ts';
import { ForkStore } from './store.ts';
import type { ForkRecord, LinkedRepository } from './record.ts';

const FACTOR = Number(process.env['ACODE_PROPERTY_FACTOR'] ?? 1);
const home = realpathSync(mkdtempSync(join(tmpdir(), 's-')));
const signal = new AbortController().signal;
const LISTING = String.raw`find . -mindepth 1 -printf '%y %m %l %P\n' | sort; find . -type f -exec sha256sum {} + | sort`;

afterAll(() => {
  spawnSync('sh', ['-c', 'chmod -R u+rwx "$1"; rm -rf "$1"', 'sh', home]);
});

function inNamespace(text: string): string {
  return execFileSync('unshare', ['-Urm', 'sh', '-e'], { input: text, encoding: 'utf8', timeout: 30_000 });
}

const canMount =
  spawnSync('unshare', [
    '-Urm',
    'sh',
    '-ec',
    `cd ${home} && mkdir p p/l p/u p/w p/m && mount -t overlay overlay -o lowerdir=p/l,upperdir=p/u,workdir=p/w,userxattr p/m`,
  ]).status === 0;

/** A store with one workspace, whose commands run in overlays of this user’s own. */
class Scene {
  readonly state: string;
  readonly workspace: string;
  now = Date.now();
  readonly store: ForkStore;

  constructor(name: string, stateName = 's') {
    const root = join(home, name);
    this.state = join(root, stateName);
    this.workspace = join(root, 'l');
    mkdirSync(join(root, 'm'), { recursive: true });
    mkdirSync(this.workspace);
    this.store = new ForkStore(this.state, () => this.now);
  }

  make(fork?: string): Promise<ForkRecord> {
    const identity = identityOf(lstatSync(this.workspace));
    return this.store.make({ workspace: this.workspace, identity, fork });
  }

  /** Runs commands, each in a layer of its own. */
  async run(id: string, ...commands: string[]): Promise<void> {
    for (const command of commands) {
      const begun = await this.store.begin(id, { holder: 'x', image: 'i', command });
      const { lowers, upper, work } = this.store.overlayOf(begun);
      inNamespace(this.#mounted([...lowers.map(({ path }) => path)], upper.path, work.path, command));
      const layers = this.store.layersOf(begun);
      const isEmpty = readdirSync(upper.path).length === 0;
      if (!isEmpty && begun.active) {
        using stack = await LayerStack.open(layers, { scratch: this.store.pathOf(id), signal });
        const { layer: number, at: startedMs } = begun.active;
        const [index, directory] = [layers.uppers.length - 1, this.store.baseOf(id)];
        await recordBase(stack, { index, number, startedMs: startedMs + 1000, directory, signal });
      }
      await this.store.end(id, { isEmpty });
    }
  }

  /** Commands that each write one new file; what no overlay is needed for. */
  async write(id: string, ...names: string[]): Promise<void> {
    for (const name of names) {
      const { active } = await this.store.begin(id, { holder: 'x', image: 'i', command: name });
      writeFileSync(join(this.store.pathOf(id), String(active?.layer), name), name);
      await this.store.end(id, { isEmpty: false });
    }
  }

  /** What a command of a fork would see. */
  seen(id: string): string {
    const lowers = this.store.layersOf(this.get(id)).uppers.toReversed();
    const aside = mkdtempSync(join(home, 'seen-'));
    for (const name of ['u', 'w']) mkdirSync(join(aside, name));
    return inNamespace(this.#mounted(lowers, join(aside, 'u'), join(aside, 'w'), LISTING));
  }

  async diff(id: string): Promise<{ id: string; changes: unknown }> {
    const options = { scratch: this.store.pathOf(id), base: this.store.baseOf(id), signal };
    using diff = await ForkDiff.open(this.store.layersOf(this.get(id)), options);
    const { id: hash, changes } = await diff.collect(id);
    return { id: hash, changes };
  }

  async squash(id: string): Promise<void> {
    for (const range of this.store.squashable(id))
      await this.store.squash(id, range, (layers, within, target) =>
        squashLayers(layers, { ...within, target, scratch: this.store.pathOf(id), signal }),
      );
  }

  get(id: string): ForkRecord {
    const record = this.store.read(id);
    if (!record) throw new Error('there is no such fork');
    return record;
  }

  numbers(id: string): string[] {
    return readdirSync(this.store.pathOf(id)).filter(name => /^\d+$/.test(name));
  }

  #mounted(lowers: readonly string[], upper: string, work: string, command: string): string {
    const options = `lowerdir=${[...lowers, this.workspace].join(':')},upperdir=${upper},workdir=${work},userxattr`;
    const place = join(this.workspace, '..', 'm');
    return `mount -t overlay overlay -o '${options}' ${place}; cd ${place}; ${command}`;
  }
}

// What commands do to a small project, again and again: edits, removals, directories in the place of others, modes, links.
function commandOf(at: number): string {
  const own = `echo ${at} > own${at}; echo ${at} >> log`;
  const others = [
    `rm -rf d${at % 3}; mkdir d${at % 3}; echo ${at} > d${at % 3}/n${at}`,
    `rm -f own${at - 2} gone${at % 4}`,
    `chmod ${at % 2 ? 700 : 755} d0 || true; ln -sfn own${at} link`,
    `rm -rf e; echo ${at} > e`,
    `rm -rf e; mkdir -p e/f; echo ${at} > e/f/g; touch gone${at % 4}`,
  ];
  return `${own}; ${others[at % others.length]}`;
}

function project(workspace: string): void {
  for (const name of ['d0', 'd1', 'd2', 'e']) {
    mkdirSync(join(workspace, name));
    for (const file of ['a', 'b']) writeFileSync(join(workspace, name, file), `${name}/${file}`);
  }
  for (const name of ['log', 'gone0', 'gone1']) writeFileSync(join(workspace, name), name);
}

describe.runIf(canMount)('a fork with many layers', () => {
  it('is squashed at 64: same view, same diff, same history, and snapshots where they were', async () => {
    const scene = new Scene('m');
    project(scene.workspace);
    const { id } = await scene.make();
    const real = Array.from({ length: 12 }, (_, at) => commandOf(at));
    const further = Array.from({ length: 52 }, (_, at) => `further${at}`);
    await scene.run(id, ...real.slice(0, 5));
    scene.store.snapshot(id, 'five');
    await scene.run(id, ...real.slice(5));
    await scene.write(id, ...further.slice(0, 51));
    expect(scene.store.squashable(id)).toEqual([]);
    await scene.write(id, ...further.slice(51));
    // The user’s later edits are not what the fork began with.
    writeFileSync(join(scene.workspace, 'log'), 'edited');
    const [seen, diff] = [scene.seen(id), await scene.diff(id)];
    expect(scene.store.squashable(id)).toEqual([
      { from: 5, to: 32 },
      { from: 0, to: 5 },
    ]);

    await scene.squash(id);
    expect(scene.seen(id)).toBe(seen);
    expect(await scene.diff(id)).toEqual(diff);
    const record = scene.get(id);
    expect(record.layers).toHaveLength(34);
    expect(scene.numbers(id)).toHaveLength(34);
    expect(historyOf(record).map(({ command }) => command)).toEqual([...real, ...further]);
    expect(record.snapshots).toEqual({ five: 5 });

    // Each of the latest commands can be taken back alone; the squashed ones together, and to the snapshot.
    expect(await scene.store.undo(id, 1)).toBe(63);
    await expect(scene.store.undo(id, 33)).rejects.toMatchObject({
      code: 'ACODE-FRK-006',
      context: { from: 6, to: 32 },
    });
    expect(await scene.store.undo(id, 58)).toBe(5);
    const base = readFileSync(join(scene.store.baseOf(id), 'index'), 'utf8');
    expect(base).toContain('"layer":5');
    expect(base).not.toContain('"layer":6');
    const plain = new Scene('five');
    project(plain.workspace);
    const other = await plain.make();
    await plain.run(other.id, ...real.slice(0, 5));
    writeFileSync(join(plain.workspace, 'log'), 'edited');
    expect(scene.seen(id)).toBe(plain.seen(other.id));
    expect((await scene.diff(id)).id).toBe((await plain.diff(other.id)).id);
    expect(await scene.store.undo(id, 5)).toBe(0);
    expect(scene.numbers(id)).toEqual([]);
    expect(readFileSync(join(scene.store.baseOf(id), 'index'), 'utf8')).toBe('');
  }, 120_000);

  it('is squashed where its mount options would be long, with what the kernel needs escaped counted', async () => {
    const scene = new Scene('long', `${'s,'.repeat(100)}x`);
    const { id } = await scene.make();
    const lengths: number[] = [];
    for (let at = 0; at < 12; at += 1) {
      await scene.squash(id);
      const record = await scene.store.begin(id, { holder: 'x', image: 'i', command: 'c' });
      lengths.push(scene.store.overlayOf(record).lowers.length);
      writeFileSync(join(scene.store.pathOf(id), String(record.active?.layer), `f${at}`), '');
      await scene.store.end(id, { isEmpty: false });
    }
    // A path has about 350 bytes, its 100 backslashes included.
    expect(Math.max(...lengths)).toBeLessThanOrEqual(7);
    expect(historyOf(scene.get(id))).toHaveLength(12);
  });
});

describe('a fork of a linked worktree', () => {
  const scene = new Scene('linked', `${'s,'.repeat(100)}x`);
  const path = join(home, 'linked', 'common');
  mkdirSync(path, { mode: 0o750 });
  const repository: LinkedRepository = { path, identity: identityOf(lstatSync(path)) };
  const begin = (id: string, other = repository) =>
    scene.store.begin(id, { holder: 'x', image: 'i', command: 'c', repository: other });
  // A command that writes the named file to the repository, or none.
  const commit = async (id: string, name?: string): Promise<void> => {
    const { active } = await begin(id);
    if (name !== undefined) writeFileSync(join(scene.store.pathOf(id), `${active?.layer}g`, name), name);
    await scene.store.end(id, { isEmpty: true, isGitEmpty: name === undefined });
  };
  const names = (id: string): string[] => readdirSync(scene.store.pathOf(id)).filter(name => /^\d/.test(name));

  it('has a second directory for each layer, over the repository, and keeps those with changes', async () => {
    const { id } = await scene.make('kept');
    await commit(id, 'one');
    await commit(id);
    await scene.write(id, 'file');
    expect(names(id)).toEqual(['1', '1g', '3']);
    const begun = await begin(id);
    const paths = (spec: OverlaySpec | null) =>
      [spec?.upper, spec?.work, ...(spec?.lowers ?? [])].map(part => part?.path.slice(scene.store.pathOf(id).length));
    expect(paths(scene.store.overlayOf(begun))).toEqual(['/4', '/w', '/3', '/1']);
    expect(paths(scene.store.repositoryOverlayOf(begun, 'b'))).toEqual(['/4g', '/bg', '/1g']);
    expect(lstatSync(join(scene.store.pathOf(id), '4g')).mode & 0o777).toBe(0o750);
    await scene.store.abandon(id);
    expect(names(id)).toEqual(['1', '1g', '3']);
    // Its layers are wrong over another repository.
    const other = { ...repository, identity: { device: 1, inode: 1 } };
    await expect(begin(id, other)).rejects.toMatchObject({ code: 'ACODE-FRK-004' });
    expect(await scene.store.undo(id, 2)).toBe(0);
    expect(names(id)).toEqual([]);
    await begin(id, other);
    await scene.store.remove(id);
  });

  it('is squashed with what commands wrote to the repository, and shares it with forks of a snapshot', async () => {
    const { id } = await scene.make('many');
    for (let at = 0; at < 6; at += 1) {
      await commit(id, `f${at}`);
      await scene.write(id, `w${at}`);
    }
    scene.store.snapshot(id, 'all');
    const files = (record: ForkRecord) =>
      scene.store.repositoryLayersOf(record)?.uppers.flatMap(upper => readdirSync(upper).sort());
    const before = files(scene.get(id));
    expect(before).toHaveLength(6);
    await scene.squash(id);
    expect(names(id).filter(name => name.endsWith('g')).length).toBeLessThan(6);
    expect(files(scene.get(id))).toEqual(before);
    const made = await scene.store.makeFrom(id, 'all', null);
    await scene.store.remove(id);
    expect(files(scene.get(made.id))).toEqual(before);
    await scene.store.remove(made.id);
    expect(existsSync(scene.store.pathOf(id))).toBe(false);
  });
});

// A process of its own that squashes, and is killed at its nth call of the file system.
const CHILD = `
import fs from 'node:fs';
import promises from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';
import { squashLayers } from './squash.ts';
import { ForkStore } from './store.ts';
const { state, id, range, at } = JSON.parse(process.argv[2]);
let calls = 0;
const counted = (of, names) => {
  for (const name of names.split(' ')) {
    const original = of[name];
    of[name] = (...words) => {
      calls += 1;
      if (calls === at) process.kill(process.pid, 'SIGKILL');
      return original(...words);
    };
  }
};
counted(fs, 'chmodSync fsyncSync linkSync mkdirSync openSync renameSync utimesSync writeFileSync mkdtempSync rmSync');
counted(promises, 'rename rm');
syncBuiltinESMExports();
const store = new ForkStore(state, Date.now);
await store.squash(id, range, (layers, within, target) =>
  squashLayers(layers, { ...within, target, scratch: store.pathOf(id), signal: new AbortController().signal }));
console.log(calls);
`;

describe.runIf(canMount)('a squash that is killed', () => {
  const child = join(home, 'child.mjs');
  beforeAll(async () => {
    await build({
      stdin: { contents: CHILD, resolveDir: import.meta.dirname, loader: 'ts' },
      bundle: true,
      platform: 'node',
      target: 'node20',
      format: 'esm',
      // Dependencies that are CommonJS ask for it.
      banner: { js: "import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);" },
      outfile: child,
    });
  }, 120_000);

  function squashed(scene: Scene, id: string, at: number): number | null {
    const input = JSON.stringify({ state: scene.state, id, range: { from: 0, to: 6 }, at });
    const {
      stdout,
      stderr,
      signal: killed,
      status,
    } = spawnSync(process.execPath, [child, input], { encoding: 'utf8' });
    if (killed === 'SIGKILL') return null;
    if (status !== 0) throw new Error(stderr);
    return Number(stdout);
  }

  it(
    'leaves the fork before it or after it, and nothing beside',
    async () => {
      const scene = new Scene('k');
      project(scene.workspace);
      const { id } = await scene.make();
      const commands = Array.from({ length: 8 }, (_, at) => commandOf(at));
      await scene.run(id, ...commands);
      const [seen, diff] = [scene.seen(id), await scene.diff(id)];
      // The kernel leaves a directory without rights, which cannot be copied.
      spawnSync('chmod', ['-R', 'u+rwx', join(scene.store.pathOf(id), 'w')]);
      // A copy is squashed to its end first, which tells how many calls there are.
      execFileSync('cp', ['-a', scene.state, `${scene.state}.copy`]);
      const copy = new Scene('copied');
      const calls = squashed(Object.assign(copy, { state: `${scene.state}.copy` }), id, 0) ?? 0;
      expect(calls).toBeGreaterThan(30);
      const layers = { before: 0, after: 0 };
      for (let run = 0; run < 4 * FACTOR; run += 1) {
        // The last calls are those that decide.
        const at = run % 2 === 0 ? 1 + Math.floor(Math.random() * calls) : calls - Math.floor(Math.random() * 12);
        execFileSync('cp', ['-a', scene.state, `${scene.state}.keep`]);
        const done = squashed(scene, id, at);
        expect(done).toBeNull();
        await scene.store.sweep(id);
        const count = scene.get(id).layers.length;
        layers[count === 8 ? 'before' : 'after'] += 1;
        expect([3, 8]).toContain(count);
        expect(scene.numbers(id), `killed at ${at}`).toHaveLength(count);
        expect(
          readdirSync(scene.store.pathOf(id)).filter(name => name.startsWith('s') || name.startsWith('marks')),
        ).toEqual([]);
        expect(scene.seen(id), `killed at ${at}`).toBe(seen);
        expect(await scene.diff(id)).toEqual(diff);
        expect(historyOf(scene.get(id))).toHaveLength(8);
        spawnSync('sh', ['-c', 'chmod -R u+rwx "$1"; rm -rf "$1" && mv "$1.keep" "$1"', 'sh', scene.state]);
      }
      if (FACTOR > 1) process.stdout.write(`killed squashes: ${JSON.stringify(layers)}\n`);
    },
    60_000 * FACTOR,
  );
});

describe.runIf(canMount)('a fork made of a snapshot', () => {
  const left = (scene: Scene): string[] => readdirSync(join(scene.state, 'f'));

  it('has what the snapshot has, whatever becomes of the fork it comes from, and shares nothing that is written', async () => {
    const scene = new Scene('f');
    project(scene.workspace);
    const source = await scene.make();
    await scene.run(source.id, commandOf(0), commandOf(4));
    scene.store.snapshot(source.id, 'clean');
    writeFileSync(join(scene.workspace, 'log'), 'edited');
    const [seen, diff] = [scene.seen(source.id), await scene.diff(source.id)];
    await scene.run(source.id, 'echo later > later; rm -rf e log');
    const forks = await Promise.all(['one', 'two'].map(name => scene.store.makeFrom(source.id, 'clean', name)));
    const [one = source, two = source] = forks;
    for (const { id } of forks) {
      expect(scene.seen(id)).toBe(seen);
      expect(await scene.diff(id)).toEqual(diff);
      expect(historyOf(scene.get(id))).toHaveLength(2);
    }
    // The layers are the same directories, not copies.
    expect(scene.numbers(one.id)).toEqual([]);

    await scene.run(one.id, 'echo mine > e/f/g; rm own0; echo x > own-one');
    expect(scene.seen(two.id)).toBe(seen);
    expect(scene.seen(source.id)).not.toContain('own-one');
    // The fork they come from goes on, is taken back, and is removed.
    expect(await scene.store.undo(source.id, 3)).toBe(0);
    expect(scene.numbers(source.id)).toEqual(['1', '2']);
    await scene.store.remove(source.id);
    expect(scene.store.read(source.id)).toBeNull();
    expect(scene.seen(two.id)).toBe(seen);
    expect(await scene.diff(two.id)).toEqual(diff);
    expect(await scene.store.undo(one.id, 1)).toBe(2);
    expect(await scene.diff(one.id)).toEqual(diff);

    // A third of the second, after the first is gone.
    await scene.store.remove(one.id);
    const three = await scene.store.makeFrom(two.id, 'clean', null);
    await scene.store.remove(two.id);
    expect(scene.seen(three.id)).toBe(seen);
    expect(await scene.diff(three.id)).toEqual(diff);
    expect(await scene.store.undo(three.id, 1)).toBe(1);
    expect(scene.numbers(source.id)).toEqual(['1', '2']);
    await scene.store.collect();
    expect(scene.numbers(source.id)).toEqual(['1']);
    await scene.store.remove(three.id);
    expect(left(scene)).toEqual([]);
  }, 60_000);

  it('is refused for a name that is taken by a word, and for a snapshot that is not there', async () => {
    const scene = new Scene('n');
    const { id } = await scene.make();
    await scene.write(id, 'file');
    scene.store.snapshot(id, 'clean');
    await expect(scene.store.makeFrom(id, 'clean', 'new')).rejects.toMatchObject({ code: 'ACODE-SBX-017' });
    await expect(scene.store.makeFrom(id, 'toString', null)).rejects.toMatchObject({
      code: 'ACODE-FRK-008',
      context: { known: ['clean'] },
    });
    expect(left(scene)).toEqual([id]);
  });

  it('keeps its layers while a record cannot be read: it may name them', async () => {
    const scene = new Scene('u');
    const { id } = await scene.make();
    await scene.write(id, 'file');
    scene.store.snapshot(id, 'clean');
    const made = await scene.store.makeFrom(id, 'clean', null);
    writeFileSync(join(scene.store.pathOf(made.id), 'fork.json'), '{"version":2}');
    await scene.store.remove(id);
    await scene.store.collect();
    expect(scene.numbers(id)).toEqual(['1']);
  });
});

async function archiveOf(scene: Scene, id: string): Promise<{ pieces: Buffer[]; omitted: string[] }> {
  const pieces: Buffer[] = [];
  const omitted: string[] = [];
  const manifest = { version: 1, fork: id, diffId: '', commands: 2, exportedAt: '' } as const;
  for await (const piece of exportLayers(scene.store.layersOf(scene.get(id)), {
    scratch: scene.store.pathOf(id),
    signal,
    manifest,
    omitted: (path, reason) => void omitted.push(`${path} ${reason}`),
  }))
    pieces.push(piece);
  return { pieces, omitted };
}

function unpacked(
  scene: Scene,
  pieces: readonly Buffer[],
  limits?: { entries: number; bytes: number },
): Promise<ForkRecord> {
  const identity = identityOf(lstatSync(scene.workspace));
  const source = (async function* () {
    yield* pieces;
  })();
  return scene.store.makeWith(
    { workspace: scene.workspace, identity },
    async (target, base) => {
      const options = { target, workspace: scene.workspace, scratch: base, signal, ...(limits ? { limits } : {}) };
      return (await importLayer(source, options)).fork;
    },
    rename => rename(),
  );
}

describe.runIf(canMount)('an archive of a fork', () => {
  it('makes a fork with the same view and the same diff, and the plain tar has the whiteouts of OCI', async () => {
    const scene = new Scene('a');
    project(scene.workspace);
    mkdirSync(join(scene.workspace, 'x/deep'), { recursive: true });
    const { id } = await scene.make();
    const long = 'n'.repeat(200);
    await scene.run(id, ...[0, 1, 4].map(commandOf));
    await scene.run(
      id,
      `mkfifo -m 640 pipe; ln -s /etc/passwd out; ln -s ${long} l-${long}; mkdir -p ${long}/${long}; printf 'a\\0b' > '${long}/new\nline'; truncate -s 3M big; chmod 4755 own0`,
      'rmdir x/deep; rm -r d1; mkdir d1; printf x > "$(printf \'nä\\377\')"; touch .wh.mine; chmod 700 d1',
    );
    const { pieces, omitted } = await archiveOf(scene, id);
    expect(omitted).toEqual(['.wh.mine name']);
    const made = await unpacked(scene, pieces);
    // What could not be in it is not in the other either.
    await scene.run(id, 'rm .wh.mine');
    expect(scene.seen(made.id)).toBe(scene.seen(id));
    expect((await scene.diff(made.id)).id).toBe((await scene.diff(id)).id);
    const listed = spawnSync('tar', ['-tf', '-'], {
      input: Buffer.concat(pieces),
      encoding: 'utf8',
      env: { LC_ALL: 'C' },
    });
    expect(listed.stderr).toBe('');
    expect(listed.stdout).toContain('d1/.wh..wh..opq\n');
    expect(listed.stdout).toContain('x/.wh.deep\n');
    expect(historyOf(made)).toHaveLength(1);
  }, 60_000);

  it.each([
    ['an absolute path', entry('/etc/evil'), /absolute/],
    ['a path that climbs', entry('../evil'), /\.\./],
    ['a path that climbs in the middle', entry('a/../../evil'), /\.\./],
    ['a path through a link', [...entry('l', '2', '/tmp'), ...entry('l/evil')], /directory that it is in/],
    [
      'a link in the place of a directory',
      [...entry('d/', '5'), ...entry('d', '2', '/tmp'), ...entry('d/evil')],
      /of this name/,
    ],
    ['a directory that is missing', entry('missing/evil'), /directory that it is in/],
    ['a hard link', entry('h', '1', '/etc/passwd'), /hard link/],
    ['a device', entry('dev', '3'), /device/],
    ['an entry twice', [...entry('a'), ...entry('a')], /of this name/],
    ['a file and its whiteout', [...entry('a'), ...entry('.wh.a')], /of this name/],
    ['a whiteout that climbs', entry('.wh...'), /whiteout/],
    ['a whiteout of all', entry('.wh..wh..opq'), /whole workspace/],
    ['a whiteout with content', entry('.wh.a', '0', '', 'x'), /empty file/],
    ['too many bytes', [...entry('a', '0', '', 'x'.repeat(600)), ...entry('b', '0', '', 'x'.repeat(600))], /bytes/],
    ['too many entries', Array.from({ length: 9 }, (_, at) => entry(`f${at}`)).flat(), /entries/],
    ['a name that is too long', entry(`${'d'.repeat(90)}/`.repeat(1), '5').concat(entry('x'.repeat(256))), /too long/],
  ] as const)('is refused for %s, and nothing of it is left', async (_, entries, reason) => {
    const scene = new Scene(`r${(refused += 1)}`);
    const manifest = JSON.stringify({ version: 1, fork: 'f', diffId: '', commands: 1, exportedAt: '' });
    const begin = entry('.wh..wh.acode-fork.json', '0', '', manifest);
    const limits = { entries: 8, bytes: 1000 };
    // The control: the same archive with an ordinary entry.
    await unpacked(scene, [...begin, ...entry('good', '0', '', 'x'), tarEnd()], limits);
    const before = readdirSync(join(scene.state, 'f'));
    await expect(unpacked(scene, [...begin, ...entries, tarEnd()], limits)).rejects.toThrow(reason);
    await expect(unpacked(scene, [...begin, ...entries, tarEnd()], limits)).rejects.toBeInstanceOf(ForkArchiveError);
    expect(readdirSync(join(scene.state, 'f'))).toEqual(before);
    // Without the manifest, cut, or not an archive at all.
    await expect(unpacked(scene, [...entry('a'), tarEnd()])).rejects.toThrow(/manifest/);
    await expect(unpacked(scene, [...begin, ...entry('a', '0', '', 'xyz').slice(0, 1)])).rejects.toThrow(
      /ends in the middle/,
    );
    expect(readdirSync(scene.workspace)).toEqual([]);
  });
});

let refused = 0;

// One entry of a tar.
function entry(name: string, type = '0', target = '', content = ''): Buffer[] {
  const fields = { mode: 0o644, seconds: 0, magic: 'ustar\x0000' };
  const records = name.length > 100 ? Buffer.from(paxRecord('path', name)) : null;
  const pax = records
    ? [
        headerBlock({ ...fields, name: Buffer.from('x'), size: records.length, type: 'x' }),
        records,
        tarPadding(records.length),
      ]
    : [];
  const own = headerBlock({
    ...fields,
    name: Buffer.from(name),
    size: content.length,
    type,
    target: Buffer.from(target),
  });
  return [...pax, own, Buffer.from(content), tarPadding(content.length)];
}

describe('forks of a workspace', () => {
  it('have one current fork, whichever process makes it, and nothing else is written for that', async () => {
    const scene = new Scene('current');
    const [one, two] = [await scene.make(), await scene.make()];
    for (const { id } of [one, two]) {
      const { active } = await scene.store.begin(id, { holder: 'x', image: 'i', command: 'c' });
      writeFileSync(join(scene.store.pathOf(id), String(active?.layer), 'f'), '');
    }
    await scene.store.end(one.id, { isEmpty: false });
    expect(scene.store.isCurrent(scene.get(one.id))).toBe(true);
    // A command of the first goes on while the second becomes current.
    await scene.store.begin(one.id, { holder: 'x', image: 'i', command: 'next' });
    scene.now += 1;
    await scene.store.end(two.id, { isEmpty: false });
    expect([one, two].map(({ id }) => scene.store.isCurrent(scene.get(id)))).toEqual([false, true]);
    expect(scene.get(one.id).active).toMatchObject({ command: 'next' });
  });

  it('expire 7 days after their last use, unless a command writes them', async () => {
    const day = 24 * 3600 * 1000;
    const scene = new Scene('expiry');
    const [one, two] = [await scene.make('one'), await scene.make('two')];
    const unused = await scene.make();
    for (const { id } of [one, two]) await scene.write(id, 'file');
    const ids = (records: readonly ForkRecord[]): string[] => records.map(({ id }) => id).sort();
    scene.now += 6 * day;
    expect(ids(scene.store.expired())).toEqual([unused.id]);
    scene.store.touch(one.id);
    scene.now += day - 1;
    // The announcement: with changes, of this workspace, within a day.
    expect(ids(scene.store.expiring(scene.workspace, day))).toEqual([two.id]);
    expect(scene.store.expiring('/elsewhere', day)).toEqual([]);
    expect(ids(scene.store.expired())).toEqual([unused.id]);
    scene.now += 1;
    expect(ids(scene.store.expired())).toEqual([two.id, unused.id].sort());
    scene.now += 5 * day;
    await scene.store.begin(one.id, { holder: 'x', image: 'i', command: 'long' });
    scene.now += 8 * day;
    expect(ids(scene.store.expired())).toEqual([two.id, unused.id].sort());
  });

  it('end with a command that changed nothing, unless they have a name', async () => {
    const scene = new Scene('unused');
    const [unnamed, named] = [await scene.make(), await scene.make('kept')];
    for (const { id } of [unnamed, named]) {
      await scene.store.begin(id, { holder: 'x', image: 'i', command: 'true' });
      await scene.store.end(id, { isEmpty: true });
    }
    expect(existsSync(scene.store.pathOf(unnamed.id))).toBe(false);
    expect(scene.get(named.id)).toMatchObject({ name: 'kept', layers: [], active: null });
  });
});
