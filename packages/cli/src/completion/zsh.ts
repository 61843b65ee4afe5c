// Completion for zsh.

import type { Completable, Value } from './vocabulary.ts';

/** The script for zsh: a file `_acode` in $fpath, or sourced after compinit. */
export function zshScript(vocabulary: readonly Completable[]): string {
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
      *) _files; return ;;
    esac
  done
  case "$path_ $words[CURRENT-1]" in
${vocabulary.flatMap(valueCases).join('\n')}
  esac
  case "$path_" in
${vocabulary.map(wordCase).join('\n')}
  esac
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _acode "$@"; else compdef _acode acode; fi
`;
}

function valueCases({ path, options }: Completable): string[] {
  const lead = path === '' ? ' ' : ` ${path} `;
  return options.flatMap(({ flag, value }) =>
    value === null ? [] : [`    '${lead}${flag}') ${replies(value)}; return ;;`],
  );
}

function wordCase({ path, commands, options, argument }: Completable): string {
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

function replies(value: Value): string {
  if (value === 'file') return '_files';
  if (value === 'directory') return '_files -/';
  if (value === 'text') return ':';
  return `compadd -- ${value.join(' ')}`;
}
