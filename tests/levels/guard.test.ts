// The guard of a sandbox, alone: what it does when its client is killed, and that it does nothing otherwise.

import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { untilGone, untilLives, oddSeconds, processesOf, processesWith } from './host-processes.ts';

const GUARD = new URL('../../packages/sandbox/dist/isolation/process/execution.js', import.meta.url).href;

let directory: string;
beforeEach(() => {
  directory = mkdtempSync('/var/tmp/acode-test-guard-');
  mkdirSync(join(directory, 'group'));
  mkdirSync(join(directory, 'home/deep'), { recursive: true });
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

// Starts a process that nothing else ties to the client, guards it, and waits for its own end.
function client(seconds: string, sign: '' | '-', ending: string): ReturnType<typeof spawn> {
  const program = `
    import { spawn } from 'node:child_process';
    import { Guard } from ${JSON.stringify(GUARD)};
    const child = spawn('/bin/sleep', [process.argv[1]], { detached: true, stdio: 'ignore' });
    child.unref();
    const guard = Guard.start({
      target: ${sign}child.pid,
      controlGroups: [process.argv[2] + '/group'],
      directory: process.argv[2] + '/home',
    });
    ${ending}`;
  return spawn(process.execPath, ['--input-type=module', '-e', program, seconds, directory], { stdio: 'inherit' });
}

it.each([
  ['a process', ''],
  ['a process group', '-'],
] as const)('ends %s, and takes away what it used, when its client is killed with SIGKILL', async (_, sign) => {
  const seconds = oddSeconds();
  const killed = client(seconds, sign, 'setInterval(() => {}, 1000);');
  await untilLives(`/bin/sleep ${seconds}`);
  await expect.poll(() => processesWith(directory).length).toBeGreaterThan(1);
  killed.kill('SIGKILL');
  await untilGone(`/bin/sleep ${seconds}`);
  await expect.poll(() => existsSync(join(directory, 'group')) || existsSync(join(directory, 'home'))).toBe(false);
  await untilGone(directory);
});

it('does nothing when it is sent home', async () => {
  const seconds = oddSeconds();
  const done = client(seconds, '', 'guard.dismiss();');
  await new Promise(resolve => void done.once('exit', resolve));
  await untilGone(directory);
  const [left] = processesOf(`/bin/sleep ${seconds}`);
  expect(left).toBeDefined();
  if (left) process.kill(left, 'SIGKILL');
  expect(existsSync(join(directory, 'group')) && existsSync(join(directory, 'home/deep'))).toBe(true);
});
