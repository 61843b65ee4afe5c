// Whether one path lies in another: by segments, never by how its name begins. Pure, and the only such comparison there is.

import { isAbsolute, relative, sep } from 'node:path';

/** Whether `path` is `root` or lies below it. */
export function isWithin(path: string, root: string): boolean {
  const way = relative(root, path);
  return way === '' || (way !== '..' && !way.startsWith(`..${sep}`) && !isAbsolute(way));
}
