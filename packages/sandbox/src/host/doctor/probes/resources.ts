// Group E: using up what the host has, each against a sandbox without that limit.

import type { RunResult } from '../../../contract/result.ts';
import { refusalOf } from '../bench.ts';
import type { Bench, RunOptions } from '../bench.ts';
import type { Processor } from '../machine-code.ts';
import { answersIn, placed, probingProgram } from '../program.ts';
import { answerName } from '../system-calls.ts';
import { NOTHING_STOPS_IT } from '../trial.ts';
import type { Outcome, Trial } from '../trial.ts';

const MEBIBYTE = 1024 ** 2;

const FORKS = 120;
const FORK_LIMIT = 32;
const FORK = `i=0; while [ $i -lt ${FORKS} ]; do sleep 1 & echo s; i=$((i+1)); done; wait`;

/** More processes than allowed. */
export const processes: Trial = {
  about: 'processes',
  needsShell: true,
  attacks: [{ id: 'E1', title: 'fork bomb' }],
  async run(bench) {
    const policy = { limits: { pids: FORK_LIMIT } };
    const [inside, open] = await Promise.all([forks(bench, { policy }), forks(bench, { policy, without: 'pids' })]);
    return {
      E1: {
        stopped: inside.count < FORKS,
        observed: `stopped after ${inside.count} processes${inside.ended}`,
        controlled: open.count === FORKS,
        control: `${open.count} processes without the limit`,
      },
    };
  },
};

// A runtime with a kernel of its own may end as a whole at the limit, which stops the bomb as well.
async function forks(bench: Bench, options: RunOptions): Promise<{ count: number; ended: string }> {
  let text = '';
  const onStdout = (chunk: Uint8Array): void => void (text += Buffer.from(chunk).toString('latin1'));
  const run = bench.run(FORK, { ...options, request: { onStdout } });
  const code = await refusalOf(run);
  const limit = code === null ? (await run).limitExceeded : undefined;
  const count = [...text.matchAll(/^s$/gm)].length;
  return { count, ended: code === null ? (limit ? `, ${limit} limit reported` : '') : ', the sandbox ended with them' };
}

const ALLOCATION = 192 * MEBIBYTE;
const MEMORY_LIMIT = 64 * MEBIBYTE;
// Read and write; private, anonymous, every page at once.
const ALLOCATE = { call: 'mmap', args: [0, ALLOCATION, 3, 0x8022, -1, 0] } as const;

// Several processes, each within the limit and together far beyond it, at the same time.
const SHARERS = 4;
const SHARE = 48 * MEBIBYTE;
const HOLD = [
  { call: 'mmap', args: [0, SHARE, 3, 0x8022, -1, 0] },
  { call: 'read', args: [0, new Uint8Array(8), 1] },
] as const;

/** More memory than allowed: in a child whose parent ends well, and by several processes together. */
export const memory: Trial = {
  about: 'memory',
  needsShell: true,
  attacks: [
    { id: 'E2', title: 'memory bomb in a child' },
    { id: 'E2b', title: 'memory of several processes together' },
  ],
  async run(bench) {
    if (bench.processor === null) {
      const untried = `there is no probing program for ${process.arch}`;
      return { E2: { untried }, E2b: { untried } };
    }
    const [child, together] = await Promise.all([oneChild(bench, bench.processor), several(bench, bench.processor)]);
    return { E2: child, E2b: together };
  },
  async onHost({ environment }) {
    const open =
      environment.level === 'ulimit'
        ? 'each process is limited alone, and there may be any number; not tried, since it would be on this host itself'
        : NOTHING_STOPS_IT;
    return { E2: { open }, E2b: { open } };
  },
};

async function oneChild(bench: Bench, processor: Processor): Promise<Outcome> {
  const script = `${placed('probe', bench.temporary)} && ${bench.temporary}/probe; exit 0`;
  const [inside, open] = await limited(bench, script, probingProgram(processor, [ALLOCATE]));
  const [answer] = answersIn(inside.stdout);
  const [without] = answersIn(open.stdout);
  // Either the kernel ended the child and the result says so, or it would not give the memory at all.
  const ended = answer === undefined && (inside.oomKilled || inside.exitCode !== 0);
  return {
    stopped: ended || (answer !== undefined && answer < 0n),
    observed: `${answerName(answer)}; oomKilled ${inside.oomKilled}, exit ${inside.exitCode ?? 'none'}`,
    controlled: without !== undefined && without > 0n,
    control: `${answerName(without)} with 512 MiB`,
  };
}

async function several(bench: Bench, processor: Processor): Promise<Outcome> {
  const each = `{ sleep 2 | ${bench.temporary}/probe; } &`;
  const script = `${placed('probe', bench.temporary)} || exit 1\n${`${each}\n`.repeat(SHARERS)}wait`;
  const [inside, open] = await limited(bench, script, probingProgram(processor, HOLD));
  // What each of them was given, and whether it lived to say so.
  const held = ({ stdout }: RunResult): number => answersIn(stdout).filter(answer => answer > 0n).length;
  const total = (count: number): string => `${(count * SHARE) / MEBIBYTE} MiB`;
  return {
    stopped: held(inside) < SHARERS || inside.oomKilled,
    observed:
      held(inside) < SHARERS || inside.oomKilled
        ? `ended beyond ${MEMORY_LIMIT / MEBIBYTE} MiB; oomKilled ${inside.oomKilled}`
        : `${total(SHARERS)} held together: without a control group each process is limited alone`,
    controlled: held(open) === SHARERS && !open.oomKilled,
    control: `${total(held(open))} held together with 512 MiB`,
  };
}

async function limited(bench: Bench, script: string, probe: Buffer): Promise<readonly [RunResult, RunResult]> {
  const policy = { limits: { memoryBytes: MEMORY_LIMIT } };
  return Promise.all([
    bench.run(script, { workspace: await bench.workspace({ probe }), policy }),
    bench.run(script, { workspace: await bench.workspace({ probe }), policy, without: 'memory' }),
  ]);
}

const TMP_LIMIT = MEBIBYTE;
const FILL = 8 * MEBIBYTE;
const FILL_SHARED = 96 * MEBIBYTE;
const FILES = 1500;
const FILL_UP = `
head -c ${FILL} /dev/zero > /tmp/fill 2>/dev/null; printf 'tmp '; wc -c < /tmp/fill
n=0; while [ $n -lt ${FILES} ]; do true 2>/dev/null > "$HOME/i$n" || break; n=$((n+1)); done; echo "inodes $n"
head -c ${FILL_SHARED} /dev/zero > /dev/shm/fill 2>/dev/null; printf 'shm '; wc -c < /dev/shm/fill
true`;

/** File systems in memory. */
export const memoryFiles: Trial = {
  about: 'file systems in memory',
  needsShell: true,
  attacks: [
    { id: 'E3', title: 'fill /tmp' },
    { id: 'E4', title: 'use up inodes' },
    { id: 'E5', title: 'fill /dev/shm' },
  ],
  async run(bench) {
    const policy = { limits: { tmpBytes: TMP_LIMIT, memoryBytes: 256 * MEBIBYTE } };
    const [inside, open] = await Promise.all([
      bench.run(FILL_UP, { policy }),
      bench.run(FILL_UP, { policy, without: 'tmpfs-size' }),
    ]);
    const outcome = (name: string, asked: number, unit: (count: number) => string): Outcome => {
      const count = ({ stdout }: RunResult): number =>
        Number(new RegExp(`^${name} +(\\d+)`, 'm').exec(stdout)?.[1] ?? Number.NaN);
      return {
        stopped: count(inside) < asked,
        observed: `stopped at ${unit(count(inside))}`,
        controlled: count(open) === asked,
        control: `${unit(count(open))} in a larger one`,
      };
    };
    const bytes = (count: number): string => `${Math.round((count / MEBIBYTE) * 10) / 10} MiB`;
    return {
      E3: outcome('tmp', FILL, bytes),
      E4: bench.contact.ownKernel
        ? { untried: 'the sandbox’s own kernel counts no inodes; its memory limit (E2) bounds them' }
        : bench.environment.kind === 'namespaces'
          ? await inodesAsMemory(bench)
          : outcome('inodes', FILES, count => `${count} files`),
      E5: outcome('shm', FILL_SHARED, bytes),
    };
  },
};

// Where nothing counts files in memory, what they cost is memory of the sandbox, if there is a limit on all of it.
const MANY_FILES = 30_000;
const MAKE_MANY = `n=0; while [ $n -lt ${MANY_FILES} ]; do true 2>/dev/null > "$HOME/i$n" || break; n=$((n+1)); done; echo "made $n"`;

async function inodesAsMemory(bench: Bench): Promise<Outcome> {
  const policy = { limits: { tmpBytes: TMP_LIMIT, memoryBytes: 16 * MEBIBYTE } };
  const [inside, open] = await Promise.all([
    bench.run(MAKE_MANY, { policy }),
    bench.run(MAKE_MANY, { policy, without: 'memory' }),
  ]);
  const all = ({ stdout }: RunResult): boolean => stdout.includes(`made ${MANY_FILES}`);
  return {
    stopped: !all(inside) && inside.oomKilled,
    observed: inside.oomKilled
      ? 'they count as memory: ended at the limit of 16 MiB'
      : `${MANY_FILES} files: this level counts none, and without a control group nothing bounds what they cost`,
    controlled: all(open),
    control: `${all(open) ? MANY_FILES : 'fewer'} files with 512 MiB`,
  };
}

const OUTPUT = 16 * MEBIBYTE;
const OUTPUT_LIMIT = 65_536;

/** More output than is kept. */
export const output: Trial = {
  about: 'output',
  needsShell: true,
  onHost: 'same',
  attacks: [{ id: 'E7', title: 'endless output' }],
  async run(bench) {
    const result = await bench.run(`head -c ${OUTPUT} /dev/zero`, {
      policy: { limits: { outputBytes: OUTPUT_LIMIT } },
    });
    const kept = result.stdoutBytes?.length ?? Buffer.byteLength(result.stdout);
    return {
      E7: {
        stopped: kept <= OUTPUT_LIMIT,
        observed: `${kept} bytes kept, ${result.dropped.stdout} drained`,
        controlled: kept + result.dropped.stdout === OUTPUT,
        control: `all ${OUTPUT / MEBIBYTE} MiB were printed`,
      },
    };
  },
};

/** More open files than allowed. */
export const openFiles: Trial = {
  about: 'open files',
  needsShell: true,
  onHost: 'same',
  attacks: [{ id: 'E8', title: 'descriptors' }],
  async run(bench) {
    if (bench.processor === null) return { E8: { untried: `there is no probing program for ${process.arch}` } };
    const program = probingProgram(bench.processor, [
      { call: 'dup3', args: [1, 20, 0] },
      { call: 'dup3', args: [1, 200, 0] },
    ]);
    const script = `${placed('probe', bench.temporary)} && ${bench.temporary}/probe`;
    const policy = { limits: { openFiles: 64 } };
    const [inside, open] = await Promise.all([
      bench.run(script, { workspace: await bench.workspace({ probe: program }), policy }),
      bench.run(script, { workspace: await bench.workspace({ probe: program }), policy, without: 'open-files' }),
    ]);
    const [low, high] = answersIn(inside.stdout);
    const [, without] = answersIn(open.stdout);
    return {
      E8: {
        stopped: high !== undefined && high < 0n,
        observed: `${answerName(high)} beyond the limit of 64`,
        controlled: low === 20n && without === 200n,
        control: `${answerName(without)} with 1024`,
      },
    };
  },
};

// On a busy machine the first may be over before the program has begun to ignore anything.
const TIME_LIMITS_MS = [700, 5000] as const;
// The longest grace between the two signals, on a busy machine.
const GRACE_MS = 11_000;

/** A program that ignores the first signal. */
export const stubborn: Trial = {
  about: 'time',
  needsShell: true,
  onHost: 'same',
  attacks: [{ id: 'E9', title: 'ignores SIGTERM' }],
  async run(bench) {
    const script = `trap '' TERM; (sleep 30; true) & echo begun; kill -TERM $$; echo survived; while true; do sleep 1; done`;
    const attempt = (timeoutMs: number): Promise<RunResult> => bench.run(script, { policy: { timeoutMs } });
    const [short, long] = TIME_LIMITS_MS;
    const first = await attempt(short);
    const result = first.stdout.includes('survived') ? first : await attempt(long);
    const limit = result === first ? short : long;
    const ms = Math.round(result.durationMs);
    return {
      E9: {
        stopped: result.timedOut && ms < limit + GRACE_MS,
        observed: `dead after ${ms} ms`,
        controlled: result.stdout.includes('survived'),
        control: 'it survived a SIGTERM of its own',
      },
    };
  },
};
