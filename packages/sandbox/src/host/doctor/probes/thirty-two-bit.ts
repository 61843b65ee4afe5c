// Group A through the gate of 32-bit programs, which a filter for one architecture closes by ending the process.

import type { Bench } from '../bench.ts';
import { answersIn, placed, probingProgram } from '../program.ts';
import { answerName } from '../system-calls.ts';
import type { Outcome, Trial, Untried } from '../trial.ts';

const script = ({ temporary }: Bench): string =>
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
      bench.run(script(bench), { workspace: await bench.workspace({ probe: program }) }),
      bench.run(script(bench), { workspace: await bench.workspace({ probe: program }), without: 'seccomp' }),
    ]);
    return { A9: outcome(inside.stdout, open.stdout, bench.contact.ownKernel) };
  },
};

function outcome(inside: string, open: string, ownKernel: boolean): Outcome | Untried {
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
