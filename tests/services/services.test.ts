// Services beside a command: reached by name on the shared loopback, as hardened as any sandbox, and gone with it.

import { writeFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { AcodeError, RunRequest, ServiceInput } from '../../packages/sandbox/src/index.ts';
import { Bench as CommandBench } from '../cli/bench.ts';
import { Bench } from '../engine-client/engines.ts';
import { everyEngine, images, mainEngine, podman, TestHost, withEngine, withoutEngines } from '../support/engines.ts';
import { until } from '../support/waiting.ts';
import { ServiceImages } from './images.ts';

const PAGE = '/tmp/www/index.html';

/** A web server that shows what a line of the shell prints. */
function web(line: string, more: Partial<ServiceInput> = {}): ServiceInput {
  const { port = 8080 } = more;
  const script = `mkdir -p /tmp/www; { ${line}\n} >${PAGE} 2>&1; exec httpd -f -p ${port} -h /tmp/www`;
  return { image: images.busybox, user: '2000:2000', port, command: ['/bin/sh', '-c', script], ...more };
}

const READ = 'wget -qO- http://web:8080/';

function beside(services: NonNullable<RunRequest['policy']>['services']): RunRequest {
  return { policy: { services } };
}

async function refusal(work: Promise<unknown>): Promise<AcodeError> {
  return work.then(
    () => expect.fail('it was not refused'),
    (error: AcodeError) => error,
  );
}

// One after another: what it sees of the host, of its rights, and of networks.
const PROBE = [
  'id -u',
  'cat /workspace/secret',
  'env | grep -c CALLERS',
  'touch /etc/written',
  'touch /tmp/written && echo temporary files',
  'touch /tmp/mine; chown 0 /tmp/mine',
  'mkdir /tmp/m; mount -t tmpfs none /tmp/m',
  'grep -c : /proc/net/dev',
  'ls /sys/class/net | tr "\\n" " "; echo',
  'nc -w 1 192.0.2.1 80 </dev/null',
].join('\n');

const gvisor = everyEngine.find(({ runtimes }) => runtimes?.includes('runsc'));

describe.skipIf(withoutEngines).each(everyEngine)('a service on $name', engine => {
  it('is reached by its name, and has nothing of the command and no rights', async () => {
    await using host = await TestHost.open(engine);
    writeFileSync(host.file('secret'), 'of the workspace\n');
    // The control: the command has what the service does not have.
    const line = `cat secret; echo $CALLERS; ${READ}`;
    const { stdout } = await host.acode.run(line, { ...beside({ web: web(PROBE) }), env: { CALLERS: 'variable' } });
    expect(stdout.split('\n')).toEqual([
      'of the workspace',
      'variable',
      '2000',
      expect.stringMatching(/workspace\/secret.*No such file/),
      '0',
      expect.stringMatching(/Read-only file system/),
      'temporary files',
      expect.stringMatching(/Operation not permitted/),
      expect.stringMatching(/permission denied|Operation not permitted/i),
      '1',
      'lo ',
      expect.stringMatching(/Network is unreachable/),
      '',
    ]);
  });
});

describe.skipIf(withoutEngines)(`services on ${mainEngine.name}`, () => {
  const made = new ServiceImages(mainEngine);
  let named: string;
  beforeAll(async () => {
    named = await made.make('named', [
      'USER 2000:2000',
      'EXPOSE 8080',
      'VOLUME /data',
      'WORKDIR /tmp',
      `ENTRYPOINT ["/bin/sh", "-c", "mkdir www; touch /data/written && ls -ld /data >www/index.html; exec httpd -f -p 8080 -h /tmp/www"]`,
    ]);
  });
  afterAll(() => made[Symbol.asyncDispose]());

  it('lack what a plain container of the same image can do', async () => {
    await using bench = await Bench.at(mainEngine);
    const id = await bench.container(
      `CALLERS=1; export CALLERS; mkdir -p /workspace; echo x >/workspace/secret\n${PROBE}`,
      {
        HostConfig: { NetworkMode: 'bridge', CapAdd: ['SYS_ADMIN'], SecurityOpt: ['seccomp=unconfined'] },
      },
    );
    const { stdout, stderr } = await bench.run(id);
    expect(stdout.split('\n').slice(0, 6)).toEqual(['0', 'x', '1', 'temporary files', '2', 'eth0 lo ']);
    expect(stderr).not.toMatch(/Read-only|not permitted/);
  });

  it('are seen by no other task, which can have some of the same name', async () => {
    await using host = await TestHost.open(mainEngine);
    const both = await Promise.all(
      ['one', 'two'].map(name =>
        host.acode.run(`${READ}; nc -z -w 1 127.0.0.1 ${name === 'one' ? 8082 : 8081} || echo alone`, {
          ...beside({ web: web(`echo ${name}`), own: web('true', { port: name === 'one' ? 8081 : 8082 }) }),
          taskId: name,
        }),
      ),
    );
    expect(both.map(({ stdout }) => stdout)).toEqual(['one\nalone\n', 'two\nalone\n']);
  });

  it('start as their image says: user, port, entrypoint, and a volume in memory', async () => {
    await using host = await TestHost.open(mainEngine);
    const { stdout } = await host.acode.run(READ, beside({ web: named }));
    expect(stdout).toMatch(/^drwxr-xr-x +2 2000 +2000/);
    const volumes = await withEngine(mainEngine, ({ volumes: all }) =>
      all.list({ labels: [], signal: AbortSignal.timeout(60_000) }),
    );
    expect(volumes).toEqual([]);
  });

  it('keep their variables out of what the engine tells about them, and are listed and recorded as the command’s', async () => {
    await using host = await TestHost.open(mainEngine);
    const running = await host.acode.spawn('read line', {
      ...beside({ web: web('echo "$PASSWORD"', { env: { PASSWORD: 'of-loopback-only' } }) }),
    });
    const items = (await host.acode.list()).filter(({ sessionId }) => sessionId === host.session);
    const task = items.find(({ service }) => service === undefined);
    const service = items.find(one => one.service !== undefined);
    expect(service).toMatchObject({ service: { name: 'web', of: task?.sandboxId }, image: images.busybox });
    const told = await withEngine(mainEngine, ({ containers }) =>
      containers.inspect(service?.containerId ?? '', { signal: AbortSignal.timeout(60_000) }),
    );
    expect(JSON.stringify(told)).not.toContain('of-loopback-only');
    expect(told.HostConfig).toMatchObject({
      NetworkMode: `container:${task?.containerId}`,
      CapDrop: ['ALL'],
      ReadonlyRootfs: true,
    });
    await running.write('\n');
    expect(await running.result).toMatchObject({ exitCode: 0 });
  });

  it('have limits of their own', async () => {
    await using host = await TestHost.open(mainEngine);
    const large = 'dd if=/dev/zero of=/dev/null bs=80M count=1 2>/dev/null && echo large';
    const given = async (memoryBytes: number): Promise<string> =>
      (await host.acode.run(READ, beside({ web: web(`${large}; echo end`, { memoryBytes }) }))).stdout;
    expect(await given(32 * 1024 ** 2)).not.toContain('large');
    // The control.
    expect(await given(256 * 1024 ** 2)).toBe('large\nend\n');
  });

  it('print as much as they like', async () => {
    await using host = await TestHost.open(mainEngine);
    const loud = web('echo served; (exec >/proc/1/fd/1; yes 0123456789) &');
    const { stdout } = await host.acode.run(`sleep 1; ${READ}`, beside({ web: loud }));
    expect(stdout).toBe('served\n');
  });

  it('are gone with a command that is cancelled while they start, or that reaches its time limit', async () => {
    await using host = await TestHost.open(mainEngine);
    const stop = new AbortController();
    const work = host.acode.run(READ, {
      ...beside({ web: { ...web('true'), command: ['/bin/sleep', '600'] } }),
      signal: stop.signal,
    });
    await until(async () => (await host.containers()).filter(({ state }) => state === 'running').length === 2);
    stop.abort();
    expect(await refusal(work)).toMatchObject({ code: 'ACODE-SBX-014' });
    const late = await host.acode.run('sleep 600', { policy: { services: { web: web('true') }, timeoutMs: 500 } });
    expect(late.timedOut).toBe(true);
    await until(async () => (await host.containers()).length === 0);
  });

  it('are gone when acode is killed', async () => {
    await using bench = await CommandBench.at(mainEngine);
    await bench.configure({
      services: {
        web: { image: images.busybox, user: '2000:2000', port: 8080, command: ['httpd', '-f', '-p', '8080'] },
      },
    });
    const { child, ended } = bench.start(['run', 'echo begun; sleep 600'], {
      onOutput: () => void child.kill('SIGKILL'),
    });
    expect((await ended).stdout.toString()).toBe('begun\n');
    await until(async () => (await bench.left()).length === 0);
  });

  it('share the loopback with an allow-list', async () => {
    await using host = await TestHost.open(mainEngine);
    const request = { policy: { services: { web: web('echo served') }, network: { allow: ['example.com'] } } };
    const line = `(printf 'GET / HTTP/1.0\\r\\n\\r\\n'; sleep 1) | nc web 8080 | tail -n 1; echo $no_proxy`;
    const { stdout } = await host.acode.run(line, request);
    expect(stdout).toMatch(/^served\n.*,web\n$/);
  });

  it('belong to a persistent sandbox for as long as its maker lives, and to none that outlives it', async () => {
    await using host = await TestHost.open(mainEngine);
    const sandbox = await host.acode.create(beside({ web: web('echo served') }));
    expect(await sandbox.commands.run(READ)).toMatchObject({ stdout: 'served\n' });
    expect(await sandbox.commands.run(READ)).toMatchObject({ stdout: 'served\n' });
    await sandbox.kill();
    await until(async () => (await host.containers()).length === 0);
    expect(await refusal(host.acode.create({ policy: { services: { web: web('true') } }, keep: true }))).toMatchObject({
      code: 'ACODE-SBX-016',
    });
  });

  describe('are refused', () => {
    it('when they do not become ready, with the reason and what they printed', async () => {
      await using host = await TestHost.open(mainEngine);
      const with_ = (service: ServiceInput): Promise<AcodeError> =>
        refusal(host.acode.run('touch ran', beside({ web: service })));
      const silent = { image: images.busybox, user: '2000:2000', port: 8080 } as const;
      expect(await with_({ ...silent, command: ['/bin/sleep', '600'], readyMs: 300 })).toMatchObject({
        code: 'ACODE-SBX-028',
        context: { service: 'web', reason: 'it does not listen on port 8080', output: '' },
      });
      expect(await with_({ ...silent, command: ['/bin/sh', '-c', 'echo no such database; exit 3'] })).toMatchObject({
        context: { reason: 'it ended with status 3', output: 'no such database' },
      });
      expect(await with_({ ...silent, command: ['/nowhere'] })).toMatchObject({
        context: { reason: 'its image does not have the program that it names' },
      });
      const hijacked = await made.make('hijacked', [
        'USER 2000:2000',
        'EXPOSE 80',
        'VOLUME /data',
        'ENTRYPOINT ["/bin/echo", "hijacked"]',
      ]);
      expect(await refusal(host.acode.run('touch ran', beside({ web: hijacked })))).toMatchObject({
        context: { reason: 'it ended with status 0', output: 'hijacked' },
      });
      const hostile = { image: images.hostile, port: 80 } as const;
      // Its working directory is a trap, and its user is root.
      expect(await with_({ ...hostile, user: '2000:2000' })).toMatchObject({ code: 'ACODE-SBX-006' });
      expect(await with_(hostile)).toMatchObject({ code: 'ACODE-SBX-010', context: { violation: 'PrivilegedUser' } });
      expect(await host.acode.run('ls')).toMatchObject({ stdout: '' });
    });

    it('with an image that speaks for acode, no port, or the port of another', async () => {
      await using host = await TestHost.open(mainEngine);
      const speaking = await made.make('speaking', ['LABEL acode.keep=true', 'USER 2000:2000', 'EXPOSE 8080']);
      const run = (services: Record<string, ServiceInput | string>): Promise<AcodeError> =>
        refusal(host.acode.run('true', beside(services)));
      expect(await run({ web: speaking })).toMatchObject({
        code: 'ACODE-SBX-010',
        context: { violation: 'DangerousImage' },
      });
      expect(await run({ web: { image: images.busybox, user: '2000:2000' } })).toMatchObject({
        code: 'ACODE-SBX-017',
        context: { field: 'policy.services.web.port' },
      });
      expect(await run({ one: named, two: named })).toMatchObject({ code: 'ACODE-SBX-017' });
      expect(await run({ web: { image: 'registry.example/unknown:1', port: 1, user: '2000:2000' } })).toMatchObject({
        code: 'ACODE-SBX-010',
        context: { violation: 'UnverifiedImage' },
      });
    });

    it('on a network that they would reach too, at levels and with images that cannot have them', async () => {
      await using host = await TestHost.open(mainEngine, {
        config: {
          sandbox: {
            network: { allow_bridge: true },
            require_for: [],
            bubblewrap: { accept_process_limits: true },
            images: { default: images.busybox },
          },
        },
      });
      const run = (policy: NonNullable<RunRequest['policy']>): Promise<AcodeError> =>
        refusal(host.acode.run(['/true'], { policy: { services: { web: web('true') }, ...policy } }));
      const codes = await Promise.all(
        [run({ network: 'bridge' }), run({ level: 'bubblewrap' }), run({ image: images.noshell })].map(
          async error => (await error).code,
        ),
      );
      expect(codes).toEqual(['ACODE-SBX-016', 'ACODE-SBX-016', 'ACODE-SBX-016']);
    });

    it.skipIf(!gvisor)('under gVisor, whose sandboxes share no network', async () => {
      await using host = await TestHost.open(gvisor ?? mainEngine);
      const error = await refusal(
        host.acode.run('true', { policy: { level: 'gvisor', services: { web: web('true') } } }),
      );
      expect(error).toMatchObject({ code: 'ACODE-SBX-016' });
      expect(error.message).toContain('at level gvisor');
    });

    it.skipIf(!podman)('on Podman, which cannot be verified with them', async () => {
      await using host = await TestHost.open(podman ?? mainEngine);
      const error = await refusal(host.acode.run('true', beside({ web: web('true') })));
      expect(error).toMatchObject({ code: 'ACODE-SBX-016' });
      expect(error.message).toContain('Podman');
    });
  });
});
