// The guard as an orchestrator meets it: nothing of the host but the project, nothing left, a figure for how long it took.

import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { runWeakened } from '../attacks/weakened.ts';
import { Bench } from '../cli/bench.ts';
import { TestHost, images, mainEngine, withoutEngines } from '../support/engines.ts';

const SCRIPT = fileURLToPath(new URL('../../scripts/verify-sandbox-isolation.mjs', import.meta.url));

describe.skipIf(withoutEngines)('the guard', () => {
  it('lets a command read nothing of the host outside its workspace', async () => {
    const outside = mkdtempSync('/var/tmp/acode-outside-');
    writeFileSync(join(outside, 'secret'), 'outside');
    await using host = await TestHost.open(mainEngine);
    writeFileSync(host.file('inside'), 'inside');
    const read = (path: string) => host.acode.run(['cat', path]);
    try {
      expect(await read(join(outside, 'secret'))).toMatchObject({ exitCode: 1, stdout: '' });
      expect(await read('/workspace/inside')).toMatchObject({ exitCode: 0, stdout: 'inside' });
    } finally {
      rmSync(outside, { recursive: true });
    }
  });

  it('lets a command read no passwords, neither the host’s nor the image’s own', async () => {
    await using host = await TestHost.open(mainEngine);
    const policy = { image: images.debian };
    // It is there, and so are files that may be read.
    expect(await host.acode.run(['stat', '-c', '%U', '/etc/shadow'], { policy })).toMatchObject({ stdout: 'root\n' });
    expect((await host.acode.run(['cat', '/etc/passwd'], { policy })).stdout).toContain('root:');
    const { exitCode, stdout, stderr } = await host.acode.run(['cat', '/etc/shadow'], { policy });
    expect({ exitCode, stdout }).toEqual({ exitCode: 1, stdout: '' });
    expect(stderr).toContain('Permission denied');
    // The control: a container as engines make them reads it.
    const control = await runWeakened(mainEngine, { image: images.debian, command: ['cat', '/etc/shadow'] });
    expect(control.stdout).toMatch(/^root:/m);
  });

  it('leaves nothing on the engine', async () => {
    await using host = await TestHost.open(mainEngine);
    await host.acode.run(['true']);
    await host.acode.close();
    expect(await host.containers()).toEqual([]);
  });

  it('tells how long sandboxes took to be ready, and that is below the promised 30 seconds', async () => {
    await using host = await TestHost.open(mainEngine);
    await host.acode.run(['true']);
    const { sandbox_provision_latency_ms: latency, kpi_events: events } = host.acode.kpis();
    expect(events).toEqual([expect.objectContaining({ phase: 'sandbox_provision' })]);
    expect(latency).toBeGreaterThan(0);
    expect(latency).toBeLessThan(30_000);
    // The figure lasts: another session reads it from the audit log.
    await host.acode.close();
    const { kpi_events: lasting } = await host.acode.audit.stats();
    expect(lasting).toContainEqual(expect.objectContaining({ sandboxId: events[0]?.sandboxId, warm: false }));
  });

  it('puts no path of the host into what a task makes', async () => {
    await using bench = await Bench.at(mainEngine);
    const task =
      'mkdir -p build && env > build/env && pwd > build/pwd && echo "$0" > build/self && readlink -f . > build/real';
    expect((await bench.call(['run', '--', 'sh', '-c', task])).status).toBe(0);
    const made = readdirSync(join(bench.workspace, 'build'));
    expect(made.sort()).toEqual(['env', 'pwd', 'real', 'self']);
    for (const name of made)
      expect(readFileSync(join(bench.workspace, 'build', name), 'utf8')).not.toContain(bench.workspace);
  });

  it('is verified by a script of its own', async () => {
    const { stdout } = await promisify(execFile)(process.execPath, [SCRIPT], {
      env: { ...process.env, DOCKER_HOST: `unix://${mainEngine.socket}`, ACODE_IMAGE: images.debian },
      timeout: 60_000,
    });
    expect(stdout).toContain('isolated');
    // An image without such a file could not show anything.
    const env = { ...process.env, DOCKER_HOST: `unix://${mainEngine.socket}`, ACODE_IMAGE: images.busybox };
    await expect(promisify(execFile)(process.execPath, [SCRIPT], { env, timeout: 60_000 })).rejects.toMatchObject({
      stderr: expect.stringContaining('has no /etc/shadow'),
    });
  });
});
