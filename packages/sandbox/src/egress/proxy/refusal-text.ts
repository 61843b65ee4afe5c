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
  /** The entry of an allow-list that would allow it, where that is not the host with its port. */
  readonly entry?: string;
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
    next: 'Send the request without it, or with the placeholder that the environment has.',
  },
  'no-credential': {
    why: 'acode could not read the credential that it adds to this host',
    next: 'Ask the user to check it in sandbox.network.credentials.',
  },
  'login-kept': {
    why: 'acode keeps this login, and the request would end it or make another one',
    next: 'Use the placeholders that the environment has; the user logs in and out with acode login and acode logout.',
  },
  'base-url-only': {
    why: 'the host is reached by its base URL only',
    next: 'Use the base URL that the environment has, such as ANTHROPIC_BASE_URL.',
  },
  'compressed-answer': {
    why: 'the server compressed its answer although it was asked not to, so that acode cannot look for the credential in it',
    next: 'Ask for another form of the answer.',
  },
  'git-only': {
    why: 'the rule allows Git over SSH only',
    next: 'Use git: acode gives it a client for SSH in GIT_SSH_COMMAND.',
  },
  repository: { why: 'the allow-list has other repositories of the host', next: ALLOW },
  service: { why: 'the rule does not allow that of the repository', next: ALLOW },
  limit: { why: 'a limit of the sandbox is reached', next: 'Use fewer connections or less data.' },
  budget: {
    why: 'its budget of requests or tokens is used up, and acode ends the command',
    next: 'The user can give it a larger one.',
  },
};

/** The sentence about a refusal. */
export function refusalText({ host, port, reason, rule, entry, isLast }: RefusalFacts): string {
  const { why, next } = SENTENCES[reason];
  const place = host === '' ? 'a connection' : `the connection to ${shown(host)}:${port}`;
  const by = rule === undefined ? '' : ` (rule ${rule})`;
  const remedy = next === ALLOW ? `${ALLOW}${shown(entry ?? `${host}:${port}`)}` : next;
  const stop = isLast ? ' Stop retrying: the answer will not change, and further attempts are closed without one.' : '';
  return `acode refused ${place}: ${why}${by}. ${remedy}${stop}`;
}

function shown(host: string): string {
  return host.slice(0, 253).replaceAll(/[^\x21-\x7e]/g, '?');
}
