// Completion for fish.

import type { Completable, CompletableOption } from './vocabulary.ts';

/** The script for fish. */
export function fishScript(vocabulary: readonly Completable[]): string {
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
