// The level of a run and its runtime, among those the engine lists.

import { describe, expect, it } from 'vitest';
import type { Level } from '../contract/levels.ts';
import { builtInValue } from './layers.ts';
import { decideRuntime } from './runtime.ts';

const offer = {
  available: true,
  level: 'docker' as Level,
  runtimes: { runc: 'docker', runsc: 'gvisor' } as Readonly<Record<string, Level>>,
  standardRuntime: 'runc',
};
const decide = (level: Level | 'auto', runtime: string | null, of = offer) =>
  decideRuntime({ level: builtInValue(level), runtime: builtInValue(runtime) }, of);

describe('decideRuntime', () => {
  it.each<[Level | 'auto', string | null, Level, string | null]>([
    ['auto', null, 'docker', null],
    ['docker', null, 'docker', null],
    ['gvisor', null, 'gvisor', 'runsc'],
    ['auto', 'runsc', 'gvisor', 'runsc'],
    ['gvisor', 'runsc', 'gvisor', 'runsc'],
    ['docker', 'runc', 'docker', 'runc'],
  ])('level %s and runtime %s', (level, runtime, gets, by) => {
    expect(decide(level, runtime)).toEqual({ level: gets, runtime: by });
  });

  it('takes the level of the engine’s own default', () => {
    expect(decide('auto', null, { ...offer, standardRuntime: 'runsc' })).toEqual({ level: 'gvisor', runtime: null });
  });

  it.each<[Level | 'auto', string | null, string]>([
    ['microvm', null, 'ACODE-SBX-012'],
    ['gvisor', 'runc', 'ACODE-SBX-012'],
    ['auto', 'kata', 'ACODE-SBX-010'],
    ['auto', 'constructor', 'ACODE-SBX-010'],
    ['none', null, 'ACODE-SBX-016'],
  ])('fails closed for level %s and runtime %s', (level, runtime, code) => {
    expect(() => decide(level, runtime)).toThrow(expect.objectContaining({ code }));
  });

  it('has nothing where the engine has nothing', () => {
    for (const runtime of [null, 'runsc'])
      expect(() => decide('auto', runtime, { ...offer, available: false })).toThrow(
        expect.objectContaining({ code: 'ACODE-SBX-012' }),
      );
  });
});
