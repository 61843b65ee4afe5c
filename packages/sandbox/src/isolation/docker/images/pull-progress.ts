// What the engine’s reports about a pull come to: layers, bytes, speed, time left. Pure; time is told to it.

import type { LayerProgress, PullProgress } from '../../../contract/images.ts';
import type { PullProgress as EngineReport } from '../engine/images.ts';

// How much of the past the speed is of: long enough to be calm, short enough to notice a line that has become slow.
const WINDOW_MS = 5000;
// Speed told from less than this would be noise.
const LEAST_MS = 300;
// An image has at most 127 layers; an engine that says otherwise is not believed for ever.
const MAX_LAYERS = 512;

/** Where a pull stands. */
export interface PullState {
  readonly reference: string;
  readonly attempt: number;
  readonly layers: ReadonlyMap<string, LayerProgress>;
  /** What was downloaded when, over the last seconds. */
  readonly samples: readonly { readonly atMs: number; readonly bytes: number }[];
  /** The digest that the registry gave, where it was reported. */
  readonly digest: string | null;
}

/** A pull that has not said anything yet. */
export function noProgress(reference: string, attempt: number): PullState {
  return { reference, attempt, layers: new Map(), samples: [], digest: null };
}

const STATES: Readonly<Record<string, LayerProgress['state']>> = {
  'Pulling fs layer': 'waiting',
  Waiting: 'waiting',
  Downloading: 'downloading',
  'Verifying Checksum': 'downloaded',
  'Download complete': 'downloaded',
  Extracting: 'extracting',
  'Pull complete': 'complete',
  'Already exists': 'present',
};

/** The state after one more report. Reports about no layer, or in words that are not known, change nothing. */
export function advance(state: PullState, report: EngineReport, atMs: number): PullState {
  const digest = /^Digest: (sha256:[0-9a-f]{64})$/.exec(report.status)?.[1];
  if (digest !== undefined) return { ...state, digest };
  const step = report.status.startsWith('Retrying in') ? 'retrying' : STATES[report.status];
  if (report.id === undefined || step === undefined) return state;
  const before = state.layers.get(report.id);
  if (!before && state.layers.size >= MAX_LAYERS) return state;
  const layers = new Map(state.layers).set(report.id, layerAfter(report.id, before, step, report));
  return { ...state, layers, samples: sampled(state.samples, { atMs, bytes: bytesOf(layers) }) };
}

function layerAfter(
  id: string,
  before: LayerProgress = { id, state: 'waiting', bytes: 0, totalBytes: null },
  state: LayerProgress['state'],
  { current = 0, total = 0 }: EngineReport,
): LayerProgress {
  if (state === 'downloading')
    return { id, state, bytes: Math.max(0, current), totalBytes: total > 0 ? total : before.totalBytes };
  if (!WHOLE.has(state)) return { ...before, state };
  // A small layer is there before its size was ever said.
  const bytes = before.totalBytes ?? before.bytes;
  return { id, state, bytes, totalBytes: bytes };
}

const WHOLE: ReadonlySet<LayerProgress['state']> = new Set(['downloaded', 'extracting', 'complete']);

function bytesOf(layers: PullState['layers']): number {
  let bytes = 0;
  for (const layer of layers.values()) bytes += layer.bytes;
  return bytes;
}

function sampled(samples: PullState['samples'], next: PullState['samples'][number]): PullState['samples'] {
  const last = samples.at(-1);
  // Some engines report hundreds of times a second.
  const dense = samples.length > 1 && last !== undefined && next.atMs - (samples.at(-2)?.atMs ?? 0) < 100;
  const kept = (dense ? samples.slice(0, -1) : samples).filter(({ atMs }) => next.atMs - atMs <= WINDOW_MS);
  return [...kept, next];
}

/** What a pull looks like now. */
export function viewOf(state: PullState, atMs: number): PullProgress {
  const layers = [...state.layers.values()];
  const wanted = layers.filter(({ state: of }) => of !== 'present');
  const bytes = bytesOf(state.layers);
  const totalBytes =
    wanted.length === 0 || wanted.some(layer => layer.totalBytes === null)
      ? null
      : wanted.reduce((sum, layer) => sum + (layer.totalBytes ?? 0), 0);
  const bytesPerSecond = speedOf(state.samples, atMs);
  return {
    reference: state.reference,
    attempt: state.attempt,
    layers,
    bytes,
    totalBytes,
    bytesPerSecond,
    secondsLeft: secondsLeft(totalBytes, bytes, bytesPerSecond),
  };
}

function speedOf(samples: PullState['samples'], atMs: number): number | null {
  const first = samples.find(sample => atMs - sample.atMs <= WINDOW_MS);
  const last = samples.at(-1);
  if (!first || !last) return null;
  const ms = atMs - first.atMs;
  // Bytes that are taken back, because a download begins anew, are no speed.
  return ms < LEAST_MS || last.bytes <= first.bytes ? null : Math.round(((last.bytes - first.bytes) * 1000) / ms);
}

function secondsLeft(totalBytes: number | null, bytes: number, speed: number | null): number | null {
  if (totalBytes === null || speed === null) return null;
  return Math.ceil(Math.max(0, totalBytes - bytes) / speed);
}
