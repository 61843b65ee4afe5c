// Which of the caches that a policy names a sandbox really gets: asked of the engine, and told where one is left out.

import type { CacheSpec, CacheVolume } from '../contract/caches.ts';
import { AcodeError } from '../contract/errors.ts';
import { usesEngine } from '../contract/levels.ts';
import type { Level } from '../contract/levels.ts';
import type { EffectivePolicy } from '../contract/policy.ts';
import type { Host } from './host.ts';
import type { CacheState } from '../isolation/backend.ts';
import { cacheSpec } from '../policy/caches.ts';

/** The caches of a plan, and what a reader should know about the others. */
export interface PlannedCaches {
  readonly caches: readonly CacheSpec[];
  readonly notes: readonly string[];
}

const NONE: PlannedCaches = { caches: [], notes: [] };

/** Finds the caches of a policy. One that was never filled costs a sandbox nothing: it is not there. */
export async function planCaches(
  host: Host,
  level: Level,
  { caches }: Pick<EffectivePolicy, 'caches'>,
  signal: AbortSignal,
): Promise<PlannedCaches> {
  const { volumes, fill } = caches.value;
  if (volumes.length === 0) return NONE;
  const asked = caches.layer === 'request';
  if (!usesEngine(level)) return asked ? refused(`policy.caches at level ${level}`) : NONE;
  const states = await (await host.engine()).caches(volumes, host.uid, signal);
  if (states.includes('unsupported')) return asked ? refused('policy.caches on Podman') : NONE;
  if (fill) return { caches: volumes.map(volume => cacheSpec(volume, true)), notes: [FILLS] };
  const found = volumes.map((volume, at) => ({ volume, state: states[at] ?? 'absent' }));
  return {
    caches: found.flatMap(({ volume, state }) => (state === 'ready' ? [cacheSpec(volume, false)] : [])),
    notes: found.flatMap(one => noteOn(one, asked)),
  };
}

const FILLS = 'What this command writes into its caches is there for every later sandbox of yours that has them.';

function noteOn({ volume: { tool }, state }: { volume: CacheVolume; state: CacheState }, asked: boolean): string[] {
  if (state === 'filling') return [`The cache of ${tool} is left out: another run fills it now.`];
  if (state !== 'absent' || !asked) return [];
  const ask = `ask for policy.caches: { fill: ['${tool}'] } (on the command line --fill-cache ${tool})`;
  return [`There is no cache of ${tool} yet: ${ask} in a run with a network to make one.`];
}

function refused(what: string): never {
  throw new AcodeError('ACODE-SBX-016', { what, instead: 'Leave it out: caches are volumes of a Docker engine.' });
}
