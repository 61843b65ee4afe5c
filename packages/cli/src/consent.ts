// Consent to what loosens the policy or applies changes of a fork: asked at a terminal, else given by --yes. Either way it is
// recorded.

import { readFileSync } from 'node:fs';
import type { Consent } from '@acode/sandbox';
import type { Call } from './call.ts';
import { UsageError } from './failure/usage.ts';
import { ask, canAsk } from './terminal/ask.ts';
import { oneLine } from './terminal/text.ts';
import { wrapped } from './terminal/wrap.ts';

/** What is to be agreed to. */
export interface Loosened {
  /** What loosens, such as `sandbox.network.allow_bridge: true`. */
  readonly what: string;
  /** What that allows, in one sentence. */
  readonly allows: string;
}

/** How consent is asked for. */
export interface Asking {
  /** What the person is to agree to, in lines that are ready to be printed. */
  readonly shown: () => string;
  readonly question: string;
}

/** What to do where there is no terminal to ask at. */
export const NOBODY_TO_ASK =
  'Run it at a terminal. If a person already agreed, add --yes: the audit log then records it, with the name of the calling program.';

const LOOSENS = 'This loosens the policy';

/** Asks for consent at a terminal; null where the person said no. */
export async function consentFor(call: Call, { shown, question }: Asking): Promise<Consent | null> {
  const text = shown();
  if (text !== '') await call.say(text);
  return (await ask(call.io, question, call.interruption.signal)) ? consentBy('terminal') : null;
}

/**
 * Asks for consent to what loosens the policy; null where the person said no. Without a terminal, or with --json, there is
 * nobody to ask: then it needs --yes.
 */
export async function consentTo(
  call: Call,
  loosened: readonly Loosened[],
  { question, yes, head = LOOSENS }: { readonly question: string; readonly yes: boolean; readonly head?: string },
): Promise<Consent | null> {
  if (yes) return consentBy('option');
  const { bold, yellow } = call.errorLook.colours;
  if (!canAsk(call.io) || call.options.json) {
    const what = loosened.map(one => oneLine(`${one.what} (${one.allows.replace(/\.$/, '')})`)).join('; ');
    throw new UsageError(`${head}, and there is no terminal to ask at: ${what}.`, NOBODY_TO_ASK);
  }
  const room = call.errorLook.width === null ? null : call.errorLook.width - 4;
  const lines = loosened.flatMap(({ what, allows }) => [
    `  ${bold(oneLine(what))}`,
    ...wrapped(oneLine(allows), room).map(line => `    ${line}`),
  ]);
  const shown = (): string => `${yellow(bold(`${head}:`))}\n${lines.join('\n')}\n`;
  return consentFor(call, { shown, question });
}

/** Consent that was given, with the name of the program that called this one. */
export function consentBy(how: Consent['how']): Consent {
  return { how, parent: parentName() };
}

/** The name of the program that called this one; null where it cannot be known. */
function parentName(pid = process.ppid): string | null {
  try {
    return oneLine(readFileSync(`/proc/${pid}/comm`, 'utf8').trim()).slice(0, 64);
  } catch {
    return null;
  }
}
