// Completion for bash.

import type { Completable, Value } from './vocabulary.ts';

/** The script for bash. */
export function bashScript(vocabulary: readonly Completable[]): string {
  const valued = [...new Set(vocabulary.flatMap(({ options }) => options.filter(o => o.value).map(o => o.flag)))];
  return `# bash completion for acode: source <(acode completion bash)
_acode() {
  local current=\${COMP_WORDS[COMP_CWORD]} previous=\${COMP_WORDS[COMP_CWORD-1]} path='' i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    case \${COMP_WORDS[i]} in
      --) compopt -o default; return ;;
      ${valued.join('|')}) ((i++)); continue ;;
      -*) continue ;;
    esac
    case "$path \${COMP_WORDS[i]}" in
${vocabulary
  .filter(({ path }) => path !== '')
  .map(({ path }) => `      ' ${path}') path=' ${path}' ;;`)
  .join('\n')}
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
