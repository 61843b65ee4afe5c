// The board of a swarm of a hundred tasks in a real terminal: what it shows, its keys, a change of size, and leaving it.

import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { BIN, Bench } from '../cli/bench.ts';
import { Pane } from '../sessions/pane.ts';
import { images, mainEngine, withoutEngines } from '../support/engines.ts';
import { makeRepository, writeTasks } from './swarms.ts';

const TASKS = 100;
const LONG = `printf 'a first line\\n\\033]0;title\\007harmless\\n'; sleep 600`;

describe.skipIf(withoutEngines)('the board of a swarm', { timeout: 120_000 }, () => {
  let bench: Bench;
  beforeAll(async () => {
    bench = await Bench.at(mainEngine);
    rmSync(join(bench.workspace, '.git'), { recursive: true });
    makeRepository(bench.workspace, { submodule: false });
    const rest = Array.from({ length: TASKS - 1 }, (_, at) => [`task-${at + 2}`, 'sleep 600'] as const);
    writeTasks(bench.workspace, { 'a-first': LONG, ...Object.fromEntries(rest) });
  });
  afterAll(async () => {
    await bench.call(['swarm', 'stop']);
    await bench.call(['swarm', 'status', '--follow']);
    await bench[Symbol.asyncDispose]();
  });

  it('shows a hundred tasks; keys show a log, attach, stop, begin again and leave', async () => {
    await using pane = await Pane.open(bench.workspace, bench.env);
    const small = `--image ${images.debian} --memory 128m --cpus 0.3 --parallel 2`;
    await pane.line(`${process.execPath} ${BIN} swarm run --yes ${small}; echo "status $?"`);
    const shown = await pane.until(/›a-first +running .*MiB/);
    expect(await pane.fact('alternate_on')).toBe('1');
    const lines = shown.split('\n');
    expect(lines).toHaveLength(24);
    expect(lines[0]).toMatch(/^Swarm [0-9a-f]{8}, running: 0\/100 completed, 2 running, 98 pending$/);
    expect(lines[1]).toMatch(/^ TASK +STATE +STORY +TIME +CPU +MEMORY +LAST LINE$/);
    expect(await pane.coloured()).not.toContain('title\u0007');

    await pane.press('l');
    await pane.until(/^Log of a-first\n[^]*^a first line\n␛\]0;title.*harmless$/m);
    await pane.press('q', 'End');
    await pane.until(/›task-\d+ +pending/);
    await pane.resize(40, 12);
    const narrow = (await pane.until(/TASK +STATE +STORY +LAST L…\n/)).split('\n');
    expect(narrow).toHaveLength(12);
    expect(narrow.join('')).toMatch(/›task-.*q leave/);
    await pane.resize(80, 24);
    await pane.until(/MEMORY/);

    // The key acts on the selected task, at whatever row it is.
    await pane.press('Home', 's');
    await pane.until(/Stop a-first\? \[y\/N\]/);
    await pane.press('n');
    await pane.press('a');
    await pane.until(/[$#]$/);
    expect(await pane.fact('alternate_on')).toBe('0');
    await pane.line('exit');
    await pane.until(/a-first goes on without this terminal/);
    await pane.until(/›a-first +running/);
    await pane.press('s');
    await pane.until(/Stop a-first/);
    await pane.press('y');
    await pane.until(/99? pending|97 pending/);
    await pane.press('End');
    await pane.until(/›a-first +stopped/);
    await pane.press('r');
    await pane.until(/›a-first +(?:pending|running)/);

    await pane.press('q');
    const after = await pane.until(/status 0/);
    expect(after).toContain('goes on: `acode swarm status --follow` shows it');
    expect(await pane.fact('alternate_on')).toBe('0');
    await pane.line('stty -a | tr " " "\\n" | grep -cx -- "echo;*\\|icanon"');
    await pane.until(/^2$/m);
    expect((await bench.call(['swarm', 'stop'])).status).toBe(0);
    expect((await bench.call(['swarm', 'status', '--follow'])).status).toBe(1);
    await expect.poll(() => bench.left()).toEqual([]);
  });
});
