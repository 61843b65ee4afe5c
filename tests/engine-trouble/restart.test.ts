// An engine that is restarted, killed, frozen or full in the middle of things: a right result or a code, and nothing left.

import { once } from 'node:events';
import { rmSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { AcodeError } from '@acode/sandbox';
import type { RunRequest, RunResult } from '@acode/sandbox';
import { Bench } from '../cli/bench.ts';
import { TestHost, images, withEngine } from '../support/engines.ts';
import { heal, make, makeRuntimeDirectory, remains, settles, trouble, withoutTrouble } from '../support/trouble.ts';
import { EngineProxy } from '../support/proxy.ts';
import { reapersIn } from '../support/remains.ts';

/** How soon everything is gone once the engine answers. */
const GONE_MS = 2000;

interface Outcome {
  readonly result: RunResult | null;
  readonly error: unknown;
  readonly ms: number;
}

async function outcomeOf(work: Promise<RunResult>): Promise<Outcome> {
  const began = performance.now();
  const ms = (): number => performance.now() - began;
  return work.then(
    result => ({ result, error: null, ms: ms() }),
    (error: unknown) => ({ result: null, error, ms: ms() }),
  );
}

/** A command that has printed its first line, and what will become of it. */
async function underWay(
  host: TestHost,
  command: string,
  request: RunRequest = {},
): Promise<{ outcome: Promise<Outcome> }> {
  let printed: () => void = () => undefined;
  const first = new Promise<void>(resolve => (printed = resolve));
  const outcome = outcomeOf(host.acode.run(command, { ...request, onStdout: () => printed() }));
  await Promise.race([
    first,
    outcome.then(({ error }) => {
      throw new Error('it ended before it printed anything', { cause: error });
    }),
  ]);
  return { outcome };
}

function expectTyped({ error }: Pick<Outcome, 'error'>, code: RegExp): void {
  expect(error).toBeInstanceOf(AcodeError);
  expect(error).toMatchObject({ code: expect.stringMatching(code), hint: expect.stringMatching(/\w/) });
}

describe.skipIf(withoutTrouble)('an engine in trouble', () => {
  const before = process.env['XDG_RUNTIME_DIR'];
  let runtime: string;
  let host: TestHost;

  beforeEach(async () => {
    await heal();
    runtime = makeRuntimeDirectory();
    process.env['XDG_RUNTIME_DIR'] = runtime;
    host = await TestHost.open(trouble);
  });
  afterEach(async () => {
    await heal();
    await host[Symbol.asyncDispose]();
    try {
      await settles(
        'nothing is left',
        GONE_MS,
        () => remains(runtime),
        left => left.length === 0,
      );
    } finally {
      process.env['XDG_RUNTIME_DIR'] = before;
      rmSync(runtime, { recursive: true, force: true });
    }
  });

  // The session lives on, so its reaper and its socket do too; on the engine nothing may be left.
  const onEngine = async (): Promise<string[]> =>
    (await remains(runtime)).filter(one => /^(?:container|network|volume) /.test(one));
  const goneSoon = (): Promise<number> =>
    settles('nothing is left on the engine', GONE_MS, onEngine, left => left.length === 0);
  const worksAgain = async (): Promise<void> => {
    expect(await host.acode.run('echo again; exit 3')).toMatchObject({ stdout: 'again\n', exitCode: 3 });
  };

  it.each([
    ['restart', 'off'],
    ['restart', 'on'],
    ['kill', 'off'],
    ['kill', 'on'],
  ] as const)('%s in mid-run, live-restore %s: a code soon, nothing left, the next run works', async (what, live) => {
    await make(`live-restore ${live}`);
    await using bystander = await Bystander.start();
    const { outcome } = await underWay(host, 'echo up; sleep 60; echo not reached');
    const done = make(what);
    const ended = await outcome;
    expectTyped(ended, /^ACODE-SBX-018$/);
    expect(ended.ms).toBeLessThan(10_000);
    await done;
    await goneSoon();
    // The control: the engine was really restarted, in the way that was asked for.
    expect(await bystander.runs()).toBe(live === 'on');
    await worksAgain();
  });

  it('a restart between the runs of a session is not noticed', async () => {
    await worksAgain();
    await make('restart');
    await worksAgain();
    expect(await goneSoon()).toBeLessThan(GONE_MS);
  });

  it('a network of the session that a restart finds in use is removed too', async () => {
    await using bridged = await TestHost.open(trouble, {
      config: { sandbox: { images: { default: images.busybox }, network: { allow_bridge: true } } },
    });
    const { outcome } = await underWay(bridged, 'echo up; sleep 60', { policy: { network: 'bridge' } });
    expect(await onEngine()).toHaveLength(2);
    const done = make('kill');
    expectTyped(await outcome, /^ACODE-SBX-018$/);
    await done;
    await bridged.acode.close();
    await goneSoon();
  });

  it('frozen before the first contact: a refusal within six seconds, and the next run works', async () => {
    await make('pause');
    const { error, ms } = await outcomeOf(host.acode.run('echo hi'));
    expectTyped({ error }, /^ACODE-SBX-008$/);
    expect(ms).toBeLessThan(6000);
    await make('resume');
    await worksAgain();
    await goneSoon();
  });

  it('frozen between two runs: a code within six seconds, and the next run works', async () => {
    await worksAgain();
    await make('pause');
    const { error, ms } = await outcomeOf(host.acode.run('echo hi'));
    expectTyped({ error }, /^ACODE-SBX-0(?:08|18)$/);
    expect(ms).toBeLessThan(6000);
    await make('resume');
    await worksAgain();
    await goneSoon();
  });

  it('frozen while a command runs, and thawed: the result is right', async () => {
    const { outcome } = await underWay(host, 'echo up; sleep 1; echo end; exit 7');
    await make('pause');
    await new Promise(resolve => setTimeout(resolve, 3000));
    await make('resume');
    expect((await outcome).result).toMatchObject({ stdout: 'up\nend\n', exitCode: 7, timedOut: false });
    await goneSoon();
  });

  it('frozen until after the time limit: ended in bounded time, and nothing is left once it is thawed', async () => {
    const { outcome } = await underWay(host, 'echo up; sleep 60', { policy: { timeoutMs: 1500 } });
    await make('pause');
    const ended = await outcome;
    expect(ended.ms).toBeLessThan(1500 + 2000 + 10_000 + 2000);
    expectTyped(ended, /^ACODE-SBX-018$/);
    await make('resume');
    await goneSoon();
  });

  it('frozen while a sandbox is removed: the result comes, closing waits a little, the reaper does the rest', async () => {
    // Output ends when the removal begins, which then takes the engine a tenth of a second: now and then it is too fast.
    for (let attempt = 0; ; attempt += 1) {
      await using removing = await TestHost.open(trouble);
      const running = await removing.acode.spawn('echo up; exit 4');
      for await (const _ of running.stdout) continue;
      await make('pause');
      const result = await running.result;
      const began = performance.now();
      await removing.acode.close();
      const ms = performance.now() - began;
      await make('resume');
      expect(result).toMatchObject({ stdout: 'up\n', exitCode: 4 });
      expect(ms).toBeLessThan(12_000);
      await goneSoon();
      // The control: closing had to wait, so the removal was really under way.
      if (ms > 5000) return;
      expect(attempt).toBeLessThan(10);
    }
  });

  it('full while a sandbox is made: a code that says so, and nothing is left', async () => {
    await worksAgain();
    await make('fill');
    const { error, ms } = await outcomeOf(host.acode.run('echo hi'));
    expectTyped({ error }, /^ACODE-SBX-0(?:01|06)$/);
    expect(String(error)).toMatch(/no space left on device/);
    expect(ms).toBeLessThan(10_000);
    await goneSoon();
    await make('free');
    await worksAgain();
  });

  it('full while a command runs: the result is right, and the sandbox is removed all the same', async () => {
    const { outcome } = await underWay(host, 'echo up; sleep 1; echo end; exit 5');
    await make('fill');
    expect((await outcome).result).toMatchObject({ stdout: 'up\nend\n', exitCode: 5 });
    await goneSoon();
  });
});

describe.skipIf(withoutTrouble)('the command, on an engine in trouble', () => {
  let bench: Bench;
  beforeEach(async () => {
    await heal();
    bench = await Bench.at(trouble);
  });
  afterEach(async () => {
    await heal();
    try {
      await settles('nothing is left', GONE_MS, left, found => found.length === 0);
    } finally {
      await bench[Symbol.asyncDispose]();
    }
  });

  const runtime = (): string => bench.env['XDG_RUNTIME_DIR'] ?? '';
  const left = (): Promise<string[]> => remains(runtime());
  const printing = async (script: string) => {
    const started = bench.start(['run', '--', 'sh', '-c', script]);
    await once(started.child.stdout ?? started.child, 'data');
    return started;
  };

  it.each(['restart', 'kill'] as const)('%s in mid-run: exit 125, a message with its code and a hint', async what => {
    const { ended } = await printing('echo up; sleep 60');
    const done = make(what);
    const { status, stderr, ms } = await ended;
    await done;
    expect(status).toBe(125);
    expect(stderr).toMatch(/ACODE-SBX-018/);
    expect(ms).toBeLessThan(20_000);
  });

  it('frozen while it cleans up: the status of the command, in bounded time', async () => {
    await using proxy = await EngineProxy.start(trouble.socket);
    proxy.onRequest(async method => {
      if (method === 'DELETE') await make('pause');
      return undefined;
    });
    const env = { DOCKER_HOST: `unix://${proxy.socket}` };
    const { status, ms } = await bench.call(['run', '--', 'sh', '-c', 'echo end; exit 6'], { env });
    expect(status).toBe(6);
    expect(ms).toBeLessThan(15_000);
    // The control: it had to wait for the engine.
    expect(ms).toBeGreaterThan(5000);
    proxy.onRequest(undefined);
    await make('resume');
    await settles('nothing is left', GONE_MS, left, found => found.length === 0);
  });

  it.each(['off', 'on'] as const)(
    'killed while the engine is down (live-restore %s): the reaper waits for it, then cleans up',
    async live => {
      await make(`live-restore ${live}`);
      const { child, ended } = await printing('echo up; sleep 60');
      // Frozen first, so that the client dies before it can notice anything.
      await make('pause');
      child.kill('SIGKILL');
      await ended;
      await make('stop-daemon');
      await new Promise(resolve => setTimeout(resolve, 3000));
      // The control: it is the reaper that waits, and nobody else is there.
      expect(reapersIn(runtime())).toHaveLength(1);
      await make('start-daemon');
      await settles('nothing is left', GONE_MS, left, found => found.length === 0);
    },
  );

  it('killed while the engine is frozen: gone soon after it is thawed', async () => {
    const { child, ended } = await printing('echo up; sleep 60');
    await make('pause');
    child.kill('SIGKILL');
    await ended;
    await new Promise(resolve => setTimeout(resolve, 3000));
    expect(reapersIn(runtime())).toHaveLength(1);
    await make('resume');
    await settles('nothing is left', GONE_MS, left, found => found.length === 0);
  });
});

/** A container that is none of acode’s: whether it outlives a restart shows what kind of restart it was. */
class Bystander implements AsyncDisposable {
  readonly #id: string;

  private constructor(id: string) {
    this.#id = id;
  }

  static async start(): Promise<Bystander> {
    const signal = AbortSignal.timeout(60_000);
    return withEngine(trouble, async ({ containers }) => {
      // With an init: else it would not listen to the engine’s TERM, and hold up every restart for ten seconds.
      const body = { Image: images.busybox, Cmd: ['sleep', '600'], HostConfig: { Init: true } };
      const { id } = await containers.create(body, { signal });
      await containers.start(id, { signal });
      return new Bystander(id);
    });
  }

  async runs(): Promise<boolean> {
    const signal = AbortSignal.timeout(60_000);
    return withEngine(trouble, async engine => (await engine.containers.inspect(this.#id, { signal })).State.Running);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const signal = AbortSignal.timeout(60_000);
    await withEngine(trouble, engine => engine.containers.remove(this.#id, { force: true, signal }));
  }
}
