// Images that a repository or a model may name, in tables; and that the user may still name any.

import { expect, it } from 'vitest';
import { parseConfig } from './config/parse.ts';
import { AcodeError } from '../contract/errors.ts';
import type { PolicyFields } from '../contract/policy.ts';
import type { ImageFacts } from '../contract/spec.ts';
import { assertMayName, assertOrigin, imagesThatNeedTrust } from './pull.ts';
import type { Layers } from './layers.ts';
import { resolvePolicy } from './resolve.ts';

const A = `sha256:${'a'.repeat(64)}`;
const ID = `sha256:${'b'.repeat(64)}`;
const PROJECT = 'acode-sandbox-app-0123456789ab:project';
const OTHERS = 'acode-sandbox-other-ba9876543210:project';

type Who = 'user' | 'repository' | 'trusted repository' | 'model';

const layersFor = (user: string, image: string, trusted: boolean | null): Layers => ({
  machine: null,
  user: parseConfig(user, 'user.yml'),
  repository:
    trusted === null
      ? null
      : {
          ...parseConfig(`sandbox: { images: { default: "${image}" } }`, '.agent/config.yml'),
          root: '/repo',
          file: '/repo/.agent/config.yml',
          hash: 'sha256:x',
          trusted,
        },
  environmentMode: null,
});

function policyFor(who: Who, image: string, user = '') {
  const asked: PolicyFields = who === 'user' ? { image } : who === 'model' ? { image, askedBy: 'model' } : {};
  const trusted = who === 'repository' ? false : who === 'trusted repository' ? true : null;
  const host = { caller: { uid: 1001, gid: 1002 }, cpus: 1, projectImage: PROJECT };
  return resolvePolicy(asked, layersFor(user, image, trusted), host);
}

const facts = (repositoryDigests: readonly string[], namedOnly = false): ImageFacts => ({
  reference: 'x',
  id: ID,
  digest: ID,
  environment: [],
  volumes: [],
  repositoryDigests,
  ...(namedOnly ? { namedOnly } : {}),
});

function refusal(who: Who, image: string, found: ImageFacts, { user = '', pulled = false } = {}): AcodeError | null {
  const policy = policyFor(who, image, user);
  try {
    assertMayName(policy);
    assertOrigin(policy, found, pulled);
    return null;
  } catch (error) {
    if (error instanceof AcodeError) return error;
    throw error;
  }
}

const LISTED = 'sandbox: { security: { trusted_images: [registry.example/me/app, docker.io/me/*] } }';
const NAMED = 'sandbox: { images: { node: "mine:1", combined: { "go+node": "both:2" } } }';
const ANYWHERE = 'sandbox: { security: { allow_untrusted_registries: true } }';
const local = facts([]);
const node = facts([`node@${A}`]);

it.each<[boolean, string, string, ImageFacts, { user?: string; pulled?: boolean }?]>([
  [true, 'from a repository of the built-in list', 'node:20', node],
  [true, 'the same by digest', `node@${A}`, node],
  [
    true,
    'from a repository of the user’s list',
    'registry.example/me/app:9',
    facts([`registry.example/me/app@${A}`]),
    { user: LISTED },
  ],
  [true, 'below one of the user’s list', 'me/tool', facts([`docker.io/me/tool@${A}`]), { user: LISTED }],
  [true, 'local, and its repository is in the user’s list', 'registry.example/me/app:9', local, { user: LISTED }],
  [true, 'local, and its reference is an image of the user’s file', 'mine:1', local, { user: NAMED }],
  [
    true,
    'local, and an image of the user’s file for two languages',
    'docker.io/library/both:2',
    local,
    { user: NAMED },
  ],
  [true, 'this workspace’s own project image', PROJECT, local],
  [
    true,
    'from any registry, where the user lets images from anywhere run',
    'ghcr.io/x/y',
    facts([`ghcr.io/x/y@${A}`]),
    { user: ANYWHERE },
  ],
  [
    true,
    'pulled by acode, where the engine makes digests of names',
    'node:20',
    facts([`node@${A}`], true),
    { pulled: true },
  ],
  [false, 'of a repository on no list', 'evil.example/x/y:9', local],
  [false, 'of a repository on no list, from its registry', 'evil.example/x/y:9', facts([`evil.example/x/y@${A}`])],
  [false, 'local, with a name of the built-in list', 'private:1', local],
  [false, 'another image with a name of the built-in list', 'node:20', facts([`evil.example/x@${A}`])],
  [false, 'from a trusted registry, but with a name on no list', 'evil.example/x/y:9', node],
  [false, 'local, below a repository of the user’s list', 'me/tool', local, { user: LISTED }],
  [false, 'local, with another tag than the user’s file names', 'mine:2', local, { user: NAMED }],
  [false, 'local, where the user lets images from anywhere run', 'private:1', local, { user: ANYWHERE }],
  [false, 'another project’s image', OTHERS, local],
  [
    false,
    'another project’s image, with a digest that the engine made',
    OTHERS,
    facts([`${OTHERS.split(':')[0]}@${A}`]),
  ],
  [false, 'another project’s image, under Podman’s name', `localhost/${OTHERS}`, local, { user: ANYWHERE }],
  [false, 'an id', ID, node],
  [false, 'not pulled by acode, where the engine makes digests of names', 'private:1', facts([`private@${A}`], true)],
])('%s for a repository and a model: %s', (allowed, _, image, found, given) => {
  for (const who of ['repository', 'model'] as const) {
    const error = refusal(who, image, found, given);
    expect(error === null, `${who}: ${error?.message ?? 'allowed'}`).toBe(allowed);
    if (error === null) continue;
    expect(error).toMatchObject({
      code: 'ACODE-SBX-010',
      context: {
        violation: 'UnverifiedImage',
        rule: expect.stringContaining('a repository or a model') as string,
        setBy:
          who === 'model'
            ? 'a model’s call, the argument image'
            : (expect.stringMatching(
                /^the repository, \.agent\/config\.yml:1:\d+ \(sandbox\.images\.default\)$/,
              ) as string),
      },
    });
    expect(error.hint).toContain(who === 'model' ? 'Leave the argument image out' : '`acode trust`');
    if (image !== ID)
      expect(error.hint).toMatch(/`sandbox: \{ security: \{ trusted_images: \[[a-z./-]+[a-z0-9./-]*\] \} \}`/);
  }
  // The control: the user’s own word, and a file that the user trusted.
  for (const who of ['user', 'trusted repository'] as const) expect(refusal(who, image, found, given)).toBeNull();
});

it('refuses a name on no list whether the engine has it or not, so that no caller learns which images exist', () => {
  expect(() => assertMayName(policyFor('model', 'registry.example/private:1'))).toThrow(
    expect.objectContaining({ code: 'ACODE-SBX-010' }),
  );
});

it('tells which images of a repository’s file count only once it is trusted', () => {
  const needed = (image: string, user = '') => imagesThatNeedTrust(layersFor(user, image, false), PROJECT);
  expect(needed('node:22')).toEqual([]);
  expect(needed(PROJECT)).toEqual([]);
  expect(needed('registry.example/me/app:9', LISTED)).toEqual([]);
  expect(needed('registry.example/me/app:9')).toEqual([
    {
      key: 'sandbox.images.default',
      where: expect.stringContaining('.agent/config.yml:1:') as string,
      value: '"registry.example/me/app:9"',
    },
  ]);
});

it('lets a model’s call pull what the user’s file or the table of languages names, and nothing else', () => {
  const { imageNaming } = policyFor('model', 'busybox', NAMED);
  for (const name of ['docker.io/library/mine:1', 'docker.io/library/both:2', 'docker.io/library/node:20-alpine'])
    expect(imageNaming.pullable).toContain(name);
  expect(imageNaming.pullable).not.toContain('docker.io/library/busybox:latest');
  expect(policyFor('user', 'busybox', NAMED).imageNaming.pullable).toBeNull();
});
