// Pre-started sandboxes behave as one that was made for its command does.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { basename } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { AcodeError, AuditRecord, PoolOptions, RunResult } from '@acode/sandbox';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { ConformanceHost } from '../conformance/host.ts';
import { itWhere } from '../conformance/targets.ts';
import type { Target } from '../conformance/targets.ts';
import { images, withEngine } from '../support/engines.ts';
import { everything } from '../support/targets.ts';
import { until } from '../support/waiting.ts';
import { openWarm, untilWarm } from './warm-host.ts';

const CLIENT = fileURLToPath(new URL('client.mjs', import.meta.url));
const CIRCUMSTANCES = 'id -u; id -g; pwd; ulimit -n; env | cut -d= -f1 | sort';
const ASKED = process.env['ACODE_POOL_HANDOVERS'];
const MAX_AT_ONCE = 4;
// How many of them must have had a pre-started sandbox, for the rest to say anything about those.
const WARM_SHARE = 0.2;

/** Commands in pre-started sandboxes. */
export function commandBehaviours(target: Target): void {
  describe('a command in a pre-started sandbox', () => {
    let host: ConformanceHost;
    let made: RunResult;
    beforeAll(async () => {
      // Before there is another host: what is left of one is told by what descends from this process.
      {
        await using cold = await openWarm(target, false);
        made = await cold.acode.run(CIRCUMSTANCES);
      }
      host = await openWarm(target);
    });
    afterAll(() => host[Symbol.asyncDispose]());

    const warm = async (run: () => Promise<RunResult>): Promise<RunResult> => {
      await untilWarm(host);
      const result = await run();
      expect(result.warm).toBe(true);
      return result;
    };

    it('gets its input, its environment and its directory, and its exit status comes back', async () => {
      mkdirSync(host.file('sub'), { recursive: true });
      const line = 'cat; echo "$GIVEN"; pwd; echo err >&2; exit 7';
      const request = { stdin: 'in\n', env: { GIVEN: 'it’s a "value"\nof two lines' }, cwd: 'sub' };
      const result = await warm(() => host.acode.run(line, request));
      expect(result).toMatchObject({
        exitCode: 7,
        stdout: `in\nit’s a "value"\nof two lines\n${host.inside}/sub\n`,
        stderr: 'err\n',
      });
    });

    it('is the same as one in a sandbox that was made for it: the control', async () => {
      expect(made).toMatchObject({ warm: false, exitCode: 0 });
      expect((await warm(() => host.acode.run(CIRCUMSTANCES))).stdout).toBe(made.stdout);
    });

    it('can be written to while it runs', async () => {
      await untilWarm(host);
      await using command = await host.acode.spawn(['cat']);
      await command.write('one\n');
      await command.closeStdin();
      expect(await command.result).toMatchObject({ stdout: 'one\n', exitCode: 0, warm: true });
    });

    it('is ended at its time limit, whatever limit the sandbox was made under', async () => {
      const result = await warm(() => host.acode.run('echo begun; sleep 600', { policy: { timeoutMs: 2000 } }));
      expect(result).toMatchObject({ timedOut: true, exitCode: null, stdout: 'begun\n' });
    });

    it('is cancelled at once, and nothing of it is left', async () => {
      await untilWarm(host);
      const cancel = new AbortController();
      const line = 'echo begun; sleep 600; echo late >late';
      const onStdout = (): void => cancel.abort();
      await expect(host.acode.run(line, { signal: cancel.signal, onStdout })).rejects.toMatchObject({
        code: 'ACODE-SBX-014',
        context: { result: { warm: true, stdout: 'begun\n' } },
      });
    });

    it('is on record under the sandbox it had, before it ran and after', async () => {
      const { sandboxId, auditSequence, correlationId } = await warm(() => host.acode.run(['true']));
      const outcome = ({ kind }: AuditRecord): boolean => kind === 'outcome';
      await until(async () => (await host.acode.audit.find(correlationId)).some(outcome));
      const records = await host.acode.audit.find(correlationId);
      const intent = records.find(({ kind }) => kind === 'intent');
      expect(intent).toMatchObject({ seq: auditSequence, sandboxId });
      expect(records.find(outcome)).toMatchObject({ intent: auditSequence, exitCode: 0, sandboxId, warm: true });
      // A warm hand-over counts what it really took.
      const { kpi_events: events } = await host.acode.audit.stats();
      const own = events.find(event => event.sandboxId === sandboxId);
      expect(own?.sandbox_provisioning_ms).toBeGreaterThan(0);
    });

    it('that has to have one of its own says why', async () => {
      const { warm: isWarm, warmReason } = await host.acode.explain(['true'], { taskId: 'mine' });
      expect({ isWarm, warmReason }).toMatchObject({ isWarm: false, warmReason: expect.stringContaining('task') });
      const result = await host.acode.run(['echo', 'x'], { taskId: 'mine' });
      expect(result).toMatchObject({ warm: false, stdout: 'x\n' });
    });

    itWhere(target, 'engine')('is not listed as waiting any more; the others are', async () => {
      await untilWarm(host);
      await using command = await host.acode.spawn(['cat']);
      const { containerId } = await command.closeStdin().then(() => command.result);
      await untilWarm(host);
      const listed = await host.acode.list();
      expect(listed.some(({ waiting }) => waiting === true)).toBe(true);
      expect(listed.filter(one => one.waiting === true).map(one => one.containerId)).not.toContain(containerId);
    });

    itWhere(target, 'engine')('does not get one that somebody ended while it waited', async () => {
      await untilWarm(host);
      const ended = (await host.acode.list()).flatMap(({ waiting, containerId }) => (waiting ? [containerId] : []));
      expect(ended.length).toBeGreaterThan(0);
      await withEngine(target.engine, async engine => {
        for (const id of ended) await engine.containers.kill(id, 'SIGKILL', { signal: AbortSignal.timeout(60_000) });
      });
      const result = await host.acode.run(['echo', 'alive']);
      expect(result.stdout).toBe('alive\n');
      expect(ended).not.toContain(result.containerId);
    });
  });
}

/** What must never happen, however often it is tried. */
export function neverBehaviours(target: Target): void {
  const handOvers = Number(ASKED ?? (everything || target.level === 'bubblewrap' ? 200 : 50));
  describe('pre-started sandboxes', () => {
    it(
      `are given out once, and never mixed up, in ${handOvers} hand-overs`,
      { timeout: Math.max(900_000, 1000 * handOvers) },
      async () => {
        await using host = await openWarm(target, { min: MAX_AT_ONCE, max: 2 * MAX_AT_ONCE });
        await untilWarm(host);
        const results: RunResult[] = [];
        let next = 0;
        const worker = async (): Promise<void> => {
          for (let at = next++; at < handOvers; at = next++) {
            results.push(await handOver(host, at));
            if (Math.random() < 0.5) await new Promise(resolve => void setTimeout(resolve, Math.random() * 100));
          }
        };
        await Promise.all(Array.from({ length: MAX_AT_ONCE }, worker));
        expect(results).toHaveLength(handOvers);
        expect(new Set(results.map(({ sandboxId }) => sandboxId)).size).toBe(handOvers);
        if (target.lacks.engine === undefined)
          expect(new Set(results.map(({ containerId }) => containerId)).size).toBe(handOvers);
        expect(results.filter(({ warm }) => warm).length).toBeGreaterThan(handOvers * WARM_SHARE);
      },
    );

    // Each leaves a mark in its own /tmp, its home and its processes, and would see that of another. The same command run
    // twice in one sandbox sees its mark: the control is in the command.
    async function handOver(host: ConformanceHost, at: number): Promise<RunResult> {
      const word = `${at}-${Math.random().toString(36).slice(2)}`;
      const look = 'if [ -e /tmp/mark ] || [ -e "$HOME/mark" ]; then echo used; else echo fresh; fi';
      const line = `${look}; touch /tmp/mark "$HOME/mark"; ${look}; cat; echo "$WORD" >&2; (sleep 5 &) ; exit ${at % 100}`;
      const result = await host.acode.run(line, { stdin: `${word}\n`, env: { WORD: word } });
      expect(result).toMatchObject({ stdout: `fresh\nused\n${word}\n`, stderr: `${word}\n`, exitCode: at % 100 });
      return result;
    }

    it('are not given to a command with another policy', async () => {
      await using host = await openWarm(target);
      await untilWarm(host);
      const other = { policy: { limits: { openFiles: 777 } } };
      const first = await host.acode.run('ulimit -n', other);
      expect(first).toMatchObject({ warm: false, stdout: '777\n' });
      await untilWarm(host, other);
      expect(await host.acode.run('ulimit -n', other)).toMatchObject({ warm: true, stdout: '777\n' });
      await untilWarm(host);
      const usual = await host.acode.run('ulimit -n');
      expect(usual.warm).toBe(true);
      expect(usual.stdout).not.toBe('777\n');
    });

    it('are not used once another directory is at the path of the workspace', async () => {
      await using host = await openWarm(target);
      writeFileSync(host.file('which'), 'old\n');
      await untilWarm(host);
      expect(await host.acode.run(['cat', 'which'])).toMatchObject({ warm: true, stdout: 'old\n' });
      await untilWarm(host);
      const aside = `${host.workspace}-aside`;
      renameSync(host.workspace, aside);
      try {
        mkdirSync(host.workspace);
        writeFileSync(host.file('which'), 'new\n');
        const result = await host.acode.run('cat which; echo written >by-command');
        expect(result).toMatchObject({ warm: false, stdout: 'new\n' });
        expect(readFileSync(host.file('by-command'), 'utf8')).toBe('written\n');
        expect(() => readFileSync(`${aside}/by-command`)).toThrow(/ENOENT/);
      } finally {
        rmSync(aside, { recursive: true });
      }
    });

    it('are not used once a protected part was removed and made anew, which takes its protection away', async () => {
      await using host = await openWarm(target);
      const made = (): void => {
        rmSync(host.file('.git'), { recursive: true, force: true });
        mkdirSync(host.file('.git'));
      };
      made();
      await host.acode.run(['true']);
      await untilWarm(host);
      const attack = 'echo mine >.git/config; echo allowed >allowed';
      expect(await host.acode.run(attack)).toMatchObject({ warm: true });
      expect(() => readFileSync(host.file('.git/config'))).toThrow(/ENOENT/);
      // The control: the command did run, and could write where it may.
      expect(readFileSync(host.file('allowed'), 'utf8')).toBe('allowed\n');
      await untilWarm(host);
      made();
      await host.acode.run(attack);
      expect(() => readFileSync(host.file('.git/config'))).toThrow(/ENOENT/);
    });

    it.each<[string, PoolOptions | false]>([
      ['waited', { min: 1, max: 1 }],
      ['is made for the command', false],
    ])(
      'one that %s gets no command once a protected part was made anew, though it was there at the last look',
      async (_, pool) => {
        await using host = await openWarm(target, pool);
        const made = (): void => {
          rmSync(host.file('.git'), { recursive: true, force: true });
          mkdirSync(host.file('.git'));
        };
        made();
        await host.acode.run(['true']);
        if (pool !== false) await untilWarm(host);
        const attack = 'echo mine >.git/config; echo allowed >allowed';
        {
          // What is told comes between that look and the hand-over.
          using _listening = host.acode.events.on('SandboxProvisioned', made);
          await expect(host.acode.run(attack)).rejects.toMatchObject({ code: 'ACODE-SBX-010' });
        }
        expect(readdirSync(host.file('.git'))).toEqual([]);
        expect(() => readFileSync(host.file('allowed'))).toThrow(/ENOENT/);
        // The control: without anybody who makes it anew the command runs, and can write where it may.
        await host.acode.run(attack);
        expect(readdirSync(host.file('.git'))).toEqual([]);
        expect(readFileSync(host.file('allowed'), 'utf8')).toBe('allowed\n');
      },
    );

    it('end with a command during which a protected part is made anew', async () => {
      await using host = await openWarm(target);
      mkdirSync(host.file('.git'));
      await host.acode.run(['true']);
      await untilWarm(host);
      const attack = 'echo started; until echo mine >.git/config; do sleep 0.1; done 2>/dev/null; sleep 15';
      const violations: string[] = [];
      using _told = host.acode.events.on('SecurityViolation', ({ sandboxId }) => violations.push(sandboxId));
      await using running = await host.acode.spawn(attack);
      for await (const chunk of running.stdout) if (Buffer.from(chunk).includes('started')) break;
      // The control: as long as it is the same directory nothing gets into it.
      await new Promise(resolve => void setTimeout(resolve, 300));
      expect(readdirSync(host.file('.git'))).toEqual([]);
      rmSync(host.file('.git'), { recursive: true });
      mkdirSync(host.file('.git'));
      const error: unknown = await running.result.catch((thrown: unknown) => thrown);
      expect(error).toMatchObject({
        code: 'ACODE-SBX-025',
        context: { result: { stdout: 'started\n', riskyChanges: [{ path: '.git' }] } },
      });
      // Those that wait have lost it as well, and may be told of too.
      const { context } = error as AcodeError<'ACODE-SBX-025'>;
      expect(violations).toContain(context.sandbox);
    });

    it('do not keep a command from what became protected, or is mounted, while they waited', async () => {
      await using host = await openWarm(target);
      await untilWarm(host);
      mkdirSync(host.file('.git'));
      mkdirSync(host.file('part'));
      writeFileSync(host.file('part/which'), 'part\n');
      const first = await host.acode.run('echo mine >.git/config; echo allowed >allowed');
      expect(first.warm).toBe(false);
      expect(() => readFileSync(host.file('.git/config'))).toThrow(/ENOENT/);
      expect(readFileSync(host.file('allowed'), 'utf8')).toBe('allowed\n');
      await untilWarm(host);
      const mounts = [{ source: 'part', target: '/part' }];
      const second = host.acode.run(['cat', '/part/which'], { policy: { mounts } });
      if (target.lacks['kernel walls'] === undefined)
        expect(await second).toMatchObject({ stdout: 'part\n', warm: false });
      else await expect(second).rejects.toMatchObject({ context: { violation: 'NestedWritableMount' } });
    });

    itWhere(target, 'engine')('are not used while another session could exchange what they have mounted', async () => {
      await using outer = await openWarm(target, false);
      mkdirSync(outer.file('inner'));
      const options = { ...target.options, workspace: outer.file('inner') };
      await using inner = await openWarm({ ...target, options });
      await untilWarm(inner);
      {
        await using _ = await outer.acode.spawn(['sleep', '60']);
        await expect(inner.acode.run(['true'])).rejects.toMatchObject({
          code: 'ACODE-SBX-010',
          context: { violation: 'NestedWritableMount' },
        });
      }
      // The control: it was the other one that stood in the way.
      expect(await inner.acode.run(['echo', 'x'])).toMatchObject({ stdout: 'x\n' });
    });

    it('are gone when the host is closed', async () => {
      const host = await openWarm(target);
      await untilWarm(host);
      expect((await host.remains()).length).toBeGreaterThan(0);
      // Fails if anything is left.
      await host[Symbol.asyncDispose]();
    });

    it('are gone when their client is killed', async () => {
      await using host = await openWarm(target, false);
      const waiting = async (): Promise<string[]> =>
        (await host.remains()).filter(one => !one.includes(basename(CLIENT)));
      expect(await waiting()).toEqual([]);
      const image = target.lacks.images === undefined ? { images: { default: images.busybox } } : {};
      const { config } = target.options;
      const options = {
        engine: { socket: target.engine.socket },
        sessionId: host.session,
        config: { ...config, sandbox: { ...image, ...config?.sandbox } },
        pool: { min: 2 },
      };
      const child = spawn(process.execPath, [CLIENT, JSON.stringify(options)], {
        cwd: host.workspace,
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      const exit = once(child, 'exit');
      await Promise.race([once(child.stdout, 'data'), exit]);
      expect((await waiting()).length).toBeGreaterThan(0);
      child.kill('SIGKILL');
      await exit;
      await until(async () => (await waiting()).length === 0);
    });
  });
}
