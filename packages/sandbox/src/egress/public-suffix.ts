// Public suffixes: names below which anybody can register, so that `*.suffix` would let everybody in.

import { getPublicSuffix } from 'tldts';
import type { EgressRule } from '../contract/egress.ts';

/** The first rule that allows every name below a public suffix, such as `*.co.uk` or `*.github.io`. */
export function publicSuffixIn(rules: readonly EgressRule[]): EgressRule | null {
  const isOpen = ({ host, verdict }: EgressRule): boolean =>
    verdict === 'allow' && host.startsWith('*.') && isPublicSuffix(host.slice(2));
  return rules.find(isOpen) ?? null;
}

function isPublicSuffix(name: string): boolean {
  // A name that no list has is a suffix as a whole if it has one label only.
  return getPublicSuffix(name, { allowPrivateDomains: true, extractHostname: false }) === name;
}
