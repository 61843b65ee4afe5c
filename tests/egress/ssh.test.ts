// Git over SSH behind an allow-list: a real sshd with repositories, and git inside with nothing but acode's client.

import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { everything } from '../support/targets.ts';
import { withoutEngines } from '../support/engines.ts';
import { until } from '../support/waiting.ts';
import { git, repository } from './git-server.ts';
import { AllowHost, ONE, mainPlaces, places, withoutNames } from './servers.ts';
import type { Place } from './servers.ts';
import { SshServer, withoutSshd } from './ssh-server.ts';

const skipped = withoutEngines || withoutNames || withoutSshd;
const COMMIT = 'git -c user.name=me -c user.email=me@acode.test commit --quiet --all --message second';

async function open(place: Place, ssh: SshServer, known = 'known'): Promise<AllowHost> {
  const own = { known_hosts: ssh.path(known), identity_file: ssh.path('key') };
  return AllowHost.open(place, { network: { ssh: own } });
}

async function serving(): Promise<SshServer> {
  const ssh = await SshServer.start();
  for (const name of ['one', 'two'])
    repository(ssh.directory, name, work => writeFileSync(join(work, 'file'), `${name}\n`));
  return ssh;
}

describe.skipIf(skipped).each(mainPlaces)('on $name, git over SSH', place => {
  it('clones, fetches and pushes what the list names, with no key inside', async () => {
    await using ssh = await serving();
    await using host = await open(place, ssh);
    const url = `${ssh.login}@${ONE}:${ssh.path('one.git')}`;
    const allow = [ssh.entry('one', true)];
    const at = `ssh://${ssh.login}@${ONE}:${ssh.port}${ssh.path('one.git')}`;
    const line = `cd /tmp && git clone --quiet ${at} one && cd one && cat file && echo more >> file && ${COMMIT} && git push --quiet origin HEAD && git fetch --quiet && git status --short --branch`;
    const done = await host.run(line, allow);
    expect(done).toMatchObject({
      exitCode: 0,
      stdout: expect.stringMatching(/^one\n## main\.\.\.origin\/main\n$/) as string,
    });
    expect(git(ssh.path('one.git'), 'log', '--format=%s')).toBe('second\nfirst');
    const service = (name: string): string => `git-${name}-pack '${ssh.path('one')}'|`;
    const asked = ssh.asked();
    expect(asked.map(text => text.replace(/version=2$/, ''))).toEqual([
      ...[service('upload'), service('receive'), service('upload')],
    ]);
    expect(asked[0]).toMatch(/version=2$/);
    expect(done.network).toContainEqual(
      expect.objectContaining({ host: ONE, port: ssh.port, verdict: 'allowed', count: 3 }),
    );
    // Nothing that could log in is inside; outside, the same words find it.
    const search = (roots: string): string =>
      `grep -rlsE 'BEGIN OPENSSH PRIVATE KEY' ${roots} || echo none; env | grep -c SSH_AUTH_SOCK`;
    const inside = await host.run(search('/tmp /root /home /etc /workspace /.acode /run'), allow);
    expect(inside.stdout).toBe('none\n0\n');
    expect(readFileSync(ssh.path('key'), 'utf8')).toContain('BEGIN OPENSSH PRIVATE KEY');
    // The form without a URL has no port: the rule for port 22 is another.
    expect(await host.run(`git clone ${url} /tmp/one`, allow)).toMatchObject({ exitCode: 128 });
  });

  it('refuses another repository, to push to one that is read, other services, options and tricks with quotes', async () => {
    await using ssh = await serving();
    await using host = await open(place, ssh);
    const allow = [ssh.entry('one')];
    const of = (name: string): string => `ssh://${ssh.login}@${ONE}:${ssh.port}${ssh.path(`${name}.git`)}`;
    const denied = await host.run(`git clone --quiet ${of('two')} /tmp/two`, allow);
    const sentence = 'acode refused the connection to';
    expect(denied).toMatchObject({ exitCode: 128, stderr: expect.stringContaining(sentence) as string });
    expect(denied.stderr).toContain(`--network allow=ssh:${ssh.login}@${ONE}:${ssh.port}/`);
    expect(denied.network).toContainEqual(expect.objectContaining({ host: ONE, reason: 'repository' }));
    const push = `git clone --quiet ${of('one')} /tmp/one && cd /tmp/one && echo more >> file && ${COMMIT} && git push --quiet origin HEAD`;
    const pushed = await host.run(push, allow);
    expect(pushed).toMatchObject({ exitCode: 128, stderr: expect.stringContaining(sentence) as string });
    expect(git(ssh.path('one.git'), 'log', '--format=%s')).toBe('first');
    const archived = await host.run(`git archive --remote=${of('one')} HEAD`, allow);
    expect(archived).toMatchObject({ exitCode: 128, stdout: '', stderr: expect.stringContaining(sentence) as string });
    const mark = ssh.path('mark');
    const pack = `git clone --quiet --upload-pack='touch ${mark}; git-upload-pack' ${of('one')} /tmp/one`;
    expect(await host.run(pack, allow)).toMatchObject({ exitCode: 128 });

    // The client itself, with words that git would not give it.
    const client = (
      ...words: readonly string[]
    ): Promise<{ stdout: string; stderr: string; exitCode: number | null }> =>
      host.run(`/.acode/forwarder git ${words.map(quoted).join(' ')} </dev/null`, allow);
    const to = ['-p', String(ssh.port), `${ssh.login}@${ONE}`] as const;
    const legal = `git-upload-pack '${ssh.path('one')}'`;
    const tricks: readonly (readonly string[])[] = [
      [...to, `touch ${mark}`],
      [...to, `${legal}; touch ${mark}`],
      [...to, `git-upload-pack '${ssh.path('one')}'\\''; touch ${mark}; '`],
      [...to, `git-upload-pack '${ssh.path('one')}\n'; touch ${mark}`],
      [...to, `git-upload-pack '${ssh.path('one')}/../two'`],
      ['-o', `ProxyCommand=touch ${mark}`, ...to, legal],
      ['-p', String(ssh.port), `-oProxyCommand=touch ${mark}`, legal],
    ];
    ssh.asked();
    for (const words of tricks) {
      const result = await client(...words);
      expect(result, words.join(' ')).toMatchObject({ exitCode: expect.not.toBeOneOf([0]) as number, stdout: '' });
    }
    expect(ssh.asked()).toEqual([]);
    expect(existsSync(mark)).toBe(false);
    // The controls: the client does what the rule names, and anyone who has the key does the rest.
    expect((await client(...to, legal)).stdout).toMatch(/^[0-9a-f]{4}[0-9a-f]{40} HEAD/);
    expect(ssh.asked()).toEqual([`${legal}|`]);
    ssh.ssh(`touch ${mark}`);
    expect(existsSync(mark)).toBe(true);
    expect(
      await host.run(`git clone --quiet ${of('two')} /tmp/two && cat /tmp/two/file`, [ssh.entry('two')]),
    ).toMatchObject({
      exitCode: 0,
      stdout: 'two\n',
    });
  });

  it('refuses a server whose key is another or unknown, and everything of the host besides Git', async () => {
    await using ssh = await serving();
    await using host = await open(place, ssh, 'wrong');
    const url = `ssh://${ssh.login}@${ONE}:${ssh.port}${ssh.path('one.git')}`;
    const denied = await host.run(`git clone --quiet ${url} /tmp/one`, [ssh.entry('one')]);
    expect(denied).toMatchObject({
      exitCode: 128,
      stderr: expect.stringContaining('Ask the user to run: ssh -T') as string,
    });
    expect(ssh.asked()).toEqual([]);
    writeFileSync(ssh.path('wrong'), '');
    expect(await host.run(`git clone --quiet ${url} /tmp/one`, [ssh.entry('one')])).toMatchObject({ exitCode: 128 });
    expect(ssh.asked()).toEqual([]);
    const banner = `exec 3<>/dev/tcp/127.0.0.1/3128; printf 'CONNECT ${ONE}:${ssh.port} HTTP/1.1\\r\\nHost: ${ONE}:${ssh.port}\\r\\n\\r\\n' >&3; `;
    const raw = (lines: number): string => `bash -c ${quoted(`${banner}head -n ${lines} <&3`)}`;
    expect((await host.run(raw(1), [ssh.entry('one')])).stdout).toContain('403');
    expect((await host.run(raw(3), [`tcp:${ONE}:${ssh.port}`])).stdout).toMatch(/200[^]*SSH-2\.0/);
    // The control: with the key of the server it clones.
    await using knowing = await open(place, ssh);
    expect(await knowing.run(`git clone --quiet ${url} /tmp/one`, [ssh.entry('one')])).toMatchObject({ exitCode: 0 });
  });

  it('ends ssh when the sandbox ends', async () => {
    await using ssh = await serving();
    await using host = await open(place, ssh);
    writeFileSync(ssh.path('hold'), '');
    const ending = new AbortController();
    const client = `/.acode/forwarder git -p ${ssh.port} ${ssh.login}@${ONE} ${quoted(`git-upload-pack '${ssh.path('one')}'`)}`;
    const running = host.run(`${client} >/dev/null`, [ssh.entry('one')], { signal: ending.signal });
    await until(() => ssh.asked().length > 0);
    expect(existsSync(ssh.path('released'))).toBe(false);
    ending.abort();
    await running.catch(() => undefined);
    await until(() => existsSync(ssh.path('released')));
  });
});

// Over frames, where no socket of this machine reaches; and without an engine.
const others = places.filter(
  ({ name, level }) => !mainPlaces.some(one => one.name === name) && (level !== undefined || name.includes('gVisor')),
);

describe.skipIf(skipped).each(everything ? [] : others)('on $name, git over SSH', place => {
  it('clones what the list names, and nothing else', async () => {
    await using ssh = await serving();
    await using host = await open(place, ssh);
    const of = (name: string): string => `ssh://${ssh.login}@${ONE}:${ssh.port}${ssh.path(`${name}.git`)}`;
    const line = `git clone --quiet ${of('one')} /tmp/one && cat /tmp/one/file; git clone --quiet ${of('two')} /tmp/two`;
    const result = await host.run(line, [ssh.entry('one')]);
    expect(result).toMatchObject({
      exitCode: 128,
      stdout: 'one\n',
      stderr: expect.stringContaining('acode refused') as string,
    });
  });
});

function quoted(word: string): string {
  return `'${word.replaceAll("'", String.raw`'\''`)}'`;
}
