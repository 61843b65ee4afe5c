// A fork, dependencies and the memory of a fork are asked for as volumes of the sandbox’s own, and never as a bind of the workspace.

import { describe, expect, it } from 'vitest';
import type { MountSpec, SandboxSpec } from '../../../contract/spec.ts';
import { NO_LAYERS } from '../../../policy/layers.ts';
import { resolvePolicy } from '../../../policy/resolve.ts';
import { planSandbox } from '../../plan.ts';
import { createRequest } from '../request.ts';
import { compareWithEngine } from '../verify/verify.ts';
import type { ContainerDetails } from '../engine/containers.ts';

const part = (path: string) => ({ path, identities: [] });
const mount: MountSpec = {
  purpose: 'workspace',
  source: '/w',
  target: '/workspace',
  readOnly: false,
  identity: { device: 1, inode: 2 },
  overlay: { fork: 'k7m2pqrt', upper: part('/f/2'), work: part('/f/w'), lowers: [part('/f/1')] },
};
const policy = resolvePolicy({ workspace: 'fork' }, NO_LAYERS, { caller: { uid: 1001, gid: 1001 }, cpus: 2 });
const image = {
  reference: 'x',
  id: 'sha256:aa',
  digest: 'sha256:aa',
  environment: [],
  volumes: [],
  repositoryDigests: [],
};
const spec: SandboxSpec = planSandbox(policy, { level: 'docker', image, mounts: [mount] }, () => ({
  sandboxId: 'i',
  name: 'n',
  labels: { 'acode.managed': 'true' },
  correlationId: 'c',
}));
const facts = { network: 'none', runtime: 'runc', seccomp: '{}' };
const made = { target: '/workspace', volume: 'acode-i-fork0', mountpoint: '/v/_data', labels: { 'acode.nonce': 'x' } };

const mountsOf = (request: Record<string, unknown>): unknown =>
  (request['HostConfig'] as Record<string, unknown>)['Mounts'];

describe('the request for a fork', () => {
  it('names a volume of the sandbox’s own, with the labels it was made with', () => {
    expect(mountsOf(createRequest(spec, { ...facts, overlays: [made] }))).toEqual([
      {
        Type: 'volume',
        Source: 'acode-i-fork0',
        Target: '/workspace',
        ReadOnly: false,
        VolumeOptions: { NoCopy: true, Labels: { 'acode.nonce': 'x' } },
      },
    ]);
    expect(mountsOf(createRequest(spec, facts))).toMatchObject([{ Type: 'volume', VolumeOptions: { NoCopy: true } }]);
  });

  it('is held to be that volume: a bind of the workspace, or another volume, is a difference', () => {
    const request = createRequest(spec, { ...facts, overlays: [made] });
    const mounts = (Mounts: unknown[]): unknown =>
      compareWithEngine(spec, { ...facts, overlays: [made] }, {
        Image: spec.image.id,
        Config: request,
        HostConfig: request['HostConfig'],
        Mounts,
      } as unknown as ContainerDetails).filter(({ violation }) => violation === 'MountMismatch').length;
    const volume = { Type: 'volume', Source: '/v/_data', Destination: '/workspace', RW: true, Propagation: '' };
    expect(mounts([volume])).toBe(0);
    expect(mounts([{ ...volume, Source: '/other' }])).toBe(1);
    expect(mounts([{ Type: 'bind', Source: '/w', Destination: '/workspace', RW: true, Propagation: 'rprivate' }])).toBe(
      1,
    );
  });
});

describe('the request for other volumes', () => {
  const labels = { 'acode.nonce': 'x' };

  it('names a layer of the sandbox’s own for each of the dependencies, with the labels it was made with', () => {
    const dependencies = ['node_modules', 'vendor'].map(name => ({
      source: `/deps/${name}`,
      target: `/workspace/${name}`,
    }));
    const asked = { ...spec, mounts: [], dependencies };
    const first = {
      target: '/workspace/node_modules',
      volume: '',
      mountpoint: '',
      layer: { lower: '', upper: '', work: '' },
    };
    expect(mountsOf(createRequest(asked, { ...facts, dependencies: [{ ...first, labels }] }))).toEqual([
      {
        Type: 'volume',
        Source: 'acode-i-deps0-layer',
        Target: '/workspace/node_modules',
        ReadOnly: false,
        VolumeOptions: { NoCopy: true, Labels: labels },
      },
      {
        Type: 'volume',
        Source: 'acode-i-deps1-layer',
        Target: '/workspace/vendor',
        ReadOnly: false,
        VolumeOptions: { NoCopy: true, Labels: expect.objectContaining({ 'acode.managed': 'true' }) },
      },
    ]);
  });

  it('names the memory that a sandbox holds for another', () => {
    const store = { volume: 'acode-j-disk', target: '/store', mountpoint: '/v/_data', bytes: 4096 };
    expect(mountsOf(createRequest({ ...spec, mounts: [], store }, facts))).toEqual([
      {
        Type: 'volume',
        Source: 'acode-j-disk',
        Target: '/store',
        ReadOnly: false,
        VolumeOptions: { NoCopy: true, Labels: expect.objectContaining({ 'acode.managed': 'true' }) },
      },
    ]);
  });
});
