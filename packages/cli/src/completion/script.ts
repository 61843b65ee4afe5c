// Completion scripts for bash, zsh and fish.

import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import { vocabularyOf } from './vocabulary.ts';
import type { Completable, CompletableOption, Value } from './vocabulary.ts';

/** The script for one shell, about the commands below a root. */
export function completionScript(
  shell: 'bash' | 'zsh' | 'fish',
  root: CommandUnknownOpts,
  known: Known = { keys: [], agents: [] },
): string {
  const vocabulary = vocabularyOf(root).map(one => {
    const argument = TAKES[one.path];
    return argument === undefined ? one : { ...one, argument: known[argument] };
  });
  if (shell === 'bash') return bashScript(vocabulary);
  return shell === 'zsh' ? zshScript(vocabulary) : fishScript(vocabulary);
}

/** Names that only the libraries know. */
interface Known {
  /** The keys of the configuration. */
  readonly keys: readonly string[];
  /** The agents, those of the user’s file among them. */
  readonly agents: readonly string[];
}

// Commands whose first argument is such a name.
const TAKES: Readonly<Partial<Record<string, keyof Known>>> = {
  'config get': 'keys',
  'config set': 'keys',
  'config unset': 'keys',
  agent: 'agents',
  'agent show': 'agents',
  'agent update': 'agents',
  login: 'agents',
  logout: 'agents',
};

/** The script for bash. */
function bashScript(vocabulary: readonly Completable[]): string {
  const valued = [...new Set(vocabulary.flatMap(({ options }) => options.filter(o => o.value).map(o => o.flag)))];
  return `# bash completion for acode: source <(acode completion bash)
_acode() {
  # bash takes words apart at = and :, as in --network allow=npm:install
  local -a words=()
  local word joined='' path='' i
  for ((i = 0; i <= COMP_CWORD; i++)); do
    word=\${COMP_WORDS[i]}
    if ((i > 1)) && [[ $joined || $word == [=:]* ]]; then words[\${#words[@]}-1]+=$word; else words+=("$word"); fi
    if [[ $word == *[=:] ]]; then joined=1; else joined=''; fi
  done
  local last=$((\${#words[@]} - 1))
  local current=\${words[last]} previous=\${words[last-1]}
  COMPREPLY=()
  _acode_replies
  # and completes only what follows the last of them.
  local before=\${current%"\${current##*[=:]}"}
  if [[ $before ]]; then COMPREPLY=("\${COMPREPLY[@]#"$before"}"); fi
}
_acode_replies() {
  for ((i = 1; i < last; i++)); do
    case \${words[i]} in
      --) compopt -o default; return ;;
      ${valued.join('|')}) ((i++)); continue ;;
      -*) continue ;;
    esac
    case "$path \${words[i]}" in
${vocabulary
  .filter(({ path }) => path !== '')
  .map(({ path }) => `      ' ${path}') path=' ${path}' ;;`)
  .join('\n')}
      ${operandsOf(vocabulary).map(quote).join('|')}) ;;
      *) compopt -o default; return ;;
    esac
  done
  case "$path $previous" in
${vocabulary.flatMap(valueCases).join('\n')}
  esac
  case "$path" in
${vocabulary.map(wordCase).join('\n')}
  esac
}
complete -F _acode acode
`;
}

// More keys of the configuration than this can stand behind a command; options do not follow them.
const MAX_OPERANDS = 20;

/** What can stand behind a command without being one: its options are still to come. */
function operandsOf(vocabulary: readonly Completable[]): string[] {
  return vocabulary.flatMap(({ path, argument }) =>
    argument.length > MAX_OPERANDS ? [] : argument.map(word => ` ${path} ${word}`),
  );
}

function valueCases({ path, options }: Completable): string[] {
  const lead = path === '' ? ' ' : ` ${path} `;
  return options.flatMap(({ flag, value }) =>
    value === null ? [] : [`    '${lead}${flag}') ${replies(value)}; return ;;`],
  );
}

function wordCase({ path, commands, options, argument }: Completable): string {
  const words = [...commands.map(({ name }) => name), ...argument].join(' ');
  const flags = options.map(({ flag }) => flag).join(' ');
  const pattern = path === '' ? `''` : `' ${path}'`;
  return `    ${pattern})
      if [[ $current == -* ]]; then COMPREPLY=($(compgen -W '${flags}' -- "$current"))
      else COMPREPLY=($(compgen -W '${words}' -- "$current")); fi ;;`;
}

function replies(value: Value): string {
  if (value === 'file') return 'compopt -o default';
  if (value === 'directory') return 'compopt -o dirnames';
  if (value === 'text') return ':';
  return `COMPREPLY=($(compgen -W '${value.join(' ')}' -- "$current"))`;
}

/** The script for fish. */
function fishScript(vocabulary: readonly Completable[]): string {
  const valued = [...new Set(vocabulary.flatMap(({ options }) => options.filter(o => o.value).map(o => o.flag)))];
  return `# fish completion for acode: acode completion fish > ~/.config/fish/completions/acode.fish
function __acode_at
  set -l path
  set -l skip no
  for word in (commandline -opc)[2..-1]
    if test $skip = yes
      set skip no
      continue
    end
    switch $word
      case ${valued.join(' ')}
        set skip yes
      case '-*'
        continue
      case '*'
        switch " $path $word"
          case ${operandsOf(vocabulary).map(quote).join(' ')}
            continue
        end
        set path $path $word
    end
  end
  test "$path" = "$argv"
end
complete -c acode -f
${vocabulary.flatMap(lines).join('\n')}
`;
}

function lines({ path, commands, options, argument }: Completable): string[] {
  const at = `complete -c acode -n ${quote(path === '' ? '__acode_at' : `__acode_at ${path}`)}`;
  return [
    ...commands.map(({ name, about }) => `${at} -a ${name} -d ${quote(about)}`),
    ...argument.map(word => `${at} -a ${word}`),
    ...options.map(option => `${at} -l ${option.flag.slice(2)} -d ${quote(option.about)}${valueOf(option)}`),
  ];
}

function valueOf({ value }: CompletableOption): string {
  if (value === null) return '';
  if (value === 'file') return ' -r -F';
  if (value === 'directory') return ` -x -a ${quote('(__fish_complete_directories)')}`;
  return value === 'text' ? ' -x' : ` -x -a ${quote(value.join(' '))}`;
}

function quote(text: string): string {
  return `'${text.replaceAll('\\', '\\\\').replaceAll("'", String.raw`\'`)}'`;
}

/** The script for zsh: a file `_acode` in $fpath, or sourced after compinit. */
function zshScript(vocabulary: readonly Completable[]): string {
  const valued = [...new Set(vocabulary.flatMap(({ options }) => options.filter(o => o.value).map(o => o.flag)))];
  return `#compdef acode
# zsh completion for acode
_acode() {
  local path_='' i
  local -a entries
  for ((i = 2; i < CURRENT; i++)); do
    case $words[i] in
      --) _files; return ;;
      ${valued.join('|')}) ((i++)); continue ;;
      -*) continue ;;
    esac
    case "$path_ $words[i]" in
${vocabulary
  .filter(({ path }) => path !== '')
  .map(({ path }) => `      ' ${path}') path_=' ${path}' ;;`)
  .join('\n')}
      ${operandsOf(vocabulary).map(quote).join('|')}) ;;
      *) _files; return ;;
    esac
  done
  case "$path_ $words[CURRENT-1]" in
${vocabulary.flatMap(zshValueCases).join('\n')}
  esac
  case "$path_" in
${vocabulary.map(zshWordCase).join('\n')}
  esac
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _acode "$@"; else compdef _acode acode; fi
`;
}

function zshValueCases({ path, options }: Completable): string[] {
  const lead = path === '' ? ' ' : ` ${path} `;
  return options.flatMap(({ flag, value }) =>
    value === null ? [] : [`    '${lead}${flag}') ${zshReplies(value)}; return ;;`],
  );
}

function zshWordCase({ path, commands, options, argument }: Completable): string {
  const words = [
    ...commands.map(({ name, about }) => entry(name, about)),
    ...argument.map(word => entry(word, '')),
  ].join(' ');
  const flags = options.map(({ flag, about }) => entry(flag, about)).join(' ');
  const pattern = path === '' ? `''` : `' ${path}'`;
  return `    ${pattern})
      if [[ $words[CURRENT] == -* ]]; then entries=(${flags}); _describe option entries
      else entries=(${words}); (( $#entries )) && _describe command entries; fi ;;`;
}

function entry(word: string, about: string): string {
  const text = about === '' ? word : `${word}:${about}`;
  return `'${text.replaceAll("'", String.raw`'\''`)}'`;
}

function zshReplies(value: Value): string {
  if (value === 'file') return '_files';
  if (value === 'directory') return '_files -/';
  if (value === 'text') return ':';
  return `compadd -- ${value.join(' ')}`;
}
