// The commands about images as a person and as a program see them: bars on a terminal, lines in a pipe, one object with --json.

import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { quoted } from '../../packages/cli/src/arguments/command-arguments.ts';
import { BIN, Bench } from '../cli/bench.ts';
import { mainEngine, withoutEngines } from '../support/engines.ts';
import { TestRegistry } from './registry.ts';

const MB = 1_000_000;

describe.skipIf(withoutEngines)('at a terminal and elsewhere', () => {
  let registry: TestRegistry;
  let bench: Bench;
  let config = '';

  beforeAll(async () => {
    config = mkdtempSync('/var/tmp/acode-test-docker-');
    registry = await TestRegistry.on(mainEngine);
    bench = await Bench.at(mainEngine);
    await bench.configure({ security: { trusted_images: [`${registry.address}/*`] } });
  });

  afterEach(async () => {
    await registry.set({ rate: 0 });
    await registry.clear();
  });

  afterAll(async () => {
    await bench[Symbol.asyncDispose]();
    await registry[Symbol.asyncDispose]();
    rmSync(config, { recursive: true, force: true });
  });

  const call = (argv: readonly string[]) => bench.call(argv, { env: { DOCKER_CONFIG: config } });

  function atTerminal(
    argv: readonly string[],
    columns: number,
    env: Record<string, string> = {},
  ): Promise<{ status: number | null; text: string }> {
    const line = [`stty cols ${columns} rows 30;`, 'exec', ...[process.execPath, BIN, ...argv].map(quoted)].join(' ');
    const child = spawn('/usr/bin/script', ['-q', '-e', '-f', '-c', line, '/dev/null'], {
      cwd: bench.workspace,
      env: { ...bench.env, SHELL: '/bin/sh', TERM: 'xterm', DOCKER_CONFIG: config, ...env },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    let text = '';
    child.stdout.on('data', (chunk: Buffer) => (text += chunk.toString()));
    return new Promise(resolve =>
      child.once('close', status => resolve({ status, text: text.replaceAll('\r\n', '\n') })),
    );
  }

  it('a pull shows a bar for the whole and one for each layer, with bytes, speed and time left', async () => {
    const pushed = await registry.push('show/layers', '1', [3 * MB, 2 * MB, 1 * MB]);
    await registry.set({ rate: 0.6 * MB });
    const { status, text } = await atTerminal(['sandbox', 'pull', pushed.reference], 110);
    expect(status).toBe(0);
    const frames = framesOf(text);
    const busiest = frames.filter(frame => (frame.match(/downloading/g) ?? []).length >= 2);
    expect(busiest.length).toBeGreaterThan(3);
    expect(frames.some(frame => /█.*░.*[0-9.]+ MB of [0-9.]+ MB, [0-9.]+ [kM]?B\/s, \d+ s left/.test(frame))).toBe(
      true,
    );
    for (const frame of frames.slice(0, -1))
      for (const line of frame.split('\n')) expect(line.length).toBeLessThan(110);
    const shown = screenOf(text);
    expect(shown).not.toContain('downloading');
    expect(shown).toContain(`✓ ${pushed.reference}`);
    const file = process.env['ACODE_RECORD'];
    if (file) writeFileSync(file, sessionText(frames, shown, pushed.reference));
  });

  it('a narrow terminal has figures without bars, and NO_COLOR no colour', async () => {
    const pushed = await registry.push('show/narrow', '1', [1 * MB, 1 * MB]);
    await registry.set({ rate: 0.5 * MB });
    const { text } = await atTerminal(['sandbox', 'pull', pushed.reference], 40, { NO_COLOR: '1' });
    const frames = framesOf(text);
    expect(frames.some(frame => frame.includes('downloading'))).toBe(true);
    for (const frame of frames.slice(0, -1)) for (const line of frame.split('\n')) expect(line.length).toBeLessThan(40);
    // oxlint-disable-next-line no-control-regex
    expect(text).not.toMatch(/\u001b\[3\dm/);
  });

  it('in a pipe there are plain lines, at most one a second; with --json nothing but the result', async () => {
    const pushed = await registry.push('show/plain', '1', [2 * MB]);
    await registry.set({ rate: 0.5 * MB });
    const plain = await call(['sandbox', 'pull', pushed.reference]);
    expect(plain.status).toBe(0);
    const lines = plain.stderr.trim().split('\n');
    expect(lines.length).toBeGreaterThanOrEqual(2);
    expect(lines.length).toBeLessThanOrEqual(plain.ms / 1000 + 2);
    for (const line of lines) expect(line).toMatch(/^Pulling [^:]+:\d+\/show\/plain:1: /);
    // oxlint-disable-next-line no-control-regex
    expect(plain.stderr).not.toMatch(/[\u001b\r]/);
    await registry.clear();
    const json = await call(['--json', 'sandbox', 'pull', pushed.reference]);
    expect(json.stderr).toBe('');
    expect(JSON.parse(json.stdout.toString())).toMatchObject({
      schema: 'acode.pull/1',
      items: [{ reference: pushed.reference, digest: pushed.digest, changed: true }],
      failed: [],
    });
  });

  it('a run that needs the image shows the pull and then its own output', async () => {
    const pushed = await registry.push('show/run', '1', [1 * MB]);
    await registry.set({ rate: 0.5 * MB });
    const { status, stdout, stderr } = await call(['run', '--image', pushed.reference, 'echo ran']);
    expect({ status, stdout: stdout.toString() }).toEqual({ status: 0, stdout: 'ran\n' });
    expect(stderr).toMatch(/^Pulling /);
  });

  it('images and prune-images show and remove what was pulled', async () => {
    const pushed = await registry.push('show/kept', '1');
    await call(['sandbox', 'pull', pushed.reference]);
    const listed = await call(['sandbox', 'images']);
    expect(listed.stdout.toString()).toMatch(
      new RegExp(`${pushed.reference}\\s+sha256:\\w{12}\\s+[0-9.]+ MB\\s+acode\\s+\\S`),
    );
    expect(listed.stdout.toString()).toMatch(/images, [0-9.]+ [MG]B in total, [0-9.]+ [MG]B on disk\.\n$/);
    const json = JSON.parse((await call(['--json', 'sandbox', 'images'])).stdout.toString()) as {
      items: { tags: string[] }[];
    };
    expect(json).toMatchObject({ schema: 'acode.images/1' });
    expect(json.items.flatMap(({ tags }) => tags)).toContain(pushed.reference);
    const dry = await call(['sandbox', 'prune-images', '--dry-run', '--older-than', '0']);
    expect(dry.stdout.toString()).toContain('would be removed');
    const pruned = await call(['--json', 'sandbox', 'prune-images', '--older-than', '0']);
    expect(JSON.parse(pruned.stdout.toString())).toMatchObject({
      schema: 'acode.prune-images/1',
      removed: [{ reference: pushed.reference }],
      dryRun: false,
    });
    expect((await call(['sandbox', 'images'])).stdout.toString()).not.toContain(pushed.reference);
  });

  it('a pull that is refused or fails ends with 125 and says what to do', async () => {
    const untrusted = await call(['sandbox', 'pull', 'somebody/else:1']);
    expect(untrusted.status).toBe(125);
    expect(untrusted.stderr).toMatch(/ACODE-SBX-010[^]*hint: .*trusted_images/);
    const absent = await call(['sandbox', 'pull', `${registry.address}/none/at-all:1`]);
    expect(absent.status).toBe(125);
    expect(absent.stderr).toMatch(/ACODE-SBX-002[^]*hint: /);
    for (const [reference, why] of [
      ['No Such Name', 'there is a space in it'],
      ['Busybox', 'names of images are lowercase'],
      ['', 'there is nothing in it'],
      ['busybox@sha256:abc', 'a digest is sha256: and 64 digits'],
    ] as const) {
      const nonsense = await call(['sandbox', 'pull', reference]);
      expect(nonsense.status, nonsense.stderr).toBe(2);
      expect(nonsense.stderr).toContain('is not an image reference');
      expect(nonsense.stderr).toContain(why);
      expect(nonsense.stderr).not.toContain('--image');
    }
  });

  it('without a name, the default images are pulled, and one that cannot be had does not stop the others', async () => {
    const pushed = await registry.push('show/default', '1');
    await bench.configure({
      images: { default: pushed.reference, node: `${registry.address}/none/at-all:1` },
      security: { trusted_images: [`${registry.address}/*`] },
      retry: { attempts: 0 },
    });
    const { status, stdout } = await call(['--json', 'sandbox', 'pull']);
    expect(status).toBe(125);
    expect(JSON.parse(stdout.toString())).toMatchObject({
      items: [{ reference: pushed.reference }],
      failed: [{ reference: `${registry.address}/none/at-all:1`, code: 'ACODE-SBX-002' }],
    });
    await bench.configure({ security: { trusted_images: [`${registry.address}/*`] } });
  });
});

// Each drawing begins with the erasure of the one before.
function framesOf(text: string): string[] {
  // oxlint-disable-next-line no-control-regex
  return text
    .split(/(?:\r\u001b\[2K(?:\u001b\[1A\r\u001b\[2K)*)/)
    .map(frame => frame.replaceAll(/\u001b\[[0-9;]*m/g, '').trimEnd())
    .filter(frame => frame !== '');
}

/** What is left on the screen in the end. */
function screenOf(text: string): string {
  return framesOf(text).at(-1) ?? '';
}

// The session for the documentation: a few of its drawings, as they were.
function sessionText(frames: readonly string[], shown: string, reference: string): string {
  const busy = frames.filter(frame => frame.includes('downloading') || frame.includes('extracting'));
  const picked = [0.1, 0.4, 0.7, 0.97].map(part => busy[Math.floor(part * (busy.length - 1))] ?? '');
  const blocks = [...picked, shown].map(
    frame => `\`\`\`text\n${frame.replaceAll(reference, 'registry.example/show/layers:1')}\n\`\`\``,
  );
  const words = [
    '# A pull at a terminal',
    'Recorded by `tests/images/terminal.test.ts`: `acode sandbox pull registry.example/show/layers:1` from a real registry,\nslowed down. Each block is the screen at one moment; the last is what stays.',
    ...blocks,
  ];
  return `${words.join('\n\n')}\n`;
}
