// Notice: the one layout of errors, denials, limits and hints on a terminal and in a pipe.

import type { Look } from './look.ts';
import { oneLine } from './text.ts';

/** What acode has to say about a failure or a run. */
export interface Notice {
  /** What happened, in one sentence. */
  readonly text: string;
  /** Circumstances, by name. */
  readonly details?: readonly (readonly [name: string, value: string])[];
  /** What to do next. */
  readonly hint?: string;
  /** Lines to paste as they are, such as YAML: they stand below the hint and are never wrapped. */
  readonly paste?: readonly string[];
}

// Far enough in that it is neither taken for a message of acode’s nor wrapped.
const PASTED = '    ';

/** The lines of a notice: `acode: …`, then `├▶ name: value`, then `╰▶ hint: …`. */
export function renderNotice(notice: Notice, { colours }: Look, mark: (text: string) => string): string {
  const { cyan, dim } = colours;
  const { hint, paste = [] } = notice;
  const lines = [
    `${mark('acode:')} ${oneLine(notice.text)}`,
    ...(notice.details ?? []).map(([name, value]) => `${dim(`├▶ ${name}:`)} ${oneLine(value)}`),
    ...(hint === undefined ? [] : [`${dim('╰▶')} ${cyan('hint:')} ${oneLine(hint)}`]),
    ...paste.map(line => `${PASTED}${oneLine(line)}`),
  ];
  return `${lines.join('\n')}\n`;
}
