// What of an image reaches a plan, and what keeps it from one.

import { expect, it } from 'vitest';
import type { ImageDetails } from '../engine/images.ts';
import { imageFacts } from './image-facts.ts';

const image = (labels: Record<string, string>): ImageDetails => ({
  id: 'sha256:1',
  repoTags: ['x:1'],
  repoDigests: ['x@sha256:2'],
  config: { Env: ['A=1'], Volumes: { '/data': {} }, Labels: labels },
  size: 1,
  architecture: 'amd64',
  os: 'linux',
});

it('is what the engine says, whatever labels of others it has', () => {
  expect(imageFacts('x:1', image({ 'org.example': 'y', acode: 'z' }))).toEqual({
    reference: 'x:1',
    id: 'sha256:1',
    digest: 'sha256:2',
    environment: ['A=1'],
    volumes: ['/data'],
    repositoryDigests: ['x@sha256:2'],
  });
});

it('is refused where it has labels by which acode knows its own', () => {
  expect(() => imageFacts('x:1', image({ 'acode.keep': 'true' }))).toThrow(
    expect.objectContaining({
      code: 'ACODE-SBX-010',
      context: expect.objectContaining({ violation: 'DangerousImage', detail: expect.stringContaining('acode.keep') }),
    }),
  );
});

it('knows what Podman calls local for local, and on Docker for a registry of that name', () => {
  const local = { ...image({}), repoDigests: ['localhost/x@sha256:2', 'docker.io/library/x@sha256:3'] };
  expect(imageFacts('x:1', local, true)).toMatchObject({
    digest: 'sha256:3',
    repositoryDigests: ['docker.io/library/x@sha256:3'],
    namedOnly: true,
  });
  expect(imageFacts('x:1', local)).toMatchObject({ digest: 'sha256:2', repositoryDigests: local.repoDigests });
});

it('takes the digests of Docker’s containerd image store for what they are: made of the image’s names', () => {
  const built = { ...image({}), repoDigests: ['x@sha256:1'] };
  expect(imageFacts('x:1', built)).toMatchObject({ namedOnly: true });
  expect(imageFacts('x:1', image({}))).not.toHaveProperty('namedOnly');
});
