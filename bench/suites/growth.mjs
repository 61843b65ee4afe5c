// Whether a run takes longer in a workspace of many files: nothing may walk it on the caller’s path.
// @ts-check

import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { NAMES } from '../names.mjs';
import { interleave } from '../rounds.mjs';

/** @typedef {import('../context.mjs').Context} Context */
/** @typedef {import('../places.mjs').Place} Place */
/** @typedef {import('../candidates/acode.mjs').AcodeCandidate} AcodeCandidate */

const IN_DIRECTORY = 1000;
const TURN_MS = 60_000;
const SIZES = [1000, 10_000, 100_000, 1_000_000];

/**
 * @param {Context} context
 * @param {Place} place
 */
export async function growth(context, place) {
  const { quick, growth: long } = context.asked;
  const sizes = SIZES.slice(0, long ? SIZES.length : quick ? 1 : 2);
  /** @type {Map<string, AcodeCandidate>} */
  const hosts = new Map();
  const top = context.directory('files');
  try {
    hosts.set(NAMES.noFiles, await context.acode(place));
    for (const size of sizes) {
      const workspace = context.directory(`files/${size}`);
      await fill(workspace, size, context.signal);
      hosts.set(filesName(size), await context.acode(place, { options: { workspace } }));
    }
    await compare(context, place, hosts);
  } finally {
    await Promise.allSettled([...hosts.values()].map(host => host.close()));
    rmSync(top, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
  }
  if (!long)
    context.miss(
      { group: 'growth.files', place: place.name, name: NAMES.mostFiles },
      'takes long, and is asked for with --growth',
    );
}

/**
 * @param {Context} context
 * @param {Place} place
 * @param {ReadonlyMap<string, AcodeCandidate>} hosts
 */
async function compare(context, place, hosts) {
  const turns = await interleave(
    [...hosts].map(([name, host]) => ({
      name,
      settled: () => host.settled(),
      turn: async (/** @type {AbortSignal} */ signal) => (await host.echo(signal)).resultMs,
    })),
    { rounds: context.asked.quick ? 6 : 20, signal: context.signal, turnMs: TURN_MS },
  );
  for (const [name, { values, errors }] of turns) {
    const key = { group: 'growth.files', place: place.name, name };
    if (values.length === 0) context.miss(key, errors[0] ?? 'no value');
    else
      context.add(
        { ...key, unit: 'ms', better: 'less', reference: name === NAMES.noFiles, errors: errors.length },
        values,
      );
  }
}

/** @param {number} size */
export function filesName(size) {
  return `in ${size.toLocaleString('en')} files`;
}

/**
 * @param {string} directory
 * @param {number} size
 * @param {AbortSignal} signal
 */
async function fill(directory, size, signal) {
  for (let made = 0; made < size; made += IN_DIRECTORY) {
    signal.throwIfAborted();
    const below = join(directory, `part-${made / IN_DIRECTORY}`);
    mkdirSync(below);
    for (let file = 0; file < IN_DIRECTORY; file += 1) writeFileSync(join(below, `file-${file}.txt`), 'x');
    // So that an interruption is heard.
    await new Promise(resolve => void setImmediate(resolve));
  }
}
