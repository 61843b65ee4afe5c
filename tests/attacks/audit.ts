// The rows about the audit log: what it must not hold, what it must notice, and how many may write to it.

import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import type { Finding } from './attack.ts';
import { runCommand } from './command.ts';
import { Scratch } from './scratch.ts';
import type { Target } from './targets.ts';

const WRITERS = 8;

/** F4: secrets in argv are masked before they are written. */
export async function secretsInArguments(target: Target): Promise<Finding> {
  using scratch = new Scratch();
  scratch.directory('project');
  const secrets = ['flag-canary-1', 'word-canary-2', 'user-canary-3', 'header-canary-4', 'assign-canary-5'];
  const words = [
    '--token=flag-canary-1',
    '--password',
    'word-canary-2',
    'https://me:user-canary-3@example.com/x',
    'Authorization: Bearer header-canary-4',
    'GITHUB_TOKEN=assign-canary-5',
    'an-ordinary-word',
  ];
  const { status } = await runCommand(target, scratch, ['run', '--', 'echo', ...words]);
  expect(status).toBe(0);
  const log = textOfLog(scratch);
  for (const secret of secrets) expect(log).not.toContain(secret);
  // The control: the words stand in it, so what is not there was taken out.
  expect(log).toContain('an-ordinary-word');
  return { observed: `${secrets.length} secrets masked`, control: 'an ordinary word beside them is in the log' };
}

/** F17: each kind of tampering is found, and the record is named. */
export async function tamperedWith(target: Target): Promise<Finding> {
  using scratch = new Scratch();
  scratch.directory('project');
  for (const word of ['one', 'two', 'three']) await runCommand(target, scratch, ['run', '--', 'echo', word]);
  const verify = (...more: string[]) => runCommand(target, scratch, ['audit', 'verify', ...more]);
  const whole = await verify();
  expect(whole.status).toBe(0);
  const head = /Head\s+(\d+:[0-9a-f]{64})/.exec(whole.stdout)?.[1] ?? '';
  const file = fileOfLog(scratch);
  const text = readFileSync(file, 'utf8');
  const lines = text.trimEnd().split('\n');
  const two = lines.findIndex(line => line.includes('"two"'));
  expect(two).toBeGreaterThan(0);
  const seen: string[] = [];
  const broken: readonly (readonly [what: string, lines: readonly string[], more: string[]])[] = [
    ['edited', lines.map((line, at) => (at === two ? line.replace('two', 'TWO') : line)), []],
    ['cut', lines.toSpliced(two, 1), []],
    ['reordered', lines.toSpliced(two, 2, lines[two + 1] ?? '', lines[two] ?? ''), []],
    ['truncated', lines.slice(0, two + 1), ['--head', head]],
  ];
  for (const [what, changed, more] of broken) {
    writeFileSync(file, `${changed.join('\n')}\n`);
    const { status, stderr } = await verify(...more);
    expect([what, status]).toEqual([what, 125]);
    expect(stderr).toMatch(/ACODE-AUD-002/);
    seen.push(what);
  }
  writeFileSync(file, text);
  expect((await verify('--head', head)).status).toBe(0);
  return { observed: `found: ${seen.join(', ')}`, control: 'the untouched log verifies before and after' };
}

/** F18: many processes write one chain. */
export async function manyWriters(target: Target): Promise<Finding> {
  using scratch = new Scratch();
  scratch.directory('project');
  const runs = Array.from({ length: WRITERS }, (_, at) => runCommand(target, scratch, ['run', '--', 'echo', `w${at}`]));
  for (const { status } of await Promise.all(runs)) expect(status).toBe(0);
  const { status, stdout } = await runCommand(target, scratch, ['audit', 'verify']);
  expect(status).toBe(0);
  const text = readFileSync(fileOfLog(scratch), 'utf8');
  const lines = text.trimEnd().split('\n');
  // What each is about to do, and what became of it.
  for (const kind of ['intent', 'outcome'])
    expect(lines.filter(line => line.includes(`"kind":"${kind}"`) && line.includes('"operation":"run"'))).toHaveLength(
      WRITERS,
    );
  expect(stdout).toContain(`${lines.length} in 1 file`);
  // The control: without turns, two records would follow the same one.
  const prevs = lines.map(line => /"prev":"([0-9a-f]{64})"/.exec(line)?.[1]);
  expect(new Set(prevs).size).toBe(lines.length);
  const doubled = `${text}${text.trimEnd().split('\n').at(-1) ?? ''}\n`;
  writeFileSync(fileOfLog(scratch), doubled);
  expect((await runCommand(target, scratch, ['audit', 'verify'])).status).toBe(125);
  return {
    observed: `${WRITERS} processes, one chain of ${lines.length}`,
    control: 'a second record after the same one is found',
  };
}

function directoryOf(scratch: Scratch): string {
  return scratch.path('state/acode/audit');
}

function fileOfLog(scratch: Scratch): string {
  const [name = ''] = readdirSync(directoryOf(scratch)).filter(entry => entry.endsWith('.jsonl'));
  return join(directoryOf(scratch), name);
}

function textOfLog(scratch: Scratch): string {
  return readFileSync(fileOfLog(scratch), 'utf8');
}
