// References against malformed input: whatever is accepted means the same to us and to the engine, and nothing else gets through.

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { splitReference } from '../isolation/docker/engine/images.ts';
import { checkReference, fullName, parseReference } from './images.ts';

const RUNS = { numRuns: 300 };
const HEX = 'a1b2c3d4e5f60718';

const label = fc.stringMatching(/^[a-z0-9]{1,8}(?:-[a-z0-9]{1,4})?$/);
const host = fc.oneof(
  fc.tuple(label, label).map(([one, other]) => `${one}.${other}`),
  fc.tuple(label, fc.integer({ min: 1, max: 65_535 })).map(([one, port]) => `${one}:${port}`),
  fc.constantFrom('localhost', 'docker.io', 'index.docker.io', '127.0.0.1:5000', '[::1]:5000'),
);
const path = fc.array(fc.stringMatching(/^[a-z0-9]{1,6}(?:(?:\.|_|__|-)[a-z0-9]{1,6})?$/), {
  minLength: 1,
  maxLength: 4,
});
const tag = fc.stringMatching(/^[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}$/);
const digest = fc.constant(`sha256:${HEX.repeat(4)}`);
const reference = fc
  .tuple(fc.option(host), path, fc.option(tag), fc.option(digest))
  .map(([at, parts, of, by]) =>
    [at === null ? '' : `${at}/`, parts.join('/'), of === null ? '' : `:${of}`, by === null ? '' : `@${by}`].join(''),
  );

// Near misses: a whole reference with one thing changed, and text of the characters that references are made of.
const broken = fc.oneof(
  fc.string(),
  fc.string({ unit: fc.constantFrom(...'aA0.:/@_- \n\t\0\\%#?é'.split('')), maxLength: 60 }),
  fc
    .tuple(reference, fc.nat(), fc.constantFrom('', ' ', '\n', ':', '/', '@', '-', '\0', '..', 'É', '%2f'))
    .map(([text, at, put]) => {
      const place = at % (text.length + 1);
      return text.slice(0, place) + put + text.slice(place + (at % 2));
    }),
);

describe('a whole reference', () => {
  it('is taken apart into what it was made of', () => {
    fc.assert(
      fc.property(fc.option(host), path, fc.option(tag), fc.option(digest), (at, parts, of, by) => {
        const text = `${at === null ? '' : `${at}/`}${parts.join('/')}${of === null ? '' : `:${of}`}${by === null ? '' : `@${by}`}`;
        const parsed = parseReference(text);
        expect(parsed).toMatchObject({ tag: of, digest: by });
        expect(parsed?.repository?.endsWith(parts.join('/'))).toBe(true);
      }),
      RUNS,
    );
  });

  it('keeps the port of its registry, and never takes it for a tag', () => {
    fc.assert(
      fc.property(label, fc.integer({ min: 1, max: 65_535 }), path, (at, port, parts) => {
        const text = `${at}:${port}/${parts.join('/')}`;
        expect(parseReference(text)).toEqual({ repository: text, tag: null, digest: null });
      }),
      RUNS,
    );
  });

  it('in full means itself, and has a registry and a version', () => {
    fc.assert(
      fc.property(reference, text => {
        const full = fullName(text) ?? '';
        expect(fullName(full)).toBe(full);
        expect(parseReference(full)?.repository).toBe(parseReference(text)?.repository);
        expect(full).toMatch(/^[^/]+\/.+(?::[A-Za-z0-9_][A-Za-z0-9_.-]*|@sha256:[0-9a-f]{64})$/);
      }),
      RUNS,
    );
  });
});

describe('any text at all', () => {
  it('is refused, or means to the engine’s client exactly what was checked', () => {
    fc.assert(
      fc.property(fc.oneof(broken, reference), text => {
        const parsed = parseReference(text);
        if (parsed === null || parsed.repository === null) return;
        const { name, version } = splitReference(text);
        expect(version).toBe(parsed.digest ?? parsed.tag ?? 'latest');
        expect(parseReference(name)?.repository).toBe(parsed.repository);
        const full = splitReference(fullName(text) ?? '');
        expect(full).toEqual({ name: parsed.repository, version });
      }),
      { numRuns: 1000 },
    );
  });

  it('that is accepted has no character that could mean something to anybody else', () => {
    fc.assert(
      fc.property(broken, text => {
        expect(parseReference(text) === null || /^[A-Za-z0-9[][A-Za-z0-9._:@/[\]-]*$/.test(text)).toBe(true);
      }),
      { numRuns: 1000 },
    );
  });
});

describe('a registry’s address', () => {
  it.each([
    ['localhost:65535/x', 'localhost:65535/x'],
    ['localhost:1/x', 'localhost:1/x'],
    ['[::1]:5000/x/y:1', '[::1]:5000/x/y'],
    ['[FE80::1]/x', '[fe80::1]/x'],
    ['docker.io:443/library/node', 'docker.io:443/library/node'],
  ])('%s is one', (text, repository) => {
    expect(parseReference(text)?.repository).toBe(repository);
  });

  it.each([
    'localhost:0/x',
    'localhost:65536/x',
    'localhost:99999/x',
    'localhost:05000/x',
    'localhost:/x',
    '[::1/x',
    '::1/x',
    '[]/x',
    '[gg]/x',
    'a.b:5000:5000/x',
  ])('%s is none', text => {
    expect(parseReference(text)).toBeNull();
  });
});

it.each([
  ['', 'there is nothing in it'],
  ['a b', 'there is a space in it'],
  ['Busybox', 'names of images are lowercase'],
  ['ghcr.io/Me/x:1', 'names of images are lowercase'],
  ['busybox@sha256:abc', 'a digest is sha256: and 64 digits'],
  ['busybox:-x', 'its tag is invalid'],
  ['/busybox', 'the registry or the path is invalid'],
  ['x'.repeat(600), 'longer than 512 characters'],
])('%j is refused because of what is wrong with it', (value, why) => {
  expect(() => checkReference({ value, layer: 'request', where: 'policy.image' })).toThrow(why);
});
