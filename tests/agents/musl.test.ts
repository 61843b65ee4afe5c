// An image whose only C library is musl’s, as of Alpine: agents with a build for it work there, and the others are refused before
// anything is fetched, as is Claude Code where there is no bash. The image is a static busybox with Debian’s musl and bash-static.

import { execFileSync } from 'node:child_process';
import {
  copyFileSync,
  createReadStream,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  symlinkSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import * as z from 'zod';
import { path } from '../../packages/sandbox/src/isolation/docker/engine/connection.ts';
import { withoutNames } from '../egress/servers.ts';
import { images, mainEngine, withEngine, withoutEngines } from '../support/engines.ts';
import { AgentPlace } from './place.ts';
import { outputOf } from './model-host.ts';
import { report } from './results.ts';

const LOADER = '/lib/ld-musl-x86_64.so.1';
const BASH = '/bin/bash-static';
const isMissing = !existsSync(LOADER) || !existsSync(BASH) || process.arch !== 'x64';
const REPOSITORY = `acode-test-musl-${process.pid}`;
const PLAIN = `${REPOSITORY}:plain`;
const WITH_BASH = `${REPOSITORY}:bash`;
const MAX_MS = 60_000;
const ROW = 'on an image with musl, as of Alpine';
const signal = (): AbortSignal => AbortSignal.timeout(MAX_MS);

/** Makes an image: a container of the small one gets these files, and is committed. */
async function makeImage(tag: string, files: Readonly<Record<string, string>>): Promise<void> {
  const top = mkdtempSync('/var/tmp/acode-musl-');
  try {
    for (const [to, from] of Object.entries(files)) {
      mkdirSync(join(top, 'root', to, '..'), { recursive: true });
      if (existsSync(from)) copyFileSync(from, join(top, 'root', to));
      else symlinkSync(from, join(top, 'root', to));
    }
    const archive = join(top, 'root.tar');
    const paths = Object.keys(files);
    execFileSync('tar', ['-C', join(top, 'root'), '--owner=0', '--group=0', '-cf', archive, ...paths]);
    await withEngine(mainEngine, async ({ containers, connection }) => {
      const { id } = await containers.create({ Image: images.busybox, Cmd: ['true'] }, { signal: signal() });
      try {
        const call = { signal: signal(), deadlineMs: MAX_MS };
        const put = { method: 'PUT' as const, path: path`/containers/${id}/archive`, query: { path: '/' } };
        const { body } = await connection.stream({ ...call, ...put, body: createReadStream(archive) });
        for await (const _ of body);
        const query = { container: id, repo: REPOSITORY, tag };
        await connection.json(
          { ...call, method: 'POST', path: path`/commit`, query },
          z.looseObject({ Id: z.string() }),
        );
      } finally {
        await containers.remove(id, { force: true, volumes: true, signal: signal() });
      }
    });
  } finally {
    rmSync(top, { recursive: true, force: true });
  }
}

// The link has the name by which programs of Alpine ask for the library.
const MUSL = { 'lib/ld-musl-x86_64.so.1': LOADER, 'lib/libc.musl-x86_64.so.1': 'ld-musl-x86_64.so.1' };

describe.skipIf(withoutEngines || withoutNames || isMissing)('on an image with musl', () => {
  beforeAll(async () => {
    await makeImage('plain', MUSL);
    await makeImage('bash', { ...MUSL, 'bin/bash': BASH });
  });
  afterAll(() =>
    withEngine(mainEngine, async ({ images: there }) => {
      for (const image of [PLAIN, WITH_BASH]) await there.remove(image, { signal: signal(), deadlineMs: MAX_MS });
    }),
  );

  it.each([
    ['claude', WITH_BASH],
    ['codex', PLAIN],
  ])('%s edits a file and runs the tests, with a build for musl', async (name, image) => {
    await using place = await AgentPlace.open(name, { image });
    place.script.all = ['sed -i s/one/two/ a.txt && sh test.sh; ls /lib /lib64'];
    const { status, stdout, stderr } = await place.call('-p', 'Do the work.');
    const printed = outputOf(place.host.model.results, 0) ?? '';
    expect(printed, `${stdout.toString()}${stderr}`).toContain('all is well');
    expect(printed).toContain('ld-musl-x86_64.so.1');
    expect(printed).not.toMatch(/ld-linux|libc\.so\.6/);
    expect(status, stderr).toBe(0);
    expect(stderr).toContain(`0 added, 1 changed, 0 deleted, in the fork ${name}`);
    expect(stderr).toContain('the image has no git');
    expect(readFileSync(join(place.bench.workspace, 'a.txt'), 'utf8')).toBe('one\n');
    report(place.title, ROW, name === 'claude' ? 'yes, with bash' : 'yes');
  });

  it.each([
    ['claude', PLAIN, 'ACODE-AGT-008', `runs its commands with bash or zsh, and the image ${PLAIN} has none`],
    [
      'gemini',
      WITH_BASH,
      'ACODE-AGT-002',
      `has no build for linux x64 with musl, which is what the image ${WITH_BASH} needs`,
    ],
    [
      'opencode',
      WITH_BASH,
      'ACODE-AGT-002',
      `has no build for linux x64 with musl, which is what the image ${WITH_BASH} needs`,
    ],
  ])('%s on %s is refused before anything is fetched, with an image to name', async (name, image, code, why) => {
    await using place = await AgentPlace.open(name, { image, withProgram: false });
    const refused = await place.call('-p', 'Do the work.');
    const said = refused.stderr.replaceAll(/\s+/g, ' ');
    expect(refused.status).toBe(125);
    expect(said).toContain(code);
    expect(said).toContain(`${name} ${why}`);
    expect(said).toContain('such as node:20-bookworm in place of node:20-alpine');
    expect(existsSync(place.programs) ? readdirSync(place.programs).filter(id => id.includes(name)) : []).toEqual([]);
    expect(await place.bench.left()).toEqual([]);
    if (name !== 'claude') report(place.title, ROW, 'refused, with an image to name');
  });
});
