// Caches of package managers on the command line: `npm,pip`.

import { CACHE_TOOLS } from '@acode/sandbox';
import type { CacheTool } from '@acode/sandbox';
import { InvalidArgumentError } from '@commander-js/extra-typings';

/** The tools that a list with commas names. */
export function caches(text: string): readonly CacheTool[] {
  return text.split(',').map(word => {
    const tool = CACHE_TOOLS.find(name => name === word.trim());
    if (tool === undefined)
      throw new InvalidArgumentError(`Expected some of ${CACHE_TOOLS.join(', ')}, with commas between.`);
    return tool;
  });
}
