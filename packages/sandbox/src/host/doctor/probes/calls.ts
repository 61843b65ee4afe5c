// Group A by raw system calls: the ways into the kernel that the filter closes, and those that several layers close.

import type { RunResult } from '../../../contract/result.ts';
import type { Bench } from '../bench.ts';
import { answersIn, placed, probingProgram } from '../program.ts';
import { answerName } from '../system-calls.ts';
import type { Outcome, Outcomes, Trial, Untried } from '../trial.ts';
import { CALLS } from './call-table.ts';
import type { CallAttack } from './call-table.ts';

const script = ({ temporary }: Bench): string => `${placed('probe', temporary)} && echo ready | ${temporary}/probe`;

/** Raw system calls, each against the same call in a sandbox without the filter. */
export const systemCalls: Trial = {
  about: 'system calls',
  needsShell: true,
  attacks: CALLS.map(({ id, title }) => ({ id, title })),
  async run(bench) {
    return tried(bench, CALLS);
  },
  // On this host itself only calls whose arguments the kernel refuses once it has let them in.
  async onHost(bench) {
    const harmless = CALLS.flatMap(attack => {
      const steps = attack.steps.filter(({ unfiltered }) => unfiltered);
      return steps.length > 0 ? [{ ...attack, steps }] : [];
    });
    const rest = CALLS.map(({ id }) => [id, { open: KERNEL_ALONE }] as const);
    return { ...Object.fromEntries(rest), ...(await tried(bench, harmless)) };
  },
};

const KERNEL_ALONE =
  'this level adds nothing to what the kernel refuses an ordinary user; not tried, since it would be on this host itself';

async function tried(bench: Bench, attacks: readonly CallAttack[]): Promise<Outcomes> {
  const { processor } = bench;
  if (processor === null) return all(attacks, `there is no probing program for ${process.arch}`);
  const program = probingProgram(
    processor,
    attacks.flatMap(({ steps, twin }) => [...steps, twin]),
  );
  const files = { probe: program };
  const [filtered, open] = await Promise.all([
    bench.run(script(bench), { workspace: await bench.workspace(files) }),
    bench.run(script(bench), { workspace: await bench.workspace(files), without: 'seccomp' }),
  ]);
  return outcomes(bench, attacks, filtered, open);
}

function all(attacks: readonly CallAttack[], untried: string): Record<string, Untried> {
  return Object.fromEntries(attacks.map(({ id }) => [id, { untried }]));
}

function outcomes(
  bench: Bench,
  attacks: readonly CallAttack[],
  filtered: RunResult,
  open: RunResult,
): Record<string, Outcome> {
  const inside = answersIn(filtered.stdout);
  const without = answersIn(open.stdout);
  const found: Record<string, Outcome> = {};
  let at = 0;
  for (const attack of attacks) {
    const end = at + attack.steps.length;
    found[attack.id] = outcome(
      attack,
      { answers: inside.slice(at, end), without: without.slice(at, end), twin: inside[end] },
      bench.contact.ownKernel,
    );
    at = end + 1;
  }
  return found;
}

interface Answers {
  readonly answers: readonly bigint[];
  readonly without: readonly bigint[];
  readonly twin: bigint | undefined;
}

function outcome(attack: CallAttack, { answers, without, twin }: Answers, ownKernel: boolean): Outcome {
  const { steps, twinText } = attack;
  const names = steps.map((_, index) => answerName(answers[index]));
  const twinWorks = twin !== undefined && twin >= 0n;
  const refused = names.every(name => name !== 'ok' && name !== 'no answer');
  const heard = names.every(name => name !== 'no answer');
  if (ownKernel) {
    const effect = refused ? '' : ' by a kernel of the sandbox’s own; the host’s never sees it';
    return { stopped: heard, observed: summary(names) + effect, controlled: twinWorks, control: twinText };
  }
  const openNames = steps.map((_, index) => answerName(without[index]));
  const shown = steps.flatMap(({ unfiltered }, index) => (unfiltered ? [index] : []));
  if (shown.length === 0)
    return { stopped: refused, observed: summary(names), controlled: twinWorks, control: twinText };
  // Only the filter can have given an answer that the kernel does not give to these arguments.
  const byFilter = shown.every(index => ['EPERM', 'ENOSYS'].includes(names[index] ?? ''));
  const seen = shown.map(index => openNames[index] ?? '');
  const differs = shown.every(index => steps[index]?.unfiltered?.includes(openNames[index] ?? ''));
  return {
    stopped: refused && byFilter,
    observed: summary(names),
    controlled: differs && twinWorks,
    control: `${summary(seen)} without the filter`,
  };
}

function summary(names: readonly string[]): string {
  return [...new Set(names)].join(', ');
}

const thirtyTwoBitScript = ({ temporary }: Bench): string =>
  `${placed('probe', temporary)} && { ${temporary}/probe; echo "status $?"; } 2>&1`;
const AF_VSOCK = 40;
const SYS_SOCKET = 1;

/** A vsock socket by int 0x80. */
export const thirtyTwoBit: Trial = {
  about: '32-bit system calls',
  needsShell: true,
  onHost: 'same',
  attacks: [{ id: 'A9', title: 'vsock through i386 (int 0x80)' }],
  async run(bench) {
    if (bench.processor !== 'x86_64') return { A9: { untried: 'this processor has no gate for 32-bit x86 programs' } };
    const words = new Uint8Array(new Uint32Array([AF_VSOCK, 1, 0]).buffer);
    const program = probingProgram(bench.processor, [
      { call: 'getpid', args: [] },
      { call: 'socketcall', args: [SYS_SOCKET, words], as32Bit: true },
    ]);
    const [inside, open] = await Promise.all([
      bench.run(thirtyTwoBitScript(bench), { workspace: await bench.workspace({ probe: program }) }),
      bench.run(thirtyTwoBitScript(bench), {
        workspace: await bench.workspace({ probe: program }),
        without: 'seccomp',
      }),
    ]);
    return { A9: thirtyTwoBitOutcome(inside.stdout, open.stdout, bench.contact.ownKernel) };
  },
};

function thirtyTwoBitOutcome(inside: string, open: string, ownKernel: boolean): Outcome | Untried {
  const [started, answer] = answersIn(inside);
  const [, unfiltered] = answersIn(open);
  const status = /status (\d+)/.exec(inside)?.[1] ?? 'unknown';
  const ended = answer === undefined;
  if (!ownKernel && unfiltered === undefined) return { untried: 'this kernel runs no 32-bit programs' };
  return {
    stopped: ended || (ownKernel && answer < 0n),
    observed: ended ? `killed (status ${status})` : answerName(answer),
    controlled: started !== undefined && started > 0n,
    control: ownKernel ? 'getpid works' : `${answerName(unfiltered)} without the filter`,
  };
}
