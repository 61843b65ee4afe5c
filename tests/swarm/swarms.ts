// Swarms of tests: a repository with history and a submodule, task files, and agents that are scripts.

import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Orchestrator, SwarmStore, findTaskFiles, planSwarm, readTasks } from '@acode/swarm';
import type { SwarmEvent, SwarmOptions, SwarmRecord } from '@acode/swarm';
import type { TestHost } from '../support/engines.ts';
import { images } from '../support/engines.ts';

const MIB = 1024 ** 2;

/** Small limits, so that several fit on a small machine. */
const SMALL: SwarmOptions = {
  image: images.debian,
  memoryBytes: 256 * MIB,
  cpus: 0.5,
  pids: 128,
  parallel: 4,
  attempts: 1,
  timeoutMs: 120_000,
};

/** Runs git of this machine, without its settings. */
export function gitIn(directory: string, ...argv: string[]): string {
  return execFileSync(
    'git',
    ['-c', 'user.name=me', '-c', 'user.email=me@host', '-c', 'protocol.file.allow=always', ...argv],
    {
      cwd: directory,
      encoding: 'utf8',
      stdio: 'pipe',
      timeout: 30_000,
      env: { PATH: process.env['PATH'], HOME: directory, GIT_CONFIG_NOSYSTEM: '1', GIT_CONFIG_GLOBAL: '/dev/null' },
    },
  ).trim();
}

/** A repository with history and a submodule. */
export function makeRepository(workspace: string, { submodule = true }: { readonly submodule?: boolean } = {}): void {
  mkdirSync(workspace, { recursive: true });
  gitIn(workspace, 'init', '-q', '-b', 'main');
  mkdirSync(join(workspace, 'src'), { recursive: true });
  writeFileSync(join(workspace, 'src/a.txt'), 'one\ntwo\nthree\n');
  writeFileSync(
    join(workspace, 'src/lib.c'),
    `${Array.from({ length: 60 }, (_, line) => `int f${line}(void) { return ${line}; }`).join('\n')}\n`,
  );
  writeFileSync(join(workspace, '.gitignore'), 'ignored\n.agent/swarm-state.json\n');
  gitIn(workspace, 'add', '-A');
  gitIn(workspace, 'commit', '-q', '-m', 'first');
  if (submodule) {
    const other = `${workspace}-sub`;
    mkdirSync(other);
    gitIn(other, 'init', '-q', '-b', 'main');
    writeFileSync(join(other, 'part.txt'), 'part\n');
    gitIn(other, 'add', '-A');
    gitIn(other, 'commit', '-q', '-m', 'part');
    gitIn(workspace, 'submodule', '--quiet', 'add', other, 'vendor/part');
    gitIn(workspace, 'commit', '-q', '-m', 'a submodule');
  }
  writeFileSync(join(workspace, 'src/a.txt'), 'one\ntwo\nthree\nfour\n');
  gitIn(workspace, 'commit', '-q', '-am', 'second');
}

/** Writes task files. A text is one story whose agent is that script. */
export function writeTasks(workspace: string, tasks: Readonly<Record<string, string | object>>): void {
  mkdirSync(join(workspace, '.agent/tasks'), { recursive: true });
  for (const [name, task] of Object.entries(tasks)) {
    const value = typeof task === 'string' ? { title: name, command: task, stories: [{ title: 'do it' }] } : task;
    writeFileSync(join(workspace, '.agent/tasks', `${name}.json`), JSON.stringify(value));
  }
}

/** A swarm in this process. */
export interface TestSwarm {
  readonly store: SwarmStore;
  readonly id: string;
  readonly run: (signal?: AbortSignal) => Promise<SwarmRecord>;
  readonly events: () => SwarmEvent[];
}

/** Plans a swarm of all task files. */
export async function swarmOn(host: TestHost, options: SwarmOptions = {}): Promise<TestSwarm> {
  const { tasks, problems } = readTasks(host.workspace, findTaskFiles(host.workspace));
  if (problems[0]) throw problems[0];
  const { record } = planSwarm(host.workspace, tasks, { ...SMALL, ...options });
  const store = await SwarmStore.open();
  await store.create(record);
  return {
    store,
    id: record.id,
    run: (signal = new AbortController().signal) =>
      Orchestrator.run({ acode: host.acode, store, id: record.id, signal }),
    events: () => eventsOf(store.eventsFile(record.id)),
  };
}

/** The events of a swarm so far. */
function eventsOf(file: string): SwarmEvent[] {
  const lines = readFileSync(file, 'utf8')
    .split('\n')
    .filter(line => line !== '');
  return lines.map(line => JSON.parse(line) as SwarmEvent);
}
