// The capability matrix: every level, whether this host has it, and why not. Never a guess: what does not answer is unknown.

import { AcodeError } from '../contract/errors.ts';
import type { LevelStatus } from '../contract/host.ts';
import { LEVELS, levelFacts, usesEngine } from '../contract/levels.ts';
import type { Level } from '../contract/levels.ts';
import { unavailableReason } from '../contract/unavailable.ts';
import type { Host } from '../run/host.ts';
import type { Capability } from '../isolation/backend.ts';
import { inTime } from '../isolation/waiting.ts';

const NO_RUNTIME: Readonly<Partial<Record<Level, string>>> = {
  gvisor: 'the engine has no runtime runsc; install gVisor and register it with the engine',
  microvm: 'the engine has no runtime kata; install Kata Containers and register it with the engine',
};

/** The matrix, strongest level first. Asks the engine and every local level at the same time. */
export async function capabilityMatrix(host: Host, withinMs: number): Promise<LevelStatus[]> {
  // The local ones first: they start processes, which then run while the engine is asked.
  const [local, engine] = await Promise.all([
    host.localCapabilities().then(all => all.map(ofLocal)),
    engineLevels(host, withinMs),
  ]);
  const found = new Map([...engine, ...local].map(one => [one.level, one]));
  return LEVELS.toReversed().flatMap(level => found.get(level) ?? []);
}

async function engineLevels(host: Host, withinMs: number): Promise<LevelStatus[]> {
  const levels = LEVELS.filter(usesEngine);
  try {
    return levelsOfEngine(levels, await answeredInTime(host, host.capability(), withinMs));
  } catch (error) {
    if (!(error instanceof AcodeError)) throw error;
    const reason = unavailableReason(error);
    const absent = error.is('ACODE-SBX-008') && error.context.absent === true;
    return levels.map(level => ({ level, state: absent ? 'unavailable' : 'unknown', by: 'engine', reason }));
  }
}

/** What an engine answers in time; else that it did not. It may answer later, so nothing follows from it. */
export function answeredInTime<Value>(host: Host, answer: Promise<Value>, ms: number): Promise<Value> {
  return inTime(host.telemetry.clock, ms, answer, () => {
    const reason = `it did not answer within ${ms / 1000} s`;
    return new AcodeError('ACODE-SBX-008', { socket: host.engineNamed ?? 'its socket', reason, remedy: SLOW });
  });
}

const SLOW = 'Something is there and does not answer: look at the engine’s own log, and restart it.';

/** Which levels an engine offers by its runtimes. A runtime counts as there; whether it is what it says, its first start proves. */
function levelsOfEngine(levels: readonly Level[], capability: Capability): LevelStatus[] {
  return levels.map(level => {
    const runtimes = Object.entries(capability.runtimes).flatMap(([name, its]) => (its === level ? [name] : []));
    const by = runtimes.length > 0 ? runtimes.join(', ') : 'engine';
    if (!capability.available) return { level, state: 'unavailable', by, ...reasonOf(capability) };
    if (runtimes.length > 0) return { level, state: 'available', by, ...refusalOf(runtimes, capability) };
    return { level, state: 'unavailable', by, reason: NO_RUNTIME[level] ?? 'the engine has no runtime for it' };
  });
}

// Nearly every project has something that is mounted read-only, so who reads that a level is available has to know.
function refusalOf(runtimes: readonly string[], { unprotecting = {} }: Capability): { reason?: string } {
  const refused = runtimes.flatMap(name => {
    const lacked = unprotecting[name];
    if (lacked === undefined) return [];
    return [
      `with ${name} a workspace with .git or other protected paths is refused; add \`${lacked}\` to the runtimeArgs of ${name} in the engine’s daemon.json and reload the engine`,
    ];
  });
  return refused.length === 0 ? {} : { reason: refused.join('; ') };
}

function ofLocal(capability: Capability): LevelStatus {
  const { level, available, unknown } = capability;
  return {
    level,
    state: available ? 'available' : unknown === true ? 'unknown' : 'unavailable',
    by: levelFacts(level).madeBy,
    ...reasonOf(capability),
  };
}

function reasonOf({ reason }: Capability): { reason?: string } {
  return reason === undefined ? {} : { reason };
}
