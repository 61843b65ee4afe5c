// What the command line parser complains about, as a usage error with the way to say it right.

import type { CommanderError } from '@commander-js/extra-typings';
import { UsageError } from './usage.ts';

/** The usage error for a complaint about what followed `called`. `help` is the help text, where that was the answer. */
export function usageErrorFor(complaint: CommanderError, called: string, help: string): UsageError {
  const seeHelp = `\`${called} --help\` shows how it is used.`;
  if (complaint.code === 'commander.help') return new UsageError(`\`${called}\` needs a command.`, seeHelp, help);
  const [first = '', ...rest] = complaint.message.replace(/^error: /, '').split('\n');
  const suggestion = rest.join(' ').replace(/^\((.*)\)$/, '$1');
  // The parser’s own sentence ends before what an argument’s file says was expected.
  const [what = '', expected] = first.split(/(?<= is invalid)\. /, 2);
  return new UsageError(
    sentence(what),
    [expected, suggestion, expected === undefined && suggestion === '' ? seeHelp : undefined]
      .filter(part => part !== undefined && part !== '')
      .join(' '),
  );
}

function sentence(text: string): string {
  const begun = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.?!]$/.test(begun) ? begun : `${begun}.`;
}
