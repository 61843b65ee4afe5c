// A sandbox that was kept: it outlives its maker, is found by others, goes at its time, and leaves nobody waiting for it.

import { spawn } from 'node:child_process';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Bench } from '../cli/bench.ts';
import { openHost } from '../conformance/host.ts';
import { exists, gone, reapersOf } from '../ownership/victims.ts';
import { warmth, withEngine, withoutEngines } from '../support/engines.ts';
import { benchAt, client, done, keepersOf } from './clients.ts';
import { places, until } from './places.ts';

const soon = () => AbortSignal.timeout(20_000);

describe.skipIf(withoutEngines || warmth.pool !== undefined).each(places)('a kept sandbox on $name', place => {
  let bench: Bench;
  const made: string[] = [];
  beforeEach(async () => {
    bench = await benchAt(place);
  });
  afterEach(async () => {
    await withEngine(place.engine, async ({ containers }) => {
      for (const id of made.splice(0))
        await containers.remove(id, { force: true, signal: soon() }).catch(() => undefined);
    });
    await bench[Symbol.asyncDispose]();
  });
  const keep = async (expiresInMs?: number) => {
    const said = await done(bench, { what: 'keep', ...(expiresInMs === undefined ? {} : { expiresInMs }) });
    made.push(said.containerId);
    return said;
  };
  const written = () => {
    const below = (name: string): string[] => {
      try {
        return readdirSync(join(bench.env['XDG_STATE_HOME'] ?? '', 'acode', name));
      } catch {
        return [];
      }
    };
    return [...below('kept'), ...below('leases')];
  };

  it('outlives its process, is used by others with all that is in it, and is killed with its keeper', async () => {
    const { id, containerId } = await keep();
    await until(() => reapersOf(bench).length === 0, 20_000);
    expect(await exists(place.engine, containerId)).toBe(true);
    expect(keepersOf(id)).toHaveLength(1);
    const first = await done(bench, { what: 'use', sandbox: id, command: 'cat /tmp/mine; echo again > /tmp/mine' });
    expect(first).toMatchObject({ id, kept: true, stdout: 'kept\n', exitCode: 0 });
    // By the beginning of its id; and who lets go of it does not end it.
    const second = await done(bench, { what: 'use', sandbox: id.slice(0, 8), command: 'cat /tmp/mine', kill: true });
    expect(second).toMatchObject({ stdout: 'again\n' });
    expect(await exists(place.engine, containerId)).toBe(false);
    await until(() => keepersOf(id).length === 0, 3000);
    expect(written()).toEqual([]);
  });

  it('is cleared away by the next command where its maker is killed before it was kept', async () => {
    // The first run of an image reads its users from a container of its own, which is not the one meant here.
    await bench.exec(['true']);
    const maker = client(bench, { what: 'keep', stay: true }, child => {
      const look = async (): Promise<void> => {
        while ((await bench.left()).length === 0) await new Promise(resolve => void setTimeout(resolve, 2));
        child.kill('SIGKILL');
      };
      void look();
    });
    await expect(maker).rejects.toThrow('JSON');
    await until(() => reapersOf(bench).length === 0, 20_000);
    // The control: nobody has removed it yet, and nothing is written down about it.
    const left = await bench.left();
    made.push(...left);
    expect(left).toHaveLength(1);
    expect(written()).toEqual([]);
    await bench.exec(['true']);
    await until(async () => (await bench.left()).length === 0, 10_000);
  });

  it('survives a client that is killed while it uses it', async () => {
    const { id, containerId } = await keep();
    const { child, ended } = await client(bench, { what: 'hold', commands: [] });
    child.kill('SIGKILL');
    await ended;
    await done(bench, { what: 'use', sandbox: id, command: 'true' });
    await new Promise(resolve => void setTimeout(resolve, 1500));
    expect(await exists(place.engine, containerId)).toBe(true);
    await done(bench, { what: 'use', sandbox: id, kill: true });
    expect(await exists(place.engine, containerId)).toBe(false);
  });

  it('goes at its time although no process of acode lives', { timeout: 60_000 }, async () => {
    const { id, containerId, expiresAt } = await keep(5000);
    await until(() => reapersOf(bench).length === 0, 20_000);
    expect(await exists(place.engine, containerId)).toBe(true);
    await gone(place.engine, containerId, 30_000);
    const lateMs = Date.now() - Date.parse(expiresAt);
    process.stdout.write(`FIGURE kept sandbox, expiry to gone, ${place.name}: ${Math.round(lateMs)} ms\n`);
    expect(lateMs).toBeGreaterThan(-100);
    expect(lateMs).toBeLessThan(3000);
    await until(() => keepersOf(id).length === 0, 3000);
    expect(written()).toEqual([]);
    expect(await done(bench, { what: 'use', sandbox: id })).toMatchObject({ error: 'ACODE-CTN-012' });
  });

  it('goes later where it was extended, and earlier where it was shortened', { timeout: 60_000 }, async () => {
    const [shorter, longer] = [await keep(60_000), await keep(12_000)];
    const extended = await done(bench, { what: 'use', sandbox: longer.id, extendMs: 20_000 });
    expect(Date.parse(extended.expiresAt)).toBeGreaterThan(Date.parse(longer.expiresAt));
    const shortened = await done(bench, { what: 'use', sandbox: shorter.id, extendMs: 2000 });
    await gone(place.engine, shorter.containerId, 20_000);
    expect(Math.abs(Date.now() - Date.parse(shortened.expiresAt))).toBeLessThan(3000);
    await new Promise(resolve => void setTimeout(resolve, Date.parse(longer.expiresAt) + 1500 - Date.now()));
    expect(await exists(place.engine, longer.containerId)).toBe(true);
    await gone(place.engine, longer.containerId, 30_000);
    expect(Math.abs(Date.now() - Date.parse(extended.expiresAt))).toBeLessThan(3000);
  });

  it('is not ended by a process that does not know yet that another one extended it', { timeout: 60_000 }, async () => {
    const { child, said, ended } = await client(bench, { what: 'keep', expiresInMs: 8000, stay: true });
    made.push(said.containerId);
    const extended = await done(bench, { what: 'use', sandbox: said.id, extendMs: 60_000 });
    // Not in time would be no answer: the machine was too slow for the question.
    expect(Date.parse(extended.expiresAt)).toBeGreaterThan(Date.parse(said.expiresAt));
    await new Promise(resolve => void setTimeout(resolve, Date.parse(said.expiresAt) + 1500 - Date.now()));
    expect(await exists(place.engine, said.containerId)).toBe(true);
    child.kill('SIGKILL');
    await ended;
    await done(bench, { what: 'use', sandbox: said.id, kill: true });
    expect(await exists(place.engine, said.containerId)).toBe(false);
  });

  it('goes at its new time where it was extended when its keeper had come for it', { timeout: 60_000 }, async () => {
    const { id, containerId } = await keep();
    const [shell = 0] = keepersOf(id);
    // What the shell becomes when it sees that the time is over: of what it is then, only the moment is another one here.
    const words = readFileSync(`/proc/${shell}/cmdline`, 'utf8').split('\0').slice(5, -1);
    process.kill(shell, 'SIGKILL');
    const { expiresAt } = await done(bench, { what: 'use', sandbox: id, extendMs: 5000 });
    expect(words[0]).toBe(process.execPath);
    const keeper = spawn(process.execPath, words.slice(1), { stdio: 'ignore' });
    try {
      await gone(place.engine, containerId, 20_000);
      expect(Math.abs(Date.now() - Date.parse(expiresAt))).toBeLessThan(3000);
      await until(() => keeper.exitCode === 0, 3000);
      expect(written()).toEqual([]);
    } finally {
      keeper.kill('SIGKILL');
    }
  });

  it('cannot be extended when its time is over, since whoever ends it then may be about to', async () => {
    await using host = await openHost(place);
    const sandbox = await host.acode.create({ keep: true, expiresInMs: 3000 });
    made.push(sandbox.containerId);
    // Nothing else of this process has its turn before the question.
    while (Date.now() <= sandbox.expiresAt.getTime());
    await expect(sandbox.extend(60_000)).rejects.toMatchObject({
      code: 'ACODE-SBX-025',
      context: { reason: 'its time was over' },
    });
    await gone(place.engine, sandbox.containerId, 20_000);
  });

  it('is nobody’s orphan, and cleaning up by force takes it', async () => {
    const { id, containerId } = await keep();
    expect((await bench.call(['run', '--', 'true'])).status).toBe(0);
    expect((await bench.call(['sandbox', 'cleanup'])).status).toBe(0);
    expect(await exists(place.engine, containerId)).toBe(true);
    expect((await bench.call(['sandbox', 'cleanup', '--force'])).status).toBe(0);
    expect(await exists(place.engine, containerId)).toBe(false);
    expect(await done(bench, { what: 'use', sandbox: id })).toMatchObject({ error: 'ACODE-CTN-012' });
    // And what was there for it alone.
    await until(() => keepersOf(id).length === 0, 5000);
    expect(written()).toEqual([]);
  });

  it('cannot be used where the user’s rules have become another sandbox’s', async () => {
    const { id } = await keep();
    await bench.repositoryFile('sandbox:\n  defaults:\n    memory_mb: 64\n');
    expect(await done(bench, { what: 'use', sandbox: id })).toMatchObject({ error: 'ACODE-SBX-026' });
  });
});
