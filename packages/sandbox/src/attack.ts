// Opens hosts for the doctor’s live attack: the same pipe as for every command, on workspaces of the attack’s own.

import type { OpenHost } from './compose.ts';
import { attackBackend } from './doctor/attack.ts';
import type { Ground, GroundOptions } from './doctor/bench.ts';
import type { AttackOptions, AttackReport } from './doctor/report.ts';
import type { Host } from './host.ts';
import type { WeakenedBackend, Weakening } from './isolation/backend.ts';
import { resolvePolicy } from './policy/resolve.ts';
import { explain } from './planning.ts';
import { start } from './run.ts';

/** How a further host is opened. */
export type OpenFurther = (options: { readonly workspace: string; readonly socket: string }) => Promise<OpenHost>;

/** How the attack itself is tested: on sandboxes that lack protections, where the card must turn red. */
export interface Rehearsal {
  readonly against: readonly Weakening[];
  /** Only the trials with these rows. */
  readonly only: readonly string[];
}

/** Attacks the backend of a host. */
export async function attackHost(
  host: Host,
  openFurther: OpenFurther,
  options: AttackOptions,
  rehearsal?: Rehearsal,
): Promise<AttackReport> {
  const [backend, { level, cpus }] = await Promise.all([host.engine(), host.capability()]);
  const { machine, config: user, environmentMode, caller } = host;
  // A repository has no say in how the host is attacked.
  const policy = resolvePolicy({}, { machine, user, repository: null, environmentMode }, { caller, cpus });
  const image = policy.image.value;
  await host.audit.append({
    kind: 'event',
    operation: 'run',
    correlationId: '',
    event: 'attack on sandboxes of this host’s own',
  });
  const diagnosis = await backend.diagnose(options.image ?? image, host.closing);
  const open = (ground: GroundOptions): Promise<Ground> => openGround(openFurther, backend.socket, ground);
  const runtime = policy.runtime.value;
  return attackBackend({ open, diagnosis, image, runtime, level, signal: host.closing, ...rehearsal }, options);
}

// Never a place in the chain.
const UNRECORDED: Host['audit'] = { append: async () => ({ seq: 0, hash: '' }) };

async function openGround(openFurther: OpenFurther, socket: string, options: GroundOptions): Promise<Ground> {
  const opened = await openFurther({ workspace: options.workspace, socket: options.socket ?? socket });
  const { weakenings, beforeCreate } = options;
  let weakened: WeakenedBackend | null = null;
  const backend: Host['backend'] = async level => {
    const whole = await opened.backend(level);
    if (!whole || (weakenings.length === 0 && !beforeCreate)) return whole;
    weakened ??= whole.weakened(weakenings, beforeCreate);
    return weakened;
  };
  // What an attack prints is nobody’s to keep, and what it runs is written down as one attack.
  const host: Host = { ...opened, backend, savedLogs: null, audit: UNRECORDED };
  return {
    run: async (command, request) => {
      const running = start(host, command, request, false);
      opened.keep(running);
      return (await running).result;
    },
    explain: (command, request) =>
      // A plan is the same whatever is taken from it afterwards.
      explain(opened, command, request, AbortSignal.any([host.closing, ...(request.signal ? [request.signal] : [])])),
    close: async () => {
      await weakened?.[Symbol.asyncDispose]();
      await opened.close();
    },
  };
}
