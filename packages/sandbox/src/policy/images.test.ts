// Image allowlist: by the repository an image came from, never by a name given to it later.

import { describe, expect, it } from 'vitest';
import type { ImageTrust } from '../contract/policy.ts';
import { decideImage, isListed, parseReference } from './images.ts';
import { builtInValue } from './layers.ts';
import { TRUSTED_REPOSITORIES } from './profiles.ts';

const A = `sha256:${'a'.repeat(64)}`;
const B = `sha256:${'b'.repeat(64)}`;

const trust = (more: Partial<ImageTrust> = {}): ImageTrust => ({
  repositories: builtInValue(TRUSTED_REPOSITORIES),
  machineRepositories: null,
  anywhere: builtInValue(false),
  requireDigest: builtInValue(false),
  ...more,
});
const facts = (repositoryDigests: readonly string[] = [], id = B) => ({
  reference: 'x',
  id,
  digest: id,
  environment: [],
  volumes: [],
  repositoryDigests,
});
const unverified = (part: string) =>
  expect.objectContaining({
    code: 'ACODE-SBX-010',
    context: expect.objectContaining({ violation: 'UnverifiedImage' }) as unknown,
    message: expect.stringContaining(part) as string,
    hint: expect.not.stringContaining('treat this as an attack') as string,
  });

describe('parseReference', () => {
  it.each([
    ['node', 'docker.io/library/node', null, null],
    ['node:20-alpine', 'docker.io/library/node', '20-alpine', null],
    ['me/app', 'docker.io/me/app', null, null],
    ['docker.io/node', 'docker.io/library/node', null, null],
    ['index.docker.io/library/node', 'docker.io/library/node', null, null],
    ['localhost/x:1', 'localhost/x', '1', null],
    ['localhost:5000/x', 'localhost:5000/x', null, null],
    ['ghcr.io/Company/x', null, null, null],
    ['GHCR.io/company/x', 'ghcr.io/company/x', null, null],
    [`mcr.microsoft.com/dotnet/sdk:8.0@${A}`, 'mcr.microsoft.com/dotnet/sdk', '8.0', A],
    [`node@${A}`, 'docker.io/library/node', null, A],
  ])('%s', (text, repository, tag, digest) => {
    expect(parseReference(text)).toEqual(repository === null ? null : { repository, tag, digest });
  });

  it('knows an image id', () => {
    expect(parseReference(A)).toEqual({ repository: null, tag: null, digest: A });
  });

  it.each([
    '',
    '-v',
    '--privileged',
    ' x',
    'x y',
    'x\n',
    'x:',
    'x:-tag',
    'x@sha256:abc',
    `x@${A}@${A}`,
    'Node',
    'a//b',
    '/a',
    'a/',
    '../x',
    'a/../b',
    'a..b',
    'a___b',
    `x:${'t'.repeat(129)}`,
    'a/'.repeat(200) + 'x',
    'x'.repeat(600),
    'evil.io:99999999/x',
    '-evil.io/x',
    'x\0',
    'é',
  ])('refuses %j', text => {
    expect(parseReference(text)).toBeNull();
  });
});

describe('isListed', () => {
  it.each([
    ['docker.io/library/node', 'docker.io/library/*', true],
    ['docker.io/library-evil/x', 'docker.io/library/*', false],
    ['docker.io/library', 'docker.io/library/*', false],
    ['docker.io/evil/library/node', 'docker.io/library/*', false],
    ['docker.io.evil.io/library/node', 'docker.io/library/*', false],
    ['mcr.microsoft.com/dotnet/nightly/sdk', 'mcr.microsoft.com/dotnet/*', true],
    ['mcr.microsoft.com/dotnet-evil/sdk', 'mcr.microsoft.com/dotnet/*', false],
    ['ghcr.io/me/app', 'ghcr.io/me/app', true],
    ['ghcr.io/me/app2', 'ghcr.io/me/app', false],
    ['ghcr.io/me/app/sub', 'ghcr.io/me/app', false],
  ])('%s in %s: %s', (repository, pattern, listed) => {
    expect(isListed(repository, [pattern])).toBe(listed);
  });
});

describe('decideImage', () => {
  it('runs what came from a trusted repository, and what was made here', () => {
    expect(() => decideImage('node:20', facts([`node@${A}`]), trust())).not.toThrow();
    expect(() => decideImage('mine:1', facts(), trust())).not.toThrow();
  });

  it('refuses what came from elsewhere, whatever it is called', () => {
    expect(() =>
      decideImage('malicious-user/fake-dotnet-sdk', facts([`malicious-user/fake-dotnet-sdk@${A}`]), trust()),
    ).toThrow(unverified('docker.io/malicious-user/fake-dotnet-sdk, which is not trusted (the built-in default'));
    expect(() => decideImage('node:20', facts([`evil.io/x@${A}`]), trust())).toThrow(unverified('came from evil.io/x'));
    expect(() => decideImage('x', facts(['what is this']), trust())).toThrow(unverified('another registry'));
  });

  it('does not trust an image for a second name, where the engine knows names alone', () => {
    const twice = facts([`node@${A}`, `evil.io/x@${A}`]);
    expect(() => decideImage('node:20', { ...twice, namedOnly: true }, trust())).toThrow(unverified('evil.io/x'));
    expect(() => decideImage('node:20', { ...facts([`node@${A}`]), namedOnly: true }, trust())).not.toThrow();
    expect(() => decideImage('node:20', twice, trust())).not.toThrow();
  });

  it('runs it where the user listed it, or lets images from anywhere run', () => {
    const listed = trust({ repositories: { value: ['evil.io/x'], layer: 'user', where: 'f' } });
    expect(() => decideImage('x', facts([`evil.io/x@${A}`]), listed)).not.toThrow();
    const anywhere = trust({ anywhere: { value: true, layer: 'user', where: 'f' } });
    expect(() => decideImage('x', facts([`evil.io/x@${A}`]), anywhere)).not.toThrow();
  });

  it('holds a digest to every one the engine knows, and to the id', () => {
    expect(() => decideImage(`node@${A}`, facts([`other@${B}`, `node@${A}`]), trust())).not.toThrow();
    expect(() => decideImage(B, facts([], B), trust())).not.toThrow();
    expect(() => decideImage(`node@${A}`, facts([`node@${B}`]), trust())).toThrow(unverified('has another digest'));
    expect(() => decideImage(`node@${A}`, facts([], B), trust())).toThrow(unverified('has another digest'));
  });

  it('wants a digest where one is required, from local images too', () => {
    const required = trust({ requireDigest: { value: true, layer: 'repository', where: 'f:1:1' } });
    expect(() => decideImage('mine:1', facts(), required)).toThrow(
      unverified('mine:1 names no digest, and one is required (the repository, f:1:1)'),
    );
    expect(() => decideImage(B, facts(), required)).not.toThrow();
    expect(() => decideImage(`node@${A}`, facts([`node@${A}`]), required)).not.toThrow();
  });

  it('needs the machine’s list as well, also for what may come from anywhere or was made here', () => {
    const machine = { value: ['docker.io/library/*'], layer: 'machine', where: '/etc/acode/policy.yml:3:5' } as const;
    const both = trust({ machineRepositories: machine, anywhere: { value: true, layer: 'user', where: 'f' } });
    expect(() => decideImage('node', facts([`node@${A}`]), both)).not.toThrow();
    expect(() => decideImage('x', facts([`evil.io/x@${A}`]), both)).toThrow(unverified('/etc/acode/policy.yml:3:5'));
    expect(() => decideImage('me/mine:1', facts(), both)).toThrow(unverified('this machine allows'));
    expect(() => decideImage(B, facts(), both)).toThrow(unverified('this machine allows'));
    expect(() => decideImage('mine:1', facts(), both)).not.toThrow();
  });
});
