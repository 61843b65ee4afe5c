// The network part of step 5: a sandbox is connected to the one network of its plan and to nothing else. Pure.
//
// The mode alone proves nothing: an engine takes a request whose mode is `none` and connects the container all the same
// to what stands in another field, and then still reports `none`.

import type { SandboxSpec } from '../../../contract/spec.ts';
import type { ContainerDetails } from '../engine/containers.ts';
import type { KernelView } from '../../kernel.ts';
import type { EngineFacts } from '../request.ts';
import type { Difference } from '../../mount-differences.ts';

/** What is wrong with the networks a container is connected to, by the engine’s account. */
export function connectionDifferences(facts: EngineFacts, details: ContainerDetails): Difference[] {
  const connected = Object.entries(details.NetworkSettings.Networks ?? {});
  const asPlanned = connected.length === 1 && connected.every(connection => isPlanned(facts, connection, details));
  if (asPlanned) return [];
  const found = connected.map(([name]) => name).join(', ') || 'none at all';
  return [
    {
      violation: 'SpecMismatch',
      detail: `connected networks: planned ${facts.network} alone, found ${found}`.slice(0, 400),
    },
  ];
}

/** What is wrong with the addresses the kernel has given the sandbox. */
export function interfaceDifferences({ network }: SandboxSpec, { interfaces }: KernelView): Difference[] {
  if (interfaces === null) return [];
  const most = network.kind === 'none' ? 0 : 1;
  if (interfaces.length <= most) return [];
  const detail = `it has addresses on ${interfaces.join(', ')} and was planned with ${most === 0 ? 'no network' : 'one network'}`;
  return [{ violation: 'KernelMismatch', detail }];
}

// Before its start an engine knows a container’s network by name alone; the id comes with the start.
function isPlanned(
  facts: EngineFacts,
  [name, endpoint]: [string, Record<string, unknown>],
  { State }: ContainerDetails,
) {
  if (facts.network === 'none') return name === 'none';
  const id = endpoint['NetworkID'];
  if (State.Running || (typeof id === 'string' && id !== '')) return id === facts.network;
  return name === facts.networkName || name === facts.network;
}
