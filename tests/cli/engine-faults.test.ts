// Engines that are not there, refuse or hang: a refusal in time, never a wait without end.

import { createServer } from 'node:net';
import { mkdtempSync, renameSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { withoutEngines } from '../support/engines.ts';
import { figure } from '../support/waiting.ts';
import { Bench } from './bench.ts';

describe.skipIf(withoutEngines)('without an engine that answers', () => {
  const directory = mkdtempSync(join(tmpdir(), 'acode-fault-'));
  const hung = createServer(() => undefined);
  const dead = join(directory, 'dead.sock');
  let bench: Bench;

  beforeAll(async () => {
    // A socket file that nobody listens on is what a killed engine leaves behind.
    const killed = createServer();
    await new Promise<void>(resolve => killed.listen(join(directory, 'moved.sock'), resolve));
    renameSync(join(directory, 'moved.sock'), dead);
    await new Promise(resolve => killed.close(resolve));
    await new Promise<void>(resolve => hung.listen(join(directory, 'hung.sock'), resolve));
    bench = await Bench.at({ socket: dead });
  });

  afterAll(async () => {
    hung.close();
    rmSync(directory, { recursive: true });
    await bench[Symbol.asyncDispose]();
  });

  it('exec is refused at once where nobody listens on the socket', async () => {
    const { status, stdout, stderr, ms } = await bench.exec(['--', 'echo', 'hi']);
    expect({ status, stdout: stdout.length }).toEqual({ status: 125, stdout: 0 });
    expect(stderr).toMatch(/Nothing was run[^]*ACODE-SBX-008[^]*hint: /);
    figure('run without an engine, to its refusal', ms, 2000);
  });

  it('status says so in time, in either form', async () => {
    const text = await bench.call(['sandbox', 'status']);
    expect(text.status).toBe(1);
    expect(text.stdout.toString()).toMatch(/^Sandbox unavailable: .*[^]*hint: /);
    figure('status without an engine', text.ms, 2000);
    const json = await bench.call(['sandbox', 'status', '--json', '--socket', '/nonexistent.sock']);
    expect(json.status).toBe(1);
    expect(JSON.parse(json.stdout.toString())).toMatchObject({ schema: 'acode.status/1', available: false });
  });

  it.concurrent.each([
    ['exec', ['sandbox', 'exec', '--', 'true'], 125],
    ['status', ['sandbox', 'status'], 1],
    ['list', ['sandbox', 'list'], 125],
  ] as const)('%s gives a hung engine up', async (name, argv, expected) => {
    // The engine never answers: without a deadline this would take longer than a test may.
    const { status, ms } = await bench.call(argv, { env: { DOCKER_HOST: `unix://${join(directory, 'hung.sock')}` } });
    expect(status).toBe(expected);
    figure(`${name} on a hung engine`, ms, 6000);
  });

  it('an error is one object with --json, and the status the same', async () => {
    const { status, stdout } = await bench.exec(['--json', '--', 'true']);
    expect(status).toBe(125);
    expect(JSON.parse(stdout.toString())).toEqual({
      schema: 'acode.error/1',
      code: 'ACODE-SBX-008',
      message: expect.any(String),
      hint: expect.any(String),
      context: {
        socket: dead,
        reason: expect.any(String),
        required: expect.stringContaining('docker'),
        available: expect.any(String),
      },
      correlationId: expect.any(String),
    });
  });

  it('--verbose tells the causes, and no stack', async () => {
    const { stderr } = await bench.exec(['--verbose', '--', 'true']);
    expect(stderr).toContain('├▶ cause: ACODE-CTN-008');
    expect(stderr).not.toMatch(/\n\s+at /);
  });

  it('Ctrl-C ends a look at a hung engine', async () => {
    const { child, ended } = bench.start(['sandbox', 'status', '--socket', join(directory, 'hung.sock')]);
    hung.once('connection', () => child.kill('SIGINT'));
    expect((await ended).status).toBe(130);
  });
});
