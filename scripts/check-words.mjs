// Refuses the retired identifiers that docs/glossary.md lists, in sources, tests and scripts.
// @ts-check

import { readFileSync, readdirSync } from 'node:fs';
import { join, sep } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const PAGE = join(ROOT, 'docs/glossary.md');
const PLACES = [
  'packages/sandbox/src',
  'packages/sandbox/reaper',
  'packages/agents/src',
  'packages/swarm/src',
  'packages/fleet/src',
  'packages/cli/src',
  'tests',
  'scripts',
  'bench',
];
const HEADING = '## Retired identifiers';

/**
 * What the page retires: whole identifiers, or with `*` the beginnings of them.
 *
 * @returns {[retired: RegExp, use: string][]}
 */
function retired() {
  const rows =
    readFileSync(PAGE, 'utf8')
      .split(HEADING)[1]
      ?.matchAll(/^\| (`.*`)\s+\| `(.*)`\s+\|$/gm) ?? [];
  return [...rows].flatMap(([, names = '', use = '']) =>
    [...names.matchAll(/`([^`]+)`/g)].map(
      ([, name = '']) =>
        /** @type {[RegExp, string]} */ ([
          new RegExp(`\\b${name.replace('*', '(?=[A-Z])')}${name.endsWith('*') ? '' : '\\b'}`),
          use,
        ]),
    ),
  );
}

/** @param {string} directory */
function filesBelow(directory) {
  return readdirSync(join(ROOT, directory), { recursive: true, encoding: 'utf8' })
    .map(name => `${directory}/${name.split(sep).join('/')}`)
    .filter(name => /\.(?:ts|mjs)$/.test(name));
}

const words = retired();
if (words.length === 0) throw new Error('docs/glossary.md lists no retired identifier');
const complaints = PLACES.flatMap(filesBelow).flatMap(file =>
  readFileSync(join(ROOT, file), 'utf8')
    .split('\n')
    .flatMap((line, at) =>
      words
        .filter(([name]) => name.test(line))
        .map(([, use]) => `${file}:${at + 1}: retired, use ${use}: ${line.trim()}`),
    ),
);
for (const complaint of complaints) console.error(complaint);
if (complaints.length > 0) process.exitCode = 1;
else console.log(`words: ${words.length} retired identifiers, none in use`);
