// Shows that no name or id can leave its segment of a request path.
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { EngineError } from './error.ts';
import { path, queryString } from './path.ts';

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
