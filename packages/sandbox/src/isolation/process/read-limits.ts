// Reads the limits a process really has, as the kernel lists them. Pure.

/** Reads the limits a process really has. */
export function parseLimits(content: string): ReadonlyMap<string, { readonly soft: number; readonly hard: number }> {
  const rows = content.split('\n').slice(1);
  const number = (text: string | undefined): number => (text === 'unlimited' ? Infinity : Number(text));
  return new Map(
    rows.flatMap(row => {
      const match = /^(Max .+?)\s{2,}(\S+)\s+(\S+)/.exec(row);
      return match ? [[match[1] ?? '', { soft: number(match[2]), hard: number(match[3]) }] as const] : [];
    }),
  );
}
