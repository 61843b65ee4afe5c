// Sizes and times as people write them, and as they read them.

const UNITS: Readonly<Record<string, number>> = {
  '': 1024 ** 2,
  b: 1,
  k: 1024,
  m: 1024 ** 2,
  g: 1024 ** 3,
  t: 1024 ** 4,
};

/** Bytes of a size such as `512` (megabytes), `512m`, `1.5g` or `64KiB`; null where it is not one. */
export function parseBytes(text: string): number | null {
  const match = /^(\d+(?:\.\d+)?)\s*(?:([kmgt])i?b?|(b))?$/i.exec(text.trim());
  if (!match) return null;
  const bytes = Number(match[1]) * (UNITS[(match[2] ?? match[3] ?? '').toLowerCase()] ?? 0);
  return Number.isSafeInteger(Math.round(bytes)) ? Math.round(bytes) : null;
}

/** A number of bytes for a person: `512 MiB`. */
export function formatBytes(bytes: number): string {
  if (bytes === 1) return '1 byte';
  const names = ['bytes', 'KiB', 'MiB', 'GiB', 'TiB'];
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < names.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${Number.isInteger(value) ? value : value.toFixed(1)} ${names[unit]}`;
}

const SECONDS: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3600, d: 86_400 };

/** Seconds of a time with units such as `90s`, `10m` or `1h30m`; null where it is not one. */
export function parseSeconds(text: string): number | null {
  const written = text.trim().toLowerCase();
  const parts = [...written.matchAll(/(\d+(?:\.\d+)?)([smhd])/g)];
  if (written === '' || parts.map(([part]) => part).join('') !== written) return null;
  return parts.reduce((sum, [, amount, unit = '']) => sum + Number(amount) * (SECONDS[unit] ?? 0), 0);
}
