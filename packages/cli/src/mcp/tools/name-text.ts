// A name or path in a line of acode’s: in quotes unless it is plain, and in one line, whoever chose it.

import { quoted } from '../../arguments/command-words.ts';
import { oneLine } from '../../terminal/text.ts';

/** The name as a line may hold it. */
export function nameText(name: string): string {
  return quoted(oneLine(name));
}
