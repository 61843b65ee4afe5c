// Puts rows of the long test suite into their table: a row that was there is replaced, the others stay as they were.
// Usage: results.mjs FILE TITLE < rows

import { existsSync, readFileSync, writeFileSync } from 'node:fs';

const [file, title] = process.argv.slice(2);
const isRow = line => /^\| (?!what |-)/.test(line);
const nameOf = line => line.split(' | ')[0];
const rows = new Map();
const known = existsSync(file) ? readFileSync(file, 'utf8').split('\n') : [];
for (const line of [...known, ...readFileSync(0, 'utf8').split('\n')]) if (isRow(line)) rows.set(nameOf(line), line);

const about = 'Written by `npm run ci:long`. Each row names the commit it was shown for.';
const head = '| what | outcome | figures | took | commit |\n|---|---|---|---|---|';
writeFileSync(file, `# ${title}\n\n${about}\n\n${head}\n${[...rows.values()].join('\n')}\n`);
