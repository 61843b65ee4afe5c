// What a reaper takes and what it leaves, and that one thing it cannot remove keeps it from nothing else.

import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { reaperProgram } from '../../packages/sandbox/src/lifecycle/reaper-program.ts';
import { Bench } from '../cli/bench.ts';
import { mainEngine, withEngine, withoutEngines } from '../support/engines.ts';
import { EngineProxy } from '../support/proxy.ts';
import { until } from '../support/waiting.ts';
import { gone, leftover, reapersOf, sleeping, sockets } from './victims.ts';

const soon = () => AbortSignal.timeout(60_000);

describe.skipIf(withoutEngines)('a reaper', () => {
  let proxy: EngineProxy;
  let bench: Bench;
  let made: string[];
  beforeEach(async () => {
    proxy = await EngineProxy.start(mainEngine.socket);
    bench = await Bench.at({ socket: proxy.socket });
    made = [];
  });
  afterEach(async () => {
    proxy.onRequest(undefined);
    await withEngine(mainEngine, async direct => {
      for (const id of made) await direct.containers.remove(id, { force: true, signal: soon() });
    });
    await bench[Symbol.asyncDispose]();
    await proxy[Symbol.asyncDispose]();
  });

  it('spares what was kept, and what is another user’s or another host’s, although the owner is its own', async () => {
    const { child, ended, id, labels } = await victim();
    const twin = await left(labels);
    const spared = [
      await left({ ...labels, 'acode.keep': 'true' }),
      await left({ ...labels, 'acode.uid': '4242' }),
      await left({ ...labels, 'acode.host': 'another' }),
      await left({ ...labels, 'acode.managed': 'false' }),
      await left({ ...labels, 'acode.owner': randomUUID() }),
    ];
    child.kill('SIGKILL');
    await ended;
    await gone(mainEngine, id);
    await until(() => reapersOf(bench).length === 0);
    expect(await there([twin])).toEqual([]);
    expect(await there(spared)).toEqual(spared);
  });

  it('is there before the socket that it takes away: a client killed in between leaves none', async () => {
    // A real client that dies the moment its socket is made, which no signal from outside would hit every time.
    const die = [
      "import net from 'node:net';",
      'const { listen } = net.Server.prototype;',
      "net.Server.prototype.listen = function (...words) { return listen.call(this, words[0], () => process.kill(process.pid, 'SIGKILL')); };",
    ].join('\n');
    const env = { NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(die)}` };
    const { child, ended } = bench.start(['run', '--', 'true'], { env });
    await ended;
    expect(child.signalCode).toBe('SIGKILL');
    expect(sockets(bench)).toHaveLength(1);
    await until(() => reapersOf(bench).length === 0);
    expect(sockets(bench)).toEqual([]);
  });

  it('goes on with everything else where one thing cannot be removed, and says what it removed', async () => {
    await bench.configure({ network: { allow_bridge: true } });
    const { child, ended, id, labels } = await victim(['--network', 'bridge']);
    const stuck = await left(labels);
    const owner = `acode.owner=${labels['acode.owner']}`;
    const networks = () =>
      withEngine(mainEngine, async direct => (await direct.networks.list({ labels: [owner], signal: soon() })).length);
    let refused = 0;
    proxy.onRequest((method, path) => {
      if (method !== 'DELETE' || !path.includes(stuck)) return undefined;
      refused += 1;
      return { status: 500, message: 'driver failed to remove root filesystem', when: 'before' };
    });
    expect(await networks()).toBe(1);
    child.kill('SIGKILL');
    await ended;
    await gone(mainEngine, id);
    await expect.poll(networks).toBe(0);
    expect(await there([stuck])).toEqual([stuck]);
    // It comes back to it, ever less often.
    const soonAfter = refused;
    await new Promise(resolve => setTimeout(resolve, 5000));
    expect(refused - soonAfter).toBeGreaterThan(0);
    expect(refused - soonAfter).toBeLessThan(12);
    expect(reapersOf(bench)).toHaveLength(1);

    proxy.onRequest(undefined);
    await gone(mainEngine, stuck);
    await until(() => reapersOf(bench).length === 0);
    const told = (await bench.call(['run', '--verbose', '--', 'true'])).stderr;
    for (const one of [id, stuck]) expect(told).toContain(one.slice(0, 12));
  });

  it('asks ever less often where the engine does not answer: what it was asked it still has', async () => {
    const owner = randomUUID();
    const labels = { 'acode.managed': 'true', 'acode.owner': owner, 'acode.uid': '4242', 'acode.host': 'reaper-test' };
    const stuck = await left(labels);
    let asked = 0;
    proxy.onRequest(method => {
      if (method !== 'DELETE') return undefined;
      asked += 1;
      return 'hang';
    });
    const nowhere = join(bench.workspace, 'nowhere');
    const task = { engineSocket: proxy.socket, owner, uid: 4242, host: 'reaper-test', createMs: 0 };
    const words = JSON.stringify({ ...task, ownerSocket: nowhere, journal: nowhere });
    // The same with an engine that is given less time for its answer, so that nobody waits for minutes.
    const program = (await reaperProgram()).replace('CALL_MS = 10_000', 'CALL_MS = 1000');
    const child = spawn(process.execPath, ['--input-type=module', '-e', program, 'acode-reaper', words]);
    const exit = once(child, 'exit');
    await new Promise(resolve => setTimeout(resolve, 12_000));
    // It comes back to it. As often as where it is told no, that would be seven times by now.
    expect(asked).toBeGreaterThan(1);
    expect(asked).toBeLessThan(5);
    proxy.onRequest(undefined);
    await gone(mainEngine, stuck);
    expect(await exit).toEqual([0, null]);
  });

  async function victim(flags: readonly string[] = []) {
    const found = await sleeping(bench, mainEngine, 'victim', flags);
    const labels = await withEngine(
      mainEngine,
      async direct => (await direct.containers.inspect(found.id, { signal: soon() })).Config.Labels ?? {},
    );
    return { ...found, labels };
  }

  async function left(labels: Record<string, string>): Promise<string> {
    const id = await leftover(mainEngine, labels);
    made.push(id);
    return id;
  }

  async function there(ids: readonly string[]): Promise<string[]> {
    const all = await withEngine(mainEngine, async direct =>
      (await direct.containers.list({ labels: ['acode.managed'], all: true, signal: soon() })).map(one => one.id),
    );
    return ids.filter(id => all.includes(id));
  }
});
