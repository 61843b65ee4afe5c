// What test results in vitest’s JSON form say:
//   count.mjs FILE…              prints `passed failed`
//   count.mjs --no-skips FILE…   fails if any test was skipped
//   count.mjs --failed FILE…     prints the failed tests, each with the first line of why
//   count.mjs --failed-files F   prints the files they are in
//   count.mjs --again F AGAIN    takes the results of files that ran again in place of their first ones

import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { relative } from 'node:path';

const [mode, ...rest] = process.argv[2]?.startsWith('--') ? process.argv.slice(2) : ['', ...process.argv.slice(2)];
const names = rest.filter(name => existsSync(name));
const reports = names.map(name => JSON.parse(readFileSync(name, 'utf8')));
const files = reports.flatMap(({ testResults }) => testResults ?? []);
// Checks that are no tests of vitest’s give their number alone.
const others = reports.filter(({ testResults }) => !testResults);
const tests = files.flatMap(({ name, assertionResults }) =>
  assertionResults.map(result => ({ ...result, file: relative(process.cwd(), name) })),
);
// A file that could not even be loaded has no tests, and is a failure all the same.
const failedFiles = files.filter(({ status }) => status === 'failed');

const modes = {
  '': () => {
    const broken = failedFiles.filter(({ assertionResults }) =>
      assertionResults.every(({ status }) => status !== 'failed'),
    );
    const failed = tests.filter(({ status }) => status === 'failed').length + broken.length;
    const passed = tests.filter(({ status }) => status === 'passed').length;
    const sum = key => others.reduce((total, report) => total + (report[key] ?? 0), 0);
    console.log(`${passed + sum('numPassedTests')} ${failed + sum('numFailedTests')}`);
  },
  '--no-skips': () => {
    const skipped = tests.filter(({ status }) => status !== 'passed' && status !== 'failed');
    for (const { fullName } of skipped) console.log(`skipped: ${fullName}`);
    if (skipped.length > 0 || files.length === 0) process.exitCode = 1;
  },
  '--failed': () => {
    for (const { file, fullName, failureMessages } of tests.filter(({ status }) => status === 'failed'))
      console.log(`failed: ${file}: ${fullName}\n  ${failureMessages[0]?.split('\n', 1)[0]?.slice(0, 300) ?? ''}`);
    for (const { name, message } of failedFiles.filter(({ assertionResults }) => assertionResults.length === 0))
      console.log(`failed: ${relative(process.cwd(), name)}\n  ${message?.split('\n', 1)[0]?.slice(0, 300) ?? ''}`);
  },
  '--failed-files': () => {
    for (const { name } of failedFiles) console.log(relative(process.cwd(), name));
  },
  '--again': () => {
    const [first, again] = names.map(name => JSON.parse(readFileSync(name, 'utf8')));
    const anew = new Map(again.testResults.map(result => [result.name, result]));
    first.testResults = first.testResults.map(result => anew.get(result.name) ?? result);
    writeFileSync(names[0], JSON.stringify(first));
  },
};

modes[mode]();
