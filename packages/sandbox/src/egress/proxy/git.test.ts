import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { rulesOf } from '../rules.ts';
import { decideHost } from '../decide.ts';
import { decideRepository } from '../repository.ts';
import { MAX_GIT_BYTES, readGitRequest, sshArguments } from './git.ts';

const USER = { layer: 'user', where: 'test' } as const;
const RULES = rulesOf(
  [
    'ssh:git@code.example/owner/repo:push',
    'ssh:git@code.example/owner/read',
    'ssh:git@code.example/~owner/home',
    'ssh:deploy@code.example:2222//srv/git/site.git',
  ],
  'allow',
  USER,
);

function encoded(words: readonly string[]): Buffer {
  const text = Buffer.from(words.map(word => `${word}\0`).join(''), 'latin1');
  return Buffer.concat([Buffer.from([text.length & 0xff, text.length >> 8]), text]);
}

/** What is run outside for the words that Git gives its client; the reason where nothing is. */
function outcome(...words: readonly string[]): string {
  const read = readGitRequest(encoded(['', ...words]));
  if (read?.kind !== 'request') return 'refused';
  const { request } = read;
  const decision = decideHost({ rules: RULES }, { host: request.host, port: request.port, via: 'git' });
  if (!decision.allowed) return decision.reason;
  const repository = decideRepository(decision.rule, request);
  return repository.allowed ? `${repository.login}: ${repository.command}` : repository.reason;
}

describe('a request for a repository over SSH', () => {
  it('runs what the rule names, however Git writes it', () => {
    expect(outcome('git@code.example', "git-upload-pack 'owner/repo'")).toBe("git: git-upload-pack 'owner/repo'");
    expect(outcome('git@code.example', "git-receive-pack '/owner/repo.git'")).toBe(
      "git: git-receive-pack 'owner/repo'",
    );
    expect(outcome('code.example', "git-upload-pack 'owner/read/'")).toBe("git: git-upload-pack 'owner/read'");
    expect(outcome('-4', '-p', '22', 'CODE.example', "git-upload-pack '~owner/home'")).toBe(
      "git: git-upload-pack '~owner/home'",
    );
    const version = ['-o', 'SendEnv=GIT_PROTOCOL', '-p', '2222'];
    expect(outcome(...version, 'deploy@code.example', "git-upload-pack '/srv/git/site'")).toBe(
      "deploy: git-upload-pack '/srv/git/site'",
    );
  });

  it('refuses another repository, service, login, host and port', () => {
    expect(outcome('git@code.example', "git-upload-pack 'owner/other'")).toBe('repository');
    expect(outcome('git@code.example', "git-receive-pack 'owner/read'")).toBe('service');
    expect(outcome('git@code.example', "git-upload-archive 'owner/repo'")).toBe('service');
    expect(outcome('git@code.example', 'sh')).toBe('service');
    expect(outcome('git@code.example', "git-upload-pack 'owner/repo' 'owner/other'")).toBe('service');
    expect(outcome('root@code.example', "git-upload-pack 'owner/repo'")).toBe('repository');
    expect(outcome('git@other.example', "git-upload-pack 'owner/repo'")).toBe('not-listed');
    expect(outcome('-p', '23', 'git@code.example', "git-upload-pack 'owner/repo'")).toBe('other-port');
    expect(outcome('-p', '2222', 'deploy@code.example', "git-upload-pack 'srv/git/site'")).toBe('repository');
    for (const path of ['../owner/repo', 'owner/../owner/repo', 'owner//repo', './owner/repo', 'owner/repo/..', '']) {
      expect(outcome('git@code.example', `git-upload-pack '${path}'`), path).toBe('repository');
    }
  });

  it('refuses options, names that are options, and signs that a shell or a terminal reads', () => {
    const command = "git-upload-pack 'owner/repo'";
    const refused: readonly (readonly string[])[] = [
      ['-oProxyCommand=touch /tmp/x', 'git@code.example', command],
      ['-o', 'ProxyCommand=touch /tmp/x', 'git@code.example', command],
      ['-o', 'SendEnv=SECRET', 'git@code.example', command],
      ['-F', '/tmp/config', 'git@code.example', command],
      ['-A', 'git@code.example', command],
      ['-L', '1:db.example:1', 'git@code.example', command],
      ['-G', 'git@code.example', command],
      ['-p', '22;id', 'git@code.example', command],
      ['-oProxyCommand=id', command],
      ['git@-oProxyCommand=id', command],
      ['-l@code.example', command],
      ['--', 'git@code.example', command],
      ['git@code.example'],
      ['git@code.example', command, 'id'],
      ['git@code.example', "git-upload-pack 'owner/repo\n'"],
      ['git@code.example', "git-upload-pack 'owner/\u00e9'"],
      [],
    ];
    for (const words of refused) expect(outcome(...words), words.join(' ')).toBe('refused');
    // These have the form of a request, and name nothing that is allowed.
    for (const of of [
      "git-upload-pack 'owner/repo'; id",
      "git-upload-pack --strict 'owner/repo'",
      'git-upload-pack owner/repo',
    ])
      expect(outcome('git@code.example', of), of).toBe('service');
    for (const path of [
      "owner/re'\\''po",
      '--upload-pack=id',
      'owner/$(id)',
      'owner/`id`',
      'owner/repo;id',
      'owner/re po',
    ])
      expect(outcome('git@code.example', `git-upload-pack '${path}'`), path).toMatch(/^(?:repository|service)$/);
  });

  it('is read only as a whole, and only up to a length', () => {
    const whole = encoded(['version=2', 'git@code.example', "git-upload-pack 'owner/repo'"]);
    for (let length = 0; length < whole.length; length += 1)
      expect(readGitRequest(whole.subarray(0, length))).toBeNull();
    const read = readGitRequest(Buffer.concat([whole, Buffer.from('0000')]));
    expect(read).toMatchObject({ kind: 'request', length: whole.length, request: { protocol: 'version=2' } });
    expect(readGitRequest(encoded(['version=2:more', 'git@code.example', "git-upload-pack 'a/b'"]))).toEqual({
      kind: 'refused',
    });
    expect(readGitRequest(encoded(['', 'x'.repeat(MAX_GIT_BYTES)]))).toEqual({ kind: 'refused' });
    expect(readGitRequest(Buffer.from([3, 0, 97, 0, 98]))).toEqual({ kind: 'refused' });
  });

  // Whatever comes: what a server is asked to run is one of the commands that the rules stand for.
  it('runs nothing that the rules do not name, for generated words', () => {
    const commands = [
      ...[
        "git: git-upload-pack 'owner/repo'",
        "git: git-receive-pack 'owner/repo'",
        "git: git-upload-pack 'owner/read'",
      ],
      ...["git: git-upload-pack '~owner/home'", "deploy: git-upload-pack '/srv/git/site'"],
    ];
    const piece = fc.constantFrom(
      ...[
        'git-upload-pack',
        'git-receive-pack',
        ' ',
        "'",
        'owner/',
        'repo',
        '/',
        '.git',
        '..',
        '-o',
        '-p',
        '2222',
        '22',
      ],
      ...[
        'git@',
        'deploy@',
        'code.example',
        'other.example',
        '\n',
        '\\',
        '$(id)',
        '~',
        'srv/git/site',
        'SendEnv=GIT_PROTOCOL',
      ],
    );
    const word = fc.array(piece, { maxLength: 6 }).map(parts => parts.join(''));
    const reasons = ['refused', 'repository', 'service', 'not-listed', 'other-port', 'bad-host'];
    const counted = new Map<string, number>();
    const legal = fc.constantFrom('git@code.example', 'code.example');
    const path = fc.array(fc.constantFrom('owner', 'repo', 'read', '/', '.git', '..', '~', "'"), { maxLength: 5 });
    const exact = fc.constantFrom(['owner/repo'], ['/owner/read.git'], ['~owner/home']);
    const near = fc.tuple(
      legal,
      fc.tuple(fc.constantFrom('git-upload-pack', 'git-receive-pack'), fc.oneof(path, exact)),
    );
    const words = fc.oneof(
      fc.array(word, { maxLength: 6 }),
      near.map(([host, [service, parts]]) => [host, `${service} '${parts.join('')}'`]),
    );
    fc.assert(
      fc.property(words, given => {
        const found = outcome(...given);
        counted.set(found, (counted.get(found) ?? 0) + 1);
        expect([...commands, ...reasons]).toContain(found);
      }),
      { numRuns: 1000 },
    );
    // The control: some were allowed.
    expect(commands.some(command => counted.has(command))).toBe(true);
  });
});

describe('ssh', () => {
  const connection = {
    ...{ host: 'code.example', port: 2222, address: '192.0.2.7', login: 'git', protocol: 'version=2' },
    command: "git-upload-pack 'owner/repo'",
  };

  it('gets the checked address, pinned keys, and nothing of the user’s configuration', () => {
    const words = sshArguments(connection, { knownHosts: '/k', identity: '/i' });
    expect(words.slice(0, 3)).toEqual(['-F', 'none', '-T']);
    expect(words.slice(-6)).toEqual(['2222', '-l', 'git', '--', 'code.example', "git-upload-pack 'owner/repo'"]);
    for (const option of [
      ...[
        'BatchMode=yes',
        'StrictHostKeyChecking=yes',
        'ForwardAgent=no',
        'ClearAllForwardings=yes',
        'ControlMaster=no',
      ],
      ...['HostName=192.0.2.7', 'HostKeyAlias=[code.example]:2222', 'UserKnownHostsFile=/k', 'IdentityFile=/i'],
      'SetEnv=GIT_PROTOCOL=version=2',
    ])
      expect(words[words.indexOf(option) - 1], option).toBe('-o');
  });
});

describe('entries for repositories', () => {
  const fault = (entry: string): string | null => {
    try {
      rulesOf([entry], 'allow', USER);
      return null;
    } catch (error) {
      return String(error);
    }
  };

  it('name one repository, and say what is wrong otherwise', () => {
    for (const entry of [
      'ssh:code.example/a/b',
      'ssh:git@code.example:22/a/b.git',
      'ssh:git@code.example/.github/.github:push',
    ])
      expect(fault(entry), entry).toBeNull();
    for (const entry of [
      ...['ssh:git@code.example', 'ssh:git@code.example/', 'ssh:git@code.example/*', 'ssh:git@code.example/a/../b'],
      ...[
        'ssh:git@code.example/-a/b',
        "ssh:git@code.example/a/b'c",
        'ssh:git@code.example:0/a/b',
        'ssh:-l@code.example/a/b',
      ],
      ...[
        'ssh:git@*.example.com/a/b',
        'ssh:git@10.0.0.1/a/b',
        'ssh:git@host/a/b',
        'ssh://git@code.example/a/b',
        'ssh:git@c.d/a b',
      ],
    ])
      expect(fault(entry), entry).toMatch(/^TypeError: an entry of an allow-list /);
  });

  it('lead nowhere else: not by the proxy, a name or SOCKS', () => {
    for (const via of ['connect', 'http', 'socks', 'name'] as const)
      expect(decideHost({ rules: RULES }, { host: 'code.example', port: 22, via })).toMatchObject({
        reason: 'git-only',
      });
    const other = rulesOf(['tcp:code.example:22'], 'allow', USER);
    expect(decideHost({ rules: other }, { host: 'code.example', port: 22, via: 'git' })).toMatchObject({
      allowed: false,
    });
  });
});
