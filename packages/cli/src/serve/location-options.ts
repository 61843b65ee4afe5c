// Location options: the part of a command line that is needed to find its server. The parser reads all of it later.

/** The options that say where a call runs. */
export interface Where {
  readonly workspace?: string;
  readonly config?: string;
  readonly socket?: string;
}

/** Options that take no value. All others do, so that a new one is at worst not understood here, and its call not served. */
export const WITHOUT_VALUE: readonly string[] = [
  '--json',
  '--verbose',
  '--no-color',
  '--mouse',
  '--readonly',
  '--fork',
  '--fork-copy',
  '--no-caches',
  '--deps',
  '--terminal',
  '--parallel',
];

const SERVED = ['run', 'sandbox exec', 'build', 'test'];
// The call that a server takes only from a process that cannot do it itself.
const SERVED_ON_REQUEST = 'sandbox create';
const WHERE = ['workspace', 'config', 'socket'] as const;
// Short options, and long ones that are answered without running anything, or need the terminal itself.
const ANSWERED = /^-(?!-)|^--(?:help|version)$|^--(?:in(?:=|$)|learn(?:=|$)|terminal$)|^--env-file(?:=|$)/;
// The value is in the caller’s environment, which a server does not have.
const INHERITS = /^--env=?([^=]*)$/;

type Found = { -readonly [Key in keyof Where]: Where[Key] };

/** Where a call of a command that runs something in a fresh sandbox runs; null for any other call, and for one that asks for help or names its sandbox. */
export function whereOf(argv: readonly string[]): Where | null {
  return whereOfAny(argv, SERVED);
}

/** Where a call runs that a server takes only from a process that cannot do it itself; null for any other call. */
export function whereOnRequest(argv: readonly string[]): Where | null {
  return whereOfAny(argv, [SERVED_ON_REQUEST]);
}

function whereOfAny(argv: readonly string[], served: readonly string[]): Where | null {
  const found: Found = {};
  const commands: string[] = [];
  const isWhole = (): boolean => served.includes(commands.join(' '));
  let at = 0;
  for (; at < argv.length && !endsOptions(argv[at] ?? '', isWhole()); at++) {
    const word = argv[at] ?? '';
    if (!word.startsWith('-')) commands.push(word);
    else if (isNotServed(word, argv[at + 1])) return null;
    else if (take(word, argv[at + 1], found)) at++;
  }
  return isWhole() && !namesSandbox(argv.slice(at)) ? found : null;
}

// What follows the command belongs to it.
function endsOptions(word: string, isWhole: boolean): boolean {
  return word === '--' || (!word.startsWith('-') && isWhole);
}

// What follows the command, or the sandbox that stands before its `--`.
function namesSandbox([first, ...rest]: readonly string[]): boolean {
  return first !== '--' && rest.includes('--');
}

function isNotServed(word: string, next = ''): boolean {
  if (ANSWERED.test(word)) return true;
  const [, name] = INHERITS.exec(word) ?? [];
  return name !== undefined && (name !== '' || !next.includes('='));
}

/** Whether an option took the next word for its value. */
function take(word: string, next: string | undefined, found: Found): boolean {
  const at = word.indexOf('=');
  const name = at < 0 ? word : word.slice(0, at);
  const takesNext = at < 0 && !WITHOUT_VALUE.includes(name);
  const key = WHERE.find(one => `--${one}` === name);
  if (key !== undefined) found[key] = takesNext ? (next ?? '') : word.slice(at + 1);
  return takesNext;
}
