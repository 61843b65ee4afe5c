// A swarm whose task names a real coding agent: the program of its preset works on the stories, in one session, with a scripted model.

import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import * as z from 'zod';
import type { Move, Script } from '../../packages/cli/src/hooks/scripted-model.ts';
import { ModelHost, agentsFile, lineOf } from '../agents/model-host.ts';
import { Bench } from '../cli/bench.ts';
import { withoutNames } from '../egress/servers.ts';
import { images, mainEngine, withoutEngines } from '../support/engines.ts';
import { gitIn, makeRepository, writeTasks } from './swarms.ts';

// The programs of the presets, fetched once for a machine by tests/agents/programs-of-presets.mjs.
const STORE = process.env['ACODE_AGENT_PROGRAMS'] ?? '/var/lib/acode-engines/agents/acode/programs';
const KEY = `sk-test-${'k3y'.repeat(12)}`;
const stored = existsSync(STORE) ? readdirSync(STORE) : [];
// ACODE_SWARM_AGENTS: others, such as `codex`; the long test suite tries both.
const agents = (process.env['ACODE_SWARM_AGENTS'] ?? 'claude').split(',');

const STORIES = ['sed -i s/one/1/ src/a.txt', 'sed -i s/two/2/ src/a.txt; echo "seeds $(env | grep -c ACODE_SEED)"'];

// One line for each story, then the end of the turn. Only who goes on with the session has the results of the story before.
function storyByStory(agent: string): { readonly script: Script; readonly seen: (readonly string[])[] } {
  const seen: (readonly string[])[] = [];
  const script: Script = (results): Move => {
    const line = STORIES[seen.length];
    if (line !== undefined && results.length <= seen.length) return lineOf(agent, line);
    seen.push(results);
    return { say: 'Done.' };
  };
  return { script, seen };
}

const stateSchema = z.looseObject({
  tasks: z.array(z.looseObject({ status: z.string(), agent: z.string(), branch: z.string(), requests: z.number() })),
});

describe.skipIf(withoutEngines || withoutNames).each(agents)('a task of %s', agent => {
  let bench: Bench;
  let host: ModelHost;
  const { script, seen } = storyByStory(agent);

  beforeAll(async () => {
    bench = await Bench.at(mainEngine);
    host = await ModelHost.listen(script);
    const [config = '', state = '', home = ''] = ['XDG_CONFIG_HOME', 'XDG_STATE_HOME', 'HOME'].map(
      one => bench.env[one],
    );
    writeFileSync(join(config, 'roots.pem'), host.site.pem);
    await bench.configure({
      images: { default: images.debian },
      network: { private_hosts: ['*.acode.test'], ca_file: join(config, 'roots.pem') },
    });
    writeFileSync(join(config, 'acode/agents.yml'), agentsFile(agent, host.host, 'ACODE_TEST_KEY'), { mode: 0o600 });
    // Without a model that it knows, Codex offers no tools.
    mkdirSync(join(home, '.codex'), { recursive: true });
    writeFileSync(join(home, '.codex/config.toml'), 'model = "gpt-5.5"\n');
    mkdirSync(join(state, 'acode/programs'), { recursive: true, mode: 0o700 });
    for (const id of stored.filter(one => one.startsWith(`agent-${agent}-`)))
      execFileSync('cp', ['-al', join(STORE, id), join(state, 'acode/programs/')]);
    rmSync(join(bench.workspace, '.git'), { recursive: true });
    makeRepository(bench.workspace, { submodule: false });
    writeTasks(bench.workspace, {
      edits: {
        title: 'Edits',
        agent,
        stories: [
          { title: 'one', acceptance: ['grep -qx 1 src/a.txt'] },
          { title: 'two', acceptance: ['grep -qx 2 src/a.txt', 'test "$(env | grep -c ACODE_SEED)" = 0'] },
        ],
      },
    });
  });

  afterAll(async () => {
    await host[Symbol.asyncDispose]();
    await bench[Symbol.asyncDispose]();
  });

  it('refuses to begin without the key of its model, and does its stories in one session with it', async () => {
    const without = await bench.call(['swarm', 'run', '--yes', '--image', images.debian]);
    expect([without.status, without.stderr]).toEqual([125, expect.stringContaining('ACODE_TEST_KEY')]);

    const env = { ACODE_TEST_KEY: KEY };
    const { status, stdout, stderr } = await bench.call(['swarm', 'run', '--yes', '--image', images.debian], { env });
    const shown = `${stdout.toString()}${stderr}`;
    expect(status, shown).toBe(0);
    const { tasks } = stateSchema.parse(
      JSON.parse((await bench.call(['swarm', 'status', '--json'])).stdout.toString()),
    );
    expect(tasks).toMatchObject([{ status: 'completed', agent }]);
    const branch = tasks[0]?.branch ?? '';
    expect(gitIn(bench.workspace, 'log', '--format=%s', `main..${branch}`)).toBe('Edits: two\nEdits: one');
    expect(gitIn(bench.workspace, 'show', `${branch}:src/a.txt`)).toMatch(/^1\n2\nthree/);
    // Both results are in the last request: the second story went on with the session of the first.
    expect(seen.map(results => results.length)).toEqual([1, 2]);
    expect(seen[1]?.[1]).toContain('seeds 0');
    expect([...host.keys]).toEqual([KEY]);

    // What the agent kept goes with the swarm.
    const kept = (): string[] =>
      readdirSync(join(bench.env['XDG_STATE_HOME'] ?? '', 'acode/states'), { recursive: true }).map(String);
    expect(kept().some(path => /sw-[0-9a-f]{8}-1\/data/.test(path))).toBe(true);
    expect((await bench.call(['swarm', 'discard', '--yes'])).status).toBe(0);
    expect(kept().filter(path => path.includes('sw-'))).toEqual([]);
    await expect.poll(() => bench.left()).toEqual([]);
  });
});
