// What a level without walls cannot give or hold: refused, never left out in silence.

import { AcodeError } from '../../contract/errors.ts';
import type { Level } from '../../contract/levels.ts';
import type { Capability, Weakening } from '../backend.ts';
import { availableParallelism } from 'node:os';
import type { SandboxSpec } from '../../contract/spec.ts';

/** What everybody who uses such a level should know. */
export const NO_BOUNDARY: readonly string[] = [
  'This level is no security boundary: the command can do on this host whatever you can.',
  'The network is the host’s own, also where the policy says none; .git and other protected paths can be written.',
];

/** Refuses a plan that asks for what only a stronger level can hold. */
export function refuseOnHost(spec: SandboxSpec, level: Level): void {
  const uid = process.getuid?.() ?? -1;
  if (uid === 0) throw new AcodeError('ACODE-SBX-011', { uid });
  const refuse = (what: string, instead: string): never => {
    throw new AcodeError('ACODE-SBX-016', { what: `${what} at level ${level}`, instead });
  };
  const stronger = 'or use level docker or bubblewrap';
  if (spec.network.kind !== 'none') refuse('A network of its own', 'Leave the network out, or use level docker.');
  if (spec.ports.length > 0)
    refuse('A published port', 'Leave the ports out: a server of the command is on this host.');
  if (spec.runtime !== null) refuse(`The runtime ${spec.runtime}`, 'Leave the runtime out, or use level docker.');
  if (spec.user.uid !== uid) refuse('Another user than the caller', 'Leave the user out: the command runs as you.');
  if (spec.mounts.some(({ purpose }) => purpose === 'additional'))
    refuse('A mount', `Leave the mounts out, ${stronger}.`);
  if (spec.mounts.some(({ purpose, readOnly }) => purpose === 'workspace' && readOnly))
    refuse('A read-only workspace', `Leave it out, ${stronger}: nothing here could keep the command from writing.`);
}

/** Refuses weakenings of protections that such a level does not have. */
export function assertWeakenable(weakenings: readonly Weakening[], possible: readonly Weakening[], level: Level): void {
  const missing = weakenings.find(weakening => weakening !== 'verification' && !possible.includes(weakening));
  if (missing === undefined) return;
  throw new AcodeError('ACODE-SBX-016', {
    what: `A control without ${missing} at level ${level}`,
    instead: 'Nothing: the level does not have that protection, so there is none to take away.',
  });
}

/** What such a level can do here. */
export function capabilityOnHost(level: Level): Capability {
  const reason = whyNot();
  return {
    level,
    available: reason === null,
    cpus: availableParallelism(),
    runtimes: {},
    standardRuntime: '',
    ...(reason === null ? {} : { reason }),
  };
}

function whyNot(): string | null {
  if (process.platform === 'win32') return 'it needs a POSIX system; use WSL or Docker';
  return process.getuid?.() === 0
    ? 'without walls a command of root’s could do anything; use an ordinary user, or level docker'
    : null;
}
