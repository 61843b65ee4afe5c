// Runs the install command of a project image: in a sandbox, on a copy of the project, under what was decided for the workspace.

import type { OpenFurther, Planned } from '../../run/host.ts';
import { denialWording, remedyOf } from '../../contract/denial-text.ts';
import { AcodeError, limitError } from '../../contract/errors.ts';
import { networkInput } from '../../contract/network.ts';
import { policyFrom } from '../../contract/policy.ts';
import type { PolicyFields } from '../../contract/policy.ts';
import type { Clock } from '../../contract/ports.ts';
import type { RunResult } from '../../contract/result.ts';
import type { ProjectInstall } from '../../contract/project-image.ts';
import type { EngineBackend } from '../../isolation/backend.ts';
import type { Text } from '../../contract/wording.ts';
import { start } from '../../run/run.ts';
import { fetching, noNetwork } from '../../run/denials/denials.ts';

/** An install command, and what it is run with. */
export interface Installing {
  readonly install: ProjectInstall;
  /** The copy. */
  readonly workspace: string;
  /** What was decided for the workspace itself. */
  readonly planned: Planned;
  /** The image being built, for error messages. */
  readonly image: string;
  readonly engine: EngineBackend;
  readonly openFurther: OpenFurther;
  readonly clock: Clock;
  readonly onOutput: ((text: string) => void) | undefined;
}

// Closing gives an engine ten seconds, and the reaper ends what is left; this is how long that is waited for.
const GONE_MS = 30_000;
const PAUSE_MS = 250;
const LOOK_MS = 5000;
const ENDED: ReadonlySet<string> = new Set(['exited', 'dead']);

/** Runs it; rejects where it fails, or where something of it may still be running. */
export async function runInstall(installing: Installing, signal: AbortSignal): Promise<void> {
  const { install, workspace, planned, image, engine, openFurther, clock } = installing;
  const onOutput = (chunk: Uint8Array): void => installing.onOutput?.(Buffer.from(chunk).toString('utf8'));
  const policy = policyOf(planned, install);
  const host = await openFurther({ workspace, socket: engine.socket });
  let gone = false;
  try {
    const request = { policy: policyFrom(policy), signal, onStdout: onOutput, onStderr: onOutput };
    const { result } = await start({ ...host, isCopy: true }, install.command, request, false);
    assertSucceeded(await result, installing);
  } finally {
    await host.close();
    // What still ran would write in the copy while it is read, or removed.
    gone = await isGone(engine, host.session.owner, clock);
  }
  if (!gone)
    throw new AcodeError('ACODE-IMG-001', {
      image,
      reason: `the sandbox of the install command was not removed after ${GONE_MS / 1000} s`,
      remedy: 'Look at the engine: `acode doctor`. `acode sandbox cleanup --force` removes what is left.',
    });
}

/** Rejects an install command that did not end well, with the network’s absence where that may be why. */
export function assertSucceeded(
  { exitCode, timedOut, denials }: Pick<RunResult, 'exitCode' | 'timedOut' | 'denials'>,
  { image, ...installing }: Pick<Installing, 'image' | 'planned' | 'install'>,
): void {
  if (exitCode === 0) return;
  const how = timedOut ? 'took longer than its time limit' : `ended with ${exitCode ?? 'no exit status'}`;
  const offline = denials.some(({ rule }) => rule === 'network.none' || rule === 'network.air-gapped');
  const limit = limitError({ denials });
  throw new AcodeError(
    'ACODE-IMG-001',
    {
      image,
      reason: offline ? `the install command ${how}, and it had no network` : `the install command ${how}`,
      remedy: offline
        ? networkRemedy(installing)
        : limit
          ? remedyOf(limit.context.denial)
          : 'What it printed says more. It runs in a sandbox on a copy of the project, with the network of its policy.',
    },
    limit ? { cause: limit } : undefined,
  );
}

// What to do where an install command could not fetch what it needs.
function networkRemedy({ planned, install }: Pick<Installing, 'planned' | 'install'>): Text {
  return denialWording(noNetwork(planned.policy, install.command));
}

/** What is said where the time for a build is up: while the install command ran under a plan, or else. */
export function tooLong(
  timeoutMs: number,
  installing: Pick<Installing, 'planned' | 'install'> | null,
): { readonly reason: string; readonly remedy: Text } {
  const reason = `it took longer than ${timeoutMs / 1000} s`;
  if (installing === null)
    return { reason, remedy: 'Give it more time, or list in .dockerignore what the image need not have.' };
  if (installing.planned.policy.network.value.kind !== 'none')
    return { reason: `${reason}, and the install command was still running`, remedy: 'Give it more time: --timeout.' };
  return {
    reason: `${reason}, and the install command was still running; it had no network, which may be what it waited for`,
    remedy: networkRemedy(installing),
  };
}

/** Whether an install command is one that fetches packages, and has nothing to fetch them from. */
export function cannotFetch({ policy, spec }: Pick<Planned, 'policy' | 'spec'>, install: ProjectInstall): boolean {
  return policy.network.value.kind === 'none' && spec.caches.length === 0 && fetching(install.command) !== null;
}

/** Whether nothing of an owner’s runs any more; waits for it, and an engine that does not say has not said so. */
export async function isGone(engine: Pick<EngineBackend, 'list'>, owner: string, clock: Clock): Promise<boolean> {
  const deadline = clock.monotonic() + GONE_MS;
  for (;;) {
    const found = await engine.list(AbortSignal.timeout(LOOK_MS)).catch(() => null);
    if (found?.every(({ labels, state }) => labels['acode.owner'] !== owner || ENDED.has(state))) return true;
    if (clock.monotonic() > deadline) return false;
    await new Promise<void>(resolve => void clock.after(PAUSE_MS, resolve));
  }
}

// What was decided for the workspace, in so many words: the copy has no configuration of its own that could tighten it.
function policyOf({ spec, policy }: Planned, install: ProjectInstall): PolicyFields {
  return {
    ...install.policy,
    image: spec.image.id,
    level: spec.level,
    limits: { ...spec.limits },
    timeoutMs: policy.timeoutMs.value,
    network: networkInput(policy.network.value),
    caches: cachesOf(spec),
  };
}

function cachesOf({ caches }: Planned['spec']): PolicyFields['caches'] {
  const tools = caches.map(({ tool }) => tool);
  if (tools.length === 0) return false;
  return caches.some(({ fill }) => fill) ? { fill: tools } : tools;
}
