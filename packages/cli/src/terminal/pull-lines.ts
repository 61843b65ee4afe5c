// Pull lines: a bar for the whole pull and one for each active layer, or one plain line.

import type { LayerProgress, PullProgress } from '@acode/sandbox';
import { cut, pad } from './text.ts';

const LAYERS_SHOWN = 6;
const WIDEST_BAR = 30;
const LEAST_BAR = 6;
// Narrower than this there is room for figures only.
const WIDTH_FOR_BARS = 50;
const ID_WIDTH = 12;
const STATE_WIDTH = 11;
const UNITS = ['B', 'kB', 'MB', 'GB', 'TB'];

const WORDS: Readonly<Record<LayerProgress['state'], string>> = {
  waiting: 'waiting',
  downloading: 'downloading',
  retrying: 'broke off',
  downloaded: 'downloaded',
  extracting: 'extracting',
  complete: 'complete',
  present: 'was there',
};

/** Bytes as downloads show them: in powers of ten. */
export function sizeText(bytes: number): string {
  let value = bytes;
  let unit = 0;
  while (value >= 999.5 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  const digits = unit === 0 || value >= 99.95 ? 0 : 1;
  return `${value.toFixed(digits)} ${UNITS[unit] ?? ''}`;
}

/** Seconds as a person says them. */
export function timeText(seconds: number): string {
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

/** The lines for a terminal of a width; the first one is about the whole. */
export function pullLines(progress: PullProgress, width: number | null): string[] {
  const columns = width ?? 80;
  const busy = progress.layers.filter(({ state }) => isBusy(state));
  const shown = busy.slice(0, LAYERS_SHOWN);
  const rest = busy.length - shown.length;
  return [
    headLine(progress, columns),
    ...shown.map(layer => layerLine(layer, columns)),
    ...(rest > 0 ? [`… and ${rest} more`] : []),
  ];
}

/** One line without anything that moves, for a pipe or a file. */
export function plainPullLine(progress: PullProgress): string {
  const figures = figuresOf(progress);
  const layers = layersText(progress);
  return `Pulling ${progress.reference}: ${[...(layers === '' ? [] : [layers]), ...figures].join(', ') || 'waiting for the registry'}`;
}

function isBusy(state: LayerProgress['state']): boolean {
  return state !== 'complete' && state !== 'present';
}

function layersText({ layers }: PullProgress): string {
  if (layers.length === 0) return '';
  const done = layers.filter(({ state }) => !isBusy(state)).length;
  return `${done} of ${layers.length} layers`;
}

function figuresOf({ bytes, totalBytes, bytesPerSecond, secondsLeft, attempt }: PullProgress): string[] {
  const known = totalBytes === null ? sizeText(bytes) : `${sizeText(bytes)} of ${sizeText(totalBytes)}`;
  return [
    ...(bytes > 0 || totalBytes !== null ? [known] : []),
    ...(bytesPerSecond === null ? [] : [`${sizeText(bytesPerSecond)}/s`]),
    ...(secondsLeft === null || secondsLeft === 0 ? [] : [`${timeText(secondsLeft)} left`]),
    ...(attempt > 1 ? [`try ${attempt}`] : []),
  ];
}

function headLine(progress: PullProgress, columns: number): string {
  const { bytes, totalBytes } = progress;
  const figures = [layersText(progress), ...figuresOf(progress)].filter(text => text !== '').join(', ');
  const name = `Pulling ${progress.reference}`;
  if (figures === '') return `${name}…`;
  const plain = `${name}  ${figures}`;
  const room = columns - plain.length - 7;
  if (totalBytes === null || totalBytes === 0 || room < LEAST_BAR) return fitted(name, figures, columns);
  return `${name}  ${bar(bytes / totalBytes, Math.min(room, WIDEST_BAR))}  ${figures}`;
}

// The figures are what changes, so that a long name gives way.
function fitted(name: string, figures: string, columns: number): string {
  const room = columns - figures.length - 6;
  return room >= 12 ? `${cut(name, room)}  ${figures}` : figures;
}

function layerLine({ id, state, bytes, totalBytes }: LayerProgress, columns: number): string {
  const about = `${pad(cut(id, ID_WIDTH), ID_WIDTH)}  ${pad(WORDS[state], STATE_WIDTH)}`;
  const size =
    totalBytes === null ? (bytes > 0 ? sizeText(bytes) : '') : `${sizeText(bytes)} of ${sizeText(totalBytes)}`;
  const room = columns - about.length - size.length - 10;
  if (columns < WIDTH_FOR_BARS || totalBytes === null || totalBytes === 0 || room < LEAST_BAR)
    return `${about}  ${size}`.trimEnd();
  return `${about}  ${bar(bytes / totalBytes, Math.min(room, WIDEST_BAR))}  ${size}`;
}

function bar(part: number, width: number): string {
  const full = Math.round(Math.min(1, Math.max(0, part)) * width);
  return '█'.repeat(full) + '░'.repeat(width - full);
}
