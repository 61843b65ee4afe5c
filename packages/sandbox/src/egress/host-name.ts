// Host names: the one place where text of a rule or of a sandbox becomes a name. Pure, and without Node: browsers load it too.

const MAX_NAME = 253;
const LABEL = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/;

/** The name by which a sandbox reaches services of this host that a rule allows. */
export const HOST_SERVICE = 'host';

/**
 * A host name in lower case, or null. Names are ASCII and have two labels or more, without a dot at the end; an
 * internationalised one is written in its `xn--` form. What any resolver could take for an address is not a name: `127.1`,
 * `0x7f000001`, `[::1]`. Neither is `localhost` nor what is below it. The one name of a single label is {@link HOST_SERVICE}.
 */
export function parseHost(text: string): string | null {
  if (text.length > MAX_NAME) return null;
  // Only ASCII is folded: a sign such as K (Kelvin) must not become a letter.
  const name = text.replaceAll(/[A-Z]/g, letter => letter.toLowerCase());
  if (name === HOST_SERVICE) return name;
  const labels = name.split('.');
  const last = labels.at(-1) ?? '';
  if (labels.length < 2 || last === 'localhost' || !labels.every(label => LABEL.test(label))) return null;
  // No top-level domain begins with a digit; every way to write an IPv4 address ends in a part that does.
  return /^\d/.test(last) ? null : name;
}

/** Whether a name is the one of a rule, or below its `*.suffix`. */
export function hostMatches(pattern: string, host: string): boolean {
  return pattern.startsWith('*.') ? host.endsWith(pattern.slice(1)) && host.length >= pattern.length : pattern === host;
}

/** Whether every name that one pattern matches is matched by another. */
export function hostCovers(wider: string, narrower: string): boolean {
  if (wider === narrower) return true;
  return wider.startsWith('*.') && narrower.replace(/^\*/, 'x').endsWith(wider.slice(1));
}
