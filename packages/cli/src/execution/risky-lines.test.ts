// The lines about what a run left behind: short, grouped, and nothing that a path could do to a reader.

import type { RiskyChange } from '@acode/sandbox';
import { describe, expect, it } from 'vitest';
import { widthOf } from '../terminal/text.ts';
import { fitted } from '../terminal/wrap.ts';
import { riskyLines } from './risky-lines.ts';

const change = (path: string, kind: RiskyChange['kind'] = 'package-scripts', reason = 'npm runs it.'): RiskyChange => ({
  path,
  kind,
  reason,
});

describe('the lines about risky changes', () => {
  it('are none where there are none', () => {
    expect(riskyLines([])).toEqual([]);
  });

  it('group paths by kind and reason', () => {
    const lines = riskyLines([change('package.json'), change('x', 'symlink-out', 'points at /etc'), change('a b')]);
    expect(lines.slice(1)).toEqual([
      "  package-scripts (npm runs it): package.json, 'a b'",
      '  symlink-out (points at /etc): x',
    ]);
  });

  it('are at most ten changes, and say how many there are besides', () => {
    const many = Array.from({ length: 25 }, (_, index) => change(`p${index}`));
    const lines = riskyLines(many);
    expect(lines).toHaveLength(3);
    expect(lines[1]?.match(/p\d+/g)).toHaveLength(10);
    expect(lines[2]).toBe('  and 15 more; --json lists all.');
  });

  it('show one of each kind, however many there are of another', () => {
    const many = Array.from({ length: 1000 }, (_, index) => change(`p${index}`));
    const lines = riskyLines([...many, change('sub/.git', 'git-repository', 'git reads it')]);
    expect(lines.join('\n')).toContain('git-repository (git reads it): sub/.git');
    expect(lines.at(-1)).toBe('  and 991 more; --json lists all.');
  });

  it('always tell in one line that not everything was scanned, and why', () => {
    const incomplete = change('.', 'scan-incomplete', 'sub could not be looked into');
    const line = 'not everything was scanned: sub could not be looked into';
    expect(riskyLines([incomplete])).toEqual([line]);
    expect(riskyLines([incomplete, change('x')])).toEqual([expect.any(String), expect.stringContaining(': x'), line]);
    const late = change('.', 'scan-incomplete', `a\n\u001b[2J${'x'.repeat(5000)}`);
    const [both = '', ...more] = riskyLines([incomplete, late]);
    expect(both).toMatch(/^not everything .* looked into; a⏎␛\[2Jx+…$/);
    expect(both.length).toBeLessThan(700);
    expect(more).toEqual([]);
  });

  it('do not let it take the place of a change', () => {
    const many = Array.from({ length: 10 }, (_, index) => change(`p${index}`));
    const lines = riskyLines([change('.', 'scan-incomplete', 'too much'), ...many]);
    expect(lines[1]?.match(/p\d+/g)).toHaveLength(10);
    expect(lines.slice(2)).toEqual(['not everything was scanned: too much']);
  });

  it('are driven by no path: not the terminal, not the line, not the length', () => {
    const [, line = ''] = riskyLines([change(`a\n\u001b[2J\u202e${'x'.repeat(500)}`)]);
    expect(line).not.toMatch(/[\n\u001b\u202e]/);
    expect(line).toContain('a⏎␛[2J');
    expect(line.length).toBeLessThan(200);
  });

  it.each([80, 40])('are broken between words at a terminal of %i columns, and the rest hangs below', width => {
    const reason = 'package managers fetch and execute the code it names';
    const changes = [
      change('package-lock.json', 'package-scripts', reason),
      ...Array.from({ length: 19 }, (_, index) => change(`packages/p${index}/package.json`)),
    ];
    const look = { terminal: true, width };
    const whole = riskyLines(changes, 'more is listed by `acode fork diff`.', 'risky:');
    const shown = riskyLines(changes, 'more is listed by `acode fork diff`.', 'risky:', look).join('\n');
    expect(shown.split(/\s+/)).toEqual(whole.join('\n').split(/\s+/));
    expect(shown.split('\n').length).toBeGreaterThan(whole.length);
    for (const line of shown.split('\n')) expect(widthOf(line)).toBeLessThanOrEqual(width);
    expect(shown).toMatch(/^risky:\n {2}package-scripts [^]*\n {4}\S[^]*\n {2}and 10 more; /);
    // What wraps messages changes nothing of it.
    expect(fitted(shown, look)).toBe(shown);
    expect(riskyLines(changes, undefined, 'risky:', { terminal: false, width })).toEqual(
      riskyLines(changes, undefined, 'risky:'),
    );
  });
});
