// The answer to `acode egress test`, for a person.

import type { AccessAnswer, PolicyInput } from '@acode/sandbox';
import type { Call } from '../call.ts';
import { OPTION_TERMS } from '../arguments/option-names.ts';
import type { Look } from '../terminal/look.ts';
import { fields } from '../terminal/table.ts';

const REFUSED = 1;

/** Tests a request, and says what would become of it. */
export async function testAccess(
  call: Call,
  target: string,
  options: {
    readonly network?: PolicyInput['network'];
    readonly method: string;
    readonly connect?: true | undefined;
  },
): Promise<number> {
  const { network, method, connect = false } = options;
  const { signal } = call.interruption;
  const question = { target, method, connect, signal, ...(network === undefined ? {} : { network }) };
  const asking = call.withObserver(observer => observer.network.test(question));
  const answer = await (connect ? call.progress.during('Connecting…', asking) : asking);
  await call.print('acode.egress-test/1', answer, look => renderAnswer(answer, look));
  return answer.allowed ? 0 : REFUSED;
}

/** The answer for a person: verdict first, then who decided. */
export function renderAnswer(answer: AccessAnswer, look: Look): string {
  const { allowed, text, rule, setBy, reason, list, network, entry, addresses, inspected } = answer;
  const { bold, green, red } = look.colours;
  const verdict = allowed ? green(bold('allowed')) : red(bold('refused'));
  const listed = network === 'allow' ? `allow=${list.join(',')}` : network;
  return `${verdict}\n${fields(
    [
      ['Place', `${answer.host}:${answer.port}`],
      ['Network', listed],
      ...(rule === undefined ? [] : [['Rule', rule] as const]),
      ...(reason === undefined ? [] : [['Reason', reason] as const]),
      ['Set by', OPTION_TERMS.source(setBy)],
      ...(allowed && inspected ? [['Requests', 'inspected'] as const] : []),
      ...(addresses === undefined || addresses.length === 0 ? [] : [['Addresses', addresses.join(', ')] as const]),
      ['What', text],
      ...(entry === undefined ? [] : [['For good', `acode config set --add sandbox.network.allow ${entry}`] as const]),
    ],
    look,
  )}`;
}
