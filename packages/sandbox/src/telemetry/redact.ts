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

// Bounded on both sides: an unbounded run before the word would make long arguments quadratic to search.
const NAME = String.raw`[A-Za-z0-9_.-]{0,40}(?:password|passwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credential)[A-Za-z0-9_.-]{0,40}`;
// A value given to a name that says it is secret: `--token x`, `TOKEN=x`, `"token": "x"`.
const ASSIGNED = new RegExp(String.raw`(${NAME}["']?\s*[=:]\s*["']?)([^\s"',;&]+)`, 'gi');
const FLAG_VALUE = new RegExp(String.raw`(--?${NAME}\s+)([^\s"']+)`, 'gi');
const FLAG = new RegExp(String.raw`^--?${NAME}$`, 'i');
const AUTHORIZATION = /(\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{6,}/gi;
const USERINFO = /((?<![a-z0-9+.-])[a-z][a-z0-9+.-]{0,20}:\/\/[^\s/:@]{0,200}:)[^\s/@]{1,500}(@)/gi;
const SECRET_KEY = new RegExp(`^${NAME}$`, 'i');

// What is logged of a text at most: searching is linear, and still nobody reads more.
const LONGEST = 64 * 1024;
const SHOWN = 4 * 1024;
const MOST_WORDS = 64;

/** The text with everything that looks like a secret replaced, and cut where it is too long to be read. */
export function redact(text: string): string {
  let out = text.slice(0, LONGEST);
  for (const shape of SHAPES) out = out.replaceAll(shape, MASK);
  out = out
    .replaceAll(AUTHORIZATION, `$1${MASK}`)
    .replaceAll(USERINFO, `$1${MASK}$2`)
    .replaceAll(ASSIGNED, `$1${MASK}`)
    .replaceAll(FLAG_VALUE, `$1${MASK}`);
  return out.length <= SHOWN ? out : `${out.slice(0, SHOWN)}… (${text.length} characters)`;
}

/** An argument vector with secrets replaced, also those that stand in the argument after their flag. */
export function redactArguments(argv: readonly string[]): string[] {
  const shown = argv
    .slice(0, MOST_WORDS)
    .map((argument, index) => (index > 0 && FLAG.test(argv[index - 1] ?? '') ? MASK : redact(argument)));
  return argv.length <= MOST_WORDS ? shown : [...shown, `… (${argv.length} words)`];
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
