// Each argument type takes what it should and refuses the rest.

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { InvalidArgumentError } from '@commander-js/extra-typings';
import { AcodeError } from '@acode/sandbox';
import { describe, expect, it } from 'vitest';
import { UsageError } from '../failure/usage.ts';
import { call } from '../test-process.ts';
import { commandOf, quoted, sandboxBefore } from './command-arguments.ts';
import { count, seconds } from './values.ts';
import { OPTION_TERMS, POLICY_OPTIONS } from './option-names.ts';
import { requestCommand, requestOf } from './request.ts';
import { environmentOf, variable } from './environment-options.ts';
import { parseVariables } from './environment.ts';
import { address, cpus, mount, network, port, risk, size, someSize, user } from './sandbox-values.ts';

describe('an argument is read as', () => {
  it.each<[string, (text: string) => unknown, string, unknown]>([
    ['megabytes without a unit', size, '64', 64 * 1024 ** 2],
    ['a size with a unit', size, '512k', 512 * 1024],
    ['a broken size', size, '1.5g', 1.5 * 1024 ** 3],
    ['seconds', seconds, '2', 2000],
    ['part of a second', seconds, '0.25', 250],
    ['time with a unit', seconds, '5s', 5000],
    ['part of a second with its unit', seconds, '0.5s', 500],
    ['several units', seconds, '1h30m', 5_400_000],
    ['a count', count, '16', 16],
    ['CPUs', cpus, '.5', 0.5],
    ['a user', user, '1000:100', '1000:100'],
    ['the caller', user, 'caller', 'caller'],
    ['no network', network, 'none', 'none'],
    ['an allow-list', network, 'allow=npm:install, a.example:8443', { allow: ['npm:install', 'a.example:8443'] }],
    ['a network by name', network, 'build-net', { name: 'build-net' }],
    ['a risk in capitals', risk, 'HIGH', 'high'],
    ['a variable', variable, 'A=b=c', { A: 'b=c' }],
    ['an empty variable', variable, 'A=', { A: '' }],
    ['a variable that the caller has', variable, 'A', { A: null }],
    ['no swap', size, '0', 0],
    ['some memory', someSize, '6m', 6 * 1024 ** 2],
    ['a mount', mount, '/a:/b', [{ source: '/a', target: '/b', readOnly: true }]],
    ['a mount that says what it is anyway', mount, '/a:/b:ro', [{ source: '/a', target: '/b', readOnly: true }]],
    ['a writable mount', mount, './a:/b:rw', [{ source: './a', target: '/b', readOnly: false }]],
    ['a mount with `:` in its source', mount, '/a:b:c:/d:rw', [{ source: '/a:b:c', target: '/d', readOnly: false }]],
    ['a mount of a drive', mount, 'C:\\a:/d', [{ source: 'C:\\a', target: '/d', readOnly: true }]],
    ['a mount whose source ends like a mode', mount, '/a:rw:/d', [{ source: '/a:rw', target: '/d', readOnly: true }]],
    ['a port', port, '3000', [{ container: 3000 }]],
    ['a port at a port', port, '8080:3000', [{ container: 3000, host: 8080 }]],
    ['a port of UDP', port, '53/udp', [{ container: 53, protocol: 'udp' }]],
    ['a port of TCP, which is usual', port, '1:65535/tcp', [{ container: 65_535, host: 1 }]],
    ['a name server', address, '1.1.1.1', ['1.1.1.1']],
    ['a name server of IPv6', address, '2606:4700::1111', ['2606:4700::1111']],
  ])('%s', (_, read, text, value) => {
    expect(read(text)).toEqual(value);
  });

  it('several variables, the last of a name winning', () => {
    expect(variable('B=3', variable('B=2', variable('A=1')))).toEqual({ A: '1', B: '3' });
  });

  it('several mounts, ports and name servers, in their order', () => {
    expect(mount('/c:/d', mount('/a:/b')).map(({ source }) => source)).toEqual(['/a', '/c']);
    expect(port('2', port('1'))).toEqual([{ container: 1 }, { container: 2 }]);
    expect(address('::1', address('1.1.1.1'))).toEqual(['1.1.1.1', '::1']);
  });

  it('a variable whose name is a trap for objects', () => {
    expect(Object.entries(variable('__proto__=x'))).toEqual([['__proto__', 'x']]);
  });
});

describe('variables of a command', () => {
  const source = { env: { TOKEN: 'secret', EMPTY: '' }, here: tmpdir() };

  it('come from files first and then from --env, whose value may be the caller’s', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'acode-env-'));
    writeFileSync(join(directory, 'a.env'), '\uFEFF# comment\n\n  A=1 2 "3"\r\nTOKEN\nB==x#y\n__proto__=z\n');
    const envFile = [join(directory, 'a.env')];
    await expect(environmentOf({ envFile, env: { B: 'own', EMPTY: null } }, source)).resolves.toEqual(
      Object.fromEntries([
        ['A', '1 2 "3"'],
        ['TOKEN', 'secret'],
        ['B', 'own'],
        ['__proto__', 'z'],
        ['EMPTY', ''],
      ]),
    );
    rmSync(directory, { recursive: true });
    await expect(environmentOf({}, source)).resolves.toBeUndefined();
  });

  it.each<[string, string, RegExp, RegExp]>([
    ['a line without a name', 'A=1\n=secret', /^x\.env:2: the line does not begin/, /NAME=value/],
    ['a shell’s own form', 'export A=secret', /^x\.env:1: /, /without `export`/],
    ['a space before the =', '# c\n\nA = secret', /^x\.env:3: /, /without spaces/],
    ['a NUL character', 'A=secret\0', /^x\.env:1: A holds a NUL/, /./],
    ['a variable that the caller does not have', 'NOT_SET', /^x\.env:1: NOT_SET is not set/, /--env NOT_SET=value/],
  ])('of a file are refused with the line, and without its content: %s', (_, text, message, hint) => {
    const refused = (): unknown => parseVariables(text, 'x.env', source.env);
    expect(refused).toThrow(UsageError);
    expect(refused).toThrow(message);
    expect(refused).not.toThrow(/secret/);
    try {
      refused();
    } catch (error) {
      expect(error instanceof UsageError && error.hint).toMatch(hint);
    }
  });

  it('of a file that is missing, a directory or too large are refused', async () => {
    const read = (path: string): Promise<unknown> => environmentOf({ envFile: [path] }, source);
    await expect(read('nothing-here.env')).rejects.toThrow('does not exist');
    await expect(read('/')).rejects.toThrow('is a directory');
    await expect(read('/dev/zero')).rejects.toThrow('larger than 1 MiB');
    await expect(environmentOf({ env: { NOT_SET: null } }, source)).rejects.toThrow('--env: NOT_SET is not set');
  });
});

describe('an argument is refused', () => {
  it.each<[string, (text: string) => unknown, string]>([
    ['a size in words', size, 'lots'],
    ['a negative size', size, '-5'],
    ['no memory', someSize, '0'],
    ['no memory in small units', someSize, '0k'],
    ['no time', seconds, '0'],
    ['time with an unknown unit', seconds, '5x'],
    ['time in words', seconds, ''],
    ['more than a year', seconds, '366d'],
    ['endless time', seconds, '1e99'],
    ['no processes', count, '0'],
    ['half a process', count, '1.5'],
    ['no CPU', cpus, '0'],
    ['infinite CPUs', cpus, 'Infinity'],
    ['a user by name', user, 'root'],
    ['a user without group', user, '1000'],
    ['a network with a comma', network, 'a,b'],
    ['an allow-list without a list', network, 'allow'],
    ['a list without allow=', network, 'npm:install'],
    ['an allow-list with an empty entry', network, 'allow=a.example,'],
    ['an unknown risk', risk, 'huge'],
    ['a variable without a name', variable, '=x'],
    ['a variable with a space in its name', variable, 'a b=c'],
    ['a mount without target', mount, '/a'],
    ['a mount to a relative target', mount, '/a:b'],
    ['a mount of nothing', mount, ':/b'],
    ['a mount with an unknown mode', mount, '/a:/b:rx'],
    ['a mount with no more than a mode', mount, '/a:rw'],
    ['a mount as another tool writes it', mount, 'type=bind,source=/a,target=/b'],
    ['port 0', port, '0'],
    ['a port that is too large', port, '65536'],
    ['a port at one that is too large', port, '70000:80'],
    ['a port on an address', port, '0.0.0.0:80:80'],
    ['a range of ports', port, '80-90'],
    ['a port of an unknown protocol', port, '80/sctp'],
    ['a name server by name', address, 'dns.example'],
    ['a name server that cannot be', address, '1.1.1.256'],
    ['half a name server', address, '1.1.1'],
    ['a name server of bad IPv6', address, '1::2::3'],
    ['a name server with a port', address, '[::1]:53'],
  ])('%s', (_, read, text) => {
    expect(() => read(text)).toThrow(InvalidArgumentError);
  });
});

describe('the arguments of a command', () => {
  const of = (before: string[], after: string[] | null = null) =>
    commandOf({ before, after, called: 'acode run', options: ['--network', '--json'] });

  it('are a shell line when there is one', () => {
    expect(of(['ls | wc'])).toBe('ls | wc');
  });

  it('are an argument vector after --', () => {
    expect(of([], ['ls', '--json'])).toEqual(['ls', '--json']);
  });

  it.each([
    [['echo', 'hi'], null, 'acode run "echo hi"'],
    [['echo', 'hi'], null, 'acode run -- echo hi'],
    [['echo', '$(id)'], null, "acode run 'echo $(id)'"],
    [['ls -l', '--network', 'none'], null, "acode run --network none 'ls -l'"],
    [['ls', '--network=none'], null, 'acode run -- ls --network=none'],
    [['ls', '-l'], null, 'acode run -- ls -l'],
    [[], null, 'acode run -- echo hi'],
    [['  '], null, 'acode run -- echo hi'],
    [[], [], 'acode run -- echo hi'],
    [['echo'], ['hi'], 'acode run -- echo hi'],
    [['busybox', 'ls'], null, 'To run ls in the image busybox: `acode run --image busybox -- ls`.'],
    [['node:20', 'ls', '-l'], null, 'acode run --image node:20 -- ls -l'],
    [
      ['53a87165-0ce1-453c-a9b1-594e18d02b6f'],
      ['ls'],
      '`acode sandbox exec 53a87165-0ce1-453c-a9b1-594e18d02b6f -- ls`',
    ],
    [
      ['53a87165-0ce1-453c-a9b1-594e18d02b6f', 'ls'],
      null,
      '`acode sandbox exec 53a87165-0ce1-453c-a9b1-594e18d02b6f -- ls`',
    ],
    [['acode-1a2b3c4d-run-001'], ['ls'], '`acode sandbox exec acode-1a2b3c4d-run-001 -- ls`'],
  ] as const)('%j and %j are a mistake, and the hint has the way to write it', (before, after, hint) => {
    const attempt = () => of([...before], after && [...after]);
    expect(attempt).toThrow(UsageError);
    expect(attempt).toThrow(expect.objectContaining({ exitStatus: 2, hint: expect.stringContaining(hint) }));
  });

  it.each([
    ['node', 'a.js'],
    ['make', 'build:all'],
  ])('%s %s are no image', (...words) => {
    expect(() => of(words)).toThrow(expect.objectContaining({ hint: expect.not.stringContaining('--image') }));
  });

  it('name a persistent sandbox before --, and an image or anything else there is a mistake', () => {
    const named = (word: string): string => sandboxBefore(word, ['ls', '-l'], 'acode sandbox exec');
    expect(['a1b2', '53a87165-0ce1', 'web-server', 'acode-1a2b3c4d-run-001'].map(named)).toHaveLength(4);
    for (const [word, hint] of [
      ['busybox', '`acode sandbox exec --image busybox -- ls -l`'],
      ['node:20', '`acode sandbox exec --image node:20 -- ls -l`'],
      ['a b', "`acode sandbox exec -- 'a b' ls -l`"],
      ['ab', '`acode sandbox exec -- ab ls -l`'],
    ] as const)
      expect(() => named(word)).toThrow(expect.objectContaining({ hint: expect.stringContaining(hint) }));
  });

  it('may have options after the name of a sandbox', async () => {
    const { status, stderr } = await call([
      'sandbox',
      'exec',
      'web-server',
      '--timeout',
      '5',
      '--memory',
      '1g',
      '--',
      'ls',
    ]);
    expect(status).toBe(2);
    expect(stderr).toContain('--memory counts when a sandbox is created, and web-server exists already');
  });

  it.each([
    [['web-server', 'ls'], 'In the sandbox web-server: `acode sandbox exec --in web-server ls`.'],
    [['web-server', 'ls', '--', '-l'], '`acode sandbox exec --in web-server -- ls -l`.'],
    [['web-server', '--tiemout', '5', '--', 'ls'], '`acode sandbox exec --tiemout 5 --in web-server -- ls`.'],
    [['web-server', '--json', '--', 'ls'], '`acode sandbox exec --json web-server -- ls`.'],
  ])('%j are a mistake, and the hint names the sandbox', async (argv, hint) => {
    const { status, stderr } = await call(['sandbox', 'exec', ...argv]);
    expect(status).toBe(2);
    expect(stderr).toContain(hint);
  });

  it('are quoted for a shell where they must be', () => {
    expect(['a-b', 'a b', "it's", ''].map(quoted)).toEqual(['a-b', "'a b'", String.raw`'it'\''s'`, `''`]);
  });
});

describe('the options of a run', () => {
  const parse = (...argv: string[]) => {
    const command = requestCommand('run');
    command.parse(argv, { from: 'user' });
    return requestOf(command.opts(), { root: '/w', inside: 'sub', here: '/w/sub' }, { HOME: '/home/me' });
  };

  it('become a request, and options that were not given are absent', async () => {
    await expect(parse('ls')).resolves.toEqual({ policy: { limits: {} }, cwd: 'sub' });
  });

  it('refuse a port on an address of this machine with the reason', () => {
    expect(() => port('0.0.0.0:80:80')).toThrow(/127\.0\.0\.1 only/);
  });

  it('each reach their field', async () => {
    const options = '--image i --memory 64 --cpus 0.5 --pids 9 --timeout 2 --max-output 1k --network none --readonly';
    const more =
      '--user 5:6 --env A=1 --env B=2 --env HOME --workdir x --pull never --level docker --risk low --session s --task t';
    const newer =
      '--runtime runsc --profile task --swap 0 --open-files 64 --tmp 1m --dns 1.1.1.1 --publish 80 --mount ../d:/d --mount /e:/e:rw ls';
    await expect(parse(...`${options} ${more} ${newer}`.split(' '))).resolves.toEqual({
      policy: {
        image: 'i',
        profile: 'task',
        runtime: 'runsc',
        limits: {
          memoryBytes: 64 * 1024 ** 2,
          swapBytes: 0,
          cpus: 0.5,
          pids: 9,
          openFiles: 64,
          tmpBytes: 1024 ** 2,
          outputBytes: 1024,
        },
        dns: ['1.1.1.1'],
        ports: [{ container: 80 }],
        // A relative source begins where the user stands.
        mounts: [
          { source: '/w/d', target: '/d', readOnly: true },
          { source: '/e', target: '/e', readOnly: false },
        ],
        timeoutMs: 2000,
        network: 'none',
        workspace: 'readonly',
        user: '5:6',
        pull: 'never',
        level: 'docker',
      },
      env: { A: '1', B: '2', HOME: '/home/me' },
      cwd: 'x',
      risk: 'low',
      sessionId: 's',
      taskId: 't',
    });
  });

  it.each([
    ['policy.limits.memoryBytes', undefined, '--memory'],
    ['policy.limits.memoryBytes', 64 * 1024 ** 2, '--memory 64m'],
    ['policy.timeoutMs', 2500, '--timeout 2.5'],
    ['__proto__', undefined, '__proto__'],
    ['constructor', undefined, 'constructor'],
    ['policy.network', 'bridge', '--network bridge'],
    ['policy.ports.0.host', undefined, '--publish'],
    ['policy.mounts.12', undefined, '--mount'],
    ['cwd', undefined, '--workdir'],
    ['sessionId', undefined, '--session'],
    ['taskId', undefined, '--task'],
    ['base', undefined, '--base'],
    ['policy.networkTimeoutMs', undefined, 'policy.networkTimeoutMs'],
    ['policy.imageTrust', 'x', 'policy.imageTrust: x'],
    ['sandbox.limits.cpus', undefined, 'sandbox.limits.cpus'],
  ])('stand for the field %s with value %s: %s', (field, value, expected) => {
    expect(OPTION_TERMS.field(field, value)).toBe(expected);
  });

  it('stand for what set a value in the request, and for nothing else', () => {
    expect(OPTION_TERMS.source({ layer: 'request', where: 'policy.network' })).toBe('--network');
    expect(OPTION_TERMS.source({ layer: 'user', where: 'policy.network' })).toBe('your configuration, policy.network');
  });

  it('are in messages and hints of errors, while the text of others stays as it is', () => {
    const error = new AcodeError('ACODE-SBX-017', { field: 'cwd', reason: 'the file taskId: and policy.image; stay' });
    expect(error.inTerms(OPTION_TERMS)).toMatchObject({
      message: '--workdir: the file taskId: and policy.image; stay.',
      hint: expect.stringMatching(/^Correct --workdir;/) as string,
    });
  });

  it('have a name for every field they set', () => {
    const command = requestCommand('run');
    const known = command.options.map(({ long }) => long);
    for (const option of Object.values(POLICY_OPTIONS)) expect(known).toContain(option);
  });
});
