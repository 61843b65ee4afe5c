// The words for bubblewrap, by the plan they are made of.

import { describe, expect, it } from 'vitest';
import type { SandboxSpec } from '../../contract/spec.ts';
import { bubblewrapArguments, type HostFacts, resourceLimits } from './start.ts';
import { assertPossible, weakenedGround, weakenedSpec } from './backend.ts';

const MIB = 1024 ** 2;
const identity = { device: 1, inode: 2 };
const spec: SandboxSpec = {
  identity: { sandboxId: 's', name: 'n', labels: {}, correlationId: 'c' },
  level: 'bubblewrap',
  image: { reference: 'host', id: 'host', digest: 'host', environment: ['PATH=/usr/bin', 'EMPTY='], removed: [] },
  user: { uid: 1234, gid: 5678 },
  limits: {
    memoryBytes: 32 * MIB,
    swapBytes: 0,
    cpus: 1,
    pids: 64,
    openFiles: 256,
    tmpBytes: MIB,
    outputBytes: MIB,
  },
  runtime: null,
  network: { kind: 'none' },
  dns: [],
  ports: [],
  workdir: '/workspace',
  home: '/home/sandbox',
  mounts: [
    { purpose: 'workspace', source: '/p/a b,c:d', target: '/workspace', readOnly: false, identity },
    { purpose: 'protected', source: '/p/a b,c:d/.git', target: '/workspace/.git', readOnly: true, identity },
    { purpose: 'additional', source: '/data', target: '/data', readOnly: true, identity },
  ],
  caches: [],
  tmpfs: [{ target: '/tmp', bytes: MIB, mode: '1777' }],
  hash: 'h',
};
const ground: HostFacts = {
  view: {
    system: [
      { kind: 'directory', path: '/usr', source: '/usr' },
      { kind: 'link', path: '/bin', to: '/usr/bin' },
      { kind: 'file', path: '/etc/ld.so.cache', source: '/etc/ld.so.cache' },
    ],
    masked: [
      { kind: 'file', path: '/proc/keys', source: '/proc/keys' },
      { kind: 'directory', path: '/proc/acpi', source: '/proc/acpi' },
    ],
  },
  limits: resourceLimits(spec.limits, true),
};

const words = (own: SandboxSpec = spec, on: HostFacts = ground): string[] => bubblewrapArguments(own, on);
/** Whether the words stand next to each other, in this order. */
const has = (list: readonly string[], ...wanted: string[]): boolean =>
  list.some((_, at) => wanted.every((word, offset) => list[at + offset] === word));
const at = (list: readonly string[], ...wanted: string[]): number =>
  list.findIndex((_, index) => wanted.every((word, offset) => list[index + offset] === word));

describe('the words for bubblewrap', () => {
  it.each([
    '--unshare-user',
    '--unshare-pid',
    '--unshare-net',
    '--unshare-ipc',
    '--unshare-uts',
    '--unshare-cgroup',
    '--disable-userns',
    '--assert-userns-disabled',
    '--new-session',
    '--die-with-parent',
    '--clearenv',
  ])('hold %s', word => {
    expect(words()).toContain(word);
  });

  it.each([
    ['no capabilities', ['--cap-drop', 'ALL']],
    ['the caller’s own user', ['--uid', '1234', '--gid', '5678']],
    ['a name that says nothing', ['--hostname', 'sandbox']],
    ['the filter', ['--seccomp', '11']],
    ['programs read-only', ['--ro-bind', '/usr', '/usr']],
    ['links as links', ['--symlink', '/usr/bin', '/bin']],
    ['a covered file', ['--ro-bind', '/dev/null', '/proc/keys']],
    ['a covered directory', ['--size', '4096', '--tmpfs', '/proc/acpi', '--remount-ro', '/proc/acpi']],
    ['sized memory', ['--size', String(MIB), '--perms', '1777', '--tmpfs', '/tmp']],
    ['shared memory no larger than memory', ['--size', String(32 * MIB), '--perms', '1777', '--tmpfs', '/dev/shm']],
    ['the workspace, whatever is in its name', ['--bind', '/p/a b,c:d', '/workspace']],
    ['protected parts read-only', ['--ro-bind', '/p/a b,c:d/.git', '/workspace/.git']],
    ['further mounts', ['--ro-bind', '/data', '/data']],
    ['the working directory', ['--chdir', '/workspace']],
    ['an own list of users', ['--perms', '0644', '--file', '12', '/etc/passwd']],
    ['a variable of the image', ['--setenv', 'PATH', '/usr/bin']],
    ['an empty variable', ['--setenv', 'EMPTY', '']],
    ['the home', ['--setenv', 'HOME', '/home/sandbox']],
  ])('give %s', (_, wanted) => {
    expect(has(words(), ...wanted)).toBe(true);
  });

  it('never show the host as it is, and share nothing', () => {
    const all = words();
    for (const bind of ['--bind', '--ro-bind', '--dev-bind']) expect(has(all, bind, '/')).toBe(false);
    for (const word of [
      '--share-net',
      '--unshare-user-try',
      '--unshare-cgroup-try',
      '--dev-bind',
      '--cap-add',
      '--bind-try',
    ])
      expect(all).not.toContain(word);
  });

  it('cover the workspace’s protected parts after it, and close the root last', () => {
    const all = words();
    expect(at(all, '--bind', '/p/a b,c:d')).toBeLessThan(at(all, '--ro-bind', '/p/a b,c:d/.git'));
    expect(at(all, '--tmpfs', '/tmp')).toBeLessThan(at(all, '--bind', '/p/a b,c:d'));
    expect(at(all, '--ro-bind', '/data')).toBeLessThan(at(all, '--remount-ro', '/'));
    expect(at(all, '--clearenv')).toBeLessThan(at(all, '--setenv'));
    expect(has(all, '--remount-ro', '/dev')).toBe(true);
  });
});

describe('a control', () => {
  const on = (...weakenings: Parameters<typeof weakenedGround>[0]): string[] =>
    words(weakenedSpec(spec, weakenings), { ...ground, ...weakenedGround(weakenings) });

  it('with nothing taken away is what every sandbox is', () => {
    expect(on()).toEqual(words());
    expect(on('verification')).toEqual(words());
  });

  it.each([
    ['network', 1],
    ['protected-paths', 3],
    ['read-only-root', 4],
  ] as const)('without %s lacks just its words', (weakening, fewer) => {
    expect(words().length - on(weakening).length).toBe(fewer);
  });

  it('raises limits to others that still hold', () => {
    expect(has(on('tmpfs-size'), '--size', String(64 * MIB), '--perms', '1777', '--tmpfs', '/tmp')).toBe(true);
    expect(weakenedSpec(spec, ['pids']).limits).toEqual({ ...spec.limits, pids: 512 });
    expect(weakenedSpec(spec, ['memory']).limits.memoryBytes).toBe(512 * MIB);
    expect(weakenedSpec(spec, ['open-files']).limits.openFiles).toBe(1024);
    expect(has(on('environment'), '--setenv', 'ACODE_DOCTOR_LEAK', '1')).toBe(true);
  });

  it('is not made where bubblewrap leaves no choice', () => {
    expect(() => assertPossible(['no-new-privileges'])).toThrow(expect.objectContaining({ code: 'ACODE-SBX-016' }));
    expect(() => assertPossible(['seccomp', 'verification'])).not.toThrow();
  });
});

describe('the fork of a workspace', () => {
  const part = (path: string) => ({ path, identities: [] });
  const overlay = { fork: 'x', upper: part('/f/2'), work: part('/f/b'), lowers: [part('/f/1')] };
  const forked = { ...spec, mounts: spec.mounts.slice(0, 1).map(mount => ({ ...mount, overlay })) };

  it('is mounted in its place, and the workspace itself is never bound', () => {
    const given = bubblewrapArguments(forked, { ...ground, forks: { way: 'bubblewrap' } });
    expect(given).toEqual(expect.arrayContaining(['--overlay', '/f/2', '/f/b', '/workspace']));
    expect(given).not.toContain('--bind');
  });

  it('is refused where nothing mounts it', () => {
    expect(() => bubblewrapArguments(forked, ground)).toThrow(TypeError);
  });
});
