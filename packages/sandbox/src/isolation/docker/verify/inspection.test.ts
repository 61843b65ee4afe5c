// Which sources another sandbox could exchange under our eyes, which it cannot, and which were exchanged.

import { lstatSync, mkdirSync, mkdtempSync, renameSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { SandboxSpec } from '../../../contract/spec.ts';
import { identityOf } from '../../../workspace/file-identity.ts';
import type { ContainerSummary } from '../engine/containers.ts';
import { assertSources, mountsFromWorkspace, nestedMounts, swappedSources, whatToEnd } from './inspection.ts';

const spec = (...sources: string[]) => ({ mounts: sources.map(source => ({ source })) }) as unknown as SandboxSpec;
const other = (writableSources: string[], readOnlySources: string[] = [], id = 'other') =>
  ({ id, writableSources, readOnlySources }) as unknown as ContainerSummary;

describe('nestedMounts', () => {
  it.each<[string, SandboxSpec, ContainerSummary]>([
    ['the same workspace', spec('/p'), other(['/p'])],
    ['a protected part that the other has read-only too', spec('/p', '/p/.git'), other(['/p'], ['/p/.git'])],
    ['a sibling by prefix', spec('/p-evil'), other(['/p'])],
    ['a directory above', spec('/p'), other(['/p/sub'])],
    ['the sandbox itself', spec('/p', '/p/.git'), other(['/p'], [], 'self')],
    ['a read-only mount of another', spec('/p/sub'), other([], ['/p'])],
  ])('allows %s', (_, planned, running) => {
    expect(nestedMounts('self', planned, [running])).toEqual([]);
  });

  it.each<[string, SandboxSpec, readonly ContainerSummary[]]>([
    ['a directory below', spec('/p/sub'), [other(['/p'])]],
    ['a protected part that the other can rename', spec('/p', '/p/.git'), [other(['/p'])]],
    ['a part deeper down, since the directory between can be renamed', spec('/p/a/b'), [other(['/p'], ['/p/a/b'])]],
    ['a part that only one of two has read-only', spec('/p/.git'), [other(['/p'], ['/p/.git']), other(['/p'])]],
    [
      'a part of a directory that is writable further up as well',
      spec('/p/q/.git'),
      [other(['/p', '/p/q'], ['/p/q/.git'])],
    ],
  ])('refuses %s', (_, planned, running) => {
    expect(nestedMounts('self', planned, running)).toMatchObject([{ violation: 'NestedWritableMount' }]);
  });

  const planned = {
    identity: { labels: { 'acode.uid': '1000' } },
    mounts: [
      { source: '/p', purpose: 'workspace' },
      { source: '/p/.vscode', purpose: 'protected' },
    ],
  } as unknown as SandboxSpec;
  const labelled = (labels: Readonly<Record<string, string>>) => ({
    ...other(['/p']),
    labels: { 'acode.sandbox': 'a1b2', 'acode.uid': '1000', ...labels },
  });
  const kept = { 'acode.keep': 'true', 'acode.given-name': 'web-server' };

  it('names a protected part that was created, the sandbox in the way, and the command that ends it', () => {
    const found = nestedMounts('self', planned, [labelled(kept)]);
    expect(found.map(({ detail }) => detail)).toEqual([
      '`.vscode`, which acode protects, was created in /p while sandbox web-server is running, which could replace it',
    ]);
    expect(whatToEnd(found)).toEqual({
      sandboxes: ['a1b2'],
      remedy:
        'Nothing of the command ran. End that sandbox with `acode sandbox kill web-server`, then run the command again.',
    });
  });

  it('names the command for the one that was kept, besides one that ends by itself', () => {
    const waiting = { ...labelled({ 'acode.sandbox': 'c3d4', 'acode.keep': 'false' }), id: 'third' };
    const found = nestedMounts('self', planned, [labelled(kept), waiting]);
    expect(found[0]?.detail).toContain('while sandboxes web-server and c3d4 are running');
    expect(whatToEnd(found)).toEqual({
      sandboxes: ['a1b2', 'c3d4'],
      remedy: expect.stringContaining('End that sandbox with `acode sandbox kill web-server`, then') as string,
    });
  });

  it.each([
    ['was not kept', { 'acode.keep': 'false' }],
    ['is another user’s, whose name may be one of this user’s too', { ...kept, 'acode.uid': '1001' }],
  ])('names no command for a sandbox that %s', (_, labels) => {
    const found = nestedMounts('self', planned, [labelled(labels)]);
    expect(found[0]?.detail).toContain('while sandbox a1b2 is running');
    expect(whatToEnd(found)).toEqual({ sandboxes: ['a1b2'] });
  });
});

describe('swappedSources', () => {
  let root: string;
  let source: string;

  beforeEach(() => {
    root = mkdtempSync(join(tmpdir(), 'acode-sources-'));
    source = join(root, 'data');
    mkdirSync(source);
  });
  afterEach(() => rmSync(root, { recursive: true, force: true }));

  function planned(): SandboxSpec {
    return { mounts: [{ source, identity: identityOf(lstatSync(source)) }] } as unknown as SandboxSpec;
  }

  it('finds nothing where every source is what was checked', () => {
    expect(swappedSources(planned())).toEqual([]);
  });

  it.each<[string, () => void]>([
    ['a link', () => symlinkSync('/etc', source)],
    ['another directory', () => mkdirSync(source)],
    ['nothing', () => undefined],
  ])('finds a source that was swapped for %s', (_, swap) => {
    const checked = planned();
    renameSync(source, join(root, 'aside'));
    swap();
    expect(swappedSources(checked)).toMatchObject([{ violation: 'MountMismatch' }]);
    expect(() => assertSources(checked)).toThrow(expect.objectContaining({ code: 'ACODE-SBX-010' }));
  });
});

describe('mountsFromWorkspace', () => {
  it('finds a further mount of what the workspace holds, and neither its protected parts nor what lies elsewhere', () => {
    const mounts = [
      { purpose: 'workspace', source: '/p' },
      { purpose: 'protected', source: '/p/.git' },
      { purpose: 'additional', source: '/p-other' },
      { purpose: 'additional', source: '/p/data' },
    ];
    expect(mountsFromWorkspace({ mounts } as unknown as SandboxSpec)).toEqual([
      { violation: 'NestedWritableMount', detail: expect.stringMatching(/^\/p\/data lies in the workspace/) },
    ]);
  });
});
