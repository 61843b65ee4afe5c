// What a chaos run does, drawn from its seed alone: the same seed is the same plan.
// @ts-check

/**
 * @typedef {{ id: number, command: string, stdout: string, exitCode: number, network: 'none' | 'bridge' }} Run
 * @typedef {{ step: string | null, delayMs: number, reaper: boolean }} Kill after a step of the last run was told, or of its
 *   beginning; with `reaper`, whoever would clean up is killed too, and the next command has to
 * @typedef {{ session: string, client: 'command' | 'library', runs: Run[], kill: Kill | null }} Life
 * @typedef {{ after: number, what: 'restart' | 'kill' | 'pause', live: boolean, ms: number }} Trouble
 * @typedef {{ lives: Life[][], troubles: Trouble[] }} Plan
 */

const SESSIONS = 3;
const RUNS_PER_TROUBLE = 25;
const MAX_LIFE = 6;
const REAPERS_TOO = 0.2;
// What the log says at each step: about to create, created, started, ended and about to be removed, removed.
const STEPS = ['limits: ', 'container created', 'container started', 'container stopped', 'container removed'];

/**
 * Numbers from 0 to 1, all of them from the seed (mulberry32).
 *
 * @param {number} seed
 */
function numbers(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/**
 * The plan of a number of runs.
 *
 * @param {number} seed
 * @param {number} count
 * @returns {Plan}
 */
export function planOf(seed, count) {
  const draw = numbers(seed);
  /** @param {number} below */
  const integer = below => Math.floor(draw() * below);
  /** @type {(from: readonly any[]) => any} */
  const one = from => from[integer(from.length)];

  /** @type {(id: number) => Run} */
  const run = id => {
    const text = `run ${id} of ${seed}`;
    const lines = one([1, 1, 1, 1000]);
    const exitCode = integer(100);
    const pause = one(['0', '0', '0.05', '0.2', '0.5']);
    const command = `i=0; while [ $i -lt ${lines} ]; do echo "${text}"; i=$((i+1)); done; sleep ${pause}; echo end; exit ${exitCode}`;
    const network = draw() < 0.15 ? 'bridge' : 'none';
    return { id, command, stdout: `${`${text}\n`.repeat(lines)}end\n`, exitCode, network };
  };

  /** @type {Life[][]} */
  const lives = Array.from({ length: SESSIONS }, () => []);
  for (let id = 0, born = 0; id < count; born += 1) {
    const client = draw() < 0.4 ? 'command' : 'library';
    const length = client === 'command' ? 1 : Math.min(1 + integer(MAX_LIFE), count - id);
    const runs = Array.from({ length }, (_, index) => run(id + index));
    const byStep = { step: one(STEPS), delayMs: integer(40) };
    const reaper = draw() < REAPERS_TOO;
    const kill = draw() < 0.6 ? { ...one([byStep, { step: null, delayMs: integer(800) }]), reaper } : null;
    lives[born % SESSIONS]?.push({ session: `chaos-${seed}-${born}`, client, runs, kill });
    id += length;
  }

  /** @type {Trouble[]} */
  const troubles = Array.from({ length: Math.ceil(count / RUNS_PER_TROUBLE) }, (_, index) => ({
    after: index * RUNS_PER_TROUBLE + integer(RUNS_PER_TROUBLE),
    // Each kind comes up in turn, in an order that differs: few runs must not be without one of them.
    what: /** @type {const} */ (['pause', 'kill', 'pause', 'restart'])[(index + seed) % 4] ?? 'pause',
    live: draw() < 0.3,
    ms: 200 + integer(2000),
  }));
  return { lives, troubles };
}
