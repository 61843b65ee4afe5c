// A sandbox that was kept: it outlives its maker, is found by others, goes at its time, and leaves nobody waiting for it.

import { spawn } from 'node:child_process';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { Bench } from '../cli/bench.ts';
import type { Target } from '../conformance/targets.ts';
import { openHost } from '../conformance/host.ts';
import { exists, gone, reapersOf } from '../ownership/victims.ts';
import { warmth, withEngine, withoutEngines } from '../support/engines.ts';
import { benchAt, client, done, keepersOf } from './clients.ts';
import type { ClientTask, Said } from './clients.ts';
import { places, until } from './places.ts';

const soon = () => AbortSignal.timeout(20_000);

const after = (moment: string, ms: number): Promise<void> =>
  new Promise(resolve => void setTimeout(resolve, Math.max(0, Date.parse(moment) + ms - Date.now())));

/** The surroundings of one test: all of them run at the same time, since most of it is waiting. */
class Keeping implements AsyncDisposable {
  readonly bench: Bench;
  readonly made: string[] = [];
  readonly #place: Target;

  private constructor(place: Target, bench: Bench) {
    this.#place = place;
    this.bench = bench;
  }

  static async on(place: Target): Promise<Keeping> {
    return new Keeping(place, await benchAt(place));
  }

  done(task: ClientTask): Promise<Said> {
    return done(this.bench, task);
  }

  async keep(expiresInMs?: number): Promise<Said> {
    const said = await this.done({ what: 'keep', ...(expiresInMs === undefined ? {} : { expiresInMs }) });
    this.made.push(said.containerId);
    return said;
  }

  /** What is written down about sandboxes that are kept. */
  written(): string[] {
    const below = (name: string): string[] => {
      try {
        return readdirSync(join(this.bench.env['XDG_STATE_HOME'] ?? '', 'acode', name));
      } catch {
        return [];
      }
    };
    return [...below('kept'), ...below('leases')];
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await withEngine(this.#place.engine, async ({ containers }) => {
      for (const id of this.made.splice(0))
        await containers.remove(id, { force: true, signal: soon() }).catch(() => undefined);
    });
    await this.bench[Symbol.asyncDispose]();
  }
}

describe.skipIf(withoutEngines || warmth.pool !== undefined).each(places)('a kept sandbox on $name', place => {
  const kept = { concurrent: true, timeout: 120_000 };

  it(
    'outlives its process, is used by others with all that is in it, and is killed with its keeper',
    kept,
    async () => {
      await using own = await Keeping.on(place);
      const { id, containerId } = await own.keep();
      await until(() => reapersOf(own.bench).length === 0, 20_000);
      expect(await exists(place.engine, containerId)).toBe(true);
      expect(keepersOf(id)).toHaveLength(1);
      const first = await own.done({ what: 'use', sandbox: id, command: 'cat /tmp/mine; echo again > /tmp/mine' });
      expect(first).toMatchObject({ id, kept: true, stdout: 'kept\n', exitCode: 0 });
      // By the beginning of its id; and who lets go of it does not end it.
      const second = await own.done({ what: 'use', sandbox: id.slice(0, 8), command: 'cat /tmp/mine', kill: true });
      expect(second).toMatchObject({ stdout: 'again\n' });
      expect(await exists(place.engine, containerId)).toBe(false);
      await until(() => keepersOf(id).length === 0, 3000);
      expect(own.written()).toEqual([]);
    },
  );

  it('is cleared away by the next command where its maker is killed before it was kept', kept, async () => {
    await using own = await Keeping.on(place);
    // The first run of an image reads its users from a container of its own, which is not the one meant here.
    await own.bench.exec(['true']);
    const maker = client(own.bench, { what: 'keep', stay: true }, child => {
      const look = async (): Promise<void> => {
        while ((await own.bench.left()).length === 0) await new Promise(resolve => void setTimeout(resolve, 2));
        child.kill('SIGKILL');
      };
      void look();
    });
    await expect(maker).rejects.toThrow('JSON');
    await until(() => reapersOf(own.bench).length === 0, 20_000);
    // The control: nobody has removed it yet, and nothing is written down about it.
    const left = await own.bench.left();
    own.made.push(...left);
    expect(left).toHaveLength(1);
    expect(own.written()).toEqual([]);
    await own.bench.exec(['true']);
    await until(async () => (await own.bench.left()).length === 0, 10_000);
  });

  it('survives a client that is killed while it uses it', kept, async () => {
    await using own = await Keeping.on(place);
    const { id, containerId } = await own.keep();
    const { child, ended } = await client(own.bench, { what: 'hold', commands: [] });
    child.kill('SIGKILL');
    await ended;
    await own.done({ what: 'use', sandbox: id, command: 'true' });
    await new Promise(resolve => void setTimeout(resolve, 1500));
    expect(await exists(place.engine, containerId)).toBe(true);
    await own.done({ what: 'use', sandbox: id, kill: true });
    expect(await exists(place.engine, containerId)).toBe(false);
  });

  it('goes at its time although no process of acode lives', kept, async () => {
    await using own = await Keeping.on(place);
    const { id, containerId, expiresAt } = await own.keep(4000);
    await until(() => reapersOf(own.bench).length === 0, 20_000);
    expect(await exists(place.engine, containerId)).toBe(true);
    await gone(place.engine, containerId, 15_000);
    const lateMs = Date.now() - Date.parse(expiresAt);
    process.stdout.write(`FIGURE kept sandbox, expiry to gone, ${place.name}: ${Math.round(lateMs)} ms\n`);
    expect(lateMs).toBeGreaterThan(-100);
    await until(() => keepersOf(id).length === 0, 3000);
    expect(own.written()).toEqual([]);
    expect(await own.done({ what: 'use', sandbox: id })).toMatchObject({ error: 'ACODE-CTN-012' });
  });

  it('goes later where it was extended, and earlier where it was shortened', kept, async () => {
    await using own = await Keeping.on(place);
    const [shorter, longer] = await Promise.all([own.keep(600_000), own.keep(12_000)]);
    const extended = await own.done({ what: 'use', sandbox: longer.id, extendMs: 16_000 });
    // Not in time would be no answer: the machine was too slow for the question.
    expect(Date.parse(extended.expiresAt)).toBeGreaterThan(Date.parse(longer.expiresAt));
    await own.done({ what: 'use', sandbox: shorter.id, extendMs: 2000 });
    await gone(place.engine, shorter.containerId, 15_000);
    await after(longer.expiresAt, 1000);
    expect(await exists(place.engine, longer.containerId)).toBe(true);
    await gone(place.engine, longer.containerId, 30_000);
    expect(Date.now() - Date.parse(extended.expiresAt)).toBeGreaterThan(-100);
  });

  it('is not ended by a process that does not know yet that another one extended it', kept, async () => {
    await using own = await Keeping.on(place);
    const { child, said, ended } = await client(own.bench, { what: 'keep', expiresInMs: 12_000, stay: true });
    own.made.push(said.containerId);
    const extended = await own.done({ what: 'use', sandbox: said.id, extendMs: 60_000 });
    // Not in time would be no answer: the machine was too slow for the question.
    expect(Date.parse(extended.expiresAt)).toBeGreaterThan(Date.parse(said.expiresAt));
    await after(said.expiresAt, 1500);
    expect(await exists(place.engine, said.containerId)).toBe(true);
    child.kill('SIGKILL');
    await ended;
    await own.done({ what: 'use', sandbox: said.id, kill: true });
    expect(await exists(place.engine, said.containerId)).toBe(false);
  });

  it('goes at its new time where it was extended when its keeper had come for it', kept, async () => {
    await using own = await Keeping.on(place);
    const { id, containerId } = await own.keep();
    const [shell = 0] = keepersOf(id);
    // What the shell becomes when it sees that the time is over: of what it is then, only the moment is another one here.
    const words = readFileSync(`/proc/${shell}/cmdline`, 'utf8').split('\0').slice(5, -1);
    process.kill(shell, 'SIGKILL');
    const { expiresAt } = await own.done({ what: 'use', sandbox: id, extendMs: 4000 });
    expect(words[0]).toBe(process.execPath);
    const keeper = spawn(process.execPath, words.slice(1), { stdio: 'ignore' });
    try {
      await gone(place.engine, containerId, 20_000);
      expect(Date.now() - Date.parse(expiresAt)).toBeGreaterThan(-100);
      await until(() => keeper.exitCode === 0, 3000);
      expect(own.written()).toEqual([]);
    } finally {
      keeper.kill('SIGKILL');
    }
  });

  it('is nobody’s orphan, and cleaning up by force takes it', kept, async () => {
    await using own = await Keeping.on(place);
    const { id, containerId } = await own.keep();
    expect((await own.bench.call(['run', '--', 'true'])).status).toBe(0);
    expect((await own.bench.call(['sandbox', 'cleanup'])).status).toBe(0);
    expect(await exists(place.engine, containerId)).toBe(true);
    expect((await own.bench.call(['sandbox', 'cleanup', '--force'])).status).toBe(0);
    expect(await exists(place.engine, containerId)).toBe(false);
    expect(await own.done({ what: 'use', sandbox: id })).toMatchObject({ error: 'ACODE-CTN-012' });
    // And what was there for it alone.
    await until(() => keepersOf(id).length === 0, 5000);
    expect(own.written()).toEqual([]);
  });

  it('cannot be used where the user’s rules have become another sandbox’s', kept, async () => {
    await using own = await Keeping.on(place);
    const { id } = await own.keep();
    await own.bench.repositoryFile('sandbox:\n  defaults:\n    memory_mb: 64\n');
    expect(await own.done({ what: 'use', sandbox: id })).toMatchObject({ error: 'ACODE-SBX-026' });
  });

  // By itself, since it holds up everything else in this process.
  it('cannot be extended when its time is over, since whoever ends it then may be about to', async () => {
    await using own = await Keeping.on(place);
    await using host = await openHost(place);
    const sandbox = await host.acode.create({ keep: true, expiresInMs: 2000 });
    own.made.push(sandbox.containerId);
    // Nothing else of this process has its turn before the question.
    while (Date.now() <= sandbox.expiresAt.getTime());
    await expect(sandbox.extend(60_000)).rejects.toMatchObject({
      code: 'ACODE-SBX-025',
      context: { reason: 'its lease expired' },
    });
    await gone(place.engine, sandbox.containerId, 20_000);
  });
});
