// Which sources another sandbox could exchange under our eyes, which it cannot, and which were exchanged.

import { lstatSync, mkdirSync, mkdtempSync, renameSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { SandboxSpec } from '../../../contract/spec.ts';
import { identityOf } from '../../../workspace/file-identity.ts';
import type { ContainerSummary } from '../engine/containers.ts';
import { assertSources, mountsFromWorkspace, nestedMounts, swappedSources } from './inspection.ts';

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
