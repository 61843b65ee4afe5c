// A failure for a person: what happened, the details, and what to do next. Never a stack trace.

import { inOptions } from '../arguments/option-names.ts';
import type { Look } from '../terminal/look.ts';
import { oneLine } from '../terminal/text.ts';
import type { FailureReport } from './report.ts';

/** The lines about a failure. With `verbose`, what lay behind it too. */
export function renderFailure(report: FailureReport, look: Look, verbose: boolean): string {
  const { bold, cyan, dim, red } = look.colours;
  const lines = [`${red(bold('acode:'))} ${oneLine(inOptions(report.message))}`];
  for (const [name, value] of details(report, verbose)) lines.push(`${dim(`├▶ ${name}:`)} ${oneLine(value)}`);
  lines.push(`${dim('╰▶')} ${cyan('hint:')} ${oneLine(inOptions(report.hint))}`);
  return `${lines.join('\n')}\n`;
}

function details(report: FailureReport, verbose: boolean): (readonly [name: string, value: string])[] {
  const { code, context, correlationId, message, hint, causes } = report;
  return [
    ['code', code] as const,
    ...Object.entries(context).flatMap(([name, value]) => {
      const text = plain(value);
      // Message and hint name most of the circumstances already.
      return text === null || text === '' || message.includes(text) || hint.includes(text)
        ? []
        : [[name, text] as const];
    }),
    ...(correlationId === null ? [] : [['correlation id', correlationId] as const]),
    ...(verbose ? causes.map(cause => ['cause', cause] as const) : []),
  ];
}

// Yes and no are for programs: message and hint say what follows from them.
function plain(value: unknown): string | null {
  if (typeof value === 'string') return value;
  return typeof value === 'number' ? String(value) : null;
}
