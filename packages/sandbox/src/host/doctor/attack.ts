// The live attack: the corpus against the backend in use, many probes to a sandbox, each judged with its control.

import { performance } from 'node:perf_hooks';
import type { PolicyFields } from '../../contract/policy.ts';
import type { Weakening } from '../../isolation/backend.ts';
import { Bench } from './bench.ts';
import type { OpenTarget } from './bench.ts';
import { systemCalls, thirtyTwoBit } from './probes/calls.ts';
import { lookingAround, survivor } from './probes/inside.ts';
import { mountRequests } from './probes/mount-requests.ts';
import { reachable } from './probes/network.ts';
import { policyRequests } from './probes/policy-requests.ts';
import { memory, memoryFiles, openFiles, output, processes, stubborn } from './probes/resources.ts';
import { environment as environmentProbe, maskedFiles, oddSources, verification } from './probes/secrets.ts';
import { hostileOutput, leftBehind, repositoryTakeover, shadowedPrograms } from './probes/workspace.ts';
import { gradeOf } from './report.ts';
import type { AttackOptions, AttackReport, Probe } from './report.ts';
import type { TestEnvironment } from './test-environment.ts';
import { NOTHING_STOPS_IT, judge, notTriedReason } from './trial.ts';
import type { Outcomes, Trial } from './trial.ts';

// The longest first, so that the end does not wait for one that began late.
const TRIALS: readonly Trial[] = [
  reachable,
  lookingAround,
  systemCalls,
  thirtyTwoBit,
  survivor,
  leftBehind,
  repositoryTakeover,
  processes,
  memory,
  memoryFiles,
  stubborn,
  openFiles,
  output,
  environmentProbe,
  maskedFiles,
  verification,
  oddSources,
  shadowedPrograms,
  hostileOutput,
  mountRequests,
  policyRequests,
];

// Sandboxes are mostly waited for; more at once than this only makes each of them slower.
const AT_ONCE = 4;
const MAX_MS = 120_000;

/** What is attacked. */
export interface Target extends Pick<AttackReport['backend'], 'engine' | 'version' | 'runtime'> {
  readonly environment: TestEnvironment;
  /** The image, `host` where a level has none. */
  readonly image: string;
  /** Why it is another than the default one. */
  readonly imageReason?: string;
  /** What every sandbox is asked for. */
  readonly policy: PolicyFields;
  /** The engine’s socket; null where there is none. */
  readonly socket: string | null;
  /** The kernel of the machine that sandboxes are on. */
  readonly kernel: string;
}

/** What an attack is made on, and how. */
export interface AttackInput {
  readonly open: OpenTarget;
  readonly target: Target;
  readonly signal: AbortSignal;
  /** Protections that every sandbox lacks: with them the card must turn red, which is how it is tested. */
  readonly against?: readonly Weakening[];
  /** Only the trials with these rows; else all. */
  readonly only?: readonly string[];
}

/** Runs the corpus and writes the card. */
export async function attackBackend(input: AttackInput, options: AttackOptions): Promise<AttackReport> {
  const began = performance.now();
  const { environment, image, imageReason, policy, socket, kernel, engine, version, runtime } = input.target;
  const signal = AbortSignal.any([
    input.signal,
    AbortSignal.timeout(MAX_MS),
    ...(options.signal ? [options.signal] : []),
  ]);
  await using bench = await Bench.make({
    open: input.open,
    policy,
    environment,
    socket,
    machineKernel: kernel,
    against: input.against ?? [],
    signal,
  });
  const probes = await runTrials(bench, trialsFor(input.only), options);
  signal.throwIfAborted();
  return {
    backend: {
      engine,
      version,
      runtime,
      level: environment.level,
      boundary: environment.kind !== 'host',
      kernel: bench.contact.kernel === '' ? kernel : bench.contact.kernel,
    },
    image,
    ...(imageReason === undefined ? {} : { imageReason }),
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

// A trial that breaks has shown nothing, and what was not shown has failed; one that had no sandbox was not tried.
async function runTrial(bench: Bench, trial: Trial): Promise<Probe[]> {
  if (trial.needsShell && !bench.contact.shell) {
    const untried = 'the image has no shell at /bin/sh, so no program of the probe’s can be started in it';
    return trial.attacks.map(attack => judge(attack, { untried }));
  }
  try {
    return await tried(bench, trial).catch((error: unknown) => {
      // A machine that is busy for a moment has another moment.
      if (notTriedReason(error) === null) throw error;
      return tried(bench, trial);
    });
  } catch (error) {
    const reason = notTriedReason(error);
    if (reason !== null) {
      const notTried = {
        verdict: 'not-tried',
        observed: `could not be tried: ${reason}`,
        control: 'not made',
      } as const;
      return trial.attacks.map(({ id, title }) => ({ id, title, ...notTried }));
    }
    const observed = `the probe could not be made: ${error instanceof Error ? error.message : String(error)}`;
    return trial.attacks.map(({ id, title }) => ({ id, title, verdict: 'fail', observed, control: 'none was made' }));
  }
}

async function tried(bench: Bench, trial: Trial): Promise<Probe[]> {
  bench.signal.throwIfAborted();
  const outcomes = await (bench.environment.kind === 'host' ? onHost(trial, bench) : trial.run(bench));
  return trial.attacks.map(attack => judge(attack, outcomes[attack.id]));
}

// Where a command is on this host itself, only what was written for that is started.
async function onHost(trial: Trial, bench: Bench): Promise<Outcomes> {
  if (trial.onHost === 'same') return trial.run(bench);
  if (trial.onHost) return trial.onHost(bench);
  return Object.fromEntries(trial.attacks.map(({ id }) => [id, { open: NOTHING_STOPS_IT }]));
}
