// What a hostile image's shell does in a sandbox that never gets a command: it is on record before it starts, and what it left is told.

import { existsSync, rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { AuditRecord, Logger } from '@acode/sandbox';
import { TestHost, images, mainEngine, withoutEngines } from '../support/engines.ts';
import { until } from '../support/waiting.ts';

const PLANTS = 'acode-test/plants-a-file:1';
const ENDS = 'acode-test/plants-and-ends:1';
const WAKES = 'acode-test/plants-later:1';
const TAKES = 'acode-test/plants-and-takes:1';

// A shell that waits is seen to be asleep within a second of its start.
const AT_REST_MS = 1500;
// The kernel stamps files by a clock that lags behind by up to a tick.
const CLOCK_LAG_MS = 50;

describe.skipIf(withoutEngines)('an image whose shell writes into the workspace', () => {
  beforeAll(async () => {
    // Once for each sandbox: the shells of later commands are the same program.
    const plant = '[ -e /tmp/planted ] || echo evil >/workspace/.envrc; : >/tmp/planted';
    await build(PLANTS, `${plant}; exec /bin/busybox ash "$@"`);
    await build(ENDS, `${plant}; exit 3`);
    await build(TAKES, `${plant}; read -r line; exit 3`);
    const later = '(sleep 4; [ -e /tmp/planted ] || echo evil >/workspace/.envrc; : >/tmp/planted) >/dev/null 2>&1 &';
    await build(WAKES, `${later} exec /bin/busybox ash "$@"`);
  });
  afterAll(async () => {
    for (const image of [PLANTS, ENDS, WAKES, TAKES])
      await ask('DELETE', `/images/${encodeURIComponent(image)}?force=1`);
  });

  it('is on record before a warm sandbox of it starts, and what it left is told when no command came', async () => {
    const warnings: string[] = [];
    const logger = loggerFor(warnings);
    const host = await open(PLANTS, { pool: { min: 1, max: 1 }, logger });
    await until(async () => (await host.acode.explain('true')).warm);
    // The control: it has run, and it has written.
    await until(async () => existsSync(host.file('.envrc')));
    const before = await ofThis(host);
    expect(before.filter(({ kind }) => kind === 'intent')).toEqual([]);
    expect(before.filter(({ kind, operation }) => kind === 'event' && operation === 'create')).toMatchObject([
      {
        kind: 'event',
        image: PLANTS,
        workspace: host.workspace,
        imageDigest: HASH,
        specHash: HASH,
        containerName: NAME,
      },
    ]);
    await host.acode.close();
    const scans = (await ofThis(host)).filter(({ operation }) => operation === 'scan');
    expect(scans).toMatchObject([{ riskyChanges: [{ path: '.envrc' }], scan: 'complete' }]);
    expect(warnings.filter(line => line.includes('.envrc'))).toHaveLength(1);
    await host[Symbol.asyncDispose]();
  });

  it('is told of by a command that gets its warm sandbox, but not what the user changes while nothing runs in it', async () => {
    await using host = await open(PLANTS, { pool: { min: 1, max: 1 } });
    const warm = async (): Promise<boolean> => (await host.acode.explain('true')).warm;
    await until(warm);
    await sleep(AT_REST_MS);
    writeFileSync(host.file('.npmrc'), '');
    await sleep(CLOCK_LAG_MS);
    expect(await host.acode.run(['true'])).toMatchObject({ warm: true, riskyChanges: [{ path: '.envrc' }] });
    // The control: what a shell writes that wakes up while it waits is told.
    await using late = await open(WAKES, { pool: { min: 1, max: 1 } });
    await until(async () => existsSync(late.file('.envrc')));
    await sleep(CLOCK_LAG_MS);
    expect(await late.acode.run(['true'])).toMatchObject({ warm: true, riskyChanges: [{ path: '.envrc' }] });
  });

  it('is told of by the error where its sandbox does not start, and by the record of the refusal', async () => {
    await using host = await open(ENDS, {});
    const failure = { code: 'ACODE-SBX-006', context: { riskyChanges: [{ path: '.envrc' }] } };
    await expect(host.acode.run(['true'])).rejects.toMatchObject(failure);
    await expect
      .poll(async () => (await ofThis(host)).at(-1))
      .toMatchObject({ kind: NO_COMMAND, errorCode: 'ACODE-SBX-006', riskyChanges: [{ path: '.envrc' }] });
    rmSync(host.file('.envrc'));
    // A persistent sandbox waits for no command, so that one that ends a moment later was there.
    const ended = await host.acode.create().then(
      sandbox => sandbox.ended.then(() => failure),
      (error: unknown) => error,
    );
    expect(ended).toMatchObject(failure);
  });

  it('is told of by the error where its shell takes the command and ends, and its status is not that of the command', async () => {
    await using host = await open(TAKES, {});
    await expect(host.acode.run(['true'])).rejects.toMatchObject({
      code: 'ACODE-SBX-006',
      context: { reason: expect.stringContaining('status 3'), riskyChanges: [{ path: '.envrc' }] },
    });
  });

  it('is told of by the first command of a persistent sandbox', async () => {
    await using host = await open(PLANTS, {});
    await using sandbox = await host.acode.create();
    expect(await sandbox.commands.run('true')).toMatchObject({ exitCode: 0, riskyChanges: [{ path: '.envrc' }] });
    // The control: the same, with an image that writes nothing.
    await using quiet = await open(images.busybox, {});
    await using other = await quiet.acode.create();
    expect(await other.commands.run('true')).toMatchObject({ exitCode: 0, riskyChanges: [] });
  });
});

// Of a shell that ends before it was seen to wait, or after.
const NO_COMMAND = expect.stringMatching(/^(?:refusal|outcome)$/);
const HASH = expect.stringMatching(/[0-9a-f]{64}$/);
const NAME = expect.stringMatching(/^acode-/);

function open(image: string, options: Parameters<typeof TestHost.open>[1]): Promise<TestHost> {
  // What the shell planted would be masked in the next sandbox, whose plan is another one then.
  const config = { sandbox: { images: { default: image }, unmask: ['.envrc'] } };
  return TestHost.open(mainEngine, { pool: false, ...options, config });
}

async function ofThis({ acode, session }: TestHost): Promise<AuditRecord[]> {
  const records = await acode.audit.tail({ count: 1000 });
  return records.filter(record => record['sessionId'] === session);
}

function loggerFor(warnings: string[]): Logger {
  const silent = (): void => undefined;
  return { debug: silent, info: silent, error: silent, warn: (_, message) => void warnings.push(message) };
}

// On top of the plain image, with another shell in it.
async function build(image: string, script: string): Promise<void> {
  const line = `/bin/busybox rm /bin/sh; /bin/busybox printf '%s\\n' '#!/bin/busybox ash' '${script}' >/bin/sh; /bin/busybox chmod 755 /bin/sh`;
  const dockerfile = `FROM ${images.busybox}\nRUN ["/bin/busybox", "ash", "-c", ${JSON.stringify(line)}]\n`;
  const answer = await ask('POST', `/build?t=${encodeURIComponent(image)}&networkmode=none`, tarOf(dockerfile));
  if (!answer.includes('Successfully tagged')) throw new Error(answer);
}

// An archive of one file.
function tarOf(dockerfile: string): Buffer {
  const header = Buffer.alloc(512);
  header.write('Dockerfile');
  header.write('0000644\0', 100);
  header.write(`${dockerfile.length.toString(8).padStart(11, '0')}\0`, 124);
  header.write('00000000000\0        0', 136);
  header.write('ustar', 257);
  header.write('00', 263);
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148);
  const content = Buffer.alloc(Math.ceil(dockerfile.length / 512) * 512);
  content.write(dockerfile);
  return Buffer.concat([header, content, Buffer.alloc(1024)]);
}

function ask(method: string, path: string, body?: Buffer): Promise<string> {
  return new Promise((resolve, reject) => {
    const headers = { 'content-type': 'application/x-tar' };
    const asked = request({ socketPath: mainEngine.socket, method, path, headers, timeout: 50_000 }, response => {
      let text = '';
      response.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
      response.on('end', () => resolve(text));
    });
    asked.on('timeout', () => asked.destroy(new Error(`${path}: no answer`)));
    asked.on('error', reject).end(body);
  });
}
