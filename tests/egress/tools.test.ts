// Real programs behind an allow-list: npm and its own registry, curl, a real PostgreSQL. What is not listed is denied in a way that
// they end at.

import { execFileSync, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import type { ChildProcess } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { withoutEngines } from '../support/engines.ts';
import { until } from '../support/waiting.ts';
import { git, gitBackend, repository } from './git-server.ts';
import { AllowHost, API, ONE, Site, TWO, mainPlaces, places, withoutNames } from './servers.ts';

const withoutProxy = 'unset HTTP_PROXY HTTPS_PROXY ALL_PROXY http_proxy https_proxy all_proxy NODE_USE_ENV_PROXY';
const skipped = withoutEngines || withoutNames;
const npmConfig = (key: string): string => execFileSync('npm', ['config', 'get', key], { encoding: 'utf8' }).trim();

describe.skipIf(skipped).each(mainPlaces)('on $name, npm', place => {
  const registry = new URL(npmConfig('registry'));
  const preset = registry.hostname === 'registry.npmjs.org' ? 'npm:install' : registry.host;
  let tools = '';

  // This machine’s own Node.js and npm, where every engine sees them.
  beforeAll(() => {
    tools = mkdtempSync('/var/tmp/acode-tools-');
    const npm = realpathSync(execFileSync('sh', ['-c', 'command -v npm'], { encoding: 'utf8' }).trim());
    cpSync(realpathSync(process.execPath), join(tools, 'node'));
    cpSync(dirname(dirname(npm)), join(tools, 'npm'), { recursive: true });
  });
  afterAll(() => rmSync(tools, { recursive: true, force: true }));

  const open = (): Promise<AllowHost> =>
    AllowHost.open(place, { network: { private_hosts: [registry.hostname] }, mounts: [tools] });
  const npm = 'PATH=/tools:$PATH node /tools/npm/bin/npm-cli.js';
  const project = `echo '{"name":"tried","version":"1.0.0","dependencies":{"is-number":"7.0.0","ms":"2.1.3","once":"1.4.0"}}' > package.json`;
  const env = { npm_config_registry: registry.href, npm_config_update_notifier: 'false', npm_config_fund: 'false' };
  const request = () => ({ env, policy: { mounts: [{ source: tools, target: '/tools', readOnly: true }] } });

  it('installs what the preset allows, with and without proxy variables, and publishes nothing', async () => {
    await using host = await open();
    const installed = await host.run(
      `${project}; ${npm} install && rm -rf node_modules && ${npm} ci && ls node_modules`,
      [preset],
      request(),
    );
    expect(installed).toMatchObject({
      exitCode: 0,
      stdout: expect.stringContaining('is-number\nms\nonce\nwrappy') as string,
    });
    const direct = await host.run(
      `${withoutProxy}; rm -rf node_modules; ${npm} ci && ls node_modules`,
      [preset],
      request(),
    );
    expect(direct).toMatchObject({
      exitCode: 0,
      stdout: expect.stringContaining('is-number\nms\nonce\nwrappy') as string,
    });
    if (preset !== 'npm:install') return;
    const token = `--//${registry.host}/:_authToken=of-the-attacker`;
    const published = await host.run(`${npm} publish ${token}`, [preset], request());
    expect(published).toMatchObject({ exitCode: 1, stderr: expect.stringMatching(/acode refused|403/) as string });
    expect(published.network).toContainEqual(expect.objectContaining({ verdict: 'denied', reason: 'method' }));
  });

  // Many versions of npm try again for ever where a proxy refuses their CONNECT, as soon as there are more packages than sockets.
  it('ends where its registry is not listed', async () => {
    await using host = await open();
    const names = Array.from({ length: 80 }, (_, at) => `package-${at}`);
    const dependencies = Object.fromEntries(names.map(name => [name, '1.0.0']));
    const of = (name: string) => ({
      version: '1.0.0',
      resolved: new URL(`/${name}/-/${name}-1.0.0.tgz`, registry).href,
    });
    const packages = {
      '': { dependencies },
      ...Object.fromEntries(names.map(name => [`node_modules/${name}`, of(name)])),
    };
    const write = (name: string, content: object): void => host.write(name, JSON.stringify(content));
    write('package.json', { name: 'tried', version: '1.0.0', dependencies });
    write('package-lock.json', { name: 'tried', version: '1.0.0', lockfileVersion: 3, packages });
    const denied = await host.run(`${npm} ci`, [`http:${ONE}:80`], request());
    expect(denied.exitCode).not.toBe(0);
    expect(denied.timedOut).toBe(false);
    expect(denied.network).toContainEqual(expect.objectContaining({ host: registry.hostname, reason: 'not-listed' }));
    expect(denied.denials.map(({ rule }) => rule)).toContain('network.not-listed');
  });
});

const withBubblewrap = places.filter(({ level }) => level === 'bubblewrap');

describe.skipIf(skipped).each(withBubblewrap)('at level $name', place => {
  it('curl reaches what is listed, and prints why it does not reach the rest', async () => {
    await using web = await Site.https([ONE]);
    await using host = await AllowHost.open(place, { roots: [web.pem] });
    const list = [`${ONE}:${web.port}`];
    const url = `https://${ONE}:${web.port}/`;
    const line = `curl -sS ${url} && curl -sS --noproxy '*' ${url} && curl -sS --socks5-hostname 127.0.0.1:1080 ${url}`;
    expect(await host.run(line, list)).toMatchObject({ exitCode: 0, stdout: 'answer\nanswer\nanswer\n' });
    const denied = await host.run(`curl -sS -v https://${TWO}:${web.port}/`, list);
    expect(denied).toMatchObject({ exitCode: 56, stderr: expect.stringContaining('403') as string });
    const unknown = await host.run(`curl -sS --noproxy '*' https://${TWO}:${web.port}/`, list);
    expect(unknown).toMatchObject({ exitCode: 6, stderr: expect.stringContaining('Could not resolve host') as string });
  });

  it('git clones from and pushes to a server over HTTPS, and says why not where it is not listed', async () => {
    const served = mkdtempSync('/var/tmp/acode-git-');
    try {
      repository(served, 'one', work => writeFileSync(join(work, 'file'), 'served\n'));
      await using web = await Site.https([ONE], gitBackend(served));
      await using host = await AllowHost.open(place, { roots: [web.pem] });
      const url = `https://${ONE}:${web.port}/one.git`;
      const commit = 'git -c user.name=me -c user.email=me@acode.test commit --quiet --all --message second';
      const line = `cd /tmp && git clone --quiet ${url} one && cd one && cat file && echo more >> file && ${commit} && git push --quiet origin HEAD`;
      const list = [`${ONE}:${web.port}`];
      expect(await host.run(line, list)).toMatchObject({ exitCode: 0, stdout: 'served\n' });
      expect(git(join(served, 'one.git'), 'log', '--format=%s')).toBe('second\nfirst');
      const again = `${withoutProxy}; cd /tmp && git clone --quiet ${url} one && cat one/file`;
      expect(await host.run(again, list)).toMatchObject({ exitCode: 0, stdout: 'served\nmore\n' });
      const denied = await host.run(line, [`http:${TWO}:80`]);
      expect(denied).toMatchObject({ exitCode: 128, stderr: expect.stringContaining('403') as string });
      expect(denied.network).toContainEqual(expect.objectContaining({ host: ONE, reason: 'not-listed' }));
    } finally {
      rmSync(served, { recursive: true, force: true });
    }
  });

  it('git pushes with a credential that it does not have, to the host that gets it and to no other', async () => {
    const served = mkdtempSync('/var/tmp/acode-git-');
    const value = `ghp_${randomBytes(18).toString('hex')}`;
    process.env['ACODE_TEST_GIT'] = value;
    try {
      repository(served, 'one', work => writeFileSync(join(work, 'file'), 'served\n'));
      const backend = gitBackend(served);
      const sent: string[] = [];
      const needs = (request: IncomingMessage, response: ServerResponse): void => {
        sent.push(request.headers.authorization ?? 'nothing');
        const basic = Buffer.from(`me:${value}`).toString('base64');
        if (request.headers.authorization === `Basic ${basic}`) return backend(request, response);
        return void response.writeHead(401, { 'WWW-Authenticate': 'Basic realm="git"' }).end();
      };
      await using web = await Site.https([ONE], needs);
      await using other = await Site.https([TWO], needs);
      const credentials = {
        forge: {
          hosts: [`${ONE}:${web.port}`],
          from: { env: 'ACODE_TEST_GIT' },
          as: { basic: 'me' },
          variable: 'FORGE',
        },
      };
      await using host = await AllowHost.open(place, { roots: [web.pem, other.pem], network: { credentials } });
      const list = [`${ONE}:${web.port}`, `${TWO}:${other.port}`];
      const commit = 'git -c user.name=me -c user.email=me@acode.test commit --quiet --all --message second';
      const clone = (name: string, port: number): string => `git clone --quiet https://${name}:${port}/one.git`;
      const line = `cd /tmp && ${clone(ONE, web.port)} one && cd one && echo more >> file && ${commit} && git push --quiet origin HEAD && cat .git/config; env`;
      const pushed = await host.run(line, list);
      expect(pushed).toMatchObject({ exitCode: 0, stdout: expect.stringContaining('FORGE=') as string });
      expect(pushed.stdout).not.toContain(value);
      expect(git(join(served, 'one.git'), 'log', '--format=%s')).toBe('second\nfirst');
      sent.length = 0;
      expect((await host.run(`cd /tmp && ${clone(TWO, other.port)} two`, list)).exitCode).toBe(128);
      expect(sent).toEqual(sent.map(() => 'nothing'));
      // With a credential of its own, a command would push to another account’s repository.
      const own = `git -c http.extraHeader="Authorization: Basic YXR0YWNrZXI6a2V5" clone --quiet https://${ONE}:${web.port}/one.git /tmp/own`;
      expect(await host.run(own, list)).toMatchObject({
        exitCode: 128,
        stderr: expect.stringContaining('403') as string,
      });
    } finally {
      delete process.env['ACODE_TEST_GIT'];
      rmSync(served, { recursive: true, force: true });
    }
  });

  // GitHub’s presets name github.com, which a company’s proxy of the test’s own leads to a server of the test’s own.
  it('git reaches the one repository of a host that is allowed, and no other of the same host', async () => {
    const served = mkdtempSync('/var/tmp/acode-git-');
    const value = `ghp_${randomBytes(18).toString('hex')}`;
    process.env['ACODE_TEST_GIT'] = value;
    try {
      mkdirSync(join(served, 'me'));
      for (const name of ['one', 'two'])
        repository(join(served, 'me'), name, work => writeFileSync(join(work, 'file'), `${name}\n`));
      const backend = gitBackend(served);
      const basic = `Basic ${Buffer.from(`x-access-token:${value}`).toString('base64')}`;
      const needs = (request: IncomingMessage, response: ServerResponse): void => {
        if (request.headers.authorization === basic) return backend(request, response);
        return void response.writeHead(401, { 'WWW-Authenticate': 'Basic realm="git"' }).end();
      };
      await using web = await Site.https(['github.com'], needs);
      await using company = await Site.tunnels([], web.port);
      await using host = await AllowHost.open(place, {
        roots: [web.pem],
        network: {
          upstream_proxy: `http://127.0.0.1:${company.port}`,
          credentials: { github: { from: { env: 'ACODE_TEST_GIT' } } },
        },
      });
      const url = (name: string): string => `https://github.com/me/${name}.git`;
      const commit = 'git -c user.name=me -c user.email=me@acode.test commit --quiet --all --message second';
      const allowed = `cd /tmp && git clone --quiet ${url('one')} one && cd one && cat file && echo more >> file && ${commit} && git push --quiet origin HEAD`;
      const others = `git clone --quiet ${url('two')} /tmp/two; echo $?; git push --quiet --force ${url('two')} HEAD; echo $?; ls /tmp`;
      const ran = await host.run(`${allowed}; echo $?; ${others}`, ['github:push=me/one']);
      expect(ran).toMatchObject({
        stdout: 'one\n0\n128\n128\none\n',
        stderr: expect.stringContaining('403') as string,
      });
      expect(git(join(served, 'me/one.git'), 'log', '--format=%s')).toBe('second\nfirst');
      expect(git(join(served, 'me/two.git'), 'log', '--format=%s')).toBe('first');
      expect(web.seen.filter(line => line.includes('/me/two'))).toEqual([]);
      expect(ran.network).toContainEqual(
        expect.objectContaining({ host: 'github.com', verdict: 'denied', reason: 'path' }),
      );
      // The same command reaches the other one where that is what the list names.
      const control = await host.run(`git clone --quiet ${url('two')} /tmp/two && cat /tmp/two/file`, [
        'github:push=me/two',
      ]);
      expect(control).toMatchObject({ exitCode: 0, stdout: 'two\n' });
    } finally {
      delete process.env['ACODE_TEST_GIT'];
      rmSync(served, { recursive: true, force: true });
    }
  });

  it('psql reaches a real PostgreSQL by its name', async () => {
    await using database = await Postgres.start();
    await using host = await AllowHost.open(place);
    const ask = `psql -h ${API} -p ${database.port} -U tester -d postgres -Atc 'select 6 * 7'`;
    expect(await host.run(ask, [`tcp:${API}:${database.port}`])).toMatchObject({ exitCode: 0, stdout: '42\n' });
    expect(await host.run(ask, [`tcp:${ONE}:${database.port}`])).toMatchObject({
      exitCode: 2,
      stderr: expect.stringContaining('could not translate host name') as string,
    });
  });
});

/** A server of the test’s own on the loopback, with a data directory of its own. */
class Postgres implements AsyncDisposable {
  readonly port: number;
  readonly #directory: string;
  readonly #process: ChildProcess;

  private constructor(directory: string, port: number, process: ChildProcess) {
    this.#directory = directory;
    this.port = port;
    this.#process = process;
  }

  static async start(): Promise<Postgres> {
    const programs = readdirSync('/usr/lib/postgresql').map(version => `/usr/lib/postgresql/${version}/bin`);
    const bin = programs.find(path => existsSync(join(path, 'postgres'))) ?? '';
    const directory = mkdtempSync('/var/tmp/acode-postgres-');
    const data = join(directory, 'data');
    mkdirSync(join(directory, 'run'));
    execFileSync(join(bin, 'initdb'), ['-D', data, '-U', 'tester', '-A', 'trust', '--no-sync'], { stdio: 'ignore' });
    const port = await freePort();
    const settings = [
      `port=${port}`,
      'listen_addresses=127.0.0.1',
      `unix_socket_directories=${join(directory, 'run')}`,
      'fsync=off',
    ];
    const words = ['-D', data, ...settings.flatMap(setting => ['-c', setting])];
    const server = new Postgres(directory, port, spawn(join(bin, 'postgres'), words, { stdio: 'ignore' }));
    const ready = (): boolean => existsSync(join(data, 'postmaster.pid')) && isReady(bin, port);
    await until(ready);
    return server;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const ended = new Promise(resolve => this.#process.once('exit', resolve));
    this.#process.kill('SIGINT');
    await ended;
    rmSync(this.#directory, { recursive: true, force: true });
  }
}

function isReady(bin: string, port: number): boolean {
  try {
    execFileSync(join(bin, 'pg_isready'), ['-h', '127.0.0.1', '-p', String(port)], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>(resolve => void server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise(resolve => void server.close(resolve));
  return port;
}
