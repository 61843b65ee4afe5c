// Opens everybody who is measured at a place: what acode is held beside first, then acode cold and warm.
// @ts-check

import { BareEngine } from '../candidates/bare-engine.mjs';
import { dockerRunWords } from '../candidates/docker-run.mjs';
import { ProcessCandidate, plainBubblewrap } from '../candidates/process.mjs';
import { labelsOf } from '../engine/labels.mjs';
import { NAMES } from '../names.mjs';
import { versionOf } from '../places.mjs';
import { reasonOf } from '../rounds.mjs';

/** @typedef {import('../context.mjs').Context} Context */
/** @typedef {import('../places.mjs').Place} Place */
/** @typedef {import('../candidates/candidate.mjs').Candidate} Candidate */
/** @typedef {import('../candidates/candidate.mjs').Absent} Absent */
/** @typedef {import('../candidates/acode.mjs').Pool} Pool */

/**
 * @typedef {object} Opened
 * @property {readonly Candidate[]} candidates The first is what the others are held beside.
 * @property {readonly Absent[]} absent
 * @property {string} reference
 */

/**
 * Opens them for as long as `use` takes.
 *
 * @param {Context} context
 * @param {Place} place
 * @param {{ pool: Pool, dockerRun?: boolean, maxConcurrent?: number }} how
 * @param {(opened: Opened) => Promise<void>} use
 */
export async function withEverybody(context, place, how, use) {
  /** @type {Candidate[]} */
  const candidates = [];
  /** @type {Absent[]} */
  const absent = [];
  const options = { maxConcurrent: how.maxConcurrent ?? 4 };
  try {
    const cold = await context.acode(place, { options });
    candidates.push(cold);
    const { engineRequest } = await cold.acode.explain(['echo', 'hi']);
    candidates.unshift(await referenceAt(context, place, engineRequest));
    const warm = await attempt(NAMES.warm, absent, () => warmAt(context, place, { options, pool: how.pool }));
    if (warm) candidates.push(warm);
    if (how.dockerRun && place.engine) {
      candidates.push(new ProcessCandidate(NAMES.plainProcess, []));
      const command = await attempt(NAMES.dockerRun, absent, async () => dockerRun(context, place, engineRequest));
      if (command) candidates.push(command);
    }
    await use({ candidates, absent, reference: candidates[0]?.name ?? '' });
  } finally {
    const closed = await Promise.allSettled(candidates.map(candidate => candidate.close()));
    for (const one of closed) if (one.status === 'rejected') context.complaints.push(reasonOf(one.reason));
  }
}

/**
 * @template Value
 * @param {string} name
 * @param {Absent[]} absent
 * @param {() => Promise<Value>} open
 */
async function attempt(name, absent, open) {
  try {
    return await open();
  } catch (error) {
    absent.push({ name, unavailable: reasonOf(error) });
    return null;
  }
}

/**
 * That nothing ever waits at a place takes a while to find out, so that it is found out once.
 *
 * @param {Context} context
 * @param {Place} place
 * @param {{ pool: Pool, options: import('@acode/sandbox').AcodeOptions }} of
 */
async function warmAt(context, place, of) {
  const known = context.coldPlaces.get(place.name);
  if (known !== undefined) throw new Error(known);
  try {
    return await context.acode(place, of);
  } catch (error) {
    if (!place.engine) context.coldPlaces.set(place.name, reasonOf(error));
    throw error;
  }
}

/**
 * @param {Context} context
 * @param {Place} place
 * @param {unknown} request
 * @returns {Promise<Candidate>}
 */
async function referenceAt(context, { engine, level }, request) {
  if (engine)
    return BareEngine.open(
      engine.socket,
      /** @type {Record<string, unknown>} */ (request),
      context.run,
      context.signal,
    );
  if (level === 'bubblewrap') return new ProcessCandidate(NAMES.plainBubblewrap, plainBubblewrap(context.workspace));
  return new ProcessCandidate(NAMES.plainProcess, []);
}

/**
 * The engine’s own command, making the same container.
 *
 * @param {Context} context
 * @param {Place} place
 * @param {unknown} request
 */
export function dockerRun(context, { name, engine }, request) {
  if (versionOf('docker') === null) throw new Error('there is no docker command here');
  const { PATH } = process.env;
  // A directory of its own: the user’s docker configuration may name plugins that are looked for at every start.
  const env = { PATH, HOME: context.directory('docker'), DOCKER_HOST: `unix://${engine?.socket}` };
  const words = dockerRunWords(request, {
    labels: labelsOf(context.run),
    seccompFile: text => context.file(`seccomp-${name.replaceAll(' ', '-')}.json`, text),
  });
  return new ProcessCandidate(NAMES.dockerRun, ['docker', ...words], env);
}
