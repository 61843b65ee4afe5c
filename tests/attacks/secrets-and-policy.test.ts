// Group F: secrets that leak, policy that is talked round, images that lie, engines that fail.

import { createServer } from 'node:net';
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect } from 'vitest';
import type { PolicyInput } from '@acode/sandbox';
import { images, withEngine, withoutEngines } from '../support/engines.ts';
import { EngineProxy } from '../support/proxy.ts';
import { Arena } from './arena.ts';
import { attack } from './attack.ts';
import { manyWriters, secretsInArguments, tamperedWith } from './audit.ts';
import { clientKilled, livePeer, otherUser } from './ownership.ts';
import { refusal } from './refusal.ts';
import { Scratch, greeting } from './scratch.ts';
import { targetsOf } from './targets.ts';
import { UntrustedImage } from './untrusted-image.ts';
import { runWeakened } from './weakened.ts';

const SECRET = 'hunter2-canary';
const soon = () => AbortSignal.timeout(60_000);

describe.skipIf(withoutEngines).each(targetsOf('secrets-and-policy'))('secrets and policy, on $name', target => {
  let arena: Arena;
  beforeAll(async () => {
    arena = await Arena.open(target);
  });
  afterAll(() => arena[Symbol.asyncDispose]());

  attack(target, 'F3', 'absent from everything the engine tells', async () => {
    await using command = await arena.spawn(['sh', '-c', 'echo up; read x; echo "$TOKEN"'], {
      env: { TOKEN: SECRET },
      taskId: 'build',
    });
    for await (const chunk of command.stdout) if (Buffer.from(chunk).includes('up')) break;
    const [id = ''] = await arena.running();
    const told = await withEngine(target.engine, async engine => {
      const [details, list] = await Promise.all([
        engine.containers.inspect(id, { signal: soon() }),
        engine.containers.list({ labels: ['acode.managed=true'], all: true, signal: soon() }),
      ]);
      return JSON.stringify([details, list]);
    });
    expect(told).toContain('acode.session');
    expect(told).not.toContain(SECRET);
    await command.write('go\n');
    await command.closeStdin();
    expect((await command.result).stdout).toContain(SECRET);
    return {
      observed: 'not in inspect, labels or name, and the command has it',
      control: 'the same variable is inside',
    };
  });

  attack(target, 'F4', 'masked', () => secretsInArguments(target));

  attack(target, 'F6', 'rejected, and nothing is polluted', async () => {
    using scratch = new Scratch();
    const yamls = [
      '__proto__:\n  polluted: yes\n',
      'sandbox:\n  __proto__:\n    polluted: yes\n',
      'sandbox:\n  constructor:\n    prototype:\n      polluted: yes\n',
      'sandbox: {"__proto__": {"polluted": true}}\n',
    ];
    for (const yaml of yamls) {
      scratch.file('project/.agent/config.yml', yaml);
      await using hostile = await Arena.open(target, { workspace: scratch.path('project') });
      expect([yaml, await refusal(hostile.run(['true']))]).toMatchObject([yaml, { code: 'ACODE-SBX-013' }]);
    }
    for (const text of [
      '{"__proto__":{"network":"bridge"}}',
      '{"limits":{"__proto__":{"pids":1000000}}}',
      '{"constructor":{"prototype":{"x":1}}}',
    ]) {
      const error = await refusal(arena.run(['true'], { policy: JSON.parse(text) as PolicyInput }));
      expect([text, error.code]).toEqual([text, 'ACODE-SBX-017']);
    }
    expect('polluted' in {}).toBe(false);
    // What a naive merge would do with the same text.
    const naive = (into: Record<string, unknown>, from: Record<string, unknown>): void => {
      for (const name of Object.getOwnPropertyNames(from)) {
        const value = from[name];
        const inner = into[name];
        if (typeof value === 'object' && value !== null && typeof inner === 'object' && inner !== null)
          naive(inner as Record<string, unknown>, value as Record<string, unknown>);
        else Reflect.set(into, name, value);
      }
    };
    const parent = { harmless: true };
    const victim = Object.create(parent) as Record<string, unknown>;
    naive(victim, JSON.parse('{"__proto__":{"polluted":true}}') as Record<string, unknown>);
    expect('polluted' in (Object.create(parent) as object)).toBe(true);
    return {
      observed: 'ACODE-SBX-013 in files, ACODE-SBX-017 in requests',
      control: 'a naive merge pollutes the parent',
    };
  });

  attack(target, 'F8', 'refused from a caller, stripped from an image', async () => {
    for (const name of [
      'LD_PRELOAD',
      'NODE_OPTIONS',
      'BASH_ENV',
      'PATH',
      'PYTHONSTARTUP',
      'GIT_SSH_COMMAND',
      'DYLD_INSERT_LIBRARIES',
      'LD_LIBRARY_PATH',
    ]) {
      const error = await refusal(arena.run(['env'], { env: { [name]: 'x' } }));
      expect([name, error]).toMatchObject([
        name,
        { code: 'ACODE-SBX-010', context: { violation: 'DangerousEnvironment' } },
      ]);
    }
    const { stdout } = await arena.run(['env'], { policy: { image: images.hostile }, env: { LDAP: 'fine' } });
    expect(stdout).not.toMatch(/LD_PRELOAD|NODE_OPTIONS/);
    expect(stdout).toContain('FOO=bar');
    expect(stdout).toContain('LDAP=fine');
    const { notes } = await arena.acode.explain(['env'], { policy: { image: images.hostile } });
    expect(notes.join('\n')).toContain('LD_PRELOAD');
    const control = await runWeakened(target.engine, {
      image: images.hostile,
      command: ['env'],
      config: { WorkingDir: '/' },
    });
    expect(control.stdout).toContain('LD_PRELOAD=/evil.so');
    return {
      observed: 'ACODE-SBX-010; absent inside, named by explain',
      control: 'the image’s LD_PRELOAD is set otherwise',
    };
  });

  attack(target, 'F9', 'reset', async () => {
    const { stdout, stderr } = await arena.sh('echo mine; sleep 1.5; ls -A /tmp /data; pwd; id -u', {
      policy: { image: images.hostile },
    });
    expect(stdout).toMatch(new RegExp(`^mine\\n[^]*/workspace\\n${process.getuid?.()}\\n$`));
    expect(stdout + stderr).not.toMatch(/hijacked|healthcheck-ran/);
    const control = await withEngine(target.engine, async engine => {
      const { id } = await engine.containers.create(
        {
          Image: images.hostile,
          Cmd: ['mine'],
          WorkingDir: '/',
          Labels: { 'acode.test': 'attack-control' },
          HostConfig: { NetworkMode: 'none' },
        },
        { signal: soon() },
      );
      try {
        const { Config } = await engine.containers.inspect(id, { signal: soon() });
        return Config;
      } finally {
        await engine.containers.remove(id, { force: true, volumes: true, signal: soon() });
      }
    });
    expect(control.Entrypoint).toEqual(['/bin/echo', 'hijacked']);
    expect(control.Healthcheck).toMatchObject({ Test: ['CMD-SHELL', expect.stringContaining('healthcheck-ran')] });
    return {
      observed: 'the command itself, its user, its directory, no health check',
      control: 'the engine takes the image’s entrypoint and health check',
    };
  });

  attack(target, 'F12', 'the image that was checked runs, by its id', async () => {
    await using proxy = await EngineProxy.start(target.engine.socket);
    await using through = await Arena.open(target, { engine: { socket: proxy.socket }, pool: false });
    const { id, other } = await withEngine(target.engine, async engine => ({
      id: (await engine.images.inspect(images.busybox, { signal: soon() })).id,
      other: (await engine.images.inspect(images.hostile, { signal: soon() })).id,
    }));
    const asked: unknown[] = [];
    proxy.onRequest((method, path, body) => {
      if (method === 'POST' && path.includes('/containers/create'))
        asked.push((JSON.parse(body.toString()) as { Image: unknown }).Image);
      return undefined;
    });
    expect(await through.sh('true')).toMatchObject({ exitCode: 0 });
    // The first run of an image also makes a container to read its users from.
    expect(new Set(asked)).toEqual(new Set([id]));
    // A tag that has moved would be another image: then verification finds it.
    proxy.onRequest((method, path, body) => {
      if (method !== 'POST' || !path.includes('/containers/create')) return undefined;
      return Buffer.from(JSON.stringify({ ...(JSON.parse(body.toString()) as object), Image: other }));
    });
    const error = await refusal(through.run(['touch', 'ran']));
    expect(error).toMatchObject({ code: 'ACODE-SBX-010' });
    expect(existsSync(join(through.workspace, 'ran'))).toBe(false);
    return {
      observed: 'created by id; another image: ACODE-SBX-010',
      control: 'the engine makes the other image without a word',
    };
  });

  attack(target, 'F13', 'refused, and what is trusted is not', async () => {
    await using image = await UntrustedImage.on(target.engine);
    const [host = ''] = image.repository.split('/');
    const lists = [
      [],
      ['docker.io/acode-test/*'],
      [`${image.repository}-evil`, `${host}/who`, 'evil.invalid/*', `${host}/whole/*`],
    ];
    // The last name is one of a trusted repository: anybody can give an image any name.
    const names = [
      image.reference,
      await image.alsoNamed('malicious-user/node:attack'),
      await image.alsoNamed('acode-test/busybox:attack'),
    ];
    for (const trusted_images of lists) {
      await using strict = await Arena.open(target, { config: { sandbox: { security: { trusted_images } } } });
      for (const name of names) {
        const error = await refusal(strict.run(['/none'], { policy: { image: name } }));
        expect([name, error]).toMatchObject([
          name,
          { code: 'ACODE-SBX-010', context: { violation: 'UnverifiedImage' } },
        ]);
        expect(error.hint).not.toBe('');
      }
      // What is not there is not fetched either.
      const absent = await refusal(strict.run(['true'], { policy: { image: 'malicious-user/absent:1' } }));
      expect(absent.code).toMatch(/^ACODE-SBX-0(?:09|10)$/);
    }
    await using listed = await Arena.open(target, {
      config: { sandbox: { security: { trusted_images: [`${host}/*`] } } },
    });
    expect((await listed.acode.explain(['/none'], { policy: { image: image.reference } })).spec.image.reference).toBe(
      image.reference,
    );
    expect((await arena.run(['echo', 'fine'], { policy: { image: images.busybox } })).stdout).toBe('fine\n');
    return {
      observed: `ACODE-SBX-010 UnverifiedImage under ${names.length} names, one of them of a trusted repository`,
      control: 'where its registry is listed, the same image is accepted',
    };
  });

  attack(target, 'F14', 'its sandbox is removed, by no other command', () => clientKilled(target.engine));

  attack(target, 'F15', 'the peer is not touched', () => livePeer(target.engine));

  attack(target, 'F16', 'they are not touched', () => otherUser(target.engine));

  attack(target, 'F17', 'found, with the record', () => tamperedWith(target));

  attack(target, 'F18', 'one unbroken chain', () => manyWriters(target));

  attack(target, 'F19', 'a refusal with a code, where nothing answers', async () => {
    using scratch = new Scratch();
    const hung = createServer(() => undefined);
    const halfOpen = createServer(client => {
      // Whoever gave up waiting is gone already.
      client.on('error', () => undefined);
      client.write('HTTP/1.1 200 OK\r\nContent-Type: app');
    });
    await Promise.all([
      new Promise<void>(resolve => hung.listen(scratch.path('hung.sock'), resolve)),
      new Promise<void>(resolve => halfOpen.listen(scratch.path('half.sock'), resolve)),
    ]);
    writeFileSync(scratch.path('file.sock'), 'no socket');
    const seen: string[] = [];
    try {
      for (const name of ['none.sock', 'file.sock', 'hung.sock', 'half.sock']) {
        await using cut = await Arena.open(target, {
          engine: { socket: scratch.path(name) },
          workspace: scratch.directory('project'),
        });
        const error = await refusal(cut.run(['touch', 'ran']));
        expect([name, error.code]).toEqual([name, 'ACODE-SBX-008']);
        expect(error.message).toContain('Nothing was run');
        seen.push(name.replace('.sock', ''));
      }
      expect(existsSync(scratch.path('project/ran'))).toBe(false);
      expect(
        await greeting(scratch.path('none.sock')).catch((error: unknown) => (error as NodeJS.ErrnoException).code),
      ).toBe('ENOENT');
    } finally {
      hung.close();
      halfOpen.close();
    }
    expect((await arena.run(['echo', 'fine'])).stdout).toBe('fine\n');
    return { observed: `ACODE-SBX-008: ${seen.join(', ')}`, control: 'with the engine there, the same request runs' };
  });
});
