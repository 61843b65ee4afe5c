import { mkdir, mkdtemp, realpath, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Place } from '../workspace.ts';
import { artifactNotices, artifactsFor, lacksArtifact, refuseArtifacts } from './artifacts.ts';

let place: Place;

beforeAll(async () => {
  const root = await realpath(await mkdtemp(join(tmpdir(), 'artifacts-')));
  place = { root, here: join(root, 'sub'), inside: 'sub' };
  await mkdir(join(root, 'sub', 'there'), { recursive: true });
  await writeFile(join(root, 'sub', 'taken'), '');
  await symlink('/nowhere', join(root, 'sub', 'link'));
});

afterAll(() => rm(place.root, { recursive: true }));

const targets = async (...texts: string[]): Promise<string[]> => (await artifactsFor(texts, place)).map(({ to }) => to);

describe('--artifact', () => {
  it('goes where the user stands, and into a directory under its own name', async () => {
    const given = ['/out/a:./report', '/out/c:there', 'd:new/', 'e:../top'];
    await expect(targets(...given)).resolves.toEqual(['sub/report', 'sub/there/c', 'sub/new/d', 'top']);
  });

  it.each([
    ['a:taken', /exists already, and an artifact replaces nothing/],
    ['a:link', /exists already/],
    ['a:../..', /is not below the workspace/],
    ['a:/etc/report', /is not below the workspace/],
  ])('%s is refused before the command runs', async (text, message) => {
    await expect(targets(text)).rejects.toThrow(message);
  });

  it('has a target of its own', async () => {
    await expect(targets('a:x', 'b:x')).rejects.toThrow('Two artifacts go to x.');
  });

  it.each(['report', ':report', '/out/report:', ''])('is not %j', async text => {
    await expect(targets(text)).rejects.toThrow('is not understood');
  });

  it('reports what came, what was left out, and what did not come', () => {
    const counts = { files: 0, directories: 0, bytes: 0, skipped: [] };
    const skipped = [{ path: 'k', reason: 'it is a link' }];
    const artifacts = [
      { from: 'a', to: 'x', ...counts, files: 1, bytes: 2, skipped },
      { from: 'b', to: 'y', ...counts, error: { code: 'ENOENT', message: 'ENOENT: no such file' } },
      { from: 'c', to: 'z', ...counts, error: { code: 'ACODE-FIL-005', message: 'Cannot be read.' } },
    ];
    expect(artifactNotices({ artifacts }).map(({ text }) => text)).toEqual([
      'copied 1 file, 2 bytes, to x',
      'left out k: it is a link',
      'the artifact b was not copied to y: does not exist',
      'the artifact c was not copied to z: Cannot be read.',
    ]);
    expect([lacksArtifact({ artifacts }), lacksArtifact({ artifacts: artifacts.slice(0, 1) })]).toEqual([true, false]);
  });

  it('is refused with a terminal and in a sandbox that exists', () => {
    expect(() => refuseArtifacts(['a:b'], undefined)).toThrow('has no artifacts');
    expect(() => refuseArtifacts(['a:b'], 'web-1')).toThrow('web-1 exists already');
    expect(() => refuseArtifacts(undefined, 'web-1')).not.toThrow();
  });
});
