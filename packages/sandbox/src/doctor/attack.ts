// The live attack: the corpus against the backend in use, many probes to a sandbox, each judged with its control.

import { performance } from 'node:perf_hooks';
import type { PolicyInput } from '../contract/policy.ts';
import type { Diagnosis, Weakening } from '../isolation/backend.ts';
import { Bench } from './bench.ts';
import type { OpenGround } from './bench.ts';
import { systemCalls } from './probes/calls.ts';
import { lookingAround } from './probes/inside.ts';
import { reachable } from './probes/network.ts';
import { mountRequests, policyRequests } from './probes/requests.ts';
import { memory, memoryFiles, openFiles, output, processes, stubborn } from './probes/resources.ts';
import { environment, oddSources, verification } from './probes/secrets.ts';
import { thirtyTwoBit } from './probes/thirty-two-bit.ts';
import { hostileOutput, leftBehind, repositoryTakeover, shadowedPrograms } from './probes/workspace.ts';
import { gradeOf } from './report.ts';
import type { AttackOptions, AttackReport, Probe } from './report.ts';
import { judge } from './trial.ts';
import type { Trial } from './trial.ts';

// The longest first, so that the end does not wait for one that began late.
const TRIALS: readonly Trial[] = [
  reachable,
  lookingAround,
  systemCalls,
  thirtyTwoBit,
  leftBehind,
  repositoryTakeover,
  processes,
  memory,
  memoryFiles,
  stubborn,
  openFiles,
  output,
  environment,
  verification,
  oddSources,
  shadowedPrograms,
  hostileOutput,
  mountRequests,
  policyRequests,
];

// Sandboxes are mostly waited for; more at once than this only makes each of them slower.
const AT_ONCE = 4;
const LONGEST_MS = 120_000;

/** What an attack is made on. */
export interface AttackGround {
  readonly open: OpenGround;
  readonly diagnosis: Diagnosis;
  /** The image that is meant where the options name none. */
  readonly image: string;
  /** The runtime that is meant where the options name none; null for the engine’s default. */
  readonly runtime: string | null;
  readonly level: string;
  readonly signal: AbortSignal;
  /** Protections that every sandbox lacks: with them the card must turn red, which is how it is tested. */
  readonly against?: readonly Weakening[];
  /** Only the trials with these rows; else all. */
  readonly only?: readonly string[];
}

/** Runs the corpus and writes the card. */
export async function attackBackend(ground: AttackGround, options: AttackOptions): Promise<AttackReport> {
  const began = performance.now();
  const { diagnosis } = ground;
  const image = options.image ?? ground.image;
  const runtime = options.runtime ?? ground.runtime;
  const policy: PolicyInput = { image, ...(runtime === null ? {} : { runtime }) };
  const signal = AbortSignal.any([
    ground.signal,
    AbortSignal.timeout(LONGEST_MS),
    ...(options.signal ? [options.signal] : []),
  ]);
  await using bench = await Bench.make({
    open: ground.open,
    policy,
    socket: diagnosis.engine.socket,
    engineKernel: diagnosis.kernel,
    against: ground.against ?? [],
    signal,
  });
  const probes = await runTrials(bench, trialsFor(ground.only), options);
  signal.throwIfAborted();
  return {
    backend: {
      engine: 'docker',
      version: diagnosis.engine.version,
      runtime: runtime ?? diagnosis.engine.defaultRuntime,
      level: ground.level,
      kernel: bench.contact.shell ? bench.contact.kernel : diagnosis.kernel,
    },
    image,
    grade: gradeOf(probes),
    probes,
    durationMs: Math.round(performance.now() - began),
  };
}

function trialsFor(only: readonly string[] | undefined): readonly Trial[] {
  return only ? TRIALS.filter(({ attacks }) => attacks.some(({ id }) => only.includes(id))) : TRIALS;
}

async function runTrials(bench: Bench, trials: readonly Trial[], { onProgress }: AttackOptions): Promise<Probe[]> {
  const waiting = [...trials];
  const probes: Probe[] = [];
  const total = trials.reduce((sum, { attacks }) => sum + attacks.length, 0);
  const worker = async (): Promise<void> => {
    for (let trial = waiting.shift(); trial; trial = waiting.shift()) {
      onProgress?.({ done: probes.length, total, about: trial.about });
      probes.push(...(await runTrial(bench, trial)));
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  onProgress?.({ done: probes.length, total, about: 'the card' });
  return probes.sort((one, other) => one.id.localeCompare(other.id, 'en', { numeric: true }));
}

// A trial that breaks has shown nothing, and what was not shown has failed.
async function runTrial(bench: Bench, trial: Trial): Promise<Probe[]> {
  if (trial.needsShell && !bench.contact.shell) {
    const untried = 'the image has no shell at /bin/sh, so no program of the probe’s can be started in it';
    return trial.attacks.map(attack => judge(attack, { untried }));
  }
  try {
    bench.signal.throwIfAborted();
    const outcomes = await trial.run(bench);
    return trial.attacks.map(attack => judge(attack, outcomes[attack.id]));
  } catch (error) {
    const observed = `the probe could not be made: ${error instanceof Error ? error.message : String(error)}`;
    return trial.attacks.map(({ id, title }) => ({ id, title, verdict: 'fail', observed, control: 'none was made' }));
  }
}
