// Denials in the words of `acode agent`: who set a rule, the preset or an option, and which of its own options raises it.

import type { AgentPreset } from '@acode/agents';
import type { DenialStyle, Remedy, Source } from '@acode/sandbox';
import { OPTION_TERMS } from '../arguments/option-names.ts';
import { shortened } from '../execution/closing-lines.ts';
import type { AgentForm } from './session.ts';

/** The style of a session with an agent. */
export function agentStyle(preset: AgentPreset, { allow, budget }: Pick<AgentForm, 'allow' | 'budget'>): DenialStyle {
  const own = preset.network?.allow ?? [];
  const lists = [
    own.length > 0 ? `the preset of ${preset.name}` : [],
    (allow ?? []).length > 0 ? '--allow' : [],
  ].flat();
  // The request is acode’s own: nobody typed its fields.
  const requested = ({ where }: Source): string | null => {
    if (where.startsWith('policy.networkLimits')) return '--budget';
    if (where === 'policy.timeoutMs') return budget?.minutes === undefined ? null : '--budget';
    if (where.startsWith('policy.limits')) return `the preset of ${preset.name}`;
    return where.startsWith('policy.network') && lists.length > 0 ? lists.join(' and ') : null;
  };
  return {
    terms: {
      ...OPTION_TERMS,
      source: source => (source.layer === 'request' ? requested(source) : null) ?? OPTION_TERMS.source(source),
    },
    remedy: (remedy, denial) => {
      if (denial.rule === 'network.not-listed' && remedy.kind === 'change-request')
        return `allow it: --allow ${missing(remedy.suggested, own)}`;
      if (remedy.kind !== 'raise-limit') return shortened(remedy, denial);
      if (denial.rule === 'limit.time') return 'give it more time: --budget minutes=<number>';
      if (denial.rule === 'limit.requests') return `give it more: --budget requests=${remedy.suggested}`;
      if (denial.rule === 'limit.tokens') return `give it more: --budget tokens=${remedy.suggested}`;
      return ofOwnFile(preset.name, remedy);
    },
  };
}

// What the preset has stays allowed by itself.
function missing(suggested: string, own: readonly string[]): string {
  return suggested
    .replace(/^allow=/, '')
    .split(',')
    .filter(entry => !own.includes(entry))
    .join(',');
}

// The limits that a preset can have; `acode agent` has no options for them.
const OF_PRESET = /^policy\.limits\.(memoryBytes|pids|tmpBytes)$/;

function ofOwnFile(agent: string, { field, suggested }: Extract<Remedy, { kind: 'raise-limit' }>): string | null {
  const [, name] = OF_PRESET.exec(field) ?? [];
  return name === undefined ? null : `raise it in your agents.yml: agents.${agent}.limits.${name}: ${suggested}`;
}
