// Sentences that a refused client reads: what happened, by which rule, what to do.

import type { EgressRefusal } from '../../contract/egress.ts';

/** A refusal, as data. */
export interface RefusalFacts {
  /** The host as it was asked for. */
  readonly host: string;
  readonly port: number;
  readonly reason: EgressRefusal;
  /** The id of the rule that decided. */
  readonly rule?: string;
  /** Whether the same was refused before so often that this is the last answer. */
  readonly isLast: boolean;
}

interface Sentence {
  /** Why, as a clause. */
  readonly why: string;
  /** What to do. */
  readonly next: string;
}

const ALLOW = 'Ask the user to add it to the allow-list: --network allow=';
const SAME_NAME = 'Use the same name for the connection, the TLS server name and the Host header.';

const SENTENCES: Readonly<Record<EgressRefusal, Sentence>> = {
  'not-listed': { why: 'the host is not in the allow-list', next: ALLOW },
  'other-port': { why: 'the allow-list has the host with another port', next: ALLOW },
  'denied-by-rule': { why: 'a rule denies it', next: 'Ask the user to change that rule.' },
  'bad-host': { why: 'it is not a host name', next: 'Use a name of the allow-list; addresses are refused.' },
  unresolved: { why: 'the name has no address', next: 'Check the name.' },
  'private-address': {
    why: 'the name has a private address or one of this host',
    next: 'Only the user’s own configuration file can allow private addresses.',
  },
  unreachable: { why: 'the server did not answer', next: 'Check that it runs and is reachable from the host.' },
  'untrusted-server': {
    why: 'the certificate of the server is not trusted',
    next: 'If a certificate authority of its own signed it, the user names that in sandbox.network.ca_file.',
  },
  'not-tls': { why: 'the rule allows TLS only', next: 'Use https.' },
  'not-http': { why: 'the rule allows HTTP only', next: 'Use HTTP/1.1.' },
  'sni-differs': { why: 'the TLS server name is another', next: SAME_NAME },
  'host-differs': { why: 'the Host header is another', next: SAME_NAME },
  'bad-request': { why: 'the request can be read in more than one way', next: 'Send a plain HTTP/1.1 request.' },
  method: { why: 'the rule does not allow the method', next: 'Ask the user for a rule that allows it.' },
  path: { why: 'the rule does not allow the path', next: 'Ask the user for a rule that allows it.' },
  upgrade: { why: 'the rule does not allow another protocol', next: 'Use HTTP/1.1 without an upgrade.' },
  'foreign-credential': {
    why: 'the request carries a credential, and acode adds its own to this host',
    next: 'Send the request without it.',
  },
  limit: { why: 'a limit of the sandbox is reached', next: 'Use fewer connections or less data.' },
};

/** The sentence about a refusal. */
export function refusalText({ host, port, reason, rule, isLast }: RefusalFacts): string {
  const { why, next } = SENTENCES[reason];
  const place = host === '' ? 'a connection' : `the connection to ${shown(host)}:${port}`;
  const by = rule === undefined ? '' : ` (rule ${rule})`;
  const remedy = next === ALLOW ? `${ALLOW}${shown(host)}:${port}` : next;
  const stop = isLast ? ' Stop retrying: the answer will not change, and further attempts are closed without one.' : '';
  return `acode refused ${place}: ${why}${by}. ${remedy}${stop}`;
}

function shown(host: string): string {
  return host.slice(0, 253).replaceAll(/[^\x21-\x7e]/g, '?');
}
