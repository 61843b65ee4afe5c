// Whoever ends first, client or server, a command never outlives its client, and nothing is run twice or left behind.

import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { everything } from '../support/targets.ts';
import { until } from '../support/waiting.ts';
import { ServedBench, places } from './served-bench.ts';

const BEATING = 'echo started; while :; do date >> beat; sleep 0.05; done';

const SIGNALS = [
  ['SIGTERM', 143],
  ['SIGINT', 130],
  ['SIGHUP', 129],
  ['SIGQUIT', 131],
] as const;

describe.each(places)('a server on $name', place => {
  // Which signal it was is the command line’s matter; that the sandbox ends with it, the level’s.
  const signals = place.name === 'bubblewrap' || everything ? SIGNALS.length : 1;
  let served: ServedBench;
  const opened = async (): Promise<void> => void (served = await ServedBench.at(place));
  const closed = (): Promise<void> => served[Symbol.asyncDispose]();

  const pause = (ms: number): Promise<void> => new Promise(resolve => void setTimeout(resolve, ms));
  const beats = (): number => readFileSync(join(served.bench.workspace, 'beat')).length;
  const begun = async (): Promise<ReturnType<typeof served.bench.start>> => {
    writeFileSync(join(served.bench.workspace, 'beat'), '');
    const started = served.bench.start(['run', BEATING]);
    await new Promise(resolve => started.child.stdout?.once('data', resolve));
    await untilTrue(() => beats() > 0);
    return started;
  };
  const untilTrue = async (isTrue: () => boolean | Promise<boolean>): Promise<void> => {
    await until(isTrue);
  };
  const nothingLeft = async (): Promise<void> => {
    if (place.name !== 'bubblewrap') await untilTrue(async () => (await served.bench.left()).length === 0);
  };

  describe('that lives on', () => {
    beforeAll(opened);
    afterAll(closed);

    it.each(SIGNALS.slice(0, signals))('stops a command whose client got %s, with %i', async (signal, status) => {
      const { child, ended } = await begun();
      child.kill(signal);
      const end = await ended;
      expect(end.status).toBe(status);
      expect(end.stderr).toContain(`acode: stopped by ${signal}.`);
      const before = beats();
      await pause(300);
      expect(beats()).toBe(before);
      await served.untilWarm();
    });

    it('stops a command whose client was killed within a second', async () => {
      const { child, ended } = await begun();
      child.kill('SIGKILL');
      await ended;
      await pause(1000);
      const before = beats();
      await pause(300);
      expect(before).toBeGreaterThan(0);
      expect(beats()).toBe(before);
      await served.untilWarm();
    });

    it('is alone in its workspace', async () => {
      const second = await served.bench.call(['serve']);
      expect(second.status).toBe(125);
      expect(second.stderr).toContain('ACODE-SBX-023');
      await served.untilWarm();
    });

    it('is not waited for when it hangs, and what it did not begin it never begins', async () => {
      served.server.kill('SIGSTOP');
      const { status, stderr } = await served.call(['run', 'echo once >> times']);
      expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
      served.server.kill('SIGCONT');
      await pause(500);
      expect(readFileSync(join(served.bench.workspace, 'times'), 'utf8')).toBe('once\n');
      await served.untilWarm();
    });
  });

  describe('that ends', () => {
    beforeEach(opened);
    afterEach(closed);

    it('because it is killed takes its commands with it, and their clients say so', async () => {
      const { ended } = await begun();
      served.server.kill('SIGKILL');
      const { status, stderr } = await ended;
      expect(status).toBe(125);
      expect(stderr).toContain('ACODE-SBX-024');
      await nothingLeft();
      await pause(1000);
      const before = beats();
      await pause(300);
      expect(beats()).toBe(before);
      // Its socket is still there, and is nobody’s: a call says nothing of it, and a server takes its place.
      expect(served.sockets).toHaveLength(1);
      expect(await served.call(['run', 'echo hi'])).toMatchObject({ status: 0, stderr: '' });
      const { stderr: said } = await served.call(['run', '--verbose', 'echo hi']);
      expect(said).toContain('the server of this workspace is not used');
      await served.serve();
      await served.untilWarm();
    });

    it.each(SIGNALS.slice(0, Math.min(3, signals)))(
      'because it gets %s stops its commands, and leaves nothing',
      async (signal, status) => {
        const { ended } = await begun();
        const over = new Promise<number | null>(resolve => served.server.once('exit', resolve));
        served.server.kill(signal);
        expect((await ended).status).toBe(143);
        expect(await over).toBe(status);
        const before = beats();
        await pause(300);
        expect(beats()).toBe(before);
        expect(served.sockets).toEqual([]);
        if (place.name !== 'bubblewrap') expect(await served.bench.left()).toEqual([]);
      },
    );
  });
});
