// Selection of risky changes for a short list.

import { describe, expect, it } from 'vitest';
import { chooseChanges } from './changes.ts';
import type { RiskyChange, RiskyKind } from './result.ts';

const change = (path: string, kind: RiskyKind = 'package-scripts', reason = 'npm runs it'): RiskyChange => ({
  path,
  kind,
  reason,
});
const many = Array.from({ length: 1000 }, (_, index) => change(`a${index}`));

describe('the risky changes that are shown', () => {
  it('are all of them where there is room', () => {
    const all = [change('a'), change('b', 'ci-file')];
    expect(chooseChanges(all, 2)).toEqual({ shown: all, incomplete: [], omitted: 0 });
    expect(chooseChanges([], 2)).toEqual({ shown: [], incomplete: [], omitted: 0 });
  });

  it('have one of each kind and of each reason before the second of any', () => {
    const hook = change('z/hook', 'git-settings', 'git executes its hooks');
    const attributes = Array.from({ length: 5 }, (_, index) => change(`b${index}`, 'git-settings', 'filters'));
    const { shown, omitted } = chooseChanges([...many, ...attributes, hook], 5);
    expect(shown.map(({ path }) => path)).toEqual(['a0', 'b0', 'a1', 'z/hook', 'a2']);
    expect(omitted).toBe(1001);
  });

  it('have one of each kind even where that is more than there is room for', () => {
    const kinds: RiskyKind[] = ['build-file', 'ci-file', 'git-repository'];
    expect(chooseChanges([...many, ...kinds.map(kind => change(kind, kind))], 2).shown).toHaveLength(4);
  });

  it('never push out the note that not everything was scanned', () => {
    const note = change('.', 'scan-incomplete', 'too much');
    const chosen = chooseChanges([...many, note], 3);
    expect(chosen.incomplete).toEqual([note]);
    expect(chosen.omitted).toBe(997);
  });
});
