// A sandbox on any network but its own is found out, by the engine’s account and by the kernel’s.

import { describe, expect, it } from 'vitest';
import type { SandboxSpec } from '../../../contract/spec.ts';
import type { ContainerDetails } from '../engine/containers.ts';
import { parseInterfaces } from '../../kernel.ts';
import type { KernelView } from '../../kernel.ts';
import { connectionDifferences, interfaceDifferences } from './verify-network.ts';

const NONE = { network: 'none', networkName: 'none', runtime: 'runc', seccomp: null };
const BRIDGE = { network: 'id1', networkName: 'mine', runtime: 'runc', seccomp: null };
const container = (Running: boolean, Networks: Record<string, Record<string, unknown>> | null) =>
  ({ State: { Running }, NetworkSettings: { Networks } }) as unknown as ContainerDetails;

describe('connectionDifferences', () => {
  it.each([
    ['none', NONE, container(true, { none: { NetworkID: 'x' } })],
    ['the planned one', BRIDGE, container(true, { mine: { NetworkID: 'id1' } })],
    ['the planned one under another name', BRIDGE, container(true, { renamed: { NetworkID: 'id1' } })],
    ['the planned one before the start', BRIDGE, container(false, { mine: { NetworkID: '' } })],
    ['the planned one by id before the start', BRIDGE, container(false, { id1: {} })],
  ])('finds nothing in %s', (_, facts, details) => {
    expect(connectionDifferences(facts, details)).toEqual([]);
  });

  it.each([
    ['a network where none was planned', NONE, container(true, { bridge: { NetworkID: 'x' } })],
    ['a network beside none', NONE, container(true, { none: {}, bridge: {} })],
    ['no account at all', NONE, container(true, null)],
    ['another network of the same name', BRIDGE, container(true, { mine: { NetworkID: 'id2' } })],
    ['a second network', BRIDGE, container(true, { mine: { NetworkID: 'id1' }, other: { NetworkID: 'id2' } })],
    ['no network', BRIDGE, container(true, { none: { NetworkID: 'x' } })],
    ['a name alone when it runs', BRIDGE, container(true, { mine: { NetworkID: '' } })],
    ['another before the start', BRIDGE, container(false, { other: { NetworkID: '' } })],
    ['another id before the start', BRIDGE, container(false, { mine: { NetworkID: 'id2' } })],
  ])('finds %s', (_, facts, details) => {
    expect(connectionDifferences(facts, details)).toMatchObject([{ violation: 'SpecMismatch' }]);
  });
});

describe('interfaceDifferences', () => {
  const spec = (network: SandboxSpec['network']) => ({ network }) as SandboxSpec;
  const view = (interfaces: readonly string[] | null) => ({ interfaces }) as KernelView;

  it('allows no address without a network and those of one interface with one', () => {
    expect(interfaceDifferences(spec({ kind: 'none' }), view([]))).toEqual([]);
    expect(interfaceDifferences(spec({ kind: 'bridge' }), view(['eth0']))).toEqual([]);
    expect(interfaceDifferences(spec({ kind: 'none' }), view(null))).toEqual([]);
    expect(interfaceDifferences(spec({ kind: 'none' }), view(['eth0']))).toMatchObject([
      { violation: 'KernelMismatch' },
    ]);
    expect(interfaceDifferences(spec({ kind: 'named', name: 'n' }), view(['eth0', 'eth1']))).toMatchObject([
      { detail: expect.stringContaining('eth0, eth1') },
    ]);
  });
});

describe('parseInterfaces', () => {
  const head = 'Iface\tDestination\tGateway \tFlags\n';
  it('names what has a route or an address, and not the loopback', () => {
    expect(parseInterfaces(head, '')).toEqual([]);
    expect(parseInterfaces('', '')).toEqual([]);
    expect(parseInterfaces(`${head}eth0\t00000000\t010012AC\t0003\neth0\t000012AC\t00000000\t0001\n`, '')).toEqual([
      'eth0',
    ]);
    expect(
      parseInterfaces(head, '00000000000000000000000000000001 01 80 10 80       lo\nfe80 02 40 20 80 eth1\n'),
    ).toEqual(['eth1']);
  });
});
