// Shows what each failure of the transport is called, and which of them may pass.

import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import * as z from 'zod';
import {
  type ApiVersion,
  atLeast,
  classifyTransportError,
  EngineError,
  type EngineErrorKind,
  isNotFound,
  isTransient,
  jsonLines,
  negotiate,
} from './protocol.ts';
import { path, queryString } from './connection.ts';

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

// Shows that no name or id can leave its segment of a request path.

describe('path', () => {
  it('encodes what is substituted and nothing else', () => {
    expect(path`/containers/${'abc'}/json`.text).toBe('/containers/abc/json');
    expect(path`/images/${'127.0.0.1:5000/a/b:1'}/json`.text).toBe('/images/127.0.0.1%3A5000%2Fa%2Fb%3A1/json');
    expect(path`/_ping`.text).toBe('/_ping');
  });

  it.each(['', '.', '..', '../json', 'a/../../b', 'a//b', '/a', 'a/', 'a/./b', '\ud800'])(
    'refuses %j, which is no name and may lead to another endpoint',
    value => {
      expect(() => path`/containers/${value}/json`).toThrow(EngineError);
    },
  );

  it('keeps any name in one segment', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme' }), value => {
        let text: string;
        try {
          text = path`/containers/${value}/json`.text;
        } catch {
          return;
        }
        const url = new URL(text, 'http://engine');
        expect(url.search + url.hash).toBe('');
        const [, first, name, last, ...rest] = url.pathname.split('/');
        expect([first, decodeURIComponent(name ?? ''), last, rest]).toEqual(['containers', value, 'json', []]);
      }),
    );
  });
});

describe('queryString', () => {
  it('leaves out what is undefined and encodes the rest', () => {
    expect(queryString()).toBe('');
    expect(queryString({ a: undefined })).toBe('');
    expect(queryString({ a: true, b: undefined, c: 0, d: 'x&y=z' })).toBe('?a=true&c=0&d=x%26y%3Dz');
  });
});

// Shows which API version is used with which engine.

describe('negotiate', () => {
  it.each([
    ['1.41', '1.41'],
    ['1.44', '1.44'],
    ['1.51', '1.51'],
    ['1.52', '1.51'],
    ['1.100', '1.51'],
    ['2.0', '1.51'],
  ])('with an engine that offers %s uses %s', (offered, used) => {
    expect(negotiate(offered, 'ping')).toBe(used);
  });

  it.each(['1.40', '1.9', '0.99', undefined, '', 'latest', '1', '1.41.0', ['1.41'], '99999999999.1'])(
    'refuses %j',
    offered => {
      expect(() => negotiate(offered, 'ping')).toThrow(
        expect.objectContaining({ kind: 'protocol', operation: 'ping' }),
      );
    },
  );
});

describe('atLeast', () => {
  it.each<[ApiVersion, ApiVersion, boolean]>([
    ['1.44', '1.44', true],
    ['1.43', '1.44', false],
    ['1.100', '1.44', true],
    ['2.0', '1.44', true],
    ['1.44', '2.0', false],
  ])('%s at least %s: %s', (version, minimum, expected) => {
    expect(atLeast(version, minimum)).toBe(expected);
  });
});

// Shows that documents survive any splitting of their bytes, and that a hostile stream is not kept in memory.

async function* cut(bytes: Buffer, sizes: readonly number[]): AsyncGenerator<Buffer> {
  let start = 0;
  for (const size of sizes) {
    yield bytes.subarray(start, start + size);
    start += size;
  }
  yield bytes.subarray(start);
}

async function read(source: AsyncIterable<Buffer>, schema: z.ZodType = z.unknown()): Promise<unknown[]> {
  const values: unknown[] = [];
  for await (const { value } of jsonLines(source, schema, 'GET /x')) values.push(value);
  return values;
}

describe('jsonLines', () => {
  it('gives the same documents however the bytes are split', async () => {
    const splits = fc.array(fc.integer({ min: 0, max: 9 }), { maxLength: 60 });
    await fc.assert(
      fc.asyncProperty(fc.array(fc.jsonValue()), splits, fc.boolean(), async (values, sizes, lastNewline) => {
        const text = values.map(value => JSON.stringify(value)).join('\r\n') + (lastNewline ? '\n' : '');
        expect(await read(cut(Buffer.from(text), sizes))).toEqual(
          values.map(value => JSON.parse(JSON.stringify(value))),
        );
      }),
    );
  });

  it('passes over empty lines', async () => {
    expect(await read(cut(Buffer.from('\n\n1\n \n2\n\n'), []))).toEqual([1, 2]);
  });

  it('refuses a line without end', async () => {
    const pulled = { chunks: 0 };
    async function* endless() {
      while (true) {
        pulled.chunks++;
        yield Buffer.alloc(64 * 1024, 'x');
      }
    }
    await expect(read(endless())).rejects.toMatchObject({ kind: 'protocol' });
    expect(pulled.chunks).toBeLessThanOrEqual(17);
  });

  it.each(['{"a":', 'null', '{"a":"1"}'])('refuses %s where a number was promised', async line => {
    const schema = z.looseObject({ a: z.number() });
    await expect(read(cut(Buffer.from(`{"a":1}\n${line}\n`), []), schema)).rejects.toMatchObject({ kind: 'protocol' });
  });
});
