// The failures that acode was asked to be ready for, one by one: each has a code, says what happened, and says what to do next.
// What a real engine can be brought to do, it does; its faults come from a proxy before it.

import { existsSync, mkdtempSync, renameSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { limitError } from '@acode/sandbox';
import type { AcodeError, AcodeOptions, LogFields, RunRequest } from '@acode/sandbox';
import { leftover } from '../ownership/victims.ts';
import { TestHost, images, mainEngine, withoutEngines } from '../support/engines.ts';
import type { TestEngine } from '../support/engines.ts';
import { EngineProxy } from '../support/proxy.ts';
import type { RequestHook } from '../support/proxy.ts';
import { heal, make, trouble, withoutTrouble } from '../support/trouble.ts';

const DEAD = '00000000-0000-4000-8000-000000000000';
const NOBODY = '127.0.0.1:9/team/shell:1';

/** What a failure is known by. */
interface Failure {
  readonly code: string;
  readonly cause?: string;
  readonly message: RegExp;
  readonly hint: RegExp;
}

interface Line {
  readonly level: string;
  readonly message: string;
  readonly fields: LogFields;
}

type Config = NonNullable<NonNullable<AcodeOptions['config']>['sandbox']>;

/** A host behind a proxy that causes the trouble, with what it logs. */
class Place implements AsyncDisposable {
  readonly host: TestHost;
  readonly proxy: EngineProxy;
  readonly lines: Line[];

  private constructor(host: TestHost, proxy: EngineProxy, lines: Line[]) {
    this.host = host;
    this.proxy = proxy;
    this.lines = lines;
  }

  static async open(config: Config = {}, engine: TestEngine = mainEngine): Promise<Place> {
    const lines: Line[] = [];
    const write = (level: string) => (fields: LogFields, message: string) =>
      void lines.push({ level, message, fields });
    const proxy = await EngineProxy.start(engine.socket);
    const sandbox = { images: { default: images.busybox }, retry: { attempts: 1, base_ms: 1 }, ...config };
    const host = await TestHost.open(engine, {
      engine: { socket: proxy.socket },
      config: { sandbox },
      logger: { debug: write('debug'), info: write('info'), warn: write('warn'), error: write('error') },
    });
    return new Place(host, proxy, lines);
  }

  /** What a run fails with once requests meet this. */
  async failure(hook?: RequestHook, request: RunRequest = {}): Promise<AcodeError> {
    this.proxy.onRequest(hook);
    try {
      return await failureOf(this.host.acode.run(['true'], request));
    } finally {
      this.proxy.onRequest(undefined);
    }
  }

  asked(part: string): number {
    return this.proxy.requests.filter(({ method, path }) => method === 'POST' && path.includes(part)).length;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.host[Symbol.asyncDispose]();
    await this.proxy[Symbol.asyncDispose]();
  }
}

async function failureOf(work: Promise<unknown>): Promise<AcodeError> {
  return work.then(
    () => expect.fail('it did not fail'),
    (error: AcodeError) => error,
  );
}

function expectFailure(error: AcodeError, { code, cause, message, hint }: Failure): void {
  expect(error).toMatchObject({ code, message: expect.stringMatching(message), hint: expect.stringMatching(hint) });
  if (cause !== undefined) expect(error.cause).toMatchObject({ code: cause, hint: expect.stringMatching(/\w/) });
}

const isCreate = (method: string, path: string): boolean => method === 'POST' && path.includes('/containers/create');
const isStart = (method: string, path: string): boolean => method === 'POST' && /\/containers\/\w+\/start/.test(path);

/** Creates what the engine accepts and cannot start: its first process is a file that no image has. */
const unstartable: RequestHook = (method, path, body) => {
  if (!isCreate(method, path)) return undefined;
  const asked = JSON.parse(body.toString()) as { HostConfig: object };
  const HostConfig = { ...asked.HostConfig, Init: false };
  return Buffer.from(JSON.stringify({ ...asked, HostConfig, Entrypoint: ['/no/such/program'], Cmd: [] }));
};

/** Asks for more processors than the engine has. */
const refused: RequestHook = (method, path, body) => {
  if (!isCreate(method, path)) return undefined;
  const asked = JSON.parse(body.toString()) as { HostConfig: object };
  return Buffer.from(JSON.stringify({ ...asked, HostConfig: { ...asked.HostConfig, NanoCpus: 1e12 } }));
};

/** A socket at which nobody listens any more. */
async function deadSocket(directory: string): Promise<string> {
  const server = createServer();
  const socket = join(directory, 'dead.sock');
  await new Promise<void>(resolve => server.listen(join(directory, 'live.sock'), resolve));
  renameSync(join(directory, 'live.sock'), socket);
  await new Promise(resolve => server.close(resolve));
  expect(existsSync(socket)).toBe(true);
  return socket;
}

describe.skipIf(withoutEngines)('what can go wrong with', () => {
  const absent = { code: 'ACODE-SBX-008', cause: 'ACODE-CTN-008', hint: /Start Docker/ };

  it('Docker: not installed, and not running; nothing takes its place', async () => {
    const directory = mkdtempSync('/var/tmp/acode-failures-');
    try {
      const sockets = [
        { socket: join(directory, 'none.sock'), message: /Nothing was run/ },
        { socket: await deadSocket(directory), message: /nothing listens .*Nothing was run/ },
      ];
      for (const { socket, message } of sockets) {
        await using host = await TestHost.open(mainEngine, { engine: { socket } });
        expectFailure(await failureOf(host.acode.run(['true'])), { ...absent, message });
        expect(await host.containers()).toEqual([]);
      }
    } finally {
      rmSync(directory, { recursive: true });
    }
  });

  it('images: a pull that fails, and one that is not there and may not be pulled', async () => {
    await using place = await Place.open({
      images: { default: images.busybox },
      security: { trusted_images: ['127.0.0.1:9/*'] },
      retry: { attempts: 0 },
    });
    expectFailure(await place.failure(undefined, { policy: { image: NOBODY } }), {
      code: 'ACODE-SBX-002',
      cause: 'ACODE-CTN-006',
      message: /127\.0\.0\.1:9/,
      hint: /Check the network/,
    });
    expectFailure(await place.failure(undefined, { policy: { image: NOBODY, pull: 'never' } }), {
      code: 'ACODE-SBX-009',
      cause: 'ACODE-CTN-011',
      message: /pull policy is never/,
      hint: /acode sandbox pull 127/,
    });
    expect(await place.host.containers()).toEqual([]);
  });

  it('containers: one that cannot be created, and one that cannot be started, which is removed', async () => {
    await using place = await Place.open();
    expectFailure(await place.failure(refused), {
      code: 'ACODE-SBX-001',
      cause: 'ACODE-CTN-001',
      message: /could not be created: .*CPU/i,
      hint: /acode sandbox status/,
    });
    expectFailure(await place.failure(unstartable), {
      code: 'ACODE-SBX-006',
      cause: 'ACODE-CTN-002',
      message: /did not start: .*no such file or directory/s,
      hint: /image/,
    });
    // The control: it was there to be started.
    expect(place.asked('/start')).toBe(1);
    await expect.poll(() => place.host.containers()).toEqual([]);
  });

  it('mounts: a directory that the caller may not reach', async () => {
    await using place = await Place.open();
    const mounts = [{ source: '/root/project', target: '/data' }];
    expectFailure(await place.failure(undefined, { policy: { mounts } }), {
      code: 'ACODE-SBX-003',
      message: /\/root\/project/,
      hint: /namei -l/,
    });
    expect(place.asked('/containers/create')).toBe(0);
  });

  it('limits: what a command printed before is kept, and the limit is named, as an error for a caller that wants one', async () => {
    await using place = await Place.open();
    const hog = 'echo before; dd if=/dev/zero of=/dev/null bs=100M count=1';
    const memory = await place.host.acode.run(hog, { policy: { limits: { memoryBytes: 32 * 2 ** 20 } } });
    expect(memory).toMatchObject({ oomKilled: true, stdout: expect.stringMatching(/^before\n/) });
    const time = await place.host.acode.run('echo before; sleep 60', { policy: { timeoutMs: 300 } });
    expect(time).toMatchObject({ timedOut: true, exitCode: null, stdout: 'before\n' });
    const wanted = [
      [memory, { code: 'ACODE-SBX-004', message: /memory limit of 32 MiB/, hint: /policy\.limits\.memoryBytes: \d/ }],
      [time, { code: 'ACODE-SBX-007', message: /time limit of 0\.3 s/, hint: /policy\.timeoutMs: \d/ }],
    ] as const;
    for (const [result, failure] of wanted) {
      const error = limitError(result);
      if (error === null) expect.fail('there is no error for it');
      expectFailure(error, failure);
    }
    // The control: a command within its limits has none.
    expect(limitError(await place.host.acode.run(['true']))).toBeNull();
  });

  it('networks: one that policy denies', async () => {
    await using place = await Place.open();
    expectFailure(await place.failure(undefined, { policy: { network: 'bridge' } }), {
      code: 'ACODE-SBX-005',
      message: /network bridge is denied/,
      hint: /acode config set sandbox\.network\.allow_bridge true/,
    });
    expect(place.asked('/containers/create')).toBe(0);
  });

  it('removal: the result is the command’s, the failure is on record, and it is tried again', async () => {
    await using place = await Place.open();
    let stuck = true;
    place.proxy.onRequest(method =>
      method === 'DELETE' && stuck ? { status: 500, message: 'device or resource busy', when: 'before' } : undefined,
    );
    expect(await place.host.acode.run('echo done; exit 3')).toMatchObject({ stdout: 'done\n', exitCode: 3 });
    const told = (): Line[] => place.lines.filter(({ fields }) => fields['errorCode'] === 'ACODE-CTN-004');
    await expect.poll(told).toMatchObject([{ level: 'warn' }]);
    // The control: it is there, and goes with the next chance.
    expect(await place.host.containers()).toHaveLength(1);
    stuck = false;
    await place.host.acode.run(['true']);
    await expect.poll(() => place.host.containers()).toEqual([]);
  });

  it('sessions that died: what they left is removed, with a warning that names it', async () => {
    await using place = await Place.open();
    const { spec } = await place.host.acode.explain(['true']);
    await leftover(mainEngine, { ...spec.identity.labels, 'acode.owner': DEAD });
    expect(await place.host.containers()).toHaveLength(1);
    await place.host.acode.run(['true']);
    await expect.poll(() => place.host.containers()).toEqual([]);
    const warned = () => place.lines.filter(({ level, message }) => level === 'warn' && message.includes('had left'));
    await expect.poll(warned).toMatchObject([{ fields: { operation: 'sweep', removed: expect.any(Number) } }]);
  });

  it('engines that do not answer: tried again, and a code when that was in vain', async () => {
    await using place = await Place.open();
    let lost = 0;
    place.proxy.onRequest((method, path) => (isCreate(method, path) && (lost += 1) === 1 ? 'drop-reply' : undefined));
    expect(await place.host.acode.run('echo at last')).toMatchObject({ stdout: 'at last\n' });
    expect(lost).toBe(2);
    await using hurried = await Place.open({
      images: { default: images.busybox },
      containers: { create_timeout_seconds: 0.3 },
    });
    expectFailure(await hurried.failure((method, path) => (isCreate(method, path) ? 'hang' : undefined)), {
      code: 'ACODE-SBX-001',
      cause: 'ACODE-CTN-001',
      message: /could not be created/,
      hint: /acode sandbox status/,
    });
    expect(await hurried.host.containers()).toEqual([]);
  });

  // In the words of kernels and engines.
  const shortages = [
    ['memory', 'fork/exec /usr/sbin/runc: cannot allocate memory', /acode sandbox list.*end first\.$/],
    ['processes', 'runtime/cgo: pthread_create failed: Resource temporarily unavailable', /ulimit -u.*TasksMax/],
    ['files', 'open /var/lib/docker/overlay2/l: too many open files', /ulimit -n.*LimitNOFILE/],
    ['disk', 'mkdir /var/lib/docker/overlay2/x: no space left on device', /acode sandbox prune-images/],
  ] as const;

  it.each(shortages)(
    'a host without %s: a code and a hint that says so, when creating and when starting',
    async (...row) => {
      const [shortage, message, hint] = row;
      await using place = await Place.open();
      const fails = { status: 500, message, when: 'before' } as const;
      const cases = [
        [isCreate, { code: 'ACODE-SBX-001', cause: 'ACODE-CTN-001' }],
        [isStart, { code: 'ACODE-SBX-006', cause: 'ACODE-CTN-002' }],
      ] as const;
      for (const [isIt, codes] of cases) {
        const error = await place.failure((method, path) => (isIt(method, path) ? fails : undefined));
        expectFailure(error, { ...codes, message: new RegExp(message), hint });
        expect(error.context).toMatchObject({ shortage });
      }
      // The control: it is a moment’s trouble and not the command’s.
      expect((await place.host.acode.run('echo again')).stdout).toBe('again\n');
      await expect.poll(() => place.host.containers()).toEqual([]);
    },
  );
});

describe.skipIf(withoutTrouble)('an engine whose disk is really full', () => {
  beforeEach(heal);
  afterEach(heal);

  it('is a code and a hint that says so, nothing is left, and all is well once there is space', async () => {
    await using host = await TestHost.open(trouble);
    expect((await host.acode.run('echo before')).stdout).toBe('before\n');
    await make('fill');
    const error = await failureOf(host.acode.run(['true']));
    expect(error.code).toMatch(/^ACODE-SBX-00[16]$/);
    expectFailure(error, { code: error.code, message: /no space left on device/, hint: /acode sandbox prune-images/ });
    expect(error.context).toMatchObject({ shortage: 'disk' });
    await make('free');
    expect((await host.acode.run('echo after')).stdout).toBe('after\n');
    await expect.poll(() => host.containers()).toEqual([]);
  });
});
