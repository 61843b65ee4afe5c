// acode installed in the very workspace it gives to sandboxes: what they write there never runs on the host.

import { cpSync, existsSync, mkdirSync, readFileSync, readdirSync } from 'node:fs';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { BIN, Bench } from '../cli/bench.ts';
import { mainEngine, withoutEngines } from '../support/engines.ts';
import { until } from '../support/waiting.ts';
import { gone, reapersOf } from './victims.ts';

const INSTALLED = 'node_modules/acode';

describe.skipIf(withoutEngines)('acode installed in the workspace', () => {
  let bench: Bench;
  let bin: string;
  let marker: string;
  beforeEach(async () => {
    bench = await Bench.at(mainEngine);
    const own = dirname(dirname(BIN));
    const installed = join(bench.workspace, INSTALLED);
    mkdirSync(installed, { recursive: true });
    for (const part of ['bin', 'package.json']) cpSync(join(own, part), join(installed, part), { recursive: true });
    bin = join(installed, 'bin', 'acode.js');
    marker = join(dirname(bench.workspace), 'marker');
  });
  afterEach(() => bench[Symbol.asyncDispose]());

  // Runs as a module of either kind: the entry is one kind, what it loads is the other.
  const evil = () => `import("node:fs").then(fs => fs.writeFileSync(${JSON.stringify(marker)}, "x"));`;
  const overwrite = (directory: string) => `for f in ${directory}/bin/*js; do echo "$EVIL" > "$f"; done`;

  async function attacked(script: string): Promise<{ id: string; printed: string }> {
    // Asked once before: the run is ended soon after its protection is taken away.
    await bench.left();
    const words = ['run', '--task', 'installed', '--env', `EVIL=${evil()}`, '--', 'sh', '-c'];
    const child = spawn(process.execPath, [bin, ...words, `${script}; echo up; exec sleep 600`], {
      cwd: bench.workspace,
      env: bench.env,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let printed = '';
    child.stdout.setEncoding('utf8').on('data', chunk => (printed += String(chunk)));
    await expect.poll(() => printed).toContain('up\n');
    const [id = ''] = await bench.left();
    expect(id).not.toBe('');
    const ended = once(child, 'exit');
    child.kill('SIGKILL');
    await ended;
    return { id, printed };
  }

  it('is read-only to the sandbox; what lies around it can be written', async () => {
    const before = readFileSync(bin, 'utf8');
    const { id } = await attacked(`${overwrite(INSTALLED)} 2>/dev/null; echo fine > node_modules/other`);
    await gone(mainEngine, id);
    await until(() => reapersOf(bench).length === 0);
    expect(readFileSync(bin, 'utf8')).toBe(before);
    expect(readFileSync(join(bench.workspace, 'node_modules', 'other'), 'utf8')).toBe('fine\n');
    expect(existsSync(marker)).toBe(false);
  });

  it('is not read again when the client is killed, even where the directory around it was exchanged', async () => {
    const away = 'mv node_modules away && mkdir node_modules && cp -r away/acode node_modules/acode';
    const { id } = await attacked(`${away} && ${overwrite(INSTALLED)}`);
    await gone(mainEngine, id);
    await until(() => reapersOf(bench).length === 0);
    expect(existsSync(marker)).toBe(false);
    // The control: what stands there now would have left its mark.
    expect(readdirSync(join(bench.workspace, 'away', 'acode')).length).toBeGreaterThan(0);
    expect(readFileSync(bin, 'utf8')).toContain(marker);
    await once(spawn(process.execPath, [bin], { cwd: bench.workspace, stdio: 'ignore' }), 'exit');
    expect(existsSync(marker)).toBe(true);
  });

  it('lets sandboxes of one workspace run beside each other', async () => {
    const call = () =>
      new Promise<number | null>(resolve => {
        const options = { cwd: bench.workspace, env: bench.env, stdio: 'ignore' } as const;
        spawn(process.execPath, [bin, 'run', '--', 'sleep', '1'], options).once('exit', resolve);
      });
    expect(await Promise.all([call(), call(), call()])).toEqual([0, 0, 0]);
  });
});
