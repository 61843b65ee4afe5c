// Which networks are fit for a sandbox: what the bridge of a session is asked to be, and what the others must not be.

import { createHash, randomBytes } from 'node:crypto';
import { AcodeError } from '../../../contract/errors.ts';
import type { SandboxSpec } from '../../../contract/spec.ts';
import { CREATED, EXPIRES, HOST, KEEP, MANAGED, NONCE, OWNER, SESSION, UID } from '../../../lifecycle/labels.ts';
import type { NetworkDetails } from '../engine/networks.ts';

const ICC = 'com.docker.network.bridge.enable_icc';
const DEFAULT_BRIDGE = 'com.docker.network.bridge.default_bridge';
// Whose a network is and how long it may live: what whoever cleans up after a dead session needs to know.
const OWNERSHIP = [SESSION, OWNER, HOST, UID, CREATED, EXPIRES];

type Fault = readonly [rule: string, remedy: string];

/** Why a name that several networks have is of no use. */
export const SEVERAL: Fault = [
  'more than one network has that name, so nobody can tell which is meant',
  'Remove or rename the others; `docker network ls` lists them.',
];

/** Why sandboxes may not be connected to a network that was named; null where they may. */
export function faultOf(network: NetworkDetails | undefined): Fault | null {
  if (!network)
    return [
      'the engine has no network of that name',
      'Make it with `docker network create <name>`, or choose one that exists; trying again without that cannot help.',
    ];
  if (network.Labels?.[MANAGED] !== undefined)
    return [
      'it is the managed network of a session, which is not to be shared',
      'Ask for the network `bridge`, or make one of your own with `docker network create <name>`.',
    ];
  if (network.Driver !== 'bridge' || network.Scope !== 'local' || network.ConfigOnly === true)
    return [
      `its driver is ${network.Driver} (${network.Scope}), and only local bridge networks keep a sandbox off the host’s own interfaces`,
      'Make a bridge network with `docker network create <name>` and declare that one.',
    ];
  if (network.Options?.[DEFAULT_BRIDGE] === 'true')
    return [
      'it is the engine’s default network, on which every container reaches every other',
      'Ask for the network `bridge`, which acode makes for the session, or make one with `docker network create <name>`.',
    ];
  return null;
}

/** The body of `POST /networks/create` for the bridge of a session. */
export function bridgeRequest(spec: SandboxSpec, name: string, nonce: string): Record<string, unknown> {
  return {
    Name: name,
    CheckDuplicate: true,
    Driver: 'bridge',
    Internal: false,
    Attachable: false,
    Ingress: false,
    EnableIPv6: false,
    // No container on it reaches another; between networks the engine keeps them apart anyway.
    Options: { [ICC]: 'false' },
    Labels: { ...ownership(spec), [NONCE]: nonce },
  };
}

/** Refuses a network that is not what a managed one must be. */
export function assertManaged(network: NetworkDetails, spec: SandboxSpec): void {
  const { [CREATED]: _, [EXPIRES]: __, ...owner } = ownership(spec);
  const { Driver, Scope, Options, Labels, EnableIPv6, Internal, Attachable, Ingress } = network;
  const expectations: readonly (readonly [met: boolean, otherwise: string])[] = [
    [Driver === 'bridge' && Scope === 'local', `its driver is ${Driver} (${Scope})`],
    [Options?.[ICC] === 'false', 'containers on it may reach each other'],
    [!EnableIPv6, 'IPv6 is on'],
    [[Internal, Attachable, Ingress ?? false].every(one => !one), 'it is of another kind'],
    [Object.entries(owner).every(([label, value]) => Labels?.[label] === value), 'its owner is another'],
  ];
  const wrong = expectations.flatMap(([met, otherwise]) => (met ? [] : [otherwise]));
  if (wrong.length === 0) return;
  throw new AcodeError('ACODE-SBX-010', {
    violation: 'SpecMismatch',
    detail: `the network ${network.Name} is not as planned: ${wrong.join('; ')}`,
  });
}

/** The labels that say whose a network is. */
export function ownership({ identity }: SandboxSpec): Record<string, string> {
  return {
    [MANAGED]: 'true',
    [KEEP]: 'false',
    ...Object.fromEntries(OWNERSHIP.map(label => [label, identity.labels[label] ?? ''])),
  };
}

/** What the bridge of a session is called. The random end keeps two hosts of one session apart. */
export function bridgeName({ identity }: SandboxSpec): string {
  const session = createHash('sha256')
    .update(identity.labels[SESSION] ?? '')
    .digest('hex');
  return `acode-${session.slice(0, 8)}-bridge-${randomBytes(4).toString('hex')}`;
}
