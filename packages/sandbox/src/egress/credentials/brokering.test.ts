// Which rules of an allow-list get which credential: the hosts that were named, what a preset names, and nothing that is denied.

import { describe, expect, it } from 'vitest';
import type { EgressCredential } from '../../contract/credentials.ts';
import type { EgressRule } from '../../contract/egress.ts';
import { decideHost } from '../decide.ts';
import { brokered } from './brokering.ts';

const setBy = { layer: 'user', where: 'config.yml:1' } as const;
const rule = (host: string, more: Partial<EgressRule> = {}): EgressRule => ({
  ...{ id: `allow/${host}`, verdict: 'allow', host, port: 443, protocol: 'tls', mode: 'pass', setBy },
  ...more,
});
const lent = (name: string, hosts?: readonly string[]) => ({
  credential: {
    ...{ name, as: 'bearer', from: { env: 'TOKEN' }, placeholder: '*'.repeat(20), setBy },
    ...(hosts ? { hosts } : {}),
  } as EgressCredential,
  mode: 'inspect' as const,
});
const rulesOf = (result: ReturnType<typeof brokered>): readonly EgressRule[] => ('rules' in result ? result.rules : []);

describe('a credential', () => {
  it('is for the host that it names, which is inspected from then on, and for no other', () => {
    const result = brokered([rule('one.example'), rule('two.example')], [lent('corp', ['one.example'])]);
    expect(rulesOf(result)).toEqual([
      rule('one.example', { mode: 'inspect', credential: 'corp' }),
      rule('two.example'),
    ]);
    expect('credentials' in result && result.credentials.map(({ name }) => name)).toEqual(['corp']);
  });

  it('makes no host reachable: not one that the list lacks, another port, or one that is denied', () => {
    const rules = [rule('one.example', { port: 8443 }), rule('*.example'), rule('two.example', { verdict: 'deny' })];
    const result = brokered(rules, [lent('corp', ['one.other', 'two.example', 'one.example:9000'])]);
    expect(result).toEqual({ rules, credentials: [] });
  });

  it('is for one host below a suffix, in a rule of its own beside it', () => {
    const rules = rulesOf(brokered([rule('*.corp.example')], [lent('corp', ['git.corp.example'])]));
    const decided = (host: string) => decideHost({ rules }, { host, port: 443, via: 'connect' });
    expect(decided('git.corp.example')).toMatchObject({ allowed: true, rule: { credential: 'corp', mode: 'inspect' } });
    expect(decided('www.corp.example')).toMatchObject({ allowed: true, rule: { mode: 'pass' } });
    expect(JSON.stringify(decided('www.corp.example'))).not.toContain('credential');
  });

  it('of two for one host is the later', () => {
    const result = brokered([rule('one.example')], [lent('first', ['one.example']), lent('second', ['one.example'])]);
    expect(rulesOf(result)).toEqual([rule('one.example', { mode: 'inspect', credential: 'second' })]);
    expect('credentials' in result && result.credentials.map(({ name }) => name)).toEqual(['second']);
  });

  it('is refused where everybody on the way would read it', () => {
    const plain = rule('one.example', { protocol: 'http' });
    expect(brokered([plain], [lent('corp', ['one.example'])])).toMatchObject({ fault: 'not-tls', name: 'corp' });
  });

  it('is needed by the presets of models, and not by those that do without', () => {
    const model = rule('api.model.example', { mode: 'inspect', credential: 'anthropic' });
    const code = rule('code.example', { mode: 'inspect', credential: 'github' });
    expect(brokered([model], [])).toMatchObject({ fault: 'needed', name: 'anthropic' });
    expect(brokered([code], [])).toEqual({ rules: [rule('code.example', { mode: 'inspect' })], credentials: [] });
    expect(rulesOf(brokered([model], [lent('anthropic')]))).toEqual([model]);
  });
});
