// Adds up test results in vitest’s JSON form: prints `passed failed`; with --no-skips, fails if any test was skipped.

import { existsSync, readFileSync } from 'node:fs';

const files = process.argv.slice(2).filter(name => !name.startsWith('--') && existsSync(name));
const results = files.map(name => JSON.parse(readFileSync(name, 'utf8')));
const sum = key => results.reduce((total, result) => total + (result[key] ?? 0), 0);

if (process.argv.includes('--no-skips')) {
  const skipped = results.flatMap(({ testResults }) =>
    testResults.flatMap(({ assertionResults }) =>
      assertionResults.filter(({ status }) => status !== 'passed' && status !== 'failed'),
    ),
  );
  for (const { fullName } of skipped) console.log(`skipped: ${fullName}`);
  if (skipped.length > 0 || files.length === 0) process.exitCode = 1;
} else {
  console.log(`${sum('numPassedTests')} ${sum('numFailedTests')}`);
}
