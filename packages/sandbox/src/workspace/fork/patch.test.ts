import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import {
  chmodSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ForkDiff } from './diff.ts';
import { editsBetween, editsOrReplacement } from './line-edits.ts';
import { home, useLayers, write } from './layered.test.support.ts';
import { makeMarks } from './marks.ts';
import { changedLines, gitPatch } from './patch.ts';

const signal = new AbortController().signal;

useLayers();

async function open(): Promise<ForkDiff> {
  return ForkDiff.open(
    { workspace: join(home, 'w'), uppers: [join(home, '1')], masked: [] },
    { scratch: home, signal },
  );
}

async function patch(): Promise<{ patch: Buffer; omitted: string[] }> {
  using diff = await open();
  const omitted: string[] = [];
  const pieces: Buffer[] = [];
  const made = gitPatch(diff, { signal, omitted: (path, reason) => omitted.push(`${reason} ${path}`) });
  for await (const piece of made) pieces.push(piece);
  return { patch: Buffer.concat(pieces), omitted };
}

function apply(input: Buffer): void {
  const env = { PATH: process.env['PATH'], HOME: home, GIT_CONFIG_NOSYSTEM: '1', GIT_CEILING_DIRECTORIES: home };
  execFileSync('git', ['apply', '--binary', '-'], { cwd: join(home, 'w'), env, input, stdio: 'pipe', timeout: 30_000 });
}

function lines(count: number, changed: readonly number[] = []): string {
  return Array.from({ length: count }, (_, at) => (changed.includes(at) ? `changed ${at}\n` : `line ${at}\n`)).join('');
}

describe('the patch of a fork', () => {
  it('is what git apply takes, for texts, binary files, modes, links and odd names', async () => {
    const binary = Buffer.concat([randomBytes(100_000), Buffer.from([0])]);
    const odd = ['sp ace', 'tab\there', 'new\nline', 'quo"te\\', 'ünï', 'diff --git a\nb', 'n'.repeat(255)];
    write('w', {
      'text.ts': lines(100),
      'no-newline': 'a\nb',
      'gone/text': lines(5),
      'gone/data': Buffer.from([0, 1]),
      empty: '',
      'was-file': 'x\n',
      'was-link-to-file': 'x\n',
      'run.sh': 'echo\n',
      'data.bin': Buffer.from([0, 1, 2]),
      'replaced/by/file': 'x\n',
    });
    write('1', {
      'text.ts': lines(100, [0, 40, 44, 99]),
      'no-newline': 'a\nc',
      empty: 'no more\n',
      'new-empty': '',
      'was-file/inside': 'y\n',
      'run.sh': 'echo\n',
      'data.bin': binary,
      large: 'l'.repeat(2 * 1024 ** 2),
      replaced: 'file\n',
    });
    for (const [at, name] of odd.entries()) write(at % 2 === 0 ? '1' : 'w', { [name]: `${name}\n` });
    for (const name of odd.filter((_, at) => at % 2 === 1)) write('1', { [name]: 'changed' });
    chmodSync(join(home, '1/run.sh'), 0o755);
    symlinkSync('/outside', join(home, '1/was-link-to-file'));
    symlinkSync('text.ts', join(home, '1/link'));
    await makeMarks(join(home, '1'), [{ path: 'gone', kind: 'whiteout', mode: 0 }], { scratch: home, signal });
    const made = await patch();
    expect(made.omitted).toEqual([]);
    apply(made.patch);
    expect(await patch()).toEqual({ patch: Buffer.alloc(0), omitted: [] });
    using left = await open();
    expect((await left.collect('k7m2x9qd')).counts).toEqual({ added: 0, changed: 0, deleted: 0 });
    expect(readFileSync(join(home, 'w/data.bin')).equals(binary)).toBe(true);
    expect(readlinkSync(join(home, 'w/was-link-to-file'))).toBe('/outside');
    expect(lstatSync(join(home, 'w/run.sh')).mode & 0o111).not.toBe(0);
  });

  it('is a unified diff that a person can read', async () => {
    write('w', { 'a b.txt': lines(12) });
    write('1', { 'a b.txt': lines(12, [5]) });
    const text = (await patch()).patch.toString();
    expect(text.replaceAll(/[0-9a-f]{40}/g, 'OBJECT')).toBe(
      [
        'diff --git a/a b.txt b/a b.txt',
        'index OBJECT..OBJECT 100644',
        '--- a/a b.txt\t',
        '+++ b/a b.txt\t',
        '@@ -3,7 +3,7 @@',
        ' line 2\n line 3\n line 4',
        '-line 5',
        '+changed 5',
        ' line 6\n line 7\n line 8\n',
      ].join('\n'),
    );
  });

  it('refuses to change a file that is not what the fork began with', async () => {
    write('w', { data: Buffer.from([0, 1]) });
    write('1', { data: Buffer.from([0, 2]) });
    const made = await patch();
    write('w', { data: Buffer.from([0, 3]) });
    expect(() => apply(made.patch)).toThrow('does not match the current contents');
    expect(readFileSync(join(home, 'w/data'))).toEqual(Buffer.from([0, 3]));
  });

  it('names what git cannot keep', async () => {
    write('w', { mode: 'm', 'dir/f': 'f', 'left/over/empty': '' });
    rmSync(join(home, 'w/left/over/empty'));
    write('1', { mode: 'm', left: 'file' });
    chmodSync(join(home, '1/mode'), 0o600);
    mkdirSync(join(home, '1/empty/deep'), { recursive: true });
    mkdirSync(join(home, '1/dir'), { mode: 0o700 });
    execFileSync('mkfifo', [join(home, '1/fifo')]);
    writeFileSync(Buffer.concat([Buffer.from(join(home, '1/')), Buffer.from([0xff])]), '');
    const made = await patch();
    expect(made.omitted.sort()).toEqual([
      'directory empty/deep',
      'mode dir',
      'mode mode',
      String.raw`name \377`,
      'not-empty left',
      'special fifo',
    ]);
    expect(made.patch.toString()).toBe('');
  });

  it('counts lines', async () => {
    write('w', { changed: lines(20), binary: Buffer.from([0]) });
    write('1', { changed: lines(22, [3]), added: lines(2), binary: Buffer.from([0, 0]) });
    using diff = await open();
    const counts: unknown[] = [];
    for await (const entry of diff) counts.push(await changedLines(entry, signal));
    expect(counts).toEqual([{ added: 2, removed: 0 }, null, { added: 3, removed: 1 }]);
  });
});

describe('edits by lines', () => {
  it('are bounded: beyond the bound, everything between the first and the last difference is replaced', () => {
    const before = Array.from({ length: 6000 }, (_, at) => at);
    const after = before.map(at => (at > 10 && at < 5990 ? -at : at));
    expect(editsBetween(before, after)).toBeNull();
    expect(editsOrReplacement(before, after)).toEqual([{ from: 11, to: 5990, newFrom: 11, newTo: 5990 }]);
  });
});
