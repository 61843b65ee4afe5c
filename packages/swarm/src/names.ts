// Names of swarms, tasks, branches and variables: which are allowed, before anything is done with them.

/** Names of tasks: what remains of a file name without its ending. */
const TASK_NAME = /^[a-zA-Z0-9][a-zA-Z0-9_-]{0,39}$/;
const CONTAINER_NAME = /^acode-[a-zA-Z0-9][a-zA-Z0-9_-]*$/;
const MAX_CONTAINER_NAME = 63;
const BRANCH = /^[a-zA-Z0-9][a-zA-Z0-9/_-]*$/;
const MAX_BRANCH = 200;
const VARIABLE = /^[A-Z_][A-Z0-9_]{0,127}$/;
const MAX_VALUE = 32 * 1024;

// What programs obey before they do what they were asked for.
const LOADED = [
  /^LD_/,
  /^DYLD_/,
  /^NODE_/,
  /^(?:BASH_)?ENV$/,
  /^BASH_FUNC/,
  /^(?:PATH|HOME|SHELL|IFS|PS4|CDPATH|PROMPT_COMMAND|PYTHONSTARTUP|PYTHONPATH|PYTHONHOME|PERL5OPT|PERL5LIB|RUBYOPT|RUBYLIB)$/,
  /^JAVA_TOOL_OPTIONS$|^_JAVA_OPTIONS$|^JDK_JAVA_OPTIONS$/,
  /^GIT_/,
  /^ACODE_/,
];

/** Why a text is not the name of a task; null where it is. */
export function taskNameProblem(name: string): string | null {
  if (name.length > 40) return 'it is longer than 40 characters';
  return TASK_NAME.test(name)
    ? null
    : 'it begins with something else than a letter or digit, or has a character besides letters, digits, - and _';
}

/** The name of a task’s sandbox in messages and in the state file. */
export function containerName(swarmId: string, task: string): string {
  return `acode-${swarmId.slice(0, 8)}-${task.toLowerCase()}`;
}

/** Whether a text is the name of a task’s sandbox. */
export function isContainerName(text: string): boolean {
  return text.length <= MAX_CONTAINER_NAME && CONTAINER_NAME.test(text);
}

/** Why a text is not a branch for a task; null where it is. Stricter than git. */
export function branchProblem(name: string): string | null {
  if (name.length > MAX_BRANCH) return `it is longer than ${MAX_BRANCH} characters`;
  if (!BRANCH.test(name))
    return 'it begins with something else than a letter or digit, or has a character besides letters, digits, /, _ and -';
  if (name.split('/').some(part => part === '' || part.startsWith('-')))
    return 'a part of it is empty or begins with a dash';
  if (/^(?:refs|heads|tags|remotes)\//i.test(name)) return 'it begins like the full name of a ref';
  if (/(?:^|\/)(?:FETCH_|ORIG_|MERGE_)?HEAD$/i.test(name)) return 'git uses it for itself';
  return /^[0-9a-f]{7,64}$/i.test(name) ? 'it looks like the id of a commit' : null;
}

/** Why a variable is not allowed; null where it is. */
export function variableProblem(name: string, value: string): string | null {
  if (!VARIABLE.test(name)) return 'its name has something else than capital letters, digits and _';
  if (LOADED.some(pattern => pattern.test(name)))
    return 'programs obey this variable before they do what they were asked for';
  if (value.length > MAX_VALUE) return `its value is longer than ${MAX_VALUE} characters`;
  return /\$\(|`|\0/.test(value) ? 'its value has $(, ` or a zero byte' : null;
}

/** What a pattern of paths begins with before its first wildcard, by segments. */
function fixedPart(pattern: string): readonly string[] {
  const parts = pattern.split('/').filter(part => part !== '' && part !== '.');
  const wild = parts.findIndex(part => /[*?[{]/.test(part));
  return wild < 0 ? parts : parts.slice(0, wild);
}

/** Whether two lists of paths may name the same file. */
export function touchTheSame(one: readonly string[], other: readonly string[]): boolean {
  return one.some(left => other.some(right => isPrefix(fixedPart(left), fixedPart(right))));
}

function isPrefix(one: readonly string[], other: readonly string[]): boolean {
  const length = Math.min(one.length, other.length);
  return one.slice(0, length).every((part, at) => part === other[at]);
}
