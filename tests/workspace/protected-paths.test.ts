// What host tools trust cannot be changed from inside, seen as effects on real engines; ordinary work still can be done.

import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { TestHost, engines, images, withoutEngines } from '../support/engines.ts';

describe.skipIf(withoutEngines).each(engines)('on $name', engine => {
  let host: TestHost;
  const sh = (script: string, policy = {}) =>
    host.acode.run(['sh', '-c', script], { policy: { image: images.debian, ...policy } });
  beforeAll(async () => {
    host = await TestHost.open(engine);
    execFileSync('git', ['init', '-q'], { cwd: host.workspace });
    writeFileSync(host.file('.mcp.json'), '{}');
    mkdirSync(host.file('.vscode'));
    mkdirSync(host.file('src'));
  });
  afterAll(() => host[Symbol.asyncDispose]());

  it('C1–C4: nothing of .git can be written, replaced or renamed, and ordinary files can', async () => {
    const before = readFileSync(host.file('.git/config'), 'utf8');
    const { stderr, stdout } = await sh(
      [
        'export LC_ALL=C',
        'echo x > .git/hooks/pre-commit',
        'echo x >> .git/config',
        'echo x > .git/commondir',
        'echo x > .mcp.json',
        'echo x > .vscode/tasks.json',
        'mv .git .g',
        'mv .mcp.json .m',
        'rm -rf .vscode',
        // The same where nothing is protected: it is the mount that stops it above.
        'mkdir -p lib0/.git/hooks && echo x > lib0/.git/hooks/pre-commit && mv lib0/.git lib0/.g',
        'echo x > src/a && mv src lib && mkdir src && cat lib/a',
      ].join('; '),
    );
    expect(stderr.match(/Read-only file system/g)?.length).toBeGreaterThanOrEqual(5);
    expect(stderr.match(/Device or resource busy/g)?.length).toBeGreaterThanOrEqual(3);
    expect(stdout).toBe('x\n');
    expect(readFileSync(host.file('.git/config'), 'utf8')).toBe(before);
    expect(existsSync(host.file('.git/hooks/pre-commit'))).toBe(false);
    expect(readFileSync(host.file('.mcp.json'), 'utf8')).toBe('{}');
    expect(existsSync(host.file('lib/a'))).toBe(true);
    expect(existsSync(host.file('lib0/.g/hooks/pre-commit'))).toBe(true);
  });

  it('nothing is left on the host for parts that do not exist', async () => {
    const before = readdirSync(host.workspace).sort();
    expect(await sh('true')).toMatchObject({ exitCode: 0, riskyChanges: [] });
    expect(readdirSync(host.workspace).sort()).toEqual(before);
  });

  it('two runs at once in one workspace work, though each writes above what the other protects', async () => {
    await using busy = await host.acode.spawn(['cat'], { policy: { image: images.debian } });
    expect(await sh('echo both > both')).toMatchObject({ exitCode: 0 });
    await busy.closeStdin();
    expect(await busy.result).toMatchObject({ exitCode: 0 });
    expect(readFileSync(host.file('both'), 'utf8')).toBe('both\n');
  });

  it('a part that appears while another sandbox can exchange it is not mounted until that one has ended', async () => {
    await using busy = await host.acode.spawn(['cat'], { policy: { image: images.debian } });
    mkdirSync(host.file('.idea'), { recursive: true });
    await expect(sh('true')).rejects.toMatchObject({ context: { violation: 'NestedWritableMount' } });
    await busy.closeStdin();
    await busy.result;
    await busy[Symbol.asyncDispose]();
    expect(await sh('true')).toMatchObject({ exitCode: 0 });
  });

  it('another user’s sandbox is held to the same mounts, by the mount table alone', async () => {
    execFileSync('chmod', ['-R', 'a+rX', host.workspace]);
    const { stdout } = await sh('id -u; test -e .git/HEAD && echo seen', { user: '4242:4242' });
    expect(stdout).toBe('4242\nseen\n');
  });
});
