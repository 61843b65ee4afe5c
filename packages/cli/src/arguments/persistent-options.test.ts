// What is said about persistent sandboxes is read in one way, or refused.

import { describe, expect, it } from 'vitest';
import { call } from '../test-process.ts';
import { parseCopyRequest } from '../commands/copy-files.ts';
import { duration } from './values.ts';
import { forwarding } from '../commands/forward.ts';

describe('a time span', () => {
  it.each([
    ['90s', 90_000],
    ['30m', 1_800_000],
    ['2h', 7_200_000],
    ['1h30m', 5_400_000],
    ['1.5h', 5_400_000],
    ['1d', 86_400_000],
  ])('%s is %i ms', (text, milliseconds) => {
    expect(duration(text)).toBe(milliseconds);
  });

  it.each(['', '30', 'h', '0h', '-1h', '1h 30m', '1w', '400d', '1e3s', '0.1s'])('%j is refused', text => {
    expect(() => duration(text)).toThrow(/with its unit/);
  });
});

describe('a forwarding', () => {
  it('is a port, or two', () => {
    expect(forwarding('3000')).toEqual({ containerPort: 3000 });
    expect(forwarding('8080:3000')).toEqual({ containerPort: 3000, hostPort: 8080 });
  });

  it.each(['', '0', '70000', '1:2:3', 'a', '0.0.0.0:80:80', '80/udp'])('%j is refused', text => {
    expect(() => forwarding(text)).toThrow(/from 1 to 65535/);
  });
});

describe('a copy', () => {
  it.each([
    ['./a', 'a1b2c3d4:b', { direction: 'in', sandbox: 'a1b2c3d4', inside: 'b', outside: './a' }],
    ['a1b2c3d4:/x/y', 'z', { direction: 'out', sandbox: 'a1b2c3d4', inside: '/x/y', outside: 'z' }],
    ['a1b2c3d4:', '.', { direction: 'out', sandbox: 'a1b2c3d4', inside: '.', outside: '.' }],
    ['./odd:name', 'a1b2c3d4:b:c', { direction: 'in', sandbox: 'a1b2c3d4', inside: 'b:c', outside: './odd:name' }],
  ])('%s to %s goes one way', (source, target, expected) => {
    expect(parseCopyRequest(source, target)).toEqual(expected);
  });

  it.each([
    ['a', 'b'],
    ['a1b2c3d4:a', 'b1b2c3d4:b'],
    ['/a:b', './c:d'],
  ])('%s to %s is refused', (source, target) => {
    expect(() => parseCopyRequest(source, target)).toThrow(/sides? |Neither/);
  });
});

describe('a name that is too short', () => {
  it('is told so', () => {
    expect(() => parseCopyRequest('a', 'abc:foo')).toThrow('abc is too short to identify a sandbox.');
    expect(() => parseCopyRequest('abc:foo', 'a')).toThrow('abc is too short to identify a sandbox.');
  });
});

describe('what cannot be', () => {
  it.each<[string[], RegExp]>([
    [['sandbox', 'exec', '--in', 'a1b2', '--memory', '1g', '--', 'ls'], /--memory counts when a sandbox is created/],
    [['sandbox', 'exec', '--in', 'a1b2', '--no-caches', '--', 'ls'], /--no-caches counts when/],
    [['sandbox', 'exec', '--in', 'a1b2', '--risk', 'high', '--', 'ls'], /--risk counts when/],
    [['sandbox', 'exec', '--in', 'a1b2', '--memory', '1g', '--', 'ls'], /`acode sandbox create --memory …`/],
    [['sandbox', 'exec', '--in', 'a1b2', '--network', 'mine', '--', 'ls'], /`acode sandbox create --network …`/],
    [['sandbox', 'exec', '--in', 'a1b2', '--network', 'bridge', '--', 'ls'], /neither the network bridge nor caches/],
    [['sandbox', 'exec', '--in', 'a1b2', '--fill-cache', 'npm', '--', 'ls'], /neither the network bridge nor caches/],
    [['sandbox', 'create', '--network', 'bridge'], /--network bridge is not available[^]*allow=npm:install/],
    [['sandbox', 'create', '--caches', 'npm'], /--caches is not available[^]*build-image/],
    [['sandbox', 'create', '--fill-cache', 'npm'], /--fill-cache is not available[^]*exec --fill-cache/],
    [['sandbox', 'create', '--level', 'bubblewrap'], /Allowed choices are auto, docker, gvisor, microvm/],
    [['sandbox', 'shell', '--level', 'none'], /Allowed choices are auto, docker, gvisor, microvm/],
    [['sandbox', 'exec', '--in', 'a1b2'], /no command to run/],
    [['sandbox', 'shell', 'a1b2'], /needs a terminal[^]*exec --in a1b2/],
    [['sandbox', 'shell'], /needs a terminal[^]*acode run/],
    [['sandbox', 'cp', 'a', 'b'], /Neither a nor b is in a sandbox/],
    [['sandbox', 'cp', './no-such-file', 'a1b2c3d4:b'], /There is no \.\/no-such-file/],
    [['sandbox', 'keep', 'a1b2'], /--for[^]*`acode sandbox keep a1b2c3d4 --for 2h`/],
    [['sandbox', 'keep', 'a1b2', '--for', '2'], /with its unit/],
    [['sandbox', 'kill'], /`acode sandbox kill a1b2c3d4`/],
    [['sandbox', 'kill', ''], /hint: Expected at least four characters/],
    [['sandbox', 'kill', 'a1b2', '665'], /'665'[^]*at least four characters/],
    [['sandbox', 'keep', '665', '--for', '2h'], /at least four characters/],
    [['sandbox', 'exec', '--in', '665', '--', 'ls'], /at least four characters/],
    [['sandbox', 'forward', '665', '80'], /at least four characters/],
    [['sandbox', 'shell', '665'], /at least four characters/],
    [['sandbox', 'create', '--env', 'A=1'], /--env[^]*`acode sandbox exec --in <sandbox> --env NAME=value/],
    [['sandbox', 'create', '-e', 'A=1'], /`acode sandbox exec --in <sandbox> --env NAME=value/],
    [['sandbox', 'create', '--ttl', '2h'], /Did you mean --for\?/],
    [
      ['sandbox', 'exec', '-it', '--', 'sh'],
      /needs a terminal: `acode (?:run|sandbox exec) -t -- <program>`[^]*`acode[ \n]sandbox shell`/,
    ],
    [
      ['run', '-it', 'busybox', 'sh'],
      /needs a terminal: `acode (?:run|sandbox exec) -t -- <program>`[^]*`acode[ \n]sandbox shell`/,
    ],
    [['run', '--in', 'a1b2', '--', 'ls'], /`acode sandbox exec --in <sandbox> -- …`/],
    [['run', '--ttl', '2h', '--', 'ls'], /`acode sandbox create --for <time>`; --timeout limits/],
    [['run', '-e', 'A=1', '--', 'ls'], /Did you mean --env\?/],
    [['run', '-eA=1', '--', 'ls'], /Did you mean --env\?/],
    [['run', '-v', '/a:/b', '--', 'ls'], /Did you mean --mount\?/],
    [['run', '-p', '80:80', '--', 'ls'], /Did you mean --publish\?/],
    [['explain', '-w', 'a', '--', 'ls'], /Did you mean --workdir\?/],
    [['sandbox', 'list', '-e', 'A=1'], /Unknown option '-e'\.\n[^]*`acode sandbox list --help`/],
    [['sandbox', 'rm', 'a1b2'], /Did you mean `acode sandbox kill <id>`\?/],
    [['sandbox', 'stop'], /Did you mean `acode sandbox kill <id>`\?/],
    [['sandbox', 'delete'], /Did you mean `acode sandbox kill <id>`\?/],
    [['sandbox', 'ps'], /Did you mean `acode sandbox list`\?/],
    [['ps'], /Did you mean `acode sandbox list`\?/],
    [['sandbox', 'constructor'], /Unknown command 'constructor'/],
    [['config'], /Usage: acode config[^]*get \[key\]/],
    [['sandbox', 'kill', 'a1b2', '--', 'x'], /takes no command/],
  ])('%j is a mistake of the call', async (argv, said) => {
    const { status, stderr, stdout } = await call(argv);
    expect(stderr).toMatch(said);
    expect({ status, stdout }).toEqual({ status: 2, stdout: '' });
  });

  it('a shell with --json is one', async () => {
    const { status, stdout } = await call(['--json', 'sandbox', 'shell', 'a1b2']);
    expect(status).toBe(2);
    expect(JSON.parse(stdout)).toMatchObject({
      schema: 'acode.error/1',
      message: expect.stringContaining('no result to print'),
    });
  });
});

describe('the help offers what can be had:', () => {
  const helpOf = async (...words: string[]): Promise<string> => (await call([...words, '--help'])).stdout;

  it('of create, nothing that a persistent sandbox cannot have', async () => {
    const text = await helpOf('sandbox', 'create');
    expect(text).not.toMatch(/ --caches|--fill-cache|bridge|ulimit|bubblewrap/);
    for (const part of ['--no-caches', '--network <network>', '"docker"', '--json']) expect(text).toContain(part);
  });

  it('of shell, whose fresh sandbox ends with it, caches and the bridge, and no JSON', async () => {
    const text = await helpOf('sandbox', 'shell');
    for (const part of ['--caches', '--fill-cache', 'bridge', '"docker"']) expect(text).toContain(part);
    expect(text).not.toMatch(/--json|ulimit|bubblewrap/);
  });

  it('of exec, every level', async () => {
    expect(await helpOf('sandbox', 'exec')).toMatch(/--caches[^]*--fill-cache[^]*bubblewrap/);
  });

  it('whether it is asked for by a word or by an option', async () => {
    for (const words of [['sandbox', 'keep'], ['sandbox'], ['run']]) {
      const { status, stdout } = await call(['help', ...words]);
      expect({ status, stdout }).toEqual({ status: 0, stdout: await helpOf(...words) });
    }
    expect((await call(['help', 'run', 'x'])).stdout).toBe(await helpOf('run'));
    expect(JSON.parse((await call(['--json', 'help', 'run'])).stdout)).toMatchObject({ schema: 'acode.help/1' });
    const { status, stderr } = await call(['help', 'sandbox', 'kep']);
    expect({ status, stderr }).toEqual({ status: 2, stderr: expect.stringContaining("Unknown command 'kep'") });
  });

  it('of mcp, by the name of the client or of its command', async () => {
    const { status, stdout } = await call(['mcp', '--json', '--print-config', 'claude']);
    expect(status).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({ client: 'claude-code' });
    expect(await helpOf('mcp')).not.toContain('"claude"');
  });

  it('of mcp, JSON with what it counts for', async () => {
    expect(await helpOf('mcp')).toMatch(/--json +with --print-config or --http: print/);
  });
});
