// What this level cannot give: refused, never left out in silence.

import { AcodeError } from '../../contract/errors.ts';
import { networkName } from '../../contract/network.ts';
import type { UserId } from '../../contract/policy.ts';
import type { SandboxSpec } from '../../contract/spec.ts';

const LEVEL = 'at level bubblewrap';

/** Refuses a plan that asks for more than the level has. */
export function refuseUnsupported(spec: SandboxSpec, caller: UserId): void {
  if (spec.network.kind !== 'none') {
    const name = networkName(spec.network);
    throw refusal(`The network ${name} ${LEVEL}`, 'Leave the network out, or use level docker.');
  }
  if (spec.ports.length > 0) throw refusal(`A published port ${LEVEL}`, 'Leave the ports out, or use level docker.');
  if (spec.runtime !== null)
    throw refusal(`The runtime ${spec.runtime} ${LEVEL}`, 'Leave the runtime out, or use level docker.');
  if (spec.user.uid !== caller.uid || spec.user.gid !== caller.gid)
    throw refusal(
      `Another user than the caller (${spec.user.uid}:${spec.user.gid}) ${LEVEL}`,
      `Leave the user out: the command runs as you, ${caller.uid}:${caller.gid}.`,
    );
}

function refusal(what: string, instead: string): AcodeError {
  return new AcodeError('ACODE-SBX-016', { what, instead });
}
