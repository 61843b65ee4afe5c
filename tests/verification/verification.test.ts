// Verification bites: whatever is not as planned removes the sandbox before anything was handed to it.
//
// A proxy in front of the real engine breaks the request on its way, so that the engine really makes something else than
// was planned. Each break has its control: without verification the same break reaches a running command.

import { existsSync, mkdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import type { AcodeEvent } from '@acode/sandbox';
import { EngineProxy } from '../support/proxy.ts';
import { TestHost, engines, images, makeWorkspace, withEngine, withoutEngines } from '../support/engines.ts';

interface CreateBody {
  [key: string]: unknown;
  HostConfig: Record<string, unknown>;
}

type Break = readonly [what: string, change: (body: CreateBody) => void, inside: string, effect: RegExp];

// The last two columns are the control: a command that shows, inside the broken sandbox, that the break is real.
const BREAKS: readonly Break[] = [
  [
    'capabilities are not dropped',
    body => delete body.HostConfig['CapDrop'],
    'grep CapBnd /proc/self/status',
    /CapBnd:\s+0*[1-9a-f]/,
  ],
  [
    'a capability is added',
    body => (body.HostConfig['CapAdd'] = ['NET_RAW']),
    'grep CapBnd /proc/self/status',
    /CapBnd:\s+0*2000/,
  ],
  [
    'a key is misspelt',
    body => respell(body, 'ReadonlyRootfs', 'ReadonlyRootFilesystem'),
    'grep " / " /proc/self/mounts',
    /\brw\b/,
  ],
  [
    'privileges may be gained',
    body => (body.HostConfig['SecurityOpt'] = []),
    'grep NoNewPrivs /proc/self/status',
    /NoNewPrivs:\s+0/,
  ],
  [
    'system calls are not filtered',
    body => (body.HostConfig['SecurityOpt'] = ['no-new-privileges', 'seccomp=unconfined']),
    'grep Seccomp: /proc/self/status',
    /Seccomp:\s+0/,
  ],
  ['it is privileged', body => (body.HostConfig['Privileged'] = true), 'ls /dev | wc -l', /\d\d/],
  ['it runs as root', body => (body['User'] = '0:0'), 'id -u', /^0$/m],
  ['it runs as another user', body => (body['User'] = '4242:4242'), 'id -u', /4242/],
  ['it has a network', body => (body.HostConfig['NetworkMode'] = 'bridge'), 'ls /sys/class/net', /eth0/],
  [
    'a network is added beside none, which the mode does not show',
    body => (body['NetworkingConfig'] = { EndpointsConfig: { bridge: {} } }),
    'ls /sys/class/net',
    /eth0/,
  ],
  [
    'it is on the host’s own network',
    body => (body.HostConfig['NetworkMode'] = 'host'),
    'ls /sys/class/net',
    /docker0/,
  ],
  ['it shares the pid namespace', body => (body.HostConfig['PidMode'] = 'host'), 'ls /proc | grep -c "^[0-9]"', /\d\d/],
  ['it shares the ipc namespace', body => (body.HostConfig['IpcMode'] = 'host'), 'echo ran', /ran/],
  ['memory is not limited', body => (body.HostConfig['Memory'] = body.HostConfig['MemorySwap'] = 0), 'echo ran', /ran/],
  ['swap is allowed', body => (body.HostConfig['MemorySwap'] = 0), 'echo ran', /ran/],
  ['processes are not limited', body => (body.HostConfig['PidsLimit'] = 0), 'echo ran', /ran/],
  [
    'something else is mounted',
    body => addMount(body, { Type: 'bind', Source: '/var/tmp', Target: '/mnt', ReadOnly: true }),
    'ls -d /mnt/acode-test-*',
    /acode-test-/,
  ],
  [
    'a volume is mounted',
    body => addMount(body, { Type: 'volume', Target: '/mnt' }),
    'grep -c " /mnt " /proc/mounts',
    /1/,
  ],
  ['the workspace is not writable', setReadOnly, 'touch /workspace/x; echo $?', /1/],
  [
    'a file system in memory is missing',
    body => delete (body.HostConfig['Tmpfs'] as Record<string, string>)['/tmp'],
    'touch /tmp/x; echo ran',
    /ran/,
  ],
  ['another command is started', body => (body['Entrypoint'] = ['/bin/sh', '-c', 'exec /bin/sh']), 'echo ran', /./],
  [
    'the image’s preloaded code is not removed',
    body => (body['Env'] = ['HOME=/home/sandbox', 'LD_PRELOAD=/x.so']),
    'env',
    /LD_PRELOAD/,
  ],
  [
    'output is logged on disk',
    body => (body.HostConfig['LogConfig'] = { Type: 'json-file', Config: {} }),
    'echo ran',
    /ran/,
  ],
];

function respell(body: CreateBody, right: string, wrong: string): void {
  body.HostConfig[wrong] = body.HostConfig[right];
  delete body.HostConfig[right];
}

function addMount(body: CreateBody, mount: object): void {
  body.HostConfig['Mounts'] = [...(body.HostConfig['Mounts'] as object[]), mount];
}

function removed(path: string): void {
  rmSync(path, { recursive: true, force: true });
}

function setReadOnly(body: CreateBody): void {
  for (const mount of body.HostConfig['Mounts'] as Record<string, unknown>[]) mount['ReadOnly'] = true;
}

describe.skipIf(withoutEngines).each(engines)(
  'on $name, a sandbox is removed before anything was handed over, if',
  engine => {
    let proxy: EngineProxy;
    let host: TestHost;
    let violations: AcodeEvent<'SecurityViolation'>[];

    beforeEach(async () => {
      proxy = await EngineProxy.start(engine.socket);
      host = await TestHost.open({ ...engine, socket: engine.socket }, { engine: { socket: proxy.socket } });
      violations = [];
      host.acode.events.on('SecurityViolation', event => violations.push(event));
    });
    afterEach(async () => {
      await host[Symbol.asyncDispose]();
      await proxy[Symbol.asyncDispose]();
    });

    const breakWith = (change: (body: CreateBody) => void): void => {
      proxy.onRequest((method, path, body) => {
        if (method !== 'POST' || !path.includes('/containers/create')) return undefined;
        const parsed = JSON.parse(body.toString()) as CreateBody;
        change(parsed);
        return Buffer.from(JSON.stringify(parsed));
      });
    };

    it.each(BREAKS)('%s', async (_, change) => {
      breakWith(change);
      await expect(host.acode.run(['touch', '/workspace/ran'])).rejects.toMatchObject({ code: 'ACODE-SBX-010' });
      expect(existsSync(host.file('ran'))).toBe(false);
      expect(await host.containers()).toEqual([]);
      expect(violations).toHaveLength(1);
      expect(violations[0]).toMatchObject({
        type: 'SecurityViolation',
        containerId: expect.stringMatching(/^[0-9a-f]{64}$/),
      });
      // The handed-over line never left: nothing was written to the attached stream.
      proxy.onRequest(() => undefined);
      expect(await host.acode.run(['echo', 'works without the break'])).toMatchObject({ exitCode: 0 });
    });

    it('the workspace was swapped for a link to a secret after it was validated', async () => {
      const secret = makeWorkspace();
      onTestFinished(() => [secret, `${host.workspace}.away`].forEach(removed));
      writeFileSync(`${secret}/key`, 'secret');
      proxy.onRequest((method, path) => {
        if (method === 'POST' && path.includes('/containers/create')) {
          renameSync(host.workspace, `${host.workspace}.away`);
          symlinkSync(secret, host.workspace);
        }
        return undefined;
      });
      await expect(host.acode.run(['sh', '-c', 'cat key; touch ran'])).rejects.toMatchObject({
        code: 'ACODE-SBX-010',
        context: { violation: 'MountMismatch' },
      });
      expect(existsSync(`${secret}/ran`)).toBe(false);
      expect(await host.containers()).toEqual([]);
      expect(violations).toMatchObject([{ violation: 'MountMismatch' }]);
    });

    it('the workspace was replaced by another directory after it was validated', async () => {
      onTestFinished(() => removed(`${host.workspace}.away`));
      proxy.onRequest((method, path) => {
        if (method === 'POST' && path.includes('/containers/create')) {
          renameSync(host.workspace, `${host.workspace}.away`);
          mkdirSync(host.workspace);
        }
        return undefined;
      });
      await expect(host.acode.run(['touch', 'ran'])).rejects.toMatchObject({
        code: 'ACODE-SBX-010',
        context: { violation: 'MountMismatch' },
      });
      expect(existsSync(host.file('ran'))).toBe(false);
    });

    it.each(BREAKS)('control: without verification %s shows inside', async (_, change, inside, effect) => {
      const output = await withEngine(engine, async direct => {
        const { engineRequest } = await host.acode.explain(['true']);
        const body = JSON.parse(JSON.stringify(engineRequest)) as CreateBody;
        body['Entrypoint'] = ['/bin/sh', '-c', inside];
        change(body);
        if (Array.isArray(body['Entrypoint']) && body['Entrypoint'][2] !== inside) body['Cmd'] = [];
        const signal = AbortSignal.timeout(60_000);
        const { id } = await direct.containers.create(body, { signal });
        try {
          const stream = await direct.containers.attach(id, { stdin: true, stdout: true, stderr: true, signal });
          await direct.containers.start(id, { signal });
          if (Array.isArray(body['Entrypoint']) && body['Entrypoint'][2] !== inside) await stream.write(`${inside}\n`);
          await stream.closeWrite();
          const chunks: Buffer[] = [];
          for await (const chunk of stream) chunks.push(chunk);
          return Buffer.concat(chunks).toString();
        } finally {
          await direct.containers.remove(id, { force: true, volumes: true, signal });
        }
      });
      expect(output.replaceAll(/[\0-\x08\x0e-\x1f]/g, '')).toMatch(effect);
    });
  },
);

describe.skipIf(withoutEngines)('verification', () => {
  it('leaves an untouched sandbox alone, with every image', async () => {
    await using host = await TestHost.open(engines[0]!);
    for (const image of [images.busybox, images.debian, images.hostile]) {
      expect(await host.acode.run(['sh', '-c', 'echo ok'], { policy: { image } })).toMatchObject({ stdout: 'ok\n' });
    }
  });
});
