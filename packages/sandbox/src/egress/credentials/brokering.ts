// Brokering: which rules of an allow-list get which credential, and how their hosts are reached then. Pure.

import type { EgressCredential } from '../../contract/credentials.ts';
import type { EgressRule } from '../../contract/egress.ts';
import { decideHost } from '../decide.ts';
import { hostMatches } from '../host-name.ts';
import { credentialHost } from './hosts.ts';
import { knownCredential } from './known.ts';

/** A credential, and how the hosts that get it are reached. */
export interface Lent {
  readonly credential: EgressCredential;
  readonly mode: 'inspect' | 'base-url';
}

/** The rules with what each of them gets, and the credentials that are used; or why that cannot be. */
export type Brokered =
  | { readonly rules: readonly EgressRule[]; readonly credentials: readonly EgressCredential[] }
  | {
      /** `needed`: the rule is of no use without the credential that it names. `not-tls`: it would be sent for everybody to read. */
      readonly fault: 'needed' | 'not-tls';
      readonly rule: EgressRule;
      /** The name of the credential. */
      readonly name: string;
    };

interface Draft {
  readonly rule: EgressRule;
  /** The credential that its preset names. */
  readonly named: string | undefined;
}

/** Lends credentials to the rules of an allow-list; of two for one host the later counts. What is not allowed stays so. */
export function brokered(rules: readonly EgressRule[], lent: readonly Lent[]): Brokered {
  let drafts: readonly Draft[] = rules.map(rule => ({ rule, named: rule.credential }));
  for (const one of lent) {
    const { hosts } = one.credential;
    if (hosts === undefined) drafts = drafts.map(draft => lentByName(draft, one));
    else for (const host of hosts) drafts = lentToHost(drafts, one, host);
    const plain = drafts.find(({ rule }) => rule.credential === one.credential.name && rule.protocol !== 'tls');
    if (plain) return { fault: 'not-tls', rule: plain.rule, name: one.credential.name };
  }
  return settled(
    drafts.map(({ rule }) => rule),
    lent.map(({ credential }) => credential),
  );
}

// What a preset names and nobody lent: some presets do without.
function settled(rules: readonly EgressRule[], lent: readonly EgressCredential[]): Brokered {
  const names = new Set(lent.map(({ name }) => name));
  const isAbsent = ({ credential: name }: EgressRule): boolean => name !== undefined && !names.has(name);
  const needing = rules.find(rule => isAbsent(rule) && knownCredential(rule.credential ?? '')?.isNeeded === true);
  if (needing) return { fault: 'needed', rule: needing, name: needing.credential ?? '' };
  const final = rules.map((rule): EgressRule => {
    const { credential: _absent, ...without } = rule;
    return isAbsent(rule) ? without : rule;
  });
  const used = new Set(final.map(({ credential }) => credential));
  return { rules: final, credentials: lent.filter(({ name }) => used.has(name)) };
}

function lentByName(draft: Draft, { credential, mode }: Lent): Draft {
  if (draft.named !== credential.name || draft.rule.verdict === 'deny') return draft;
  return { ...draft, rule: { ...draft.rule, mode, credential: credential.name } };
}

function lentToHost(drafts: readonly Draft[], { credential, mode }: Lent, text: string): readonly Draft[] {
  const { host, port } = credentialHost(text);
  const allowed = drafts.filter(({ rule }) => rule.verdict === 'allow' && rule.port === port);
  const lend = ({ rule, named }: Draft): Draft => ({
    named,
    rule: { ...withoutAnonymous(rule), host, mode, credential: credential.name },
  });
  // Where another rule denies it, an exact rule would win over that one.
  const decision = decideHost({ rules: drafts.map(({ rule }) => rule) }, { host, port, via: 'any' });
  if (!decision.allowed) return drafts;
  return [
    ...drafts.map(draft => (allowed.includes(draft) && draft.rule.host === host ? lend(draft) : draft)),
    // Below a suffix, the one host that gets the credential has a rule of its own beside it.
    ...allowed.filter(({ rule }) => rule.host !== host && hostMatches(rule.host, host)).map(lend),
  ];
}

// Who names a host lends the credential to all that is allowed there.
function withoutAnonymous({ requests, ...rule }: EgressRule): EgressRule {
  if (requests === undefined) return rule;
  return { ...rule, requests: requests.map(({ methods, path }) => ({ methods, path })) };
}
