// Which runtime of the engine runs a sandbox: known ones by name, others only where the user says so.

import { AcodeError } from '../contract/errors.ts';
import type { PolicyFields, Sourced } from '../contract/policy.ts';
import { pick, placeOf, setBy } from './layers.ts';
import type { Layers } from './layers.ts';

const KNOWN =
  /^(?:runc|runsc(?:-[a-z0-9-]+)?|crun|kata(?:-[a-z0-9-]+)?|sysbox-runc|io\.containerd\.(?:runc|kata|runsc)(?:[.-][A-Za-z0-9.-]+)?)$/;
const KATA = /^(?:kata|io\.containerd\.kata)(?:[.-]|$)/;
const GVISOR = /^(?:runsc|io\.containerd\.runsc)(?:[.-]|$)/;

/** How much a runtime isolates: a kernel of its own for each sandbox, one in user space, or the host’s. */
export function runtimeStrength(runtime: string | null): 0 | 1 | 2 {
  if (runtime === null || !KNOWN.test(runtime)) return 0;
  return KATA.test(runtime) ? 2 : GVISOR.test(runtime) ? 1 : 0;
}

/** The runtime by name; null for the engine’s default. */
export function resolveRuntime(request: PolicyFields, layers: Layers): Sourced<string | null> {
  const asked = pick<string | null>(layers, {
    field: 'runtime',
    request: request.runtime,
    key: 'sandbox.runtime',
    read: ({ sandbox }) => sandbox?.runtime,
    builtIn: null,
  });
  const users = layers.user.config.sandbox?.security?.allowed_runtimes ?? [];
  if (asked.value !== null && !KNOWN.test(asked.value) && !users.includes(asked.value)) {
    throw new AcodeError('ACODE-SBX-010', {
      violation: 'UnknownRuntime',
      detail: `${JSON.stringify(asked.value.slice(0, 80))} is no runtime that acode knows (${setBy(asked)})`,
      remedy:
        'Use runc, runsc or another known one, or list it under sandbox.security.allowed_runtimes in your own configuration file.',
    });
  }
  return withinMachine(asked, layers);
}

// Where nobody names a runtime, the engine’s default could be one that the machine does not allow: its first one is named instead.
function withinMachine(asked: Sourced<string | null>, { machine }: Layers): Sourced<string | null> {
  if (!machine) return asked;
  const allowed = machine.config.sandbox?.security?.allowed_runtimes;
  if (!allowed) return asked;
  const by = { layer: 'machine', where: placeOf(machine, 'sandbox.security.allowed_runtimes') } as const;
  const [value] = asked.value === null ? allowed : allowed.filter(name => name === asked.value);
  if (value !== undefined) return asked.value === null ? { value, ...by } : asked;
  const listed = allowed.length > 0 ? allowed.join(', ') : 'no runtime at all';
  throw new AcodeError('ACODE-SBX-010', {
    violation: 'UnknownRuntime',
    detail: `this machine allows only ${listed} (${setBy(by)})`,
    remedy: `Ask for what it allows, ${listed}, or ask whoever looks after this machine.`,
  });
}
