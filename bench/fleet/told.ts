// What the fleet's benches are told and tell: options, the engine of this machine, and rows of docs/results/fleet.md.

import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import type { RealEngine } from './cluster.ts';

const ENGINES = '/run/acode-engines/engines.json';
const PAGE = 'docs/results/fleet.md';
const TITLE = 'Fleet: faults and figures';

type Option = { readonly type: 'string' | 'boolean' };
type Values = Readonly<Record<string, string | boolean | undefined>>;

/** The options that all take, and those of one. */
export function optionsOf<More extends Readonly<Record<string, Option>>>(more: More) {
  const own = { socket: { type: 'string' }, image: { type: 'string' }, write: { type: 'boolean' } } as const;
  return parseArgs({ allowPositionals: true, options: { ...own, ...more } });
}

/** Ends with a sentence. */
export function fail(message: string): never {
  throw new Error(message);
}

/** The container engine that is named, or that of the tests. */
export function engineOf({ socket, image }: Values): RealEngine {
  if (typeof socket === 'string')
    return { socket, image: typeof image === 'string' ? image : fail('--image is missing') };
  if (!existsSync(ENGINES)) return fail('no container engine: --socket PATH --image REFERENCE');
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion
  const { engines, images } = JSON.parse(readFileSync(ENGINES, 'utf8')) as {
    engines: { socket: string }[];
    images: { busybox: string };
  };
  return { socket: engines.at(-1)?.socket ?? fail('no engine is up'), image: images.busybox };
}

/** One row: printed, and with `--write` in docs/results/fleet.md. */
export function print(row: { name: string; figures: string; isOk: boolean; tookMs: number }, { write }: Values): void {
  const took = `${Math.round(row.tookMs / 1000)} s`;
  console.log(`${row.name}: ${row.isOk ? 'ok' : 'FAILED'} (${took})\nFIGURE ${row.figures}`);
  if (!write) return;
  // The tree may be another user’s.
  const words = ['-c', 'safe.directory=*', 'rev-parse', '--short', 'HEAD'];
  const commit = execFileSync('git', words, { encoding: 'utf8' }).trim();
  const outcome = row.isOk ? 'ok' : '**failed**';
  const line = `| ${row.name} | ${outcome} | ${row.figures} | ${took} | ${commit} |\n`;
  execFileSync(process.execPath, ['.ci/results.mjs', PAGE, TITLE], { input: line });
}
