// Forks at level bubblewrap: what is started for one, and what the kernel must show of it.

import { mkdirSync, mkdtempSync, rmSync, lstatSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import type { MountSpec, SandboxSpec } from '../../contract/spec.ts';
import { identityOf } from '../../workspace/file-identity.ts';
import { partAt } from '../../workspace/fork/overlay.ts';
import { type KernelView, parseMountinfo } from '../kernel.ts';
import { assertForks, beforeBubblewrap, forkArguments, forkDifferences, type ForkTools } from './forks.ts';

const root = mkdtempSync(join(tmpdir(), 'acode-forks-'));
const at = (name: string): string => join(root, name);
for (const name of ['w s', '1', '2', '3', 'b']) mkdirSync(at(name));
afterAll(() => rmSync(root, { recursive: true }));

const own: ForkTools = { way: 'bubblewrap' };
const tools: ForkTools = { way: 'unshare', unshare: '/usr/bin/unshare', mount: '/usr/bin/mount' };
const overlay = {
  fork: 'x',
  upper: partAt(at('3')),
  work: partAt(at('b')),
  lowers: [partAt(at('2')), partAt(at('1'))],
};
const mount = {
  purpose: 'workspace',
  source: at('w s'),
  target: '/workspace',
  readOnly: false,
  identity: identityOf(lstatSync(at('w s'))),
  overlay,
} satisfies MountSpec;
const specOf = (one: MountSpec): SandboxSpec => ({ mounts: [one] }) as unknown as SandboxSpec;
const OPTIONS = `lowerdir=${at('2')}:${at('1')}:${at('w s')},upperdir=${at('3')},workdir=${at('b')},userxattr,nosuid,nodev`;

describe('the start of a sandbox with a fork', () => {
  it('mounts it over its upper directory before bubblewrap, or has bubblewrap do it, lowest layer first', () => {
    expect(beforeBubblewrap(tools, specOf(mount)).slice(-4)).toEqual(['/usr/bin/mount', OPTIONS, at('3'), '--']);
    expect(forkArguments(tools, mount)).toEqual(['--bind', at('3'), '/workspace']);
    expect(beforeBubblewrap(own, specOf(mount))).toEqual([]);
    const sources = [at('w s'), at('1'), at('2')].flatMap(path => ['--overlay-src', path]);
    expect(forkArguments(own, mount)).toEqual([...sources, '--overlay', at('3'), at('b'), '/workspace']);
  });

  it('is refused with options that the kernel would cut, counted as the mounting program writes them', () => {
    // Bubblewrap writes 8 bytes more for each of the five directories.
    const bytes = Buffer.byteLength(OPTIONS) - at('w s').length;
    const long = (length: number): SandboxSpec => specOf({ ...mount, source: `/${'x'.repeat(length - bytes - 1)}` });
    expect(() => assertForks(tools, long(4095))).not.toThrow();
    expect(() => assertForks(tools, long(4096))).toThrow(expect.objectContaining({ code: 'ACODE-FRK-004' }));
    expect(() => assertForks(own, long(4095 - 40))).not.toThrow();
    expect(() => assertForks(own, long(4095 - 39))).toThrow(expect.objectContaining({ code: 'ACODE-FRK-004' }));
  });

  it('is refused where `mount` would read a path as something else, or a part is not what was checked', () => {
    const quoted = specOf({ ...mount, source: '/a"b' });
    expect(() => assertForks(tools, quoted)).toThrow(expect.objectContaining({ code: 'ACODE-FRK-004' }));
    expect(() => assertForks(own, quoted)).not.toThrow();
    const swapped = { ...overlay, work: { ...overlay.work, identities: overlay.upper.identities } };
    const other = specOf({ ...mount, overlay: swapped });
    expect(() => assertForks(tools, other)).toThrow(expect.objectContaining({ code: 'ACODE-SBX-010' }));
  });
});

describe('the kernel’s table of a sandbox with a fork', () => {
  const shown = (below: string, change: (line: string) => string = line => line): KernelView => {
    const path = (name: string): string => below + at(name).replaceAll(' ', String.raw`\040`);
    const layers = `lowerdir=${path('2')}:${path('1')}:${path('w s')},upperdir=${path('3')},workdir=${path('b')}`;
    const line = `9 1 0:50 / /workspace rw,nosuid,nodev,relatime - overlay overlay rw,${layers},userxattr`;
    return { mounts: parseMountinfo(change(line)) } as unknown as KernelView;
  };
  const found = (way: ForkTools | null, view: KernelView): string[] =>
    forkDifferences(way, specOf(mount), view, 0).map(({ detail }) => detail);

  it('has no difference where it shows every part as the program mounted it', () => {
    expect(found(tools, shown(''))).toEqual([]);
    expect(found(own, shown('/oldroot'))).toEqual([]);
  });

  it.each([
    ['another upper', (line: string) => line.replace(`upperdir=${at('3')}`, `upperdir=${at('2')}`)],
    ['another work directory', (line: string) => line.replace(`workdir=${at('b')}`, 'workdir=/w')],
    ['a lower layer less', (line: string) => line.replace(`:${at('1')}`, '')],
    ['the marks of root', (line: string) => line.replace(',userxattr', '')],
    ['devices', (line: string) => line.replace(',nodev', '')],
    ['read-only', (line: string) => line.replace(' rw,nosuid', ' ro,nosuid')],
    ['no overlay', (line: string) => line.replace('overlay overlay', 'ext4 d')],
    ['mounts that go to the host', (line: string) => line.replace(' - ', ' shared:1 - ')],
    ['nothing', () => ''],
  ])('differs where it shows %s', (_, change) => {
    expect(found(tools, shown('', change))).toEqual(['/workspace is not the fork that was made for it']);
  });

  it('differs where another program mounted it, or none was found', () => {
    expect(found(tools, shown('/oldroot'))).toHaveLength(1);
    expect(found(null, shown(''))).toHaveLength(1);
  });

  it('differs where the workspace or a layer is another directory now', () => {
    const identity = identityOf(lstatSync(root));
    const workspace = forkDifferences(tools, specOf({ ...mount, identity }), shown(''), 0);
    expect(workspace.map(({ detail }) => detail)).toEqual([`${at('w s')}, the workspace, is not what was checked`]);
    const lower = { path: at('1'), identities: overlay.upper.identities };
    const swapped = { ...mount, overlay: { ...overlay, lowers: [partAt(at('2')), lower] } };
    expect(forkDifferences(tools, specOf(swapped), shown(''), 0)).toHaveLength(1);
  });
});
