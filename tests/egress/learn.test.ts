// `acode run --learn`: a person accepts what a command was refused, one question at a time, and gets the list.

import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { afterAll, describe, expect, it, vi } from 'vitest';
import { runCli } from '../../packages/cli/src/cli.ts';
import { Recorder, testIo } from '../../packages/cli/src/test-process.ts';
import { images, makeWorkspace, withoutEngines } from '../support/engines.ts';
import { API, ONE, Site, TWO, mainPlaces, withoutNames } from './servers.ts';

const top = makeWorkspace();
const project = join(top, 'project');

afterAll(() => {
  vi.unstubAllEnvs();
  rmSync(top, { recursive: true, force: true });
});

/** Calls the command at a terminal where a person answers each question in turn. */
async function atTerminal(
  argv: readonly string[],
  answers: readonly string[],
): Promise<{ status: number; said: string }> {
  const stdin = Object.assign(new PassThrough(), { isTTY: true });
  const left = [...answers];
  class Asked extends Recorder {
    override _write(chunk: string | Uint8Array, encoding: BufferEncoding, done: () => void): void {
      super._write(chunk, encoding, done);
      if (this.text.endsWith('[y/N] ')) stdin.write(`${left.shift() ?? 'n'}\n`);
    }
  }
  const stderr = new Asked(true, 200);
  const status = await runCli(argv, testIo({ stdin, stderr, env: { NO_COLOR: '1' }, cwd: () => project }));
  expect(left, stderr.text).toEqual([]);
  return { status, said: stderr.text };
}

describe.skipIf(withoutEngines || withoutNames).each(mainPlaces.slice(0, 1))('on $name', ({ socket }) => {
  it('a command is repeated in a fork with what the person accepts, and the list is printed and saved', async () => {
    mkdirSync(join(project, '.git'), { recursive: true });
    for (const name of ['XDG_CONFIG_HOME', 'XDG_STATE_HOME', 'XDG_RUNTIME_DIR']) {
      mkdirSync(join(top, name, 'acode'), { recursive: true, mode: 0o700 });
      vi.stubEnv(name, join(top, name));
    }
    const file = join(top, 'XDG_CONFIG_HOME', 'acode', 'config.yml');
    const own = `sandbox: { serve: never, images: { default: '${images.debian}' }, network: { private_hosts: ['*.acode.test'] } }\n`;
    writeFileSync(file, own, { mode: 0o600 });
    await using web = await Site.http();
    const url = (name: string): string => `http://${name}:${web.port}/`;
    // The second host is asked for only once the first has answered.
    const fetched = (name: string): string => `python3 -c "import urllib.request as r; r.urlopen('${url(name)}')"`;
    const line = `echo new > "round-$$"; ${[TWO, ONE, API].map(fetched).join(' && ')}`;
    const { status, said } = await atTerminal(['run', '--socket', socket, '--learn', line], ['y', 'y', 'n', 'y', 'y']);
    expect(said).toContain(`Allow tcp:${TWO}:${web.port} for ${TWO}:${web.port}?`);
    expect(said).toContain(`Allow tcp:${ONE}:${web.port} for`);
    const list = [TWO, ONE].map(name => `tcp:${name}:${web.port}`);
    expect(said).toContain(`  acode run --network allow=${list.join(',')} -- sh -c`);
    expect(status).toBe(1);
    expect(web.seen).toEqual([TWO, TWO, ONE].map(name => `GET ${name}/`));
    // The workspace is as it was, and the fork of the last time alone is kept.
    expect(readdirSync(project)).toEqual(['.git']);
    const forks = new Recorder();
    await runCli(['fork', 'list', '--json', '--socket', socket], testIo({ stdout: forks, cwd: () => project }));
    expect(JSON.parse(forks.text)).toMatchObject({ items: [{}] });
    expect(readFileSync(file, 'utf8')).toContain(`tcp:${ONE}:${web.port}`);
    // Without a terminal there is nobody to ask.
    const stderr = new Recorder();
    const io = testIo({ stderr, cwd: () => project });
    expect(await runCli(['run', '--socket', socket, '--learn', 'true'], io)).toBe(2);
    expect(stderr.text).toContain('there is no terminal to ask at');
    // With the user's consent nobody is asked, and every host that a list could have is reached.
    writeFileSync(file, own.replace('network: {', 'network: { allow_learning: true,'));
    web.seen.length = 0;
    const open = new Recorder();
    const argv = ['run', '--socket', socket, '--learn=open', `${fetched(ONE)}; ${fetched('localhost')}`];
    await runCli(argv, testIo({ stderr: open, cwd: () => project }));
    expect(open.text).toContain(`acode run --network allow=tcp:${ONE}:${web.port} -- sh -c`);
    expect(web.seen).toEqual([`GET ${ONE}/`]);
    await runCli(['fork', 'discard', '--yes', '--socket', socket], testIo({ cwd: () => project }));
  });
});
