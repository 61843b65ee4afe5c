// `acode fork apply`, killed with SIGKILL while it changes the workspace: it is finished or undone, and never left in between.

import { execFileSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate, setTimeout } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { Bench } from '../cli/bench.ts';
import { images, mainEngine, withoutEngines } from '../support/engines.ts';

const KILLS = Number(process.env['ACODE_FORK_KILLS'] ?? 2);
const FILES = 120;
const JOURNAL_MS = 30_000;
// Longer than it takes to apply so many files: some kills come too late, which is a case too.
const MAX_WAIT_MS = 40;
const CHANGE = `set -e; i=0; while [ $i -lt ${FILES} ]; do case $((i % 4)) in
0) echo changed >> f$i;; 1) rm f$i;; 2) chmod 700 f$i;; 3) mkdir -p d$((i % 7)); echo new > d$((i % 7))/n$i;; esac; i=$((i + 1)); done`;

/** Names, modes and contents of the workspace. */
function listing(workspace: string): string {
  const script = String.raw`find . -mindepth 1 -not -path './.acode-apply*' -printf '%y %m %P\n' | sort; find . -type f -not -path './.acode-apply*' -exec sha256sum {} + | sort`;
  return execFileSync('sh', ['-c', script], { cwd: workspace, encoding: 'utf8' });
}

/** The lines that only one of two listings has. */
function differences(expected: string, found: string): string[] {
  const [one, other] = [expected, found].map(text => text.split('\n'));
  return [
    ...(one ?? []).filter(line => !other?.includes(line)).map(line => `- ${line}`),
    ...(other ?? []).filter(line => !one?.includes(line)).map(line => `+ ${line}`),
  ];
}

describe.skipIf(withoutEngines)('`acode fork apply` that is killed', () => {
  it(
    'is finished by --resume and undone by --rollback, and a fork lists nothing that was applied',
    { timeout: 30_000 * (KILLS + 3) },
    async () => {
      await using bench = await Bench.at(mainEngine);
      const { workspace, env } = bench;
      const applies = join(env['XDG_STATE_HOME'] ?? '', 'acode', 'applies');
      const call = async (...argv: string[]): Promise<string> => {
        const { status, stdout, stderr } = await bench.call(argv);
        expect(status, `${argv.join(' ')}: ${stderr}`).toBe(0);
        return stdout.toString();
      };
      for (let at = 0; at < FILES; at += 1) writeFileSync(join(workspace, `f${at}`), `${at}\n`);
      const original = `${workspace}.original`;
      cpSync(workspace, original, { recursive: true, preserveTimestamps: true });
      const before = listing(workspace);
      await call('run', '--fork=made', '--image', images.debian, '--', 'sh', '-c', CHANGE);
      const archive = join(workspace, '..', 'fork.tar');
      await call('fork', 'export', 'made', '-o', archive);
      await call('fork', 'apply', 'made', '--yes');
      const after = listing(workspace);
      expect(after).not.toBe(before);

      const seen = { killed: 0, between: 0, resumed: 0, rolledBack: 0, over: 0 };
      for (let kill = 0; kill < KILLS; kill += 1) {
        for (const name of readdirSync(workspace)) rmSync(join(workspace, name), { recursive: true, force: true });
        mkdirSync(workspace, { recursive: true });
        execFileSync('cp', ['-a', `${original}/.`, workspace]);
        const fork = `try-${kill}`;
        await call('fork', 'import', archive, '--name', fork);
        const killed = bench.start(['fork', 'apply', fork, '--yes']);
        const until = performance.now() + JOURNAL_MS;
        const isBegun = (): boolean =>
          existsSync(applies) && readdirSync(applies).some(name => existsSync(join(applies, name, 'journal')));
        while (!isBegun() && killed.child.exitCode === null && performance.now() < until) await setImmediate();
        await setTimeout(Math.random() * MAX_WAIT_MS);
        killed.child.kill('SIGKILL');
        await killed.ended;
        seen.killed += 1;
        const now = listing(workspace);
        if (!isBegun()) {
          seen.over += 1;
          expect([before, after], `kill ${kill}`).toContain(now);
          continue;
        }
        if (now !== before && now !== after) seen.between += 1;
        // Commands and the list of forks announce it, and nothing else is applied until it has ended.
        const again = await bench.call(['fork', 'apply', fork, '--yes']);
        if (again.status === 0) {
          // It was killed before its first step or after its last, which leaves nothing to finish.
          seen.over += 1;
          expect([before, after], `kill ${kill}`).toContain(now);
          expect(differences(after, listing(workspace)), `kill ${kill}`).toEqual([]);
          continue;
        }
        expect(again.stderr).toContain('ACODE-FRK-010');
        const isResume = kill % 2 === 0;
        const ended = await bench.call(['fork', 'apply', isResume ? '--resume' : '--rollback']);
        const end = listing(workspace);
        if (isResume) seen.resumed += 1;
        else seen.rolledBack += 1;
        const what = `kill ${kill}, ${isResume ? '--resume' : '--rollback'}, status ${ended.status}: ${ended.stderr}`;
        expect(differences(isResume ? after : before, end), what).toEqual([]);
        const left = await bench.call(['fork', 'diff', fork, '--name-only']);
        if (end === after) expect(left.stdout.toString() + left.stderr).toMatch(/^$|ACODE-FRK-001/);
        else expect(left.stdout.toString().trim().split('\n').length).toBeGreaterThan(FILES / 2);
      }
      if (KILLS > 2) process.stdout.write(`FIGURE kills of acode fork apply: ${JSON.stringify(seen)}\n`);
      expect(seen.resumed + seen.rolledBack + seen.over).toBe(KILLS);
      if (KILLS > 10) expect(seen.resumed + seen.rolledBack).toBeGreaterThan(KILLS / 4);
    },
  );
});
