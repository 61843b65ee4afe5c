// The completion script of each shell.

import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import { bashScript } from './bash.ts';
import { fishScript } from './fish.ts';
import { vocabularyOf } from './vocabulary.ts';
import { zshScript } from './zsh.ts';

/** The script for one shell, about the commands below a root. */
export function completionScript(shell: 'bash' | 'zsh' | 'fish', root: CommandUnknownOpts): string {
  const vocabulary = vocabularyOf(root);
  if (shell === 'bash') return bashScript(vocabulary);
  return shell === 'zsh' ? zshScript(vocabulary) : fishScript(vocabulary);
}
