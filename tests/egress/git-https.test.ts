// Git over HTTPS behind an allow-list that names one repository: a real server with several, and git inside.

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { withoutEngines } from '../support/engines.ts';
import { git, gitBackend, repository } from './git-server.ts';
import { AllowHost, ONE, Site, mainPlaces, places, withoutNames } from './servers.ts';

const COMMIT = 'git -c user.name=me -c user.email=me@acode.test commit --quiet --all --message second';
const WITHOUT_PROXY = 'unset HTTP_PROXY HTTPS_PROXY ALL_PROXY http_proxy https_proxy all_proxy';

/** A server with the repositories `me/one` and `me/two`, and a page beside them. */
class GitServer implements AsyncDisposable {
  readonly web: Site;
  readonly #directory: string;

  private constructor(web: Site, directory: string) {
    this.web = web;
    this.#directory = directory;
  }

  static async start(): Promise<GitServer> {
    const directory = mkdtempSync('/var/tmp/acode-git-');
    mkdirSync(join(directory, 'me'));
    for (const name of ['one', 'two'])
      repository(join(directory, 'me'), name, work => writeFileSync(join(work, 'file'), `${name}\n`));
    const backend = gitBackend(directory);
    const web = await Site.https([ONE], (request, response) => {
      if (request.url === '/me/page') response.end('page\n');
      else backend(request, response);
    });
    return new GitServer(web, directory);
  }

  /** Its address, with a path. */
  url(path: string): string {
    return `https://${ONE}:${this.web.port}/${path}`;
  }

  /** A repository as an allow-list names it. */
  entry(name: string, push = false): string {
    return `git:${ONE}:${this.web.port}/me/${name}${push ? ':push' : ''}`;
  }

  /** The subjects of the commits that a repository has. */
  log(name: string): string {
    return git(join(this.#directory, 'me', `${name}.git`), 'log', '--format=%s');
  }

  /** What it was asked for below a repository, since it was asked this last. */
  asked(name: string): string[] {
    return this.web.seen.splice(0).filter(line => line.includes(`/me/${name}`));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.web[Symbol.asyncDispose]();
    rmSync(this.#directory, { recursive: true, force: true });
  }
}

const tried = new Set([...mainPlaces, ...places.filter(({ level }) => level === 'bubblewrap')]);

describe.skipIf(withoutEngines || withoutNames).each([...tried])('on $name, git over HTTPS', place => {
  it('clones, fetches and pushes the repository that the list names, and reaches no other of the host', async () => {
    await using server = await GitServer.start();
    await using host = await AllowHost.open(place, { roots: [server.web.pem] });
    const [one, two] = [server.url('me/one.git'), server.url('me/two.git')];
    const work = `cd /tmp && git clone --quiet ${one} one && cd one && cat file && echo more >> file && ${COMMIT} && git push --quiet origin HEAD && git fetch --quiet && git status --short --branch`;
    const others = `git clone --quiet ${two} /tmp/two; echo $?; git push --quiet --force ${two} HEAD; echo $?; ls /tmp`;
    const ran = await host.run(`${work}; echo $?; ${others}`, [server.entry('one', true)]);
    expect(ran).toMatchObject({
      stdout: 'one\n## main...origin/main\n0\n128\n128\none\n',
      stderr: expect.stringContaining('403') as string,
    });
    expect([server.log('one'), server.log('two')]).toEqual(['second\nfirst', 'first']);
    expect(server.asked('two')).toEqual([]);
    expect(ran.network).toContainEqual(expect.objectContaining({ host: ONE, verdict: 'denied', reason: 'path' }));
    // The control: where the list names the other one, the same words reach it, also past the proxy variables.
    const line = `${WITHOUT_PROXY}; git clone --quiet ${two} /tmp/two && cat /tmp/two/file`;
    expect(await host.run(line, [server.entry('two')])).toMatchObject({ exitCode: 0, stdout: 'two\n' });
    expect(server.asked('two').length).toBeGreaterThan(0);
  });

  it('does not push to a repository that is listed to be read, and reads nothing else of the host', async () => {
    await using server = await GitServer.start();
    await using host = await AllowHost.open(place, { roots: [server.web.pem] });
    const one = server.url('me/one.git');
    const clone = `git clone --quiet ${one} /tmp/one && cd /tmp/one && echo more >> file && ${COMMIT}`;
    const read = await host.run(`${clone} && git push --quiet origin HEAD`, [server.entry('one')]);
    expect(read).toMatchObject({ stderr: expect.stringContaining('403') as string });
    expect(read.exitCode).not.toBe(0);
    expect(server.log('one')).toBe('first');
    expect(server.asked('one').filter(line => line.includes('POST') && line.includes('receive'))).toEqual([]);
    // A detour by a path, and what is no repository.
    const fetch = (path: string): string =>
      `import ssl, os, http.client; c = http.client.HTTPSConnection('${ONE}', ${server.web.port}, context=ssl.create_default_context(cafile=os.environ['SSL_CERT_FILE'])); c.request('GET', '${path}'); print(c.getresponse().status)`;
    const paths = ['/me/page', '/me/one/../two/info/refs', '/me/one.git/%2e%2e/two.git/info/refs', '/me/one/info/refs'];
    host.write('fetch.py', paths.map(fetch).join('\n'));
    const refused = await host.run('python3 fetch.py', [server.entry('one')]);
    expect(refused).toMatchObject({
      exitCode: 0,
      stdout: expect.stringMatching(/^403\n403\n403\n(?!403)\d+\n$/) as string,
    });
    // The control: who lists the host has all of it.
    const all = [`${ONE}:${server.web.port}`];
    expect((await host.run('python3 fetch.py', all)).stdout).toMatch(/^200\n/);
    expect(await host.run(`${clone} && git push --quiet origin HEAD`, all)).toMatchObject({ exitCode: 0 });
    expect(server.log('one')).toBe('second\nfirst');
  });
});
