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
  '--readonly',
  '--no-caches',
  '--terminal',
  '--parallel',
];

const SERVED = ['run', 'sandbox exec', 'build', 'test'];
const WHERE = ['workspace', 'config', 'socket'] as const;
// Short options, and long ones that are answered without running anything, or need the terminal itself.
const ANSWERED = /^-(?!-)|^--(?:help|version)$|^--(?:in(?:=|$)|terminal$)/;

type Found = { -readonly [Key in keyof Where]: Where[Key] };

/** Where a call of a command that runs something in a fresh sandbox runs; null for any other call, and for one that asks for help or names its sandbox. */
export function whereOf(argv: readonly string[]): Where | null {
  const found: Found = {};
  const commands: string[] = [];
  for (let at = 0; at < argv.length; at++) {
    const word = argv[at] ?? '';
    const isOption = word.startsWith('-');
    // What follows the command belongs to it.
    if (word === '--' || (!isOption && isWhole(commands))) break;
    if (!isOption) commands.push(word);
    else if (ANSWERED.test(word)) return null;
    else if (take(word, argv[at + 1], found)) at++;
  }
  return isWhole(commands) ? found : null;
}

function isWhole(commands: readonly string[]): boolean {
  const called = commands.join(' ');
  return SERVED.includes(called);
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
