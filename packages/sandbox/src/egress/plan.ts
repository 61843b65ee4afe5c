// The plan of one sandbox’s proxy: its rules, its limits, and the names that have an address inside. Pure.

import type { EgressLimits, EgressName, EgressPlan, EgressRule } from '../contract/egress.ts';

/** What the connections of a sandbox may take unless somebody says otherwise. */
export const EGRESS_LIMITS: EgressLimits = {
  connections: 256,
  headerBytes: 64 * 1024,
  connectMs: 10_000,
  idleMs: 10 * 60_000,
};

/** The plan for these rules. A later plan of the same sandbox has a higher generation. */
export function planOf(rules: readonly EgressRule[], limits = EGRESS_LIMITS, generation = 1): EgressPlan {
  return { generation, rules, limits, names: namesOf(rules) };
}

/** An address in 127.8.0.0/16 by its number: the first name has 127.8.0.1. */
export function loopbackAddress(number: number): string {
  return `127.8.${Math.floor(number / 256)}.${number % 256}`;
}

/** The exact names that rules allow, each with an address of its own and its ports, in the order of the rules. */
function namesOf(rules: readonly EgressRule[]): EgressName[] {
  const ports = new Map<string, Set<number>>();
  for (const { verdict, host, port } of rules) {
    if (verdict !== 'allow' || host.startsWith('*.')) continue;
    ports.set(host, (ports.get(host) ?? new Set()).add(port));
  }
  return [...ports].map(([host, open], index) => ({
    host,
    address: loopbackAddress(index + 1),
    ports: [...open].sort((a, b) => a - b),
  }));
}
