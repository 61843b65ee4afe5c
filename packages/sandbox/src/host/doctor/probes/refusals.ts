// How requests that must be refused are tried: each beside the honest one that must be accepted.

import type { Bench, RunOptions } from '../bench.ts';
import type { Outcome } from '../trial.ts';

/** A request, and the command it is for. */
export type Asked = RunOptions & { readonly command?: string | readonly string[] };

/** Asks for things that must be refused with one of `codes`, and for the honest twin. */
export async function refused(
  bench: Bench,
  codes: readonly string[],
  bad: readonly Asked[],
  honest: Asked,
): Promise<Outcome> {
  const [answers, twin] = await Promise.all([
    Promise.all(bad.map(asked => bench.refusal(asked))),
    bench.refusal(honest),
  ]);
  return {
    stopped: answers.every(code => code !== null && codes.includes(code)),
    observed: [...new Set(answers.map(code => code ?? 'accepted'))].join(', '),
    controlled: twin === null,
    control: twin === null ? 'the honest request is accepted' : `the honest request was refused: ${twin}`,
  };
}
