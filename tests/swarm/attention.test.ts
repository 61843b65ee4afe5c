// Tasks that need a person: one asks, one is refused a host, one is silent. The user’s own program is told, a grant and an answer let
// them go on, and a person works with one at a terminal.

import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import * as z from 'zod';
import { BIN, Bench } from '../cli/bench.ts';
import { ONE, Site, TWO, withoutNames } from '../egress/servers.ts';
import { Pane } from '../sessions/pane.ts';
import { images, mainEngine, withoutEngines } from '../support/engines.ts';
import { gitIn, makeRepository, writeTasks } from './swarms.ts';

const stateSchema = z.looseObject({
  tasks: z.array(
    z.looseObject({
      id: z.string(),
      status: z.string(),
      attention: z.string().nullable(),
      detail: z.string(),
      branch: z.string(),
      changes: z.array(z.looseObject({ path: z.string() })),
      waitsFor: z.array(z.object({ id: z.string(), host: z.string(), port: z.number(), entry: z.string() })),
    }),
  ),
});
const noticeSchema = z.looseObject({ state: z.string(), task: z.string().optional(), detail: z.string().optional() });

describe.skipIf(withoutEngines || withoutNames)('tasks that need a person', { timeout: 240_000 }, () => {
  let bench: Bench;
  let site: Site;
  let config: string;
  let told: string;

  beforeAll(async () => {
    bench = await Bench.at(mainEngine);
    site = await Site.https([TWO]);
    config = bench.env['XDG_CONFIG_HOME'] ?? '';
    told = join(config, 'told');
    writeFileSync(join(config, 'roots.pem'), site.pem);
    await bench.configure({
      images: { default: images.debian },
      network: { private_hosts: ['*.acode.test'], ca_file: join(config, 'roots.pem') },
    });
    writeFileSync(join(config, 'tell'), `#!/bin/sh\ncat >> ${told}\n`, { mode: 0o755 });
    const on = '[needs-input, blocked-by-policy, idle, failed, finished]';
    const settings = `notify: { command: [${join(config, 'tell')}], on: ${on} }\nidle_minutes: 0.05\n`;
    writeFileSync(join(config, 'acode/swarm.yml'), settings, { mode: 0o600 });
    rmSync(join(bench.workspace, '.git'), { recursive: true });
    makeRepository(bench.workspace, { submodule: false });
  });
  afterAll(async () => {
    await bench.call(['swarm', 'stop']);
    await site[Symbol.asyncDispose]();
    await bench[Symbol.asyncDispose]();
  });

  const run = (...names: readonly string[]): string[] => [
    ...['swarm', 'run', '--yes', ...names, '--image', images.debian, '--memory', '256m', '--cpus', '0.5'],
    ...['--parallel', '3', '--attempts', '1', '--allow', `tcp:${ONE}:${site.port}`],
  ];
  const task = async (id: string) => {
    const { stdout } = await bench.call(['swarm', 'status', '--json']);
    return stateSchema.parse(JSON.parse(stdout.toString())).tasks.find(one => one.id === id);
  };
  const show = async (id: string, file: string): Promise<string> =>
    gitIn(bench.workspace, 'show', `${(await task(id))?.branch ?? ''}:${file}`);
  const notices = () =>
    existsSync(told)
      ? readFileSync(told, 'utf8')
          .trim()
          .split('\n')
          .map(line => noticeSchema.parse(JSON.parse(line)))
      : [];

  it('are shown and told of; a grant and an answer let them go on', async () => {
    const question = 'Which data\\033]0;base?';
    writeTasks(bench.workspace, {
      asks: `grep -q PostgreSQL && echo pg > db.txt || printf '${question}' > "$ACODE_SWARM_QUESTION"`,
      blocked: `until python3 -c "import urllib.request as r; r.urlopen('https://${TWO}:${site.port}/')"; do sleep 0.5; done; echo got > got.txt`,
      silent: 'sleep 9; echo late > late.txt',
    });
    const { ended } = bench.start(run());
    await expect.poll(async () => (await task('blocked'))?.attention, { timeout: 90_000 }).toBe('blocked-by-policy');
    const waitsFor = (await task('blocked'))?.waitsFor ?? [];
    expect(waitsFor).toEqual([
      { id: expect.any(String) as string, host: TWO, port: site.port, entry: `tcp:${TWO}:${site.port}` },
    ]);
    await expect.poll(async () => (await task('silent'))?.attention).toBe('idle');
    const shown = (await bench.call(['swarm', 'status'])).stdout.toString();
    expect(shown).toContain(`acode egress allow ${waitsFor[0]?.id} --task`);
    expect((await bench.call(['egress', 'allow', waitsFor[0]?.id ?? '', '--task', '--yes'])).status).toBe(0);
    const { status, stdout } = await ended;
    expect([status, stdout.toString()]).toEqual([1, expect.stringContaining('needs-input')]);
    expect(await show('blocked', 'got.txt')).toBe('got');
    expect(await task('blocked')).toMatchObject({ status: 'completed', attention: null, waitsFor: [] });
    expect(await task('silent')).toMatchObject({ status: 'completed', attention: null });
    expect(await task('asks')).toMatchObject({ status: 'stopped', attention: 'needs-input' });

    // On a busy machine others may be silent for so long, too.
    const all = notices().map(({ state, task: of }) => `${state} ${of ?? ''}`);
    const expected = ['blocked-by-policy blocked', 'finished ', 'idle silent', 'needs-input asks'];
    expect([...new Set(all)].filter(one => !/^idle (?:asks|blocked)$/.test(one)).sort()).toEqual(expected);
    // Neutralised: a picture of the control character, not the character.
    expect(notices().find(({ state }) => state === 'needs-input')?.detail).toBe('Which data␛]0;base?');

    expect((await bench.call(['swarm', 'review', 'asks', '--comment', 'Use PostgreSQL.'])).status).toBe(0);
    const resumed = await bench.call(['swarm', 'resume']);
    expect(resumed.status, resumed.stderr).toBe(0);
    expect(await show('asks', 'db.txt')).toBe('pg');
    await expect.poll(() => bench.left()).toEqual([]);
  });

  it('are worked on at a terminal, and go on without it with what is there then', async () => {
    rmSync(join(bench.workspace, '.agent/tasks'), { recursive: true, force: true });
    mkdirSync(join(bench.workspace, '.agent/tasks'), { recursive: true });
    writeTasks(bench.workspace, {
      helped: {
        title: 'Helped',
        command: '[ -e helped.txt ] || { echo half > half.txt; sleep 600; }',
        stories: [{ title: 'x', acceptance: ['grep -q person helped.txt && grep -q half half.txt'] }],
      },
    });
    const { ended } = bench.start(run('helped'));
    await expect.poll(async () => (await task('helped'))?.status, { timeout: 90_000 }).toBe('running');
    await expect.poll(async () => (await task('helped'))?.changes.map(({ path }) => path)).toEqual(['half.txt']);
    expect((await bench.call(['swarm', 'attach', 'helped'])).status).toBe(2);
    await using pane = await Pane.open(bench.workspace, bench.env);
    await pane.line(`${process.execPath} ${BIN} swarm attach helped; echo "status $?"`);
    await pane.until(/[$#] $|[$#]$/);
    await expect.poll(async () => (await task('helped'))?.status).toBe('stopped');
    // What the agent had begun is there, and nobody else gets the terminal meanwhile.
    await pane.line('cat half.txt; id -u > /dev/null && echo person > helped.txt; exit');
    await pane.until(/status 0/);
    const { status, stdout, stderr } = await ended;
    const seen = `${stdout.toString()}${stderr}${JSON.stringify(await task('helped'))}\n${await pane.screen()}`;
    expect(status, seen).toBe(0);
    expect(await show('helped', 'helped.txt')).toBe('person');
    expect(await show('helped', 'half.txt')).toBe('half');
    await expect.poll(() => bench.left()).toEqual([]);
  });
});
