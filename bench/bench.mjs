// `npm run bench`: what acode costs and what it gains, each figure beside the bare engine’s of the same run, interleaved with it.
// Prints a table and writes JSON; docs/benchmarks.md says how it is measured. Run it as an ordinary user.
// @ts-check

import { openSync, closeSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { USAGE, readArguments } from './arguments.mjs';
import { Context } from './context.mjs';
import { CHECKED, LIMITS, judge } from './limits.mjs';
import { cpuTime, machine, placesHere, stolenSince } from './places.mjs';
import { reasonOf } from './rounds.mjs';
import { measurements } from './suites/index.mjs';
import { figureLine, renderRows, renderVerdicts } from './table.mjs';

/** @typedef {import('./arguments.mjs').Asked} Asked */
/** @typedef {import('./limits.mjs').Verdict} Verdict */
/** @typedef {import('./figures.mjs').Row} Row */

const RESULTS = fileURLToPath(new URL('results.json', import.meta.url));
// However long a machine takes: what is not measured by then is not measured.
const MAX_MS = { check: 115_000, quick: 1_800_000, full: 2.5 * 3_600_000 };

process.exitCode = await main().catch(error => {
  console.error(`bench: ${reasonOf(error)}`);
  return 2;
});

async function main() {
  const asked = readArguments(process.argv.slice(2));
  if (asked.help) {
    console.log(USAGE);
    return 0;
  }
  if (process.getuid?.() === 0) {
    console.error('acode never runs as root: use `.ci/engines/as-user -- npm run bench`');
    return 2;
  }
  const file = writable(asked);
  const interrupted = new AbortController();
  for (const name of /** @type {const} */ (['SIGINT', 'SIGTERM', 'SIGHUP']))
    process.once(name, () => interrupted.abort(new Error(name)));
  const status = await bench(asked, file, interrupted.signal);
  return interrupted.signal.aborted ? 130 : status;
}

/**
 * Found out before an hour of measuring and not after it.
 *
 * @param {Asked} asked
 */
function writable({ json, check }) {
  const file = json ?? (check ? null : RESULTS);
  if (file === null) return null;
  try {
    closeSync(openSync(file, 'a'));
  } catch (error) {
    throw new Error(`${file} cannot be written: name another one with --json`, { cause: error });
  }
  return file;
}

/**
 * @param {Asked} asked
 * @param {string | null} file
 * @param {AbortSignal} interrupted
 */
async function bench(asked, file, interrupted) {
  const mode = asked.check ? 'check' : asked.quick ? 'quick' : 'full';
  const cpu = cpuTime();
  const places = asked.check ? placesHere(asked).filter(({ isHeld }) => isHeld) : placesHere(asked);
  const context = await Context.open({ asked, signal: interrupted, deadlineMs: MAX_MS[mode] });
  const began = new Date();
  let failure = null;
  try {
    await measurements(context, places);
  } catch (error) {
    failure = reasonOf(error);
  } finally {
    await context.close(places);
  }
  const verdicts = judge(asked.check ? CHECKED : LIMITS, context.rows, places, { tolerant: asked.check });
  const seconds = Math.round((Date.now() - began.getTime()) / 1000);
  const { rows, complaints } = context;
  const about = { mode, began: began.toISOString(), seconds, machine: machine(), stolen: stolenSince(cpu) };
  const document = { schema: 'acode.bench/1', ...about, rows, verdicts, failure, complaints };
  if (file !== null) writeFileSync(file, `${JSON.stringify(document, null, 2)}\n`);
  print(document);
  if (file !== null) console.log(`figures: ${file}`);
  return statusOf(asked, verdicts, failure !== null || complaints.length > 0);
}

/**
 * @param {{ rows: readonly Row[], verdicts: readonly Verdict[], mode: string, seconds: number, stolen: number, failure: string | null, complaints: readonly string[] }} of
 */
function print({ rows, verdicts, mode, seconds, stolen, failure, complaints }) {
  console.log(`\n${renderRows(rows)}\n\n${renderVerdicts(verdicts)}\n`);
  for (const verdict of verdicts) console.log(figureLine(verdict));
  // What the figures above are worth.
  const others = `others had ${Math.round(stolen * 100)} % of this machine’s CPU time`;
  console.log(`FIGURE rounds: ${mode}, ${others}\n\n${seconds} s; ${others}`);
  if (failure !== null) console.error(`ended early: ${failure}`);
  for (const complaint of complaints) console.error(complaint);
}

/**
 * A check that measured nothing has shown nothing.
 *
 * @param {Asked} asked
 * @param {readonly Verdict[]} verdicts
 * @param {boolean} failed
 */
function statusOf({ check }, verdicts, failed) {
  if (failed) return 1;
  if (!check) return 0;
  if (verdicts.length === 0) console.error('there is no engine to check on');
  return verdicts.length > 0 && verdicts.every(({ verdict }) => verdict === 'met') ? 0 : 1;
}
