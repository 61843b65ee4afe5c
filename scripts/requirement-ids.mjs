// Writes docs/requirements.ids from the requirements matrix: one line per row, so that no id can be left out by hand.
//
//     node scripts/requirement-ids.mjs <path of the matrix>
//
// The matrix is a Markdown page whose rows stand between `<!-- matrix:begin -->` and `<!-- matrix:end -->`; the first cell of a row
// holds its ids. `npm run docs:check` needs the written file only.
// @ts-check

import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const IDS = fileURLToPath(new URL('../docs/requirements.ids', import.meta.url));

/**
 * The file for these rows. The hash is of the rows, so that a change by hand shows.
 *
 * @param {readonly string[]} rows
 */
export function idsFile(rows) {
  const ids = rows.flatMap(row => row.split(' '));
  const text = rows.map(row => `${row}\n`).join('');
  const hash = createHash('sha256').update(text).digest('hex');
  return `# ${rows.length} rows, ${ids.length} ids, sha256 ${hash}. Written by scripts/requirement-ids.mjs.\n${text}`;
}

/** @param {string} page */
function rowsOf(page) {
  const [, matrix = ''] = page.split('<!-- matrix:begin -->');
  const [rows = ''] = matrix.split('<!-- matrix:end -->');
  return rows
    .split('\n')
    .filter(line => line.startsWith('|') && !/^\|[\s:|-]+\|$/.test(line) && !/^\|\s*id\(s\)\s*\|/.test(line))
    .map(line =>
      (line.split('|')[1] ?? '')
        .split(/[\s,]+/)
        .filter(Boolean)
        .join(' '),
    );
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [path] = process.argv.slice(2);
  const rows = path === undefined ? [] : rowsOf(readFileSync(path, 'utf8'));
  if (rows.length === 0) {
    console.error('usage: node scripts/requirement-ids.mjs <path of the requirements matrix>');
    process.exit(2);
  }
  writeFileSync(IDS, idsFile(rows));
  console.log(`docs/requirements.ids: ${rows.length} rows, ${rows.flatMap(row => row.split(' ')).length} ids`);
}
