// Pull decision: pull, use as is, or refuse, in a table, before any registry is asked.

import { describe, expect, it } from 'vitest';
import type { EffectivePolicy, ImageNaming, ImageTrust, Sourced } from '../contract/policy.ts';
import { builtInValue } from './layers.ts';
import { TRUSTED_REPOSITORIES } from './profiles.ts';
import { decidePull, isLocal, latestWarning } from './pull.ts';
import type { PullDecision } from './pull.ts';
import { parseReference } from './images.ts';

const A = `sha256:${'a'.repeat(64)}`;
const users = <Value>(value: Value): Sourced<Value> => ({ value, layer: 'user', where: 'config.yml:3:5' });

interface Given {
  readonly pull?: EffectivePolicy['pull']['value'];
  readonly offline?: boolean;
  readonly mode?: EffectivePolicy['mode']['value'];
  readonly present?: boolean;
  readonly trust?: Partial<ImageTrust>;
  readonly naming?: Partial<ImageNaming>;
}

function decide(
  image: string,
  { pull = 'missing', offline, mode, present = false, trust = {}, naming = {} }: Given = {},
): PullDecision {
  return decidePull({
    image: users(image),
    present,
    policy: {
      pull: users(pull),
      offline: offline === undefined ? builtInValue(false) : users(offline),
      mode: mode === undefined ? builtInValue('local-only') : users(mode),
      imageTrust: {
        repositories: builtInValue(TRUSTED_REPOSITORIES),
        machineRepositories: null,
        anywhere: builtInValue(false),
        requireDigest: builtInValue(false),
        ...trust,
      },
      imageNaming: {
        untrusted: null,
        listed: { repositories: [], references: [] },
        pullable: null,
        projectImage: null,
        ...naming,
      },
    },
  });
}

const refusal = (code: string, part: string) =>
  expect.objectContaining({ code, message: expect.stringContaining(part) as string });

describe('an image that is there', () => {
  it.each(['missing', 'never'] as const)('is taken as it is where the policy is %s', pull => {
    expect(decide('node:20', { pull, present: true })).toMatchObject({ action: 'use', warnings: [] });
  });

  it('is asked for again where the policy is always', () => {
    expect(decide('node:20', { pull: 'always', present: true })).toMatchObject({ action: 'pull' });
  });

  it.each([{ offline: true }, { mode: 'airgapped' as const }])(
    'is taken as it is, and that is said, with %j',
    given => {
      const decision = decide('node:20', { ...given, pull: 'always', present: true });
      expect(decision.action).toBe('use');
      expect(decision.warnings[0]).toMatch(/was not pulled anew: .*config\.yml:3:5/);
    },
  );

  it('is not asked for again where it is made on this host', () => {
    expect(decide('acode-base:1', { pull: 'always', present: true }).action).toBe('use');
  });

  it('is not replaced by a pull from an untrusted registry, and the refusal does not call it missing', () => {
    expect(() => decide('evil/x:1', { pull: 'always', present: true })).toThrow(
      refusal('ACODE-SBX-010', 'evil/x:1 may not be pulled: docker.io/evil/x is not trusted'),
    );
  });
});

describe('an image that is missing', () => {
  it.each(['missing', 'always'] as const)('is pulled from a trusted repository where the policy is %s', pull => {
    const { action, reason } = decide('node:20-alpine', { pull });
    expect(action).toBe('pull');
    expect(reason).toBe('docker.io/library/node is trusted (the built-in default)');
  });

  it.each([
    [{ pull: 'never' as const }, 'the pull policy is never (your configuration, config.yml:3:5)'],
    [{ offline: true }, 'sandbox.images.offline is true (your configuration, config.yml:3:5)'],
    [{ mode: 'airgapped' as const }, 'the mode is airgapped (your configuration, config.yml:3:5)'],
    [{ mode: 'airgapped' as const, pull: 'always' as const }, 'the mode is airgapped'],
  ])('is refused with %j, and the refusal says who said so', (given, rule) => {
    expect(() => decide('node:20', given)).toThrow(refusal('ACODE-SBX-009', rule));
    expect(() => decide('node:20', given)).toThrow(
      expect.objectContaining({ cause: expect.objectContaining({ code: 'ACODE-CTN-011' }) as unknown }),
    );
  });

  it.each([
    ['evil/node:20', 'docker.io/evil/node'],
    ['docker.io.evil.io/library/node:20', 'docker.io.evil.io/library/node'],
    ['localhost:5000/library/node:20', 'localhost:5000/library/node'],
    ['127.0.0.1:5000/node:20', '127.0.0.1:5000/node'],
    ['mcr.microsoft.com/dotnet-evil/sdk:8.0', 'mcr.microsoft.com/dotnet-evil/sdk'],
    ['mcr.microsoft.com:444/dotnet/sdk:8.0', 'mcr.microsoft.com:444/dotnet/sdk'],
  ])('is refused where %s only looks like what is trusted', (image, repository) => {
    expect(() => decide(image)).toThrow(
      refusal('ACODE-SBX-010', `${image} is not on this engine and may not be pulled: ${repository} is not trusted`),
    );
  });

  it('is pulled from a repository that the user listed, or from anywhere where they said so', () => {
    const listed = { repositories: users(['127.0.0.1:5000/me/*']) };
    expect(decide('127.0.0.1:5000/me/x:1', { trust: listed }).reason).toContain('your configuration');
    expect(() => decide('127.0.0.1:5000/you/x:1', { trust: listed })).toThrow(refusal('ACODE-SBX-010', 'not trusted'));
    expect(decide('evil/x:1', { trust: { anywhere: users(true) } }).reason).toContain('from anywhere');
  });

  it('is held to the machine’s own list, whatever the user trusts', () => {
    const trust = {
      anywhere: users(true),
      machineRepositories: { ...users(['ghcr.io/we/*']), layer: 'machine' as const },
    };
    expect(() => decide('node:20', { trust })).toThrow(refusal('ACODE-SBX-010', 'that this machine allows'));
    expect(decide('ghcr.io/we/x:1', { trust }).action).toBe('pull');
  });

  it('needs a digest where one is required', () => {
    const trust = { requireDigest: users(true) };
    expect(() => decide('node:20', { trust })).toThrow(refusal('ACODE-SBX-010', 'names no digest'));
    expect(decide(`node:20@${A}`, { trust }).action).toBe('pull');
  });

  it.each([
    [A, 'named by its id'],
    ['acode-base:1', 'made on this host'],
    ['devs-agent-sandbox', 'made on this host'],
    ['aimi-sandbox-project:base', 'made on this host'],
    ['localhost/mine:1', 'made on this host'],
  ])('is never pulled as %s, even from anywhere', (image, part) => {
    expect(() => decide(image, { trust: { anywhere: users(true) } })).toThrow(refusal('ACODE-SBX-002', part));
  });
});

describe('what is only here', () => {
  it.each([
    ['acode-base', true],
    ['docker.io/library/acode-base', true],
    ['me/acode-base', false],
    ['ghcr.io/acode-base/x', false],
    ['acode', false],
    ['localhost:5000/acode-base', false],
    ['node', false],
  ])('%s: %s', (text, local) => {
    const reference = parseReference(text);
    expect(reference && isLocal(reference)).toBe(local);
  });
});

describe('the tag latest', () => {
  it.each(['node', 'node:latest', 'ghcr.io/me/x'])('is warned of in %s', image => {
    expect(latestWarning(image)).toEqual([expect.stringContaining('latest, which moves')]);
    expect(decide(image, { trust: { anywhere: users(true) } }).warnings).toHaveLength(1);
  });

  it.each(['node:20', `node@${A}`, `node:latest@${A}`, A])('is not meant by %s', image => {
    expect(latestWarning(image)).toEqual([]);
  });
});

describe('who trusts a repository', () => {
  const listed = { value: [...TRUSTED_REPOSITORIES, 'ghcr.io/me/*'], layer: 'user', where: 'config.yml:3:5' } as const;

  it('is what is built in for what is, whatever the user lists besides', () => {
    const { reason } = decide('node:20', { trust: { repositories: listed } });
    expect(reason).toBe('docker.io/library/node is trusted (the built-in default)');
  });

  it('is the user for what only the user lists', () => {
    const { reason } = decide('ghcr.io/me/x:1', { trust: { repositories: listed } });
    expect(reason).toBe('ghcr.io/me/x is trusted (your configuration, config.yml:3:5)');
  });
});

it('a refused pull names the image to pull', () => {
  expect(() => decide('node:20', { pull: 'never' })).toThrow(
    expect.objectContaining({ hint: 'Pull it once with `acode sandbox pull node:20`.' }),
  );
});

describe('a model’s call', () => {
  const naming = { untrusted: 'model', pullable: ['docker.io/library/node:20-alpine'] } as const;

  it('pulls what the user’s configuration names, and what the engine has is taken as it is', () => {
    expect(decide('node:20-alpine', { naming })).toMatchObject({ action: 'pull' });
    expect(decide('node:22', { naming, present: true })).toMatchObject({ action: 'use' });
    expect(decide('node:22', { naming, present: true, pull: 'always' })).toMatchObject({ action: 'use' });
  });

  it.each(['busybox:c2VjcmV0', `node@${A}`, 'node:20-alpine-', 'docker.io/library/node'])(
    'asks no registry for %s, and says what the user can type',
    image => {
      expect(() => decide(image, { naming })).toThrow(
        expect.objectContaining({
          code: 'ACODE-SBX-009',
          message: expect.stringContaining('a model’s call pulls only images') as string,
          hint: expect.stringContaining(`\`acode sandbox pull ${image}\``) as string,
        }),
      );
      // The control: for anybody else the trust list decides.
      expect(decide(image)).toMatchObject({ action: 'pull' });
    },
  );
});
