// Published ports: which ones the engine really took, and what it says when one was not to be had.

import { AcodeError } from '../../../contract/errors.ts';
import type { PublishedPort } from '../../../contract/result.ts';
import type { SandboxSpec } from '../../../contract/spec.ts';
import type { ContainerDetails } from '../engine/containers.ts';
import { EngineError } from '../engine/error.ts';
import { reasonOf } from '../failure.ts';
import { portKey } from '../request.ts';

const LOOPBACK = '127.0.0.1';
const CLASH =
  /port is already allocated|address already in use|ports are not available|cannot expose privileged port|bind: permission denied/i;

/**
 * The ports of a container that runs, in the order they were asked for. One that came out anywhere but on the loopback is
 * an offer to the whole network, and refused.
 */
export function publishedPorts(spec: SandboxSpec, details: ContainerDetails): PublishedPort[] {
  const all = new Map(Object.entries(details.NetworkSettings.Ports ?? {}));
  const bindings = [...all.values()].flatMap(one => one ?? []);
  const elsewhere = bindings.find(({ HostIp }) => HostIp !== LOOPBACK);
  if (elsewhere)
    throw new AcodeError('ACODE-SBX-010', {
      violation: 'SpecMismatch',
      detail: `port ${elsewhere.HostPort} is published on ${elsewhere.HostIp || 'every address'} instead of ${LOOPBACK}`,
    });
  return spec.ports.flatMap(port => {
    const [binding] = all.get(portKey(port)) ?? [];
    return binding
      ? [{ container: port.container, host: Number(binding.HostPort), protocol: port.protocol ?? ('tcp' as const) }]
      : [];
  });
}

/** The error for a container that did not start because of a port; null where it was something else. */
export function portFailure({ ports }: SandboxSpec, error: unknown): AcodeError | null {
  if (ports.length === 0 || !(error instanceof EngineError)) return null;
  const message = reasonOf(error);
  if (!CLASH.test(message)) return null;
  const wanted = ports.flatMap(({ host }) => (host === undefined ? [] : [host]));
  const port = wanted.find(host => new RegExp(`:${host}\\b`).test(message)) ?? wanted[0] ?? 0;
  const reason = /permission|privileged/i.test(message)
    ? 'the engine may not use so low a port'
    : 'something else on this host has it';
  return new AcodeError('ACODE-SBX-021', { port, reason }, { cause: error });
}
