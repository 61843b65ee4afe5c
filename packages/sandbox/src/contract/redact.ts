// Keeps secrets out of logs and saved output headers: what looks like one is replaced before it is written.

const MASK = '[redacted]';

const SHAPES: readonly RegExp[] = [
  // Known token shapes of widely used services.
  /\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,})/g,
  /\b(?:sk|pk|rk)-[A-Za-z0-9_-]{16,}/g,
  /\b(?:AKIA|ASIA)[A-Z0-9]{16}\b/g,
  /\bxox[abprs]-[A-Za-z0-9-]{10,}/g,
  /\bnpm_[A-Za-z0-9]{30,}/g,
  /(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,2000}\.[A-Za-z0-9_-]{8,4000}\.[A-Za-z0-9_-]+/g,
  /-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)/g,
];

// What makes a name that of a secret. Short words count only where they stand alone: a compass is no password.
const WORD = String.raw`(?:password|passwd|passphrase|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credential|(?<![a-z])pass(?![a-z])|[_-]pwd(?![a-z]))`;
// Bounded on both sides: an unbounded run before the word would make long arguments quadratic to search.
const NAME = String.raw`[A-Za-z0-9_.-]{0,40}${WORD}[A-Za-z0-9_.-]{0,40}`;
// A value given to a name that says it is secret: `--token x`, `TOKEN=x`, `"token": "x"`, `PASS='x y'`. What stands before
// the word is kept anyhow, so that it need not be searched for.
const VALUE = String.raw`(?:"(?:[^"\\]|\\.)*"?|'[^']*'?|[^\s"',;&]+)`;
const ASSIGNED = new RegExp(String.raw`(${WORD}[A-Za-z0-9_.-]{0,40}["']?\s{0,20}[=:]\s{0,20})${VALUE}`, 'gi');
const FLAG_VALUE = new RegExp(String.raw`((?<![A-Za-z0-9_.-])--?${NAME}\s{1,20})${VALUE}`, 'gi');
const FLAG = new RegExp(String.raw`^--?${NAME}$`, 'i');
// One word that is all assignment, `--token=x y` or `TOKEN=x,y`: whatever its value holds.
const ASSIGNMENT = new RegExp(String.raw`^(--?)?${NAME}=`, 'i');
const AUTHORIZATION = /(\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{6,}/gi;
// Headers that are nothing but a secret, to the end of the line or the quotes around them.
const HEADER = /(\b(?:proxy-)?(?:authorization|cookie)["']?\s{0,20}:\s{0,20}["']?)[^\s"'][^"'\r\n]{0,4000}/gi;
// `curl --user me:x`; two numbers are a user and a group.
const USER_FLAG = /^(?:-u|--user|--proxy-user)$/;
const USER_VALUE = /((?<![^\s"'])(?:-u|--user|--proxy-user)[\s=]["']?[^\s"':]{0,200}:)(?!\d+(?:["'\s]|$))[^\s"']+/g;
const USER_PAIR = /^([^:]{0,200}:)(?!\d+$).+/s;
const USERINFO = /((?<![a-z0-9+.-])[a-z][a-z0-9+.-]{0,20}:\/\/[^\s/:@]{0,200}:)[^\s/@]{1,500}(@)/gi;
// A user name that long is a token.
const LONE_USERINFO = /((?<![a-z0-9+.-])[a-z][a-z0-9+.-]{0,20}:\/\/)[^\s/:@]{20,500}(@)/gi;
const SECRET_KEY = new RegExp(`^${NAME}$`, 'i');

// Something of this is in every text that any of the above finds a secret in. Most texts have none of it.
const SUSPECT =
  /gh[pousr]_|github_pat_|glpat-|[spr]k-|AKIA|ASIA|xox|npm_|eyJ|-----BEGIN|authorization|cookie|bearer|basic|:\/\/|-u|pass|pwd|secret|token|key|credential/i;

// Most of a text that is logged: the search is linear, and a longer text helps no reader.
const MAX_LENGTH = 64 * 1024;
const SHOWN = 4 * 1024;
const MAX_WORDS = 64;

/** The text with everything that looks like a secret replaced, and cut where it is too long to be read. */
export function redact(text: string): string {
  const read = text.slice(0, MAX_LENGTH);
  const out = SUSPECT.test(read) ? masked(read) : read;
  return out.length <= SHOWN ? out : `${out.slice(0, SHOWN)}… (${text.length} characters)`;
}

function masked(text: string): string {
  let out = text;
  for (const shape of SHAPES) out = out.replaceAll(shape, MASK);
  return out
    .replaceAll(HEADER, `$1${MASK}`)
    .replaceAll(AUTHORIZATION, `$1${MASK}`)
    .replaceAll(USERINFO, `$1${MASK}$2`)
    .replaceAll(LONE_USERINFO, `$1${MASK}$2`)
    .replaceAll(USER_VALUE, `$1${MASK}`)
    .replaceAll(ASSIGNED, `$1${MASK}`)
    .replaceAll(FLAG_VALUE, `$1${MASK}`);
}

/** An argument vector with secrets replaced, also those that stand in the argument after their flag. */
export function redactArguments(argv: readonly string[]): string[] {
  const shown = argv.slice(0, MAX_WORDS).map((word, index) => redactWord(word, argv[index - 1] ?? ''));
  return argv.length <= MAX_WORDS ? shown : [...shown, `… (${argv.length} words)`];
}

function redactWord(word: string, before: string): string {
  if (FLAG.test(before)) return MASK;
  if (USER_FLAG.test(before) && USER_PAIR.test(word)) return word.slice(0, MAX_LENGTH).replace(USER_PAIR, `$1${MASK}`);
  const assignment = ASSIGNMENT.exec(word.slice(0, SHOWN));
  return assignment ? assignment[0] + MASK : redact(word);
}

/** Log fields with every string in them redacted, and every value under a secret-looking key replaced. */
export function redactFields(fields: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(fields).map(([key, item]) => [
      key,
      SECRET_KEY.test(key) && typeof item === 'string' ? MASK : redactValue(item),
    ]),
  );
}

function redactValue(value: unknown): unknown {
  if (typeof value === 'string') return redact(value);
  if (Array.isArray(value)) return redactList(value);
  if (value === null || typeof value !== 'object' || value instanceof Error) return value;
  return redactFields({ ...value });
}

function redactList(list: readonly unknown[]): unknown[] {
  const words = list.filter(item => typeof item === 'string');
  return words.length === list.length ? redactArguments(words) : list.map(redactValue);
}
