// Runs a command in a sandbox and prints the most memory and the most processes it had: what a limit has to allow.
//
// Usage: node scripts/measure-command.mjs [options of `acode run`…] -- <program> [arguments…]
// Needs a build. Processes and their own memory are counted inside, five times a second; a peak between two counts is missed.
// The control group’s peak has the page cache in it, which the kernel takes back when it needs the room.
// @ts-check

import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';

const BIN = fileURLToPath(new URL('../packages/cli/bin/acode.js', import.meta.url));
const MIB = 1024 ** 2;

// The counting shell, its `sleep` and its `cat` and `awk` count too: four are taken off.
const COUNTED = `
peak() {
  tasks=0 pages=0
  while :; do
    set -- /proc/[0-9]*/task/[0-9]*
    [ $# -gt $tasks ] && tasks=$# && echo $tasks >/tmp/.tasks
    now=$(cat /proc/[0-9]*/statm 2>/dev/null | awk '{ sum += $2 - $3 } END { print sum }')
    [ "\${now:-0}" -gt $pages ] && pages=$now && echo $pages >/tmp/.pages
    sleep 0.2
  done
}
peak & counter=$!
"$@" >&2; status=$?
kill $counter
echo "$(cat /tmp/.tasks) $(cat /tmp/.pages)"
exit $status`;

const at = process.argv.indexOf('--');
const command = at < 0 ? [] : process.argv.slice(at + 1);
if (command.length === 0) {
  process.stderr.write('usage: node scripts/measure-command.mjs [options of acode run…] -- <program> [arguments…]\n');
  process.exit(2);
}
const argv = [BIN, 'run', '--json', ...process.argv.slice(2, at), '--', '/bin/sh', '-c', COUNTED, 'sh', ...command];
const { stdout, stderr } = spawnSync(process.execPath, argv, { encoding: 'utf8', maxBuffer: 1024 * MIB });
const result = JSON.parse(stdout);
if (result.schema !== 'acode.run/1') {
  process.stderr.write(stderr);
  process.exit(125);
}
const [tasks = 0, pages = 0] = result.stdout.trim().split(/\s+/).map(Number);
const mib = (/** @type {number} */ bytes) => `${Math.round(bytes / MIB)} MiB`;
process.stdout.write(
  [
    `exit status                     ${result.exitCode}${result.oomKilled ? ', out of memory' : ''}${result.timedOut ? ', out of time' : ''}`,
    `memory of the processes, peak   ${mib(pages * 4096)}`,
    `control group, peak with cache  ${result.usage ? mib(result.usage.peakMemoryBytes) : 'not known'}`,
    `processes and threads, peak     ${Math.max(0, tasks - 4)}`,
    '',
  ].join('\n'),
);
if (result.exitCode !== 0) process.stderr.write(result.stderr.slice(-2000));
// A figure of a command that failed is not one: whoever puts it into a table sees that here.
process.exitCode = result.exitCode ?? 1;
