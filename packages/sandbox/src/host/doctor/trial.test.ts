// How an attack is judged, and what a level’s controls can lack: an unproven pass is no pass, at any level.

import { describe, expect, it } from 'vitest';
import { AcodeError } from '../../contract/errors.ts';
import { LEVELS } from '../../contract/levels.ts';
import { gradeOf } from './report.ts';
import { testEnvironmentOf } from './test-environment.ts';
import { NotTried, assertDecided, judge, notTriedReason } from './trial.ts';
import type { Outcomes } from './trial.ts';

const attack = { id: 'A1', title: 'an attack' };
const seen = { observed: 'EPERM', control: 'works without' };

describe('an attack is judged', () => {
  it.each<[string, Outcomes[string] | undefined, string, RegExp]>([
    ['stopped, with a control that behaved', { stopped: true, controlled: true, ...seen }, 'pass', /^works without$/],
    ['not stopped', { stopped: false, controlled: true, ...seen }, 'fail', /^works without$/],
    ['stopped, and nothing proven', { stopped: true, controlled: false, ...seen }, 'fail', /^did not behave/],
    ['never observed', undefined, 'fail', /^none was made$/],
    ['not possible here', { untried: 'no shell' }, 'not-applicable', /^not made$/],
    ['open and not tried', { open: 'nothing stops it' }, 'fail', /^$/],
  ])('%s', (_, outcome, verdict, control) => {
    expect(judge(attack, outcome)).toMatchObject({ id: 'A1', verdict, control: expect.stringMatching(control) });
  });
});

describe('an attack for which the engine gave no sandbox', () => {
  it('was not tried, and a refusal by acode is none of these', () => {
    expect(() => assertDecided([null, 'ACODE-SBX-003', 'ACODE-SBX-018'])).toThrow(NotTried);
    expect(() => assertDecided([null, 'ACODE-SBX-003', 'ACODE-SBX-010'])).not.toThrow();
    expect(notTriedReason(new NotTried('late'))).toBe('late');
    expect(notTriedReason(new AcodeError('ACODE-SBX-018', { operation: 'x', reason: 'late' }))).toContain('late');
    expect(notTriedReason(new AcodeError('ACODE-SBX-011', { uid: 0 }))).toBeNull();
  });

  it('lowers the grade, and is no failure', () => {
    const probe = (verdict: 'pass' | 'not-tried', at: number) => ({ ...seen, id: `A${at}`, title: '', verdict });
    const all = Array.from({ length: 60 }, (_, at) => probe('pass', at));
    expect([gradeOf(all), gradeOf([...all, probe('not-tried', 60)])]).toEqual(['A+', 'B']);
  });
});

describe('a level', () => {
  it('is a container from docker on, and without walls below bubblewrap', () => {
    expect(LEVELS.map(level => testEnvironmentOf(level).kind)).toEqual([
      'host',
      'host',
      'namespaces',
      'container',
      'container',
      'container',
    ]);
  });

  it('has no control without what it does not have, or cannot give up', () => {
    expect(testEnvironmentOf('none').removable).toEqual(['environment', 'verification']);
    expect(testEnvironmentOf('ulimit').removable).toContain('open-files');
    expect(testEnvironmentOf('bubblewrap').removable).not.toContain('no-new-privileges');
    expect(testEnvironmentOf('docker').removable).toContain('no-new-privileges');
  });
});
