// Hosts of credentials: text such as `registry.example:8443`, read once. Pure, and without Node.

import { parseHost } from '../host-name.ts';

const TLS_PORT = 443;

/** Why a text does not name a host that can get a credential; null where it does. */
export function credentialHostFault(text: string): string | null {
  const { host, port } = credentialHost(text);
  if (host.startsWith('*.')) return 'has *: name each host that gets the credential';
  return parseHost(host) === host && host.includes('.') && port >= 1 && port <= 65_535
    ? null
    : 'is not the full name of a host in small letters, such as registry.example or registry.example:8443';
}

/** The host and the port that a text names. */
export function credentialHost(text: string): { readonly host: string; readonly port: number } {
  const [, host = text, port] = /^([^:]*)(?::(\d{1,5}))?$/.exec(text) ?? [];
  return { host, port: port === undefined ? TLS_PORT : Number(port) };
}
