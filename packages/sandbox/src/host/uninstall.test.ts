// Uninstall knows every entry that acode writes into its own directories.

import { existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { OwnDirectory, SparedTrace } from '../contract/host.ts';
import { rememberHeld } from '../isolation/bubblewrap/backend.ts';
import { hostIdentity, offerSocketPath, ownerSocketPath } from '../lifecycle/ownership.ts';
import { reapedPath } from '../lifecycle/orphans.ts';
import { Locks } from '../lifecycle/lock.ts';
import { systemClock } from '../lifecycle/clock.ts';
import { removeDirectories } from './uninstall.ts';

const ID = '53a87165-0ce1-453c-a9b1-594e18d02b6f';
const uid = process.getuid?.() ?? 0;
let root: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'acode-uninstall-'));
  for (const name of ['config', 'state', 'runtime']) mkdirSync(join(root, name), { mode: 0o700 });
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

const own = (...names: readonly OwnDirectory['what'][]): OwnDirectory[] =>
  names.map(what => ({ what, path: join(root, what), files: 0, bytes: 0 }));

function touch(path: string): void {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, '');
}

it('leaves nothing in the runtime directory of what acode itself puts there', async () => {
  const runtime = join(root, 'runtime');
  const clock = systemClock;
  const signal = AbortSignal.timeout(30_000);
  rememberHeld({ directory: runtime, uid, clock }, 'word');
  await hostIdentity(runtime);
  await new Locks({ directory: runtime, uid, clock }).during(
    'key',
    { deadlineMs: 30_000, signal },
    async () => undefined,
  );
  for (const path of [
    ownerSocketPath(runtime, ID),
    offerSocketPath(runtime, ID),
    reapedPath(runtime),
    join(runtime, `bubblewrap-held.${process.pid}`),
  ])
    touch(path);
  expect(readdirSync(runtime).length).toBeGreaterThan(5);
  expect(await removeDirectories({ directories: own('runtime'), spared: [] })).toEqual([]);
  expect(existsSync(runtime)).toBe(false);
});

it('leaves nothing in the state directory of what the source names there', async () => {
  const source = fileURLToPath(new URL('..', import.meta.url));
  const texts = readdirSync(source, { recursive: true, encoding: 'utf8' })
    .filter(name => name.endsWith('.ts') && !name.includes('test'))
    .map(name => readFileSync(join(source, name), 'utf8'));
  const named = texts.flatMap(text => [...text.matchAll(/\bjoin\((?:\w+\.)*state(?:Directory)?, '([a-z-]+)'/g)]);
  const names = [...new Set(named.map(([, name = '']) => name))];
  expect(names).toEqual(expect.arrayContaining(['applies', 'audit', 'egress', 'f', 'leases', 'masks']));
  for (const name of names) touch(join(root, 'state', name, 'a'));
  expect(await removeDirectories({ directories: own('state'), spared: [] })).toEqual([]);
  expect(existsSync(join(root, 'state'))).toBe(false);
});

it('leaves what is spared as it is, does not complain about it, and still names what is somebody else’s', async () => {
  const files = [
    'config/config.yml',
    'state/audit/log.jsonl',
    'state/logs/a',
    'state/code-cache/a',
    'state/notes.txt',
  ].map(name => join(root, name));
  files.forEach(touch);
  const [config = '', log = '', saved = '', code = '', notes = ''] = files;
  const spared: SparedTrace[] = [
    { what: 'config', path: dirname(config) },
    { what: 'audit', path: dirname(log) },
  ];
  expect(await removeDirectories({ directories: own('config', 'state'), spared })).toEqual([notes]);
  expect([config, log, saved, code, notes].map(existsSync)).toEqual([true, true, false, false, true]);
  rmSync(notes);
  expect(await removeDirectories({ directories: own('config', 'state'), spared })).toEqual([]);
  expect([config, log].map(existsSync)).toEqual([true, true]);
  expect(await removeDirectories({ directories: own('config', 'state'), spared: [] })).toEqual([]);
  expect([dirname(config), join(root, 'state')].map(existsSync)).toEqual([false, false]);
});
