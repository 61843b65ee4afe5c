// Whether one path lies in another: by segments, never by how its name begins. Pure, and the only such comparison there is.

import { isAbsolute, relative, sep } from 'node:path';

/** Whether `path` is `root` or lies below it. */
export function isWithin(path: string, root: string): boolean {
  // Hundreds of these stand before each command, nearly all of them between paths that are written as the kernel does.
  if (isPlain(path) && isPlain(root)) return isBelow(path, root);
  const way = relative(root, path);
  return way === '' || (way !== '..' && !way.startsWith(`..${sep}`) && !isAbsolute(way));
}

/** The same for paths that are known to be written as the kernel does: absolute, and with nothing in them that is not a name. */
export function isBelow(path: string, root: string): boolean {
  return path === root || root === '/' || path.startsWith(`${root}/`);
}

const DOTS = /\/\.\.?(?:\/|$)/;

// Absolute, and with nothing in it that stands for another segment, or for none.
function isPlain(path: string): boolean {
  if (!path.startsWith('/') || sep !== '/') return false;
  if (path === '/') return true;
  return !path.endsWith('/') && !path.includes('//') && !(path.includes('/.') && DOTS.test(path));
}
