// Errors about the base of a project image, in the terms of the caller that names one.

import { describe, expect, it } from 'vitest';
import { AcodeError } from '../../contract/errors.ts';
import { aboutBase, refuseItself } from './project-base.ts';

describe('an error about the base', () => {
  it('names --base, and the field base', () => {
    const several = new AcodeError('ACODE-SBX-017', {
      field: 'x',
      reason: 'y',
      remedy: ['Name one with ', { field: 'policy.image' }, '.'],
    });
    expect(aboutBase(several)).toMatchObject({ code: 'ACODE-SBX-017', hint: 'Name one with base.' });
    const none = new AcodeError('ACODE-SBX-017', { field: 'policy.image', reason: 'is none' });
    expect(aboutBase(none)).toMatchObject({ message: 'base: is none.', context: { field: 'base' } });
    expect(aboutBase(new AcodeError('ACODE-SBX-009', { image: 'i' }))).toMatchObject({
      hint: expect.stringMatching(/sandbox pull i.*with base\./),
    });
  });

  it('of another kind is passed on as it is', () => {
    for (const error of [new Error('x'), new AcodeError('ACODE-SBX-011', { uid: 0 })])
      expect(aboutBase(error)).toBe(error);
  });
});

it('a project image is not built on itself', () => {
  const own = 'acode-sandbox-app-0123456789ab:project';
  for (const name of [own, `docker.io/library/${own}`])
    expect(() => refuseItself(name, own)).toThrow(expect.objectContaining({ hint: expect.stringContaining('--base') }));
  expect(() => refuseItself('node:20-alpine', own)).not.toThrow();
});
