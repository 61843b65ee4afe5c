// Choice of the backend: a run fails closed whatever is wrong with the engine, and only the user’s own configuration
// allows a weaker level.

import { describe, expect, it } from 'vitest';
import { checkConfig } from '../policy/config/check.ts';
import type { ConfigInput } from '../contract/config.ts';
import { AcodeError } from '../contract/errors.ts';
import type { Level, Risk } from '../contract/levels.ts';
import type { Host } from './host.ts';
import type { Backend, Capability, EngineBackend } from '../isolation/backend.ts';
import { chooseLevel } from './level.ts';
import { NO_LAYERS } from '../policy/layers.ts';
import { resolvePolicy } from '../policy/resolve.ts';

const absent = new AcodeError('ACODE-SBX-008', { socket: '/s', reason: 'no engine socket exists', absent: true });
const refusing = new AcodeError('ACODE-SBX-008', { socket: '/s', reason: 'connection refused' });
const engine: Capability = {
  level: 'docker',
  available: true,
  cpus: 2,
  runtimes: { runc: 'docker', runsc: 'gvisor' },
  standardRuntime: 'runc',
};
const local = (level: Level, available = true): Capability => ({
  level,
  available,
  cpus: 2,
  runtimes: {},
  standardRuntime: '',
  ...(available ? {} : { reason: 'user namespaces are forbidden' }),
});

interface Around {
  readonly config?: NonNullable<ConfigInput['sandbox']>;
  readonly engineFails?: AcodeError;
  readonly bubblewrap?: boolean;
  readonly mode?: 'airgapped';
  readonly level?: Level | 'auto';
  readonly risk?: Risk;
}

function choose({ config = {}, engineFails, bubblewrap = true, mode, level, risk = 'low' }: Around) {
  const locals = [local('bubblewrap', bubblewrap), local('ulimit'), local('none')];
  const asked: string[] = [];
  const host = {
    telemetry: { clock: { after: () => () => undefined } },
    engine: async () => {
      asked.push('engine');
      if (engineFails) throw engineFails;
      return { level: 'docker' } as EngineBackend;
    },
    capability: async () => engine,
    backend: async (of: Level) => ({ level: of }) as Backend,
    localCapabilities: async () => locals,
    localCapability: async (of: Level) => locals.find(one => one.level === of) ?? null,
  } as unknown as Host;
  const layers = { ...NO_LAYERS, user: checkConfig({ sandbox: config, ...(mode ? { mode } : {}) }, 'config.yml') };
  const policy = resolvePolicy(level ? { level } : {}, layers, {
    caller: { uid: 1000, gid: 1000 },
    cpus: 2,
    task: { command: ['true'], risk },
  });
  return { chosen: chooseLevel(host, policy), asked };
}

async function refusal(around: Around): Promise<AcodeError> {
  const error: unknown = await choose(around).chosen.then(
    chosen => new Error(`chose ${chosen.level}`),
    (failure: unknown) => failure,
  );
  if (error instanceof AcodeError) return error;
  throw error;
}

describe('an engine that answers', () => {
  it.each<[Level | 'auto', Level, string | null]>([
    ['auto', 'docker', null],
    ['docker', 'docker', null],
    ['gvisor', 'gvisor', 'runsc'],
  ])('serves %s', async (level, gets, runtime) => {
    expect(await choose({ level }).chosen).toMatchObject({ level: gets, runtime, notes: [] });
  });

  it('is preferred to a stand-in', async () => {
    expect(await choose({ config: { fallback: 'warn' } }).chosen).toMatchObject({ level: 'docker' });
  });
});

describe('without an engine', () => {
  it.each<[string, Around]>([
    ['nothing is configured', { engineFails: absent }],
    ['the engine refuses', { engineFails: refusing, config: { fallback: 'warn' } }],
    ['the risk is high', { engineFails: absent, config: { fallback: 'warn' }, risk: 'high' }],
    ['the risk is critical', { engineFails: absent, config: { fallback: 'warn', level: 'auto' }, risk: 'critical' }],
    ['the mode is airgapped', { engineFails: absent, config: { fallback: 'warn' }, mode: 'airgapped' }],
    ['bubblewrap does not work', { engineFails: absent, config: { fallback: 'warn' }, bubblewrap: false }],
    ['docker was named', { engineFails: absent, config: { fallback: 'warn' }, level: 'docker' }],
  ])('refuses where %s', async (_, around) => {
    const error = await refusal(around);
    expect(error.code).toBe('ACODE-SBX-008');
    expect(error.message).toMatch(
      around.bubblewrap === false
        ? / Nothing was run\.$/
        : / Nothing was run \(fail-closed\); required: docker \(risk \w+, .*\), available: bubblewrap\.$/,
    );
  });

  it('says why nothing stands in although the user’s own file allows it', async () => {
    const { hint } = await refusal({ engineFails: refusing, config: { fallback: 'warn' } });
    expect(hint).toContain('sandbox.fallback does not apply here');
    expect((await refusal({ engineFails: refusing })).hint).not.toContain('sandbox.fallback');
  });

  it('bubblewrap stands in where the user’s own file says so, and that is noted', async () => {
    const { notes, level } = await choose({ engineFails: absent, config: { fallback: 'warn' } }).chosen;
    expect(level).toBe('bubblewrap');
    expect(notes.join()).toContain('sandbox.fallback');
  });
});

describe('a weaker level', () => {
  it.each<Level>(['bubblewrap', 'ulimit', 'none'])('%s is refused where only the request asks for it', async level => {
    const error = await refusal({ level });
    expect(error.code).toBe('ACODE-SBX-012');
    expect(error.message).toContain('fail-closed');
    expect(error.message).toContain('docker (risk low, the built-in default)');
    expect(error.hint).toContain('acode config set sandbox.level');
  });

  it.each<Level>(['bubblewrap', 'ulimit', 'none'])(
    '%s is used where the user’s file names it, without an engine',
    async level => {
      const { chosen, asked } = choose({ config: { level }, engineFails: refusing });
      expect(await chosen).toMatchObject({ level, runtime: null });
      expect(asked).toEqual([]);
    },
  );

  it.each<Risk>(['high', 'critical'])('is refused for %s whatever the file’s level', async risk => {
    const error = await refusal({ config: { level: 'none' }, risk });
    expect(error.code).toBe('ACODE-SBX-012');
    expect(error.message).toContain(`risk ${risk}`);
  });

  it('may be asked for where the user’s list leaves the risk out, as far down as the list goes', async () => {
    const config = { require_for: ['critical' as const] };
    expect(await choose({ config, level: 'ulimit', risk: 'high' }).chosen).toMatchObject({ level: 'ulimit' });
    expect((await refusal({ config, level: 'none', risk: 'high' })).code).toBe('ACODE-SBX-012');
    expect((await refusal({ config, level: 'ulimit', risk: 'critical' })).hint).toContain('always need docker');
  });

  it('is not to be had by asking where it may only stand in', async () => {
    for (const mode of [{}, { mode: 'airgapped' as const }])
      expect((await refusal({ config: { fallback: 'warn' }, level: 'bubblewrap', ...mode })).code).toBe(
        'ACODE-SBX-012',
      );
  });

  it('than the user named is refused, and auto means what the user named', async () => {
    expect((await refusal({ config: { level: 'gvisor' }, level: 'docker' })).code).toBe('ACODE-SBX-012');
    expect(await choose({ config: { level: 'gvisor' }, level: 'auto' }).chosen).toMatchObject({ level: 'gvisor' });
    expect((await refusal({ config: { level: 'microvm' }, level: 'auto' })).code).toBe('ACODE-SBX-012');
  });

  it('has no runtimes, and says so rather than dropping one', async () => {
    const error = await refusal({ config: { level: 'bubblewrap', runtime: 'runsc' } });
    expect(error.code).toBe('ACODE-SBX-016');
  });

  it('is never picked by auto', async () => {
    const config = { require_for: ['critical' as const] };
    expect((await refusal({ config, engineFails: absent })).code).toBe('ACODE-SBX-008');
  });

  it('that does not work here is refused with what to do, and nothing else is tried', async () => {
    const error = await refusal({ config: { level: 'bubblewrap' }, bubblewrap: false });
    expect(error.code).toBe('ACODE-SBX-012');
    expect(error.hint).toContain('user namespaces are forbidden');
  });
});
