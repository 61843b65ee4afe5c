// A second decision, for comparison: scores instead of sorting, numbers instead of ranges, a walk instead of expressions.

import type { EgressRequests, EgressRule } from '../contract/egress.ts';
import type { Layer } from '../contract/sourced.ts';

/** The layers of a policy. */
export const LAYERS: readonly Layer[] = ['machine', 'team', 'user', 'repository', 'request'];

/** Whether rules allow a host and a port. */
export function referenceHost(rules: readonly EgressRule[], host: string, port: number): 'allowed' | 'denied' {
  const labels = host.toLowerCase().split('.').reverse();
  const plain = Array.from(host).every(sign => /[a-zA-Z0-9.-]/.test(sign));
  const isName =
    host === 'host' ||
    (plain &&
      labels.length > 1 &&
      labels.every(label => label !== '' && label.length < 64 && !label.startsWith('-') && !label.endsWith('-')) &&
      labels[0] !== 'localhost' &&
      Number.isNaN(Number.parseInt(labels[0] ?? '', 10)));
  if (!isName || host.length > 253) return 'denied';
  const score = ({ host: pattern, port: only, verdict }: EgressRule): number => {
    const wanted = pattern.split('.').reverse();
    const wild = wanted.at(-1) === '*';
    const names = wild ? wanted.slice(0, -1) : wanted;
    if (wild ? labels.length <= names.length : labels.length !== names.length) return -1;
    if (names.some((label, at) => label !== labels[at])) return -1;
    if (only !== 0 && only !== port) return -1;
    return (wild ? 0 : 1_000_000) + names.join('.').length * 100 + (only === 0 ? 0 : 10) + (verdict === 'deny' ? 1 : 0);
  };
  const voices = LAYERS.map(layer => {
    const best = rules
      .filter(({ setBy }) => setBy.layer === layer)
      .reduce<{ of: number; verdict: string }>(
        (found, one) => (score(one) > found.of ? { of: score(one), verdict: one.verdict } : found),
        { of: -1, verdict: 'none' },
      );
    return best.verdict;
  });
  return voices.includes('allow') && !voices.includes('deny') ? 'allowed' : 'denied';
}

function numberOf(address: string): { bits: 32 | 128; value: bigint } | null {
  const v4 = (text: string): bigint | null => {
    const parts = text.split('.');
    if (parts.length !== 4 || parts.some(part => !/^(?:0|[1-9]\d{0,2})$/.test(part) || Number(part) > 255)) return null;
    return parts.reduce((sum, part) => sum * 256n + BigInt(part), 0n);
  };
  const four = v4(address);
  if (four !== null) return { bits: 32, value: four };
  const halves = address.split('::');
  if (halves.length > 2 || !/^[0-9a-f:.]+$/i.test(address)) return null;
  const groups = (half = ''): string[] =>
    half === ''
      ? []
      : half.split(':').flatMap(group => {
          const inner = group.includes('.') ? v4(group) : null;
          return inner === null ? [group] : [(inner >> 16n).toString(16), (inner & 0xffffn).toString(16)];
        });
  const [head, tail] = [groups(halves[0]), groups(halves[1])];
  const gap = 8 - head.length - tail.length;
  if (halves.length === 2 ? gap < 1 : gap !== 0) return null;
  const all = [...head, ...Array.from({ length: halves.length === 2 ? gap : 0 }, () => '0'), ...tail];
  if (all.some(group => !/^[0-9a-f]{1,4}$/i.test(group))) return null;
  return { bits: 128, value: all.reduce((sum, group) => sum * 65_536n + BigInt(`0x${group}`), 0n) };
}

/** Whether an address is one that a server on the internet has. */
export function referencePublic(address: string): boolean {
  const number = numberOf(address);
  if (number === null) return false;
  const { bits, value } = number;
  const inside = (text: string, size: number): boolean => {
    const base = numberOf(text);
    return base?.bits === bits && base.value >> BigInt(bits - size) === value >> BigInt(bits - size);
  };
  if (bits === 128)
    return (
      value >> 125n === 1n &&
      !inside('2001:db8::', 32) &&
      !inside('2002::', 16) &&
      !inside('2001::', 32) &&
      !inside('3fff::', 20)
    );
  const first = Number(value >> 24n);
  const second = Number((value >> 16n) & 255n);
  if ([0, 10, 127].includes(first) || first >= 224) return false;
  if (first === 100 && second >= 64 && second < 128) return false;
  if (first === 169 && second === 254) return false;
  if (first === 172 && second >= 16 && second < 32) return false;
  if (first === 192 && second === 168) return false;
  if (first === 198 && (second === 18 || second === 19)) return false;
  const nets = ['192.0.0.0', '192.0.2.0', '198.51.100.0', '203.0.113.0', '192.88.99.0'];
  return !nets.some(net => inside(net, 24)) && !inside('168.63.129.16', 32);
}

/** Whether a rule allows a method and a target. */
export function referencePath(requests: readonly EgressRequests[], method: string, target: string): boolean {
  const path = target.split('?')[0] ?? '';
  const segments = path.split('/');
  if (segments.shift() !== '' || Array.from(target).some(sign => sign < '!' || sign > '~' || sign === '#'))
    return false;
  if (Array.from(path).some(sign => '"<>\\^`{|}'.includes(sign))) return false;
  for (const [at, segment] of segments.entries()) {
    if (segment === '' && at !== segments.length - 1) return false;
    if (['.', '..'].includes(segment.split(';')[0] ?? '')) return false;
  }
  const codes = path
    .split('%')
    .slice(1)
    .map(rest => rest.slice(0, 2).toLowerCase());
  if (codes.some(code => !/^[0-9a-f]{2}$/.test(code) || code === '2e' || code === '7f' || code < '20')) return false;
  const hides = codes.some(code => ['2f', '25', '5c'].includes(code));
  return requests.some(({ methods, path: pattern }) => {
    if (!methods.includes(method)) return false;
    if (pattern === '/') return true;
    if (hides) return false;
    const whole = pattern.endsWith('$');
    const source = pattern
      .replace(/\$$/, '')
      .replaceAll(/[.+?^${}()|[\]\\]/g, String.raw`\$&`)
      .replaceAll('*', '[^/]+');
    return new RegExp(whole || !pattern.endsWith('/') ? `^${source}${whole ? '$' : '(?:/|$)'}` : `^${source}`).test(
      path,
    );
  });
}
