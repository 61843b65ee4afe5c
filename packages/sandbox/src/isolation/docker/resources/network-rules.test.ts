// Which networks are fit for a sandbox, by what the engine says of them.

import { describe, expect, it } from 'vitest';
import type { SandboxSpec } from '../../../contract/spec.ts';
import type { NetworkDetails } from '../engine/networks.ts';
import { assertManaged, bridgeRequest, faultOf } from './network-rules.ts';

const labels = {
  'acode.session': 's',
  'acode.owner': 'o',
  'acode.host': 'h',
  'acode.uid': '1000',
  'acode.created': 'c',
  'acode.expires': 'e',
  'acode.task': 'not of a network',
};
const spec = { identity: { labels } } as unknown as SandboxSpec;
const request = bridgeRequest(spec, 'acode-x-bridge-y', 'n');
const made = { ...request, Id: 'i', Scope: 'local' } as unknown as NetworkDetails;

describe('the managed bridge', () => {
  it('is what was asked for, whichever of the session’s sandboxes asks', () => {
    const later = { identity: { labels: { ...labels, 'acode.created': 'c2', 'acode.expires': 'e2' } } };
    expect(() => assertManaged(made, spec)).not.toThrow();
    expect(() => assertManaged(made, later as unknown as SandboxSpec)).not.toThrow();
    expect(made.Labels).not.toHaveProperty(['acode.task']);
  });

  it.each([
    ['another driver', { Driver: 'macvlan' }],
    ['another scope', { Scope: 'swarm' }],
    ['traffic between containers', { Options: { 'com.docker.network.bridge.enable_icc': 'true' } }],
    ['no word on that traffic', { Options: null }],
    ['IPv6', { EnableIPv6: true }],
    ['others that may attach', { Attachable: true }],
    ['an internal one', { Internal: true }],
    ['the mesh of a swarm', { Ingress: true }],
    ['no labels', { Labels: null }],
    ['another owner', { Labels: { ...made.Labels, 'acode.owner': 'other' } }],
    ['another user', { Labels: { ...made.Labels, 'acode.uid': '0' } }],
  ])('is refused with %s', (_, change) => {
    expect(() => assertManaged({ ...made, ...change }, spec)).toThrow(
      expect.objectContaining({ code: 'ACODE-SBX-010' }),
    );
  });
});

describe('a named network', () => {
  const users = { ...made, Labels: {}, Options: {} };
  it.each([
    ['a plain bridge', users, null],
    ['a bridge of somebody who labels', { ...users, Labels: { team: 'x' } }, null],
    ['nothing', undefined, /no network of that name/],
    ['one that acode manages', made, /managed/],
    ['one of another user’s acode', { ...users, Labels: { 'acode.managed': 'true' } }, /managed/],
    ['an overlay', { ...users, Driver: 'overlay', Scope: 'swarm' }, /overlay/],
    ['the host’s', { ...users, Driver: 'host' }, /driver is host/],
    ['a mere configuration', { ...users, ConfigOnly: true }, /driver/],
    ['the default', { ...users, Options: { 'com.docker.network.bridge.default_bridge': 'true' } }, /default/],
  ])('%s', (_, network, rule) => {
    const fault = faultOf(network);
    if (rule === null) expect(fault).toBeNull();
    else expect(fault?.[0]).toMatch(rule);
  });
});
