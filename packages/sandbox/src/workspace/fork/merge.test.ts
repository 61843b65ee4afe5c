import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { MAX_MERGE_BYTES, mergeThreeWay } from './merge.ts';

const FACTOR = Number(process.env['ACODE_PROPERTY_FACTOR'] ?? 1);

function merge(base: string, host: string, fork: string): string {
  const result = mergeThreeWay({ base: Buffer.from(base), host: Buffer.from(host), fork: Buffer.from(fork) });
  return 'merged' in result ? result.merged.toString() : `conflict: ${result.conflict}`;
}

describe('three-way merge', () => {
  it('keeps the edits of both sides, and calls overlapping or touching ones a conflict', () => {
    const base = 'a\nb\nc\nd\ne\n';
    const cases: [name: string, host: string, fork: string, expected: string][] = [
      ['only the fork', base, 'a\nB\nc\nd\ne\n', 'a\nB\nc\nd\ne\n'],
      ['only the host', 'a\nB\nc\nd\ne\n', base, 'a\nB\nc\nd\ne\n'],
      ['apart', 'A\nb\nc\nd\ne\n', 'a\nb\nc\nd\nE\n', 'A\nb\nc\nd\nE\n'],
      ['insertion and deletion', 'x\na\nb\nc\nd\ne\n', 'a\nb\nc\ne\n', 'x\na\nb\nc\ne\n'],
      ['the same edit', 'a\nB\nc\nd\ne\n', 'a\nB\nc\nd\ne\n', 'a\nB\nc\nd\ne\n'],
      ['the same line', 'a\nB\nc\nd\ne\n', 'a\nX\nc\nd\ne\n', 'conflict: overlap'],
      ['neighbouring lines', 'a\nB\nc\nd\ne\n', 'a\nb\nC\nd\ne\n', 'conflict: overlap'],
      ['emptied here', '', 'a\nB\nc\nd\ne\n', 'conflict: overlap'],
      ['no last line break', 'A\nb\nc\nd\ne\n', 'a\nb\nc\nd\ne', 'A\nb\nc\nd\ne'],
      ['CRLF', 'A\r\nb\nc\nd\ne\n', 'a\nb\nc\nd\nE\r\n', 'A\r\nb\nc\nd\nE\r\n'],
      ['binary', 'a\0\n', 'a\nB\n', 'conflict: binary'],
    ];
    expect(cases.map(([name, host, fork]) => [name, merge(base, host, fork)])).toEqual(
      cases.map(([name, , , expected]) => [name, expected]),
    );
  });

  it('leaves bytes that are not text in any encoding as they are', () => {
    const of = (first: number, last: number): Buffer => Buffer.from([first, 10, 98, 10, 99, 10, last, 10]);
    const result = mergeThreeWay({ base: of(0xff, 0xfe), host: of(0xc3, 0xfe), fork: of(0xff, 0x80) });
    expect(result).toEqual({ merged: of(0xc3, 0x80) });
  });

  it('does not merge what is too large, or has too many edits', () => {
    const long = 'x'.repeat(MAX_MERGE_BYTES + 1);
    expect(merge('a\n', long, 'b\n')).toBe('conflict: too-large');
    const lines = (prefix: string): string => Array.from({ length: 3000 }, (_, at) => `${prefix}${at}\n`).join('');
    expect(merge(lines('a'), lines('b'), `${lines('a')}end\n`)).toBe('conflict: too-large');
  });
});

/** An edit script: for each line of the base what becomes of it, and what is put before it. */
type Script = readonly { readonly drop: boolean; readonly insert: number }[];

const scripts = (length: number): fc.Arbitrary<Script> =>
  fc.array(
    fc.record({
      drop: fc.oneof({ weight: 9, arbitrary: fc.constant(false) }, { weight: 1, arbitrary: fc.constant(true) }),
      insert: fc.oneof(
        { weight: 9, arbitrary: fc.constant(0) },
        { weight: 1, arbitrary: fc.integer({ min: 1, max: 2 }) },
      ),
    }),
    { minLength: length, maxLength: length },
  );

function edited(base: readonly string[], script: Script, side: string): { text: string; inserted: string[] } {
  const inserted: string[] = [];
  const lines = base.flatMap((line, at) => {
    const { drop = false, insert = 0 } = script[at] ?? {};
    const fresh = Array.from({ length: insert }, (_, copy) => `${side}${at}.${copy}\n`);
    inserted.push(...fresh);
    return [...fresh, ...(drop ? [] : [line])];
  });
  return { text: lines.join(''), inserted };
}

interface Case {
  readonly base: string;
  readonly host: string;
  readonly fork: string;
  readonly inserted: readonly string[];
}

const cases = (line: (at: number, pick: number) => string): fc.Arbitrary<Case> =>
  fc
    .array(fc.integer({ min: 0, max: 3 }), { minLength: 1, maxLength: 25 })
    .chain(picks => fc.tuple(fc.constant(picks), scripts(picks.length), scripts(picks.length)))
    .map(([picks, one, other]) => {
      const base = picks.map((pick, at) => `${line(at, pick)}\n`);
      const [host, fork] = [edited(base, one, 'h'), edited(base, other, 'f')];
      return {
        base: base.join(''),
        host: host.text,
        fork: fork.text,
        inserted: [...host.inserted, ...fork.inserted],
      };
    });

// Many cases in one file, since starting git takes longer than all else: lines that nobody changed keep them apart.
function gitMerges(all: readonly Case[]): string[] {
  const directory = mkdtempSync(join(tmpdir(), 'acode-merge-'));
  const fence = (at: number): string => [1, 2, 3, 4].map(line => `fence ${at} ${line}\n`).join('');
  for (const version of ['base', 'host', 'fork'] as const)
    writeFileSync(join(directory, version), all.map((one, at) => one[version] + fence(at)).join(''));
  const { stdout, status } = spawnSync('git', ['merge-file', '-p', 'host', 'base', 'fork'], {
    cwd: directory,
    encoding: 'utf8',
    maxBuffer: 64 * 1024 ** 2,
  });
  rmSync(directory, { recursive: true });
  if (status === null || status > 127) throw new Error('git merge-file failed');
  let rest = stdout;
  return all.map((_, at) => {
    const end = rest.indexOf(fence(at));
    const text = rest.slice(0, end);
    rest = rest.slice(end + fence(at).length);
    return text.includes('<<<<<<<') ? 'conflict: overlap' : text;
  });
}

describe('random edits on both sides, against git merge-file', () => {
  it('gives what git gives where no line occurs twice', () => {
    const all = fc.sample(
      cases(at => `line ${at}`),
      400 * FACTOR,
    );
    const theirs = gitMerges(all);
    const wrong = all.filter(({ base, host, fork }, at) => merge(base, host, fork) !== theirs[at]);
    expect(wrong.slice(0, 3)).toEqual([]);
    // Both outcomes were compared, and not only one of them.
    const conflicts = theirs.filter(text => text.startsWith('conflict')).length;
    expect(conflicts).toBeGreaterThan(40);
    expect(all.length - conflicts).toBeGreaterThan(40);
  });

  it('loses no inserted line where lines repeat', () => {
    let clean = 0;
    fc.assert(
      fc.property(
        cases((_, pick) => 'abcd'.charAt(pick)),
        ({ base, host, fork, inserted }) => {
          const result = merge(base, host, fork);
          if (result.startsWith('conflict')) return;
          clean += 1;
          const lines = result.split(/(?<=\n)/);
          for (const line of inserted) expect(lines.filter(found => found === line)).toEqual([line]);
        },
      ),
      { numRuns: 1000 * FACTOR },
    );
    expect(clean).toBeGreaterThan(100);
  });
});
