// Requests that are refused before anything runs, with what was probably meant.

import { describe, expect, it } from 'vitest';
import type { AcodeError } from '../contract/errors.ts';
import { checkCreateRequest, checkRequest } from './run.ts';

describe('a request', () => {
  it.each([
    [{ polcy: {} }, 'polcy: is not a known field of a request (did you mean policy?).'],
    [{ timeoutMs: 1 }, 'timeoutMs: is not a known field of a request (did you mean policy.timeoutMs?).'],
    [{ memory: 1 }, '(did you mean policy.limits.memoryBytes?)'],
    [{ privileged: true }, 'privileged: is not a known field of a request.'],
  ])('%j is refused by the name of the field', (request, part) => {
    expect(() => checkRequest('ls', request as object)).toThrow(
      expect.objectContaining({ code: 'ACODE-SBX-017', message: expect.stringContaining(part) }),
    );
  });
});

describe('the name of a sandbox', () => {
  it.each([
    ['web', 'name: is too short: up to three characters could be mistaken for an id; use 4 to 40, such as web-1.'],
    ['a', 'too short'],
    ['Web-1', 'lowercase letters'],
    ['acode-web', 'must not begin with acode-'],
    ['beef', 'must not look like an id'],
  ])('%s is refused, with one that works', (name, part) => {
    let refusal: AcodeError | null = null;
    try {
      checkCreateRequest({ name, keep: true });
    } catch (error) {
      refusal = error as AcodeError;
    }
    expect(refusal?.message).toContain(part);
    expect(refusal?.hint).toBe('Give name another value, such as web-1.');
  });

  it.each(['web-1', 'webs', 'web-server'])('%s is taken', name => {
    expect(() => checkCreateRequest({ name, keep: true })).not.toThrow();
  });
});
