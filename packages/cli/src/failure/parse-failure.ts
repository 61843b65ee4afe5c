// Parse failures: errors of the command line parser as usage errors with the correct form.

import { isNear } from '@acode/agents';
import type { CommanderError } from '@commander-js/extra-typings';
import { EXAMPLES } from '../examples.ts';
import { UsageError } from './usage.ts';

const NOT_NEEDED = 'Leave it out: every sandbox is removed automatically when its command ends.';
const DRY_RUN = 'Without running anything: `acode explain -- …`.';
const KILL = 'Did you mean `acode sandbox kill <id>`? It stops a sandbox and removes it.';
const NO_GPU = 'A sandbox has no access to GPUs.';

// Options and commands that are not there, for a reason, and what to say in their place.
const INSTEAD: Readonly<Record<string, string>> = {
  'acode sandbox create --env':
    'Variables are each command’s own: `acode sandbox exec --in <sandbox> --env NAME=value -- …`.',
  'acode sandbox create --workdir':
    'The directory is each command’s own: `acode sandbox exec --in <sandbox> --workdir <directory> -- …`.',
  'acode run --in': 'In a persistent sandbox: `acode sandbox exec --in <sandbox> -- …`.',
  'acode run --rm': NOT_NEEDED,
  'acode sandbox exec --rm': NOT_NEEDED,
  'acode run --dry-run': DRY_RUN,
  'acode sandbox exec --dry-run': DRY_RUN,
  'acode sandbox rm': KILL,
  'acode sandbox stop': KILL,
  'acode sandbox delete': KILL,
  'acode exec': 'To run one command: `acode run`. To run one in a persistent sandbox: `acode sandbox exec --in <id>`.',
  'acode version': 'Did you mean `acode --version`?',
  'acode diff': 'Did you mean `acode fork diff`?',
  'acode apply': 'Did you mean `acode fork apply`?',
  'acode fork run': 'To run a command in a fork: `acode run --fork -- <command>`.',
  'acode egress list':
    'What was refused and can be allowed: `acode egress pending`. Every connection: `acode egress log`.',
  'acode --fork': 'Write it after the command it is for: `acode run --fork -- …`.',
  'acode --network': 'Write it after the command it is for: `acode run --network allow=… -- …`.',
  'acode run --for': 'A persistent sandbox: `acode sandbox create --for <time>`; --timeout limits a run.',
};
// Options that exclude each other, and how to choose.
const CONFLICTS: Readonly<Record<string, string>> = {
  '--fork --readonly':
    'Either protects your files. With --fork the command writes to a copy, with --readonly it writes nothing: leave out the one you do not want.',
  '--fork --deps':
    'The dependencies of a project image cannot be mounted into a fork. To have the dependencies, leave --fork out; to have the fork, leave --deps out.',
  '--disk-hard --disk':
    'Both set the disk limit of the fork. --disk stops the command soon after, --disk-hard lets its writes fail.',
};
// Commands that take no arguments, and what one with arguments was probably meant to be.
const EXCESS: Readonly<Record<string, string>> = {
  'commander.excessArguments acode mcp': 'Another MCP server in a sandbox: `acode mcp wrap -- <program> [arguments…]`.',
};
// Options of other tools, and what has the same meaning here.
const KNOWN_ELSEWHERE: Readonly<Record<string, string>> = {
  '-e': '--env',
  '-m': '--memory',
  '-p': '--publish',
  '-u': '--user',
  '-v': '--mount',
  '-w': '--workdir',
  '--volume': '--mount',
  '--ttl': '--for',
  '--net': '--network',
  '--allow': '--network allow=<hosts>',
  '--allow-net': '--network allow=<hosts>',
  '--allow-network': '--network allow=<hosts>',
  '--allowed-hosts': '--network allow=<hosts>',
};
const TERMINAL = ['-i', '-t', '-it', '-ti', '--interactive', '--tty'];
const MISSING = ['commander.missingArgument', 'commander.missingMandatoryOptionValue'];

/** What a complaint is about. */
export interface Complained {
  /** What the user called, as far as it is known. */
  readonly called: string;
  /** The help text, where that was the answer. */
  readonly help: string;
  /** What is called by a word that is no command here, such as `acode sandbox pull` for `pull`. */
  readonly elsewhere: (word: string) => string | null;
  /** The options of the command that was called. */
  readonly options: readonly string[];
}

/** The usage error for a complaint of the parser’s. */
export function usageErrorFor(complaint: CommanderError, about: Complained): UsageError {
  const { called, help, elsewhere } = about;
  const seeHelp = `\`${called} --help\` shows how it is used.`;
  if (complaint.code === 'commander.help') return new UsageError(`\`${called}\` needs a command.`, seeHelp, help);
  // What the parser is given for `--fork` has the value that stands for it.
  const said = complaint.message.replace(/^error: /, '').replace("'--fork=current'", "'--fork'");
  const [first = '', ...rest] = said.split('\n');
  const instead = insteadOf(complaint, first, about);
  const [, option] = /^unknown option '([^'=]*)/.exec(first) ?? [];
  if (instead !== null) return new UsageError(sentence(first), instead, '', option);
  const meant = elsewhere(/^unknown command '([^']*)'/.exec(first)?.[1] ?? '');
  const suggestion = meant === null ? rest.join(' ').replace(/^\((.*)\)$/, '$1') : `Did you mean \`${meant}\`?`;
  // The parser’s own sentence ends before what an argument’s file says was expected.
  const [what = '', expected] = first.split(/(?<= is invalid(?: for argument '[^']*')?)\. /, 2);
  const parts = [choiceMeant(what, expected), expected, suggestion].filter(part => part !== undefined && part !== '');
  return new UsageError(sentence(what), parts.length === 0 ? seeHelp : parts.join(' '), '', option);
}

// `Allowed choices are claude, codex.`, for a value that is near one of them.
function choiceMeant(what: string, expected = ''): string | undefined {
  const [, value = ''] = /'([^']*)' is invalid/.exec(what) ?? [];
  const [, choices] = /^Allowed choices are (.*)\.$/.exec(expected) ?? [];
  const meant = choices?.split(', ').find(one => isNear(one, value));
  return meant === undefined ? undefined : `Did you mean ${meant}?`;
}

// What is missing is best shown by an example that has it.
function insteadOf({ code }: CommanderError, first: string, about: Complained): string | null {
  const { called } = about;
  const [example] = EXAMPLES[called] ?? [];
  if (MISSING.includes(code)) return example ? `Write it as in \`${example.type}\`.` : null;
  if (code === 'commander.conflictingOption') return choiceBetween(first);
  const unknown = /^unknown (?:option|command) '([^'=]*)/.exec(first)?.[1] ?? '';
  if (/^--gpus?$/.test(unknown)) return NO_GPU;
  return INSTEAD[`${called} ${unknown}`] ?? EXCESS[`${code} ${called}`] ?? sameAs(unknown, about);
}

// What excludes each other, as the parser names it: `option '--fork [name]' cannot be used with option '--deps'`.
function choiceBetween(first: string): string {
  const names = [...first.matchAll(/'(--[\w-]+)/g)].map(([, name]) => name);
  return CONFLICTS[names.join(' ')] ?? 'Leave one of the two out.';
}

// What is written without a space after a short option is its value.
function sameAs(option: string, { called, options }: Complained): string | null {
  if (TERMINAL.includes(option) && options.includes('--terminal'))
    return `For a program that needs a terminal: \`${called} -t -- <program>\`. -i is not needed: from a pipe or a file, standard input is passed on without an option. For a shell: \`acode sandbox shell\`.`;
  if (TERMINAL.includes(option) && options.includes('--image'))
    return '`acode sandbox shell` has a terminal inside; from a pipe or a file, standard input is passed on without an option.';
  const name = option.startsWith('--') ? option : option.slice(0, 2);
  const [, meant] = Object.entries(KNOWN_ELSEWHERE).find(([known]) => known === name) ?? [];
  if (meant === undefined) return null;
  return options.includes(meant.replace(/ .*/, ''))
    ? `Did you mean ${meant}?`
    : (INSTEAD[`${called} ${meant}`] ?? null);
}

function sentence(text: string): string {
  const begun = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.?!]$/.test(begun) ? begun : `${begun}.`;
}
