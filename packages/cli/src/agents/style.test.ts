// Denials of a session with an agent name the preset or the option that set a rule, and options that `acode agent` has.

import { PRESETS } from '@acode/agents';
import type { Denial } from '@acode/sandbox';
import { describe, expect, it } from 'vitest';
import { denialLine } from '../execution/closing-lines.ts';
import { agentStyle } from './style.ts';

const [claude] = PRESETS.filter(({ name }) => name === 'claude');
if (!claude) throw new Error('there is no preset of claude');
const { network: _, ...withoutNetwork } = claude;

const request = (where: string, value: string | number = 'allow') => ({ value, layer: 'request' as const, where });
const unlisted = (list: string): Denial => ({
  rule: 'network.not-listed',
  value: 'evil.example:443',
  setBy: request('policy.network'),
  count: 1,
  remedies: [{ kind: 'change-request', field: 'policy.network', suggested: `allow=${list},evil.example` }],
});

describe('a denial of an agent', () => {
  it.each([
    ['the preset of claude', claude, [], 'anthropic'],
    ['the preset of claude and --allow', claude, ['npm:install'], 'anthropic,npm:install'],
    ['--allow', withoutNetwork, ['npm:install'], 'npm:install'],
  ])('by an allow-list was set by %s', (setBy, preset, allow, list) => {
    const line = denialLine(unlisted(list), agentStyle(preset, { allow }));
    expect(line).toContain(`evil.example:443 is not on the allow-list (set by ${setBy}). `);
    // What the preset allows is allowed again without being typed.
    expect(line).toContain(`Allow it: --allow ${[...allow, 'evil.example'].join(',')}.`);
  });

  it.each([
    ['limit.time', 'policy.timeoutMs', '--budget', /give it more time: --budget minutes=<number>/],
    ['limit.requests', 'policy.networkLimits.requests', '--budget', /; or give it more: --budget requests=8\./],
    ['limit.tokens', 'policy.networkLimits.tokens', '--budget', /; or give it more: --budget tokens=8\./],
    [
      'limit.memory',
      'policy.limits.memoryBytes',
      'the preset of claude',
      /raise it in your agents\.yml: agents\.claude\.limits\.memoryBytes: 8/,
    ],
    [
      'limit.pids',
      'policy.limits.pids',
      'the preset of claude',
      /raise it in your agents\.yml: agents\.claude\.limits\.pids: 8/,
    ],
  ] as const)('by %s names who set %s', (rule, field, setBy, remedy) => {
    const denial: Denial = {
      rule,
      value: 4,
      setBy: request(field, 4),
      count: 1,
      remedies: [{ kind: 'use-less' }, { kind: 'raise-limit', field, suggested: 8 }],
    };
    const line = denialLine(denial, agentStyle(claude, { budget: { minutes: 1 } }));
    expect(line).toContain(`set by ${setBy}. `);
    expect(line).toMatch(remedy);
  });

  it('by a configuration file is as in every other command', () => {
    const setBy = { value: 'allow', layer: 'machine' as const, where: '/etc/acode/policy.yml:3:5' };
    const denial: Denial = { ...unlisted('x'), setBy, remedies: [{ kind: 'ask-administrator' }] };
    expect(denialLine(denial, agentStyle(claude, {}))).toContain(
      'set by the machine’s policy, /etc/acode/policy.yml:3:5',
    );
  });
});
