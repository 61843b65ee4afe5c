// Risk × configuration: the least isolation a command gets.

import { describe, expect, it } from 'vitest';
import { checkConfig } from './config/check.ts';
import type { ConfigInput } from '../contract/config.ts';
import { LEVELS, RISKS, isAtLeast } from '../contract/levels.ts';
import type { Level, Risk } from '../contract/levels.ts';
import { govern } from './risk.ts';
import { NO_LAYERS } from './layers.ts';
import type { Layers } from './layers.ts';

type Sandbox = NonNullable<ConfigInput['sandbox']>;

function layers(user: Sandbox, further: Partial<Layers> = {}): Layers {
  return { ...NO_LAYERS, user: checkConfig({ sandbox: user }, 'config.yml'), ...further };
}

const required = (risk: Risk, of: Layers): Level => govern({ command: ['true'], risk }, of).required.value;
const all = (of: Layers): Level[] => RISKS.map(risk => required(risk, of));

describe('what each risk requires', () => {
  it.each<[string, Sandbox, Level[]]>([
    ['nothing was configured', {}, ['docker', 'docker', 'docker', 'docker']],
    ['level: docker', { level: 'docker' }, ['docker', 'docker', 'docker', 'docker']],
    ['level: bubblewrap', { level: 'bubblewrap' }, ['bubblewrap', 'bubblewrap', 'docker', 'docker']],
    ['level: ulimit', { level: 'ulimit' }, ['ulimit', 'ulimit', 'docker', 'docker']],
    ['level: none', { level: 'none' }, ['none', 'none', 'docker', 'docker']],
    ['fallback: warn', { fallback: 'warn' }, ['docker', 'docker', 'docker', 'docker']],
    ['level: gvisor', { level: 'gvisor' }, ['gvisor', 'gvisor', 'gvisor', 'gvisor']],
    ['docker and a list', { level: 'docker', require_for: ['critical'] }, ['docker', 'docker', 'docker', 'docker']],
    ['gvisor and a list', { level: 'gvisor', require_for: ['critical'] }, ['gvisor', 'gvisor', 'gvisor', 'gvisor']],
    [
      'bubblewrap and a list',
      { level: 'bubblewrap', require_for: ['high', 'critical'] },
      ['bubblewrap', 'bubblewrap', 'docker', 'docker'],
    ],
    ['require_for: [critical]', { require_for: ['critical'] }, ['none', 'none', 'ulimit', 'docker']],
    ['the default written out', { require_for: ['high', 'critical'] }, ['none', 'none', 'docker', 'docker']],
    ['without critical, which always needs docker', { require_for: ['high'] }, ['none', 'none', 'docker', 'docker']],
    ['every risk', { require_for: [...RISKS], level: 'none' }, ['docker', 'docker', 'docker', 'docker']],
    ['only medium', { require_for: ['medium', 'critical'] }, ['none', 'docker', 'ulimit', 'docker']],
  ])('%s', (_, user, expected) => {
    expect(all(layers(user))).toEqual(expected);
  });

  it('never lets anybody take docker from critical', () => {
    for (const level of LEVELS)
      for (const require_for of [[], ['low'], ['critical']] as const)
        expect(
          isAtLeast(required('critical', layers({ level, fallback: 'warn', require_for: [...require_for] })), 'docker'),
        ).toBe(true);
  });

  it('lets a repository and the machine only add', () => {
    const of = layers({ require_for: ['critical'] });
    const where = (): string => 'somewhere';
    const repository = {
      ...of.user,
      where,
      root: '/p',
      trusted: false,
      config: { sandbox: { require_for: ['medium', 'critical'] } },
    };
    expect(all({ ...of, repository: repository as unknown as Layers['repository'] })).toEqual([
      'none',
      'docker',
      'ulimit',
      'docker',
    ]);
    const machine = {
      ...of.user,
      where,
      config: { sandbox: { require_for: ['low', 'critical'], level: 'bubblewrap' } },
    };
    expect(all({ ...of, machine: machine as unknown as Layers['machine'] })).toEqual([
      'docker',
      'bubblewrap',
      'bubblewrap',
      'docker',
    ]);
  });

  it('says who requires it', () => {
    expect(govern({ command: ['true'], risk: 'high' }, layers({})).required).toEqual({
      value: 'docker',
      layer: 'built-in',
      where: 'default',
    });
    expect(govern({ command: ['true'], risk: 'low' }, layers({ level: 'none' })).required).toMatchObject({
      layer: 'user',
    });
  });
});

describe('the fallback', () => {
  const fallbacks = (of: Layers) => RISKS.map(risk => govern({ command: ['true'], risk }, of).fallback.value);

  it.each<[string, Sandbox, string]>([
    ['nothing was said', {}, 'refuse refuse refuse refuse'],
    ['it is allowed', { fallback: 'warn' }, 'warn warn refuse refuse'],
    ['a level was named', { fallback: 'warn', level: 'docker' }, 'refuse refuse refuse refuse'],
    ['every risk is listed', { fallback: 'warn', require_for: [...RISKS] }, 'refuse refuse refuse refuse'],
  ])('where %s', (_, user, expected) => {
    expect(fallbacks(layers(user)).join(' ')).toBe(expected);
  });
});

describe('levels', () => {
  it('are known by name, and another one is an error', () => {
    for (const level of [...LEVELS, 'auto'] as const)
      expect(() => checkConfig({ sandbox: { level } }, 'c')).not.toThrow();
    for (const level of ['dockr', 'DOCKER', '', 3, null])
      expect(() => checkConfig({ sandbox: { level: level as Level } }, 'c')).toThrow(
        expect.objectContaining({ code: 'ACODE-SBX-013' }),
      );
  });
});

describe('the required level', () => {
  it('names the machine’s file where that asks for what is built in anyway', () => {
    const machine = checkConfig({ sandbox: { level: 'docker' } }, 'policy.yml') as unknown as Layers['machine'];
    expect(govern({ command: ['true'], risk: 'low' }, { ...NO_LAYERS, machine }).required).toMatchObject({
      value: 'docker',
      layer: 'machine',
    });
    expect(govern({ command: ['true'], risk: 'low' }, NO_LAYERS).required).toMatchObject({ layer: 'built-in' });
  });
});

describe('risk', () => {
  it('is what the caller gave', () => {
    expect(govern({ command: ['true'], risk: 'medium' }, NO_LAYERS).risk).toEqual({
      value: 'medium',
      layer: 'request',
      where: 'risk',
    });
  });

  it('is raised by rules of every layer, and says so', () => {
    const of = layers({ risk_rules: [{ match: 'make deploy*', risk: 'critical' }] });
    expect(govern({ command: 'make deploy', risk: 'low' }, of)).toMatchObject({
      risk: { value: 'critical', where: 'rules' },
      riskReasons: ['critical: matches "make deploy*" of sandbox.risk_rules'],
      required: { value: 'docker' },
    });
  });
});
