// The system call filter as the engine wants it: JSON text, made from groups.ts and conditions.ts.

import { CONDITIONALS, type Test } from './conditions.ts';
import { GROUPS, UNIMPLEMENTED, UNSUPPORTED_WITH_LIMIT } from './groups.ts';

/** The architectures there is a filter for. */
export const ARCHITECTURES = ['x86_64', 'aarch64'] as const;

/** One of {@link ARCHITECTURES}, as the kernel names it. */
export type Architecture = (typeof ARCHITECTURES)[number];

const ENOSYS = 38;
const EOPNOTSUPP = 95;

// Exactly one: a call by another architecture’s numbers (int 0x80, x32) would pass by the rules of these, and ends the
// thread that makes it instead.
const ENGINE_NAMES: Readonly<Record<Architecture, string>> = {
  x86_64: 'SCMP_ARCH_X86_64',
  aarch64: 'SCMP_ARCH_AARCH64',
};

interface Rule {
  readonly names: readonly string[];
  readonly action: 'SCMP_ACT_ALLOW' | 'SCMP_ACT_ERRNO';
  readonly errnoRet?: number;
  readonly args?: readonly Record<string, unknown>[];
}

// The same for every sandbox of an architecture, and long.
const texts = new Map<string, string>();

/** What a filter depends on besides the architecture. */
export interface FilterOptions {
  /** Whether the sandbox writes a fork with a disk limit: nothing may then take blocks in one call that writes no data. */
  readonly diskLimited?: boolean;
}

/**
 * The filter for an architecture. Everything that is not allowed gets EPERM, the errno of the engine’s own default: it is
 * not spelt out, since Docker 20.10 does not know the key.
 */
export function seccompProfile(architecture: Architecture, { diskLimited = false }: FilterOptions = {}): string {
  const key = `${architecture} ${diskLimited}`;
  const known = texts.get(key);
  if (known !== undefined) return known;
  const text = JSON.stringify({
    defaultAction: 'SCMP_ACT_ERRNO',
    architectures: [ENGINE_NAMES[architecture]],
    syscalls: rules(architecture, diskLimited ? UNSUPPORTED_WITH_LIMIT : []),
  });
  texts.set(key, text);
  return text;
}

// Docker has the kernel’s names, Podman those of Go.
const OTHER_NAMES: Readonly<Record<Architecture, string>> = { x86_64: 'amd64', aarch64: 'arm64' };

/** The architecture by an engine’s name for it; null where there is no filter for it. */
export function architectureOf(name: string): Architecture | null {
  return ARCHITECTURES.find(known => known === name || OTHER_NAMES[known] === name) ?? null;
}

function rules(architecture: Architecture, unsupported: readonly string[]): Rule[] {
  const old = architecture === 'x86_64';
  const names = GROUPS.flatMap(({ calls, x86_64 = [] }) => (old ? [...calls, ...x86_64] : calls)).filter(
    name => !unsupported.includes(name),
  );
  const conditional = CONDITIONALS.filter(({ x86_64 }) => old || !x86_64);
  return [
    { names, action: 'SCMP_ACT_ALLOW' },
    // One rule for each alternative: engines differ in how they read several tests of one argument in one rule.
    ...conditional.flatMap(({ calls, alternatives }) =>
      alternatives.map((tests): Rule => ({ names: calls, action: 'SCMP_ACT_ALLOW', args: tests.map(argumentTest) })),
    ),
    { names: UNIMPLEMENTED, action: 'SCMP_ACT_ERRNO', errnoRet: ENOSYS },
    ...(unsupported.length === 0
      ? []
      : [{ names: unsupported, action: 'SCMP_ACT_ERRNO' as const, errnoRet: EOPNOTSUPP }]),
  ];
}

function argumentTest({ argument, mask, value }: Test): Record<string, unknown> {
  return { index: argument, op: 'SCMP_CMP_MASKED_EQ', value: mask, valueTwo: value };
}
