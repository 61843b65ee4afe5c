// The plan of one sandbox’s proxy: its rules, its limits, and the names that have an address inside. Pure.

import type { PlannedCredential } from '../contract/credentials.ts';
import type {
  BaseUrl,
  EgressLimits,
  EgressName,
  EgressPlan,
  EgressRule,
  GitSsh,
  UpstreamProxy,
} from '../contract/egress.ts';
import type { EffectivePolicy } from '../contract/policy.ts';

/** What the connections of a sandbox may take unless somebody says otherwise. */
export const EGRESS_LIMITS: EgressLimits = {
  connections: 256,
  headerBytes: 64 * 1024,
  connectMs: 10_000,
  idleMs: 10 * 60_000,
};

/** The plan for these rules. A later plan of the same sandbox has a higher generation. */
export function planOf(
  rules: readonly EgressRule[],
  limits = EGRESS_LIMITS,
  generation = 1,
  {
    upstream,
    ssh,
    credentials = [],
  }: {
    readonly upstream?: UpstreamProxy | undefined;
    readonly ssh?: GitSsh | undefined;
    readonly credentials?: readonly PlannedCredential[] | undefined;
  } = {},
): EgressPlan {
  const baseUrls = baseUrlsOf(rules);
  return {
    generation,
    rules,
    limits,
    names: namesOf(rules),
    ...(upstream ? { upstream } : {}),
    ...(ssh && rules.some(isRepository) ? { ssh } : {}),
    ...(credentials.length > 0 ? { credentials } : {}),
    ...(baseUrls.length > 0 ? { baseUrls } : {}),
  };
}

/** The plan of a running sandbox with further rules. The names that it has keep their addresses. */
export function widened(plan: EgressPlan, further: readonly EgressRule[]): EgressPlan {
  const rules = [...plan.rules, ...further];
  return { ...plan, generation: plan.generation + 1, rules, names: namesOf(rules) };
}

// After the port of the proxy inside. An address of its own would be asked of the proxy by programs that cannot read a range in NO_PROXY.
const FIRST_BASE_URL = 3129;

/** The listeners inside of the hosts that are reached by a base URL, in the order of the rules. */
export function baseUrlsOf(rules: readonly EgressRule[]): BaseUrl[] {
  const found = new Map<string, Omit<BaseUrl, 'at'>>();
  for (const { verdict, mode, host, port } of rules)
    if (verdict === 'allow' && mode === 'base-url') found.set(`${host}:${port}`, { host, port });
  return [...found.values()].map((one, index) => ({ at: FIRST_BASE_URL + index, ...one }));
}

/** What the connections of a sandbox may take, by its policy. */
export function limitsOf({
  networkRate,
  networkBytes,
  networkRequests,
  networkTokens,
}: Pick<EffectivePolicy, 'networkRate' | 'networkBytes' | 'networkRequests' | 'networkTokens'>): EgressLimits {
  return {
    ...EGRESS_LIMITS,
    ...(networkRate.value === null ? {} : { bytesPerSecond: networkRate.value }),
    ...(networkBytes.value === null ? {} : { bytes: networkBytes.value }),
    ...(networkRequests.value === null ? {} : { requests: networkRequests.value }),
    ...(networkTokens.value === null ? {} : { tokens: networkTokens.value }),
  };
}

/** The host and the port of the proxy that a policy names. */
export function upstreamOf({ upstreamProxy }: Pick<EffectivePolicy, 'upstreamProxy'>): UpstreamProxy | undefined {
  const [whole, host = '', port] = /^http:\/\/\[?([^\]/]+?)\]?:(\d+)\/?$/.exec(upstreamProxy.value ?? '') ?? [];
  return whole === undefined ? undefined : { host, port: Number(port) };
}

/** Whether a rule allows repositories over SSH. */
export function isRepository({ verdict, protocol }: Pick<EgressRule, 'verdict' | 'protocol'>): boolean {
  return verdict === 'allow' && protocol === 'ssh';
}

/** How acode runs `ssh` for repositories, by the user’s file and the agent of this session. */
export function gitSshOf({ gitSsh }: Pick<EffectivePolicy, 'gitSsh'>, agent: string | undefined): GitSsh {
  return { ...gitSsh.value, ...(agent === undefined || agent === '' ? {} : { agent }) };
}

/** An address in 127.8.0.0/16 by its number: the first name has 127.8.0.1. */
export function loopbackAddress(number: number): string {
  return `127.8.${Math.floor(number / 256)}.${number % 256}`;
}

/** The exact names that rules allow, each with an address of its own and its ports, in the order of the rules. */
function namesOf(rules: readonly EgressRule[]): EgressName[] {
  const ports = new Map<string, Set<number>>();
  for (const { verdict, host, port, protocol, mode } of rules) {
    // The client of Git names the host, and a base URL stands for it; nothing connects to them.
    const isNamed = protocol !== 'ssh' && mode !== 'base-url' && !host.startsWith('*.');
    if (verdict !== 'allow' || !isNamed) continue;
    ports.set(host, (ports.get(host) ?? new Set()).add(port));
  }
  return [...ports].map(([host, open], index) => ({
    host,
    address: loopbackAddress(index + 1),
    ports: [...open].sort((a, b) => a - b),
  }));
}
