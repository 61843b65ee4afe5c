// A real database beside a command: PostgreSQL of Debian, in an image that is made here from its packages.

import { execFileSync } from 'node:child_process';
import { appendFileSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { images, mainEngine, TestHost, withoutEngines } from '../support/engines.ts';
import { ServiceImages } from './images.ts';

const START = `#!/bin/sh
set -e
PATH=/usr/lib/postgresql/15/bin:$PATH
printf %s "$POSTGRES_PASSWORD" >/tmp/password
initdb -D /data/db -U postgres --no-locale -E UTF8 --auth=scram-sha-256 --pwfile=/tmp/password
mkdir /run/postgresql
exec postgres -D /data/db -c listen_addresses=127.0.0.1 -k /run/postgresql
`;

const MAKING_MS = 300_000;

/** An archive of what PostgreSQL adds to the image that the tests have of Debian. */
function packed(top: string, inImage: (file: string) => string): string {
  const tree = join(top, 'tree');
  const packages = join(top, 'packages');
  for (const directory of [join(tree, 'etc'), packages]) mkdirSync(directory, { recursive: true });
  writeFileSync(join(top, 'status'), inImage('/var/lib/dpkg/status'));
  const apt = ['-qq', '-o', `Dir::State::status=${join(top, 'status')}`, '-o', `Dir::Cache=${top}`];
  const run = (words: readonly string[]): string =>
    execFileSync('apt-get', [...apt, '-o', 'Debug::NoLocking=1', ...words], { cwd: packages, encoding: 'utf8' });
  const needed = run(['--print-uris', '-y', '--no-install-recommends', 'install', 'postgresql-15']);
  const names = needed.split('\n').flatMap(line => /^'[^']*' ([a-z0-9][^_]*)_/.exec(line)?.[1] ?? []);
  run(['download', ...names]);
  for (const name of readdirSync(packages)) execFileSync('dpkg-deb', ['-x', join(packages, name), tree]);
  writeFileSync(join(tree, 'etc', 'passwd'), inImage('/etc/passwd'));
  appendFileSync(join(tree, 'etc', 'passwd'), 'postgres:x:971:972:PostgreSQL:/data:/bin/sh\n');
  writeFileSync(join(tree, 'start'), START, { mode: 0o755 });
  // Files alone: a directory would take the place of a link such as /lib.
  const archive = join(top, 'files.tar');
  const merged = String.raw`flags=rSH;s,^\./(bin|sbin|lib|lib64)/,./usr/\1/,x`;
  execFileSync(
    'sh',
    [
      '-c',
      `find . ! -type d -print0 | tar --null -T - --owner=0 --group=0 --transform "$1" -cf "$2"`,
      'sh',
      merged,
      archive,
    ],
    { cwd: tree },
  );
  return archive;
}

describe.skipIf(withoutEngines)(`PostgreSQL as a service on ${mainEngine.name}`, () => {
  const made = new ServiceImages(mainEngine);
  let image: string;
  beforeAll(async () => {
    const top = mkdtempSync('/var/tmp/acode-postgres-');
    try {
      await using host = await TestHost.open(mainEngine);
      const files = new Map<string, string>();
      for (const file of ['/var/lib/dpkg/status', '/etc/passwd'])
        files.set(file, (await host.acode.run(['cat', file], { policy: { image: images.debian } })).stdout);
      const archive = packed(top, file => files.get(file) ?? '');
      const instructions = ['USER postgres', 'EXPOSE 5432', 'VOLUME /data', 'WORKDIR /data', 'ENTRYPOINT ["/start"]'];
      image = await made.make('postgres', instructions, { base: images.debian, files: archive });
    } finally {
      rmSync(top, { recursive: true, force: true });
    }
  }, MAKING_MS);
  afterAll(() => made[Symbol.asyncDispose]());

  const sql = (statement: string): string[] => ['psql', '-h', 'db', '-U', 'postgres', '-At', '-c', statement];

  it('answers queries of the command, and keeps nothing for the next one', async () => {
    await using host = await TestHost.open(mainEngine);
    const policy = { image, services: { db: { image, env: { POSTGRES_PASSWORD: 'of-the-test' } } } };
    const asked = { policy, env: { PGPASSWORD: 'of-the-test' } };
    const statement =
      'create table kept (n int); insert into kept select generate_series(1, 10000); select sum(n) from kept';
    expect(await host.acode.run(sql(statement), asked)).toMatchObject({
      exitCode: 0,
      stdout: expect.stringMatching(/50005000\n$/),
    });
    const again = await host.acode.run(sql('select * from kept'), asked);
    expect(again).toMatchObject({ exitCode: 1, stderr: expect.stringContaining('relation "kept" does not exist') });
    // The control: it asks for its password.
    const wrong = await host.acode.run(sql('select 1'), { policy, env: { PGPASSWORD: 'another' } });
    expect(wrong).toMatchObject({ exitCode: 2, stderr: expect.stringContaining('password authentication failed') });
  });

  it('says why it did not start', async () => {
    await using host = await TestHost.open(mainEngine);
    await expect(host.acode.run('true', { policy: { services: { db: image } } })).rejects.toMatchObject({
      code: 'ACODE-SBX-028',
      context: { reason: 'it ended with status 1', output: expect.stringContaining('password file') },
    });
  });
});
