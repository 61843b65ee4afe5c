// Hosts that a command was allowed to reach and could not: names that were not resolved, and servers that did not answer.

import type { RunResult } from '@acode/sandbox';

const MAX_READ = 16 * 1024;
const UNRESOLVED =
  /bad address|could ?n[o']t resolve|could not resolve|failed to resolve|temporary failure (?:in name resolution|resolving)|failed to lookup address|unknownhostexception|no such host|\bEAI_AGAIN\b/i;

/** What the end of a command is known by here. */
export type EndedWithNetwork = Pick<RunResult, 'exitCode' | 'stderr' | 'usage' | 'network'>;

/**
 * Whether a command with a network of the engine failed because a name was not resolved. Not with an allow-list: there
 * acode resolves the names, and a refusal is its own.
 */
export function lacksNames({ exitCode, stderr, usage, network }: EndedWithNetwork): boolean {
  // Only a sandbox that the engine gave a network has counters of it.
  if (exitCode === 0 || network !== undefined || usage?.txBytes === undefined) return false;
  return UNRESOLVED.test(stderr.slice(-MAX_READ));
}

/** What to do about it. */
export const NAMES_REMEDY =
  'the sandbox has a network, but a name was not resolved. The engine asks the name servers of its machine, which may not answer to containers. If the name is right, name a server that does: --dns 1.1.1.1, or sandbox.network.dns_servers in your configuration.';

type Host = NonNullable<RunResult['network']>[number];

/** What to do about hosts of an allow-list that could not be reached; null where all were, or the command did without. */
export function unreachedHosts({ exitCode, network = [] }: Pick<RunResult, 'exitCode' | 'network'>): string | null {
  if (exitCode === 0) return null;
  const reached = new Set(network.filter(({ bytesIn }) => bytesIn > 0).map(({ host }) => host));
  const row = network.find(({ host, reason = '' }) => reason in CAUSES && !reached.has(host));
  return row ? (CAUSES[row.reason ?? '']?.(row) ?? null) : null;
}

const CAUSES: Readonly<Record<string, (row: Host) => string>> = {
  unresolved: ({ host }) =>
    `${host} is on the allow-list, but this machine found no address for it. Check the name, and the name servers of this machine.`,
  unreachable: ({ host, port }) =>
    `${host}:${port} is on the allow-list, but did not answer this machine. Behind the proxy of a company, set sandbox.network.upstream_proxy (docs/corporate.md).`,
  'untrusted-server': ({ host }) =>
    `${host} is on the allow-list, but its certificate is not trusted on this machine. If a CA of your company signed it: \`acode config set sandbox.network.ca_file <bundle.pem>\`.`,
};
