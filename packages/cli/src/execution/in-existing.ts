// Denials in a sandbox that exists already: what it is cannot be changed any more, so what helps is another sandbox.

import type { Denial, DenialStyle, Remedy } from '@acode/sandbox';
import { OPTION_TERMS, POLICY_OPTIONS } from '../arguments/option-names.ts';

/** A sandbox that was there before, and what a command in it asked for. */
export interface Existing {
  /** The time limit that was asked for. */
  readonly timeoutMs?: number | undefined;
}

/** How a denial reads in a sandbox that exists. */
export function inExisting({ timeoutMs }: Existing): DenialStyle {
  return {
    terms: {
      ...OPTION_TERMS,
      // The time limit that a command asks for itself is `timeoutMs`; what begins with `policy.` is the sandbox’s.
      source: source =>
        source.layer === 'request' && source.where in POLICY_OPTIONS
          ? `${OPTION_TERMS.source(source)} when the sandbox was created`
          : OPTION_TERMS.source(source),
    },
    remedy: (remedy, denial) => elsewhere(remedy, denial, timeoutMs),
  };
}

function elsewhere(remedy: Remedy, denial: Denial, timeoutMs: number | undefined): string | null {
  if (remedy.kind === 'raise-limit') return moreElsewhere(remedy, denial, timeoutMs);
  if (remedy.kind === 'choose-image')
    return `${created('--image <image>')} of an image that already has what must be installed`;
  if (remedy.kind === 'provide-offline')
    return 'put what commands need into the workspace (`acode sandbox exec --fill-cache npm --network allow=npm:install -- npm ci` fetches into it) or into the image (`acode sandbox build-image`)';
  if (remedy.kind !== 'change-request') return null;
  if (remedy.field === 'policy.fork')
    return `to let it commit, ${created('--fork')}; \`acode fork apply --branch <name>\` then brings the commits here, and nothing else of .git`;
  return remedy.field === 'policy.workspace'
    ? 'create another sandbox without --readonly'
    : created(OPTION_TERMS.field(remedy.field, remedy.suggested));
}

function moreElsewhere(
  { field, suggested }: Extract<Remedy, { kind: 'raise-limit' }>,
  { rule, setBy, value }: Denial,
  timeoutMs: number | undefined,
): string | null {
  // A command may ask for more time than it did.
  if (setBy.layer === 'request' && setBy.where === 'timeoutMs') return null;
  return `${created(OPTION_TERMS.field(field, suggested))}, since limits are the sandbox’s own${lowered(rule, value, timeoutMs)}`;
}

function created(option: string): string {
  return `create another sandbox: \`acode sandbox create ${option}\``;
}

// What was asked for and not given.
function lowered(rule: Denial['rule'], value: Denial['value'], timeoutMs: number | undefined): string {
  if (rule !== 'limit.time' || timeoutMs === undefined || timeoutMs <= Number(value)) return '';
  return ` (--timeout ${timeoutMs / 1000} was lowered to ${Number(value) / 1000}, the most that this one allows)`;
}
