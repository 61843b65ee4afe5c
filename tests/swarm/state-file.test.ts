// The record of a swarm and its readable copy, written by twenty processes at once.

import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { SwarmStore, planSwarm, readTask, taskIn } from '../../packages/swarm/dist/index.js';
import { stateCopySchema } from '../../packages/swarm/src/record.ts';

const PROCESSES = 20;
const WRITES = 2;

it('loses nothing where twenty processes write it at once', { timeout: 120_000 }, async () => {
  const top = mkdtempSync('/var/tmp/acode-state-');
  const workspace = join(top, 'project');
  const env = {
    PATH: process.env['PATH'],
    HOME: top,
    XDG_STATE_HOME: join(top, 'state'),
    XDG_RUNTIME_DIR: join(top, 'run'),
  };
  try {
    for (const path of [join(workspace, '.agent/tasks'), env.XDG_RUNTIME_DIR, env.XDG_STATE_HOME])
      mkdirSync(path, { recursive: true, mode: 0o700 });
    writeFileSync(
      join(workspace, '.agent/tasks/a.json'),
      JSON.stringify({ title: 'a', command: 'true', stories: [{ title: 'x' }] }),
    );
    const { record } = planSwarm(workspace, [readTask(workspace, '.agent/tasks/a.json')], { image: 'x' });
    const store = await SwarmStore.open(env);
    await store.create(record);
    const module = new URL('../../packages/swarm/dist/index.js', import.meta.url).href;
    const program = `import { SwarmStore, taskIn } from ${JSON.stringify(module)};
const store = await SwarmStore.open();
for (let write = 0; write < ${WRITES}; write += 1) {
  await store.update(${JSON.stringify(record.id)}, record => { taskIn(record, 'a').requests += 1; });
  store.event(${JSON.stringify(record.id)}, 'written', { text: 'x'.repeat(2000) });
}`;
    const ended = await Promise.all(
      Array.from({ length: PROCESSES }, () => {
        const child = spawn(process.execPath, ['--input-type=module', '--eval', program], {
          env,
          stdio: ['ignore', 'ignore', 'inherit'],
        });
        return new Promise<number | null>(resolve => child.once('exit', resolve));
      }),
    );
    expect(ended).toEqual(ended.map(() => 0));
    expect(taskIn(store.read(record.id), 'a').requests).toBe(PROCESSES * WRITES);
    const events = readFileSync(store.eventsFile(record.id), 'utf8').trim().split('\n');
    expect(events.map(line => (JSON.parse(line) as { event: string }).event)).toEqual(
      Array.from({ length: PROCESSES * WRITES }, () => 'written'),
    );
    const copy = readFileSync(join(workspace, '.agent/swarm-state.json'), 'utf8');
    expect(stateCopySchema.parse(JSON.parse(copy)).swarmId).toBe(record.id);
    expect(store.copyState(workspace).state).toBe('own');
    expect(readdirSync(join(workspace, '.agent')).sort()).toEqual(['swarm-state.json', 'tasks']);
  } finally {
    rmSync(top, { recursive: true, force: true });
  }
});
