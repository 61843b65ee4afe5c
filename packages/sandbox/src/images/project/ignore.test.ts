// `.dockerignore`: the files it leaves out, and that no pattern can make it take long.

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { IgnoreRules } from './pattern.ts';
import type { Verdict } from './pattern.ts';

/** What the rules say of a path, asked as a walk asks: from the top. */
function verdictOn(rules: IgnoreRules, path: string): Verdict {
  return path.split('/').reduce((above, name) => rules.judge(name, above), rules.top);
}

function ignores(text: string, path: string): boolean {
  return verdictOn(IgnoreRules.parse(text), path).ignored;
}

describe('a pattern', () => {
  // pattern, a path, whether it is left out
  it.each([
    ['node_modules', 'node_modules', true],
    ['node_modules', 'node_modules/a/b.js', true],
    ['node_modules', 'sub/node_modules', false],
    ['**/node_modules', 'sub/deep/node_modules/a.js', true],
    ['**/node_modules', 'node_modules/a.js', true],
    ['/dist/', 'dist/a', true],
    ['./dist', 'dist', true],
    ['a/../dist', 'dist', true],
    ['*.log', 'x.log', true],
    ['*.log', 'sub/x.log', false],
    ['**/*.log', 'a/b/x.log', true],
    ['**.log', 'a/x.log', true],
    ['a/**', 'a/b/c', true],
    ['a/**', 'a', false],
    ['a/**/z', 'a/z', true],
    ['a/**/z', 'a/b/c/z', true],
    ['a/**/z', 'a/bz', false],
    ['a?c', 'abc', true],
    ['a?c', 'a/c', false],
    ['file[0-9]', 'file7', true],
    ['file[^0-9]', 'file7', false],
    ['file[^0-9]', 'filex', true],
    ['a[]]b', 'a]b', true],
    ['\\#note', '#note', true],
    ['#note', '#note', false],
    ['\\!x', '!x', true],
    ['  spaced  ', 'spaced', true],
    ['.', 'x', false],
    ['../x', 'x', false],
    ['**', 'a/b', true],
    ['ünï*', 'ünïcode', true],
    ['***x', 'a/bx', true],
    ['a/**/**/**/z', 'a/z', true],
    ['**/**', 'a/b', true],
    ['x****', 'xa/b', true],
    ['x****', 'y', false],
    ['[😀-😂]', '😁', true],
    ['[😀-😂]', '😃', false],
  ])('%j on %j: %j', (pattern, path, expected) => {
    expect(ignores(pattern, path)).toBe(expected);
  });

  it('that comes last has the last word, also for what lies deeper', () => {
    expect(ignores('*\n!src', 'src/a.js')).toBe(false);
    expect(ignores('*\n!src\nsrc/secret', 'src/secret/x')).toBe(true);
    expect(ignores('!src\n*', 'src')).toBe(true);
    expect(ignores('a\n!a/b', 'a/b/c')).toBe(false);
  });

  it.each([
    ['!', 1],
    ['ok\n[a-', 2],
    ['a\\', 1],
    ['x'.repeat(1025), 1],
  ])('%j that is none is refused with its line', (text, line) => {
    expect(() => IgnoreRules.parse(text)).toThrow(
      expect.objectContaining({
        code: 'ACODE-IMG-002',
        context: expect.objectContaining({ path: `.dockerignore:${line}` }),
      }),
    );
  });

  it('is one of a thousand at most', () => {
    expect(() => IgnoreRules.parse('a\n'.repeat(1000))).not.toThrow();
    expect(() => IgnoreRules.parse('a\n'.repeat(1001))).toThrow(expect.objectContaining({ code: 'ACODE-IMG-002' }));
  });

  it('made to take for ever takes no time', () => {
    const began = performance.now();
    expect(ignores('**/a*a*a*a*a*a*a*a*a*a*a*a*b', `${'a'.repeat(200)}/${'a'.repeat(250)}`)).toBe(false);
    expect(ignores(`${'**/'.repeat(300)}x`, 'y/'.repeat(99) + 'z')).toBe(false);
    // Without the bound the first alone would take longer than any caller waits.
    expect(performance.now() - began).toBeLessThan(1500);
  });
});

describe('many long patterns', () => {
  const long = (many: number): string => Array.from({ length: many }, (_, n) => `${'*a'.repeat(480)}${n}`).join('\n');
  const refusal = expect.objectContaining({
    code: 'ACODE-IMG-002',
    context: expect.objectContaining({ path: '.dockerignore', remedy: expect.stringContaining('shorter patterns') }),
  });

  it('are refused together where each alone is none too long', () => {
    expect(() => IgnoreRules.parse(long(30))).not.toThrow();
    expect(() => IgnoreRules.parse(long(200))).toThrow(refusal);
    expect(() => IgnoreRules.parse(`[${'a'.repeat(900)}]\n`.repeat(50))).toThrow(refusal);
    // The controls: neither paths nor runs of wildcards cost anything.
    expect(() => IgnoreRules.parse(`${'a'.repeat(1000)}\n`.repeat(200))).not.toThrow();
    expect(() => IgnoreRules.parse(`x${'*'.repeat(1000)}\n`.repeat(200))).not.toThrow();
  });

  it('hold one name up for a moment at most', () => {
    const rules = IgnoreRules.parse(long(30));
    const began = performance.now();
    expect(rules.judge('a'.repeat(255), rules.top).ignored).toBe(false);
    // Every pattern is at every place at once. It took seconds where patterns were as many as they liked.
    expect(performance.now() - began).toBeLessThan(2000);
  });

  it('are cancelled when all names together take too long, and not before', () => {
    const rules = IgnoreRules.parse(long(2), 1_000_000);
    const ask = (): void => void rules.judge('a'.repeat(255), rules.top);
    expect(ask).not.toThrow();
    const began = performance.now();
    expect(() => {
      for (let n = 0; n < 100_000; n += 1) ask();
    }).toThrow(refusal);
    expect(performance.now() - began).toBeLessThan(5000);
  });

  it('of ordinary projects stay far below the bound', () => {
    const text = Array.from({ length: 50 }, (_, n) => `**/*.ending${n}\n**/directory-${n}`).join('\n');
    // As many steps for each file as a thousandth of all that may be taken leaves for a thousandth of the most files.
    const rules = IgnoreRules.parse(text, 1_000_000);
    const inner = rules.judge('source', rules.top);
    for (let n = 0; n < 200; n += 1) expect(rules.judge(`some-module-${n}.js`, inner).ignored).toBe(false);
  });
});

describe('a directory that is left out', () => {
  it('is looked into only where something below may be brought back', () => {
    const below = (text: string, path: string): boolean => {
      const rules = IgnoreRules.parse(text);
      return rules.bringsBackBelow(verdictOn(rules, path));
    };
    expect(below('a', 'a')).toBe(false);
    expect(below('a\n!a/b', 'a')).toBe(true);
    expect(below('a\n!b', 'a')).toBe(false);
    expect(below('a\n!**/keep', 'a')).toBe(true);
    expect(below('a\n!a*/keep', 'a')).toBe(true);
    expect(below('a/b\n!a/b/c/d', 'a/b')).toBe(true);
    expect(below('a/b\n!a/b/c/d', 'a/b/c')).toBe(true);
    // What comes before has nothing to say any more.
    expect(below('!a/b\na', 'a')).toBe(false);
    expect(below('!a*/b\na', 'a')).toBe(false);
  });
});

describe('whatever a file says', () => {
  const name = fc.stringMatching(/^[a-z.]{1,4}$/).filter(text => text !== '.' && text !== '..');
  const path = fc.array(name, { minLength: 1, maxLength: 4 }).map(parts => parts.join('/'));

  it('either it is refused with a code, or every path gets an answer', () => {
    fc.assert(
      fc.property(fc.string({ maxLength: 60 }), path, (text, file) => {
        try {
          expect(typeof ignores(text, file)).toBe('boolean');
        } catch (error) {
          expect(error).toMatchObject({ code: 'ACODE-IMG-002' });
        }
      }),
      { numRuns: 500 },
    );
  });

  it('a path without wildcards leaves out itself and what is below it, and nothing else', () => {
    fc.assert(
      fc.property(path, path, (pattern, file) => {
        expect(ignores(pattern, file)).toBe(file === pattern || file.startsWith(`${pattern}/`));
      }),
    );
  });

  it('what is brought back below a directory is never lost by not looking into it', () => {
    fc.assert(
      fc.property(fc.array(path, { maxLength: 4 }), path, (patterns, file) => {
        const text = patterns.map((one, index) => (index % 2 === 0 ? one : `!${one}`)).join('\n');
        const rules = IgnoreRules.parse(text);
        let verdict = rules.top;
        for (const directory of file.split('/').slice(0, -1)) {
          verdict = rules.judge(directory, verdict);
          if (verdict.ignored && !rules.bringsBackBelow(verdict)) {
            expect(ignores(text, file)).toBe(true);
            return;
          }
        }
      }),
    );
  });
});
