// A workspace that the scan after a run cannot see all of, on however fast a machine: it has more directories than that scan visits.

import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const OUTER = 60;
const INNER = 70;

/** Something that git would run, where only a scan of everything comes: below more directories than a short one visits. */
export const DEEP_HOOK = `t/${OUTER - 1}/deep/.husky/pre-commit`;

/** A shell line that plants it. */
export const PLANT_HOOK = `mkdir -p t/${OUTER - 1}/deep/.husky && echo x > ${DEEP_HOOK}`;

/** Fills a workspace with more than 4,000 directories; with `files`, with more than 5,000 files as well. */
export function fillWorkspace(root: string, files: 'without files' | 'with files' = 'without files'): void {
  for (let outer = 0; outer < OUTER; outer += 1) {
    const directory = join(root, 't', String(outer));
    for (let inner = 0; inner < INNER; inner += 1) mkdirSync(join(directory, String(inner)), { recursive: true });
    if (files === 'with files') for (let file = 0; file < 85; file += 1) writeFileSync(join(directory, `f${file}`), '');
  }
}
