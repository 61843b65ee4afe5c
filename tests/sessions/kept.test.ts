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
import { until } from '../support/waiting.ts';
import { places } from './places.ts';

const soon = () => AbortSignal.timeout(60_000);

const after = (moment: string, ms: number): Promise<void> =>
  new Promise(resolve => void setTimeout(resolve, Math.max(0, Date.parse(moment) + ms - Date.now())));

// How long a sandbox lives in which something has to happen before its time is over: a busy machine may need more.
const LIFETIMES_MS = [12_000, 40_000, 120_000];

/** Tries with ever more time, until an attempt was in time to be an answer. */
async function inItsLifetime<Value>(attempt: (ms: number) => Promise<Value | null>): Promise<Value> {
  for (const ms of LIFETIMES_MS) {
    const answer = await attempt(ms);
    if (answer !== null) return answer;
  }
  throw new Error(`nothing was done within ${LIFETIMES_MS.at(-1)} ms`);
}

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
  const kept = { concurrent: true, timeout: 400_000 };

  it(
    'outlives its process, is used by others with all that is in it, and is killed with its keeper',
    kept,
    async () => {
      await using own = await Keeping.on(place);
      const { id, containerId } = await own.keep();
      await until(() => reapersOf(own.bench).length === 0);
      expect(await exists(place.engine, containerId)).toBe(true);
      expect(keepersOf(id)).toHaveLength(1);
      const first = await own.done({ what: 'use', sandbox: id, command: 'cat /tmp/mine; echo again > /tmp/mine' });
      expect(first).toMatchObject({ id, kept: true, stdout: 'kept\n', exitCode: 0 });
      // By the beginning of its id; and who lets go of it does not end it.
      const second = await own.done({ what: 'use', sandbox: id.slice(0, 8), command: 'cat /tmp/mine', kill: true });
      expect(second).toMatchObject({ stdout: 'again\n' });
      expect(await exists(place.engine, containerId)).toBe(false);
      await until(() => keepersOf(id).length === 0);
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
    await until(() => reapersOf(own.bench).length === 0);
    // The control: nobody has removed it yet, and nothing is written down about it.
    const left = await own.bench.left();
    own.made.push(...left);
    expect(left).toHaveLength(1);
    expect(own.written()).toEqual([]);
    await own.bench.exec(['true']);
    await until(async () => (await own.bench.left()).length === 0);
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
    const { id, containerId, expiresAt } = await inItsLifetime(async ms => {
      const said = await own.keep(ms);
      await until(() => reapersOf(own.bench).length === 0);
      return (await exists(place.engine, said.containerId)) ? said : null;
    });
    await gone(place.engine, containerId);
    const lateMs = Date.now() - Date.parse(expiresAt);
    process.stdout.write(`FIGURE kept sandbox, expiry to gone, ${place.name}: ${Math.round(lateMs)} ms\n`);
    expect(lateMs).toBeGreaterThan(-100);
    await until(() => keepersOf(id).length === 0);
    expect(own.written()).toEqual([]);
    expect(await own.done({ what: 'use', sandbox: id })).toMatchObject({ error: 'ACODE-CTN-012' });
  });

  it('goes later where it was extended, and earlier where it was shortened', kept, async () => {
    await using own = await Keeping.on(place);
    const shorter = await own.keep(600_000);
    const { longer, extended } = await inItsLifetime(async ms => {
      const made = await own.keep(ms);
      const said = await own.done({ what: 'use', sandbox: made.id, extendMs: ms + 8000 });
      return said.error === undefined ? { longer: made, extended: said } : null;
    });
    expect(Date.parse(extended.expiresAt)).toBeGreaterThan(Date.parse(longer.expiresAt));
    await own.done({ what: 'use', sandbox: shorter.id, extendMs: 2000 });
    await gone(place.engine, shorter.containerId);
    await after(longer.expiresAt, 1000);
    expect(await exists(place.engine, longer.containerId)).toBe(true);
    await gone(place.engine, longer.containerId);
    expect(Date.now() - Date.parse(extended.expiresAt)).toBeGreaterThan(-100);
  });

  it('is not ended by a process that does not know yet that another one extended it', kept, async () => {
    await using own = await Keeping.on(place);
    const { child, said, ended, extended } = await inItsLifetime(async ms => {
      const started = await client(own.bench, { what: 'keep', expiresInMs: ms, stay: true });
      own.made.push(started.said.containerId);
      const answer = await own.done({ what: 'use', sandbox: started.said.id, extendMs: ms + 60_000 });
      if (answer.error === undefined) return { ...started, extended: answer };
      started.child.kill('SIGKILL');
      await started.ended;
      return null;
    });
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
      await gone(place.engine, containerId);
      expect(Date.now() - Date.parse(expiresAt)).toBeGreaterThan(-100);
      await until(() => keeper.exitCode === 0);
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
    await until(() => keepersOf(id).length === 0);
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
    await gone(place.engine, sandbox.containerId);
  });
});
