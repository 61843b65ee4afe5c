// Shows what each failure of the transport is called, and which of them may pass.
import { describe, expect, it } from 'vitest';
import { classifyTransportError, EngineError, type EngineErrorKind, isNotFound, isTransient } from './error.ts';

const operation = 'GET /x';
const withCode = (code: string) => Object.assign(new Error(code), { code });
const ofKind = (kind: EngineErrorKind, status?: number) =>
  new EngineError({ kind, operation, detail: 'd', ...(status === undefined ? {} : { status }) });

describe('classifyTransportError', () => {
  it.each([
    ['ENOENT', 'unreachable'],
    ['ECONNREFUSED', 'unreachable'],
    ['ENOTSOCK', 'unreachable'],
    ['EACCES', 'refused'],
    ['EPERM', 'refused'],
    ['ECONNRESET', 'disconnected'],
    ['EPIPE', 'disconnected'],
    ['HPE_INVALID_CONSTANT', 'protocol'],
  ])('calls %s %s and keeps the cause', (code, kind) => {
    const cause = withCode(code);
    const error = classifyTransportError(cause, operation);
    expect(error).toMatchObject({ name: 'EngineError', kind, operation, cause });
    expect(error.message).toContain(code);
    expect(error.message.startsWith('GET /x: ')).toBe(true);
  });

  it.each([undefined, null, 'text', 7, { code: 7 }])('takes the unknown (%s) for a lost connection', cause => {
    expect(classifyTransportError(cause, operation).kind).toBe('disconnected');
  });

  it('leaves the first reason alone', () => {
    const first = ofKind('aborted');
    expect(classifyTransportError(first, 'another')).toBe(first);
  });
});

describe('isTransient', () => {
  it.each<[EngineErrorKind, number | undefined, boolean]>([
    ['unreachable', undefined, true],
    ['timeout', undefined, true],
    ['disconnected', undefined, true],
    ['status', 500, true],
    ['status', 503, true],
    ['status', 400, false],
    ['status', 404, false],
    ['status', 409, false],
    ['status', undefined, false],
    ['refused', undefined, false],
    ['aborted', undefined, false],
    ['protocol', undefined, false],
  ])('%s %s is %s', (kind, status, expected) => {
    expect(isTransient(ofKind(kind, status))).toBe(expected);
  });

  it('knows nothing about errors of others', () => {
    expect(isTransient(withCode('ECONNRESET'))).toBe(false);
    expect(isNotFound({ status: 404 })).toBe(false);
  });

  it('knows what is not there', () => {
    expect(isNotFound(ofKind('status', 404))).toBe(true);
    expect(isNotFound(ofKind('status', 409))).toBe(false);
  });
});
