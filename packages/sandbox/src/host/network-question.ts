// A host as a person asks about it: the URL or the name that they typed, and the connection that it stands for. Pure.

import type { AskedConnection } from '../egress/decide.ts';
import { parseHost } from '../egress/host-name.ts';

/** What somebody asks about. */
export interface Target {
  readonly host: string;
  readonly port: number;
  /** The scheme of a URL; null for a host without one. */
  readonly scheme: 'https' | 'http' | null;
  /** The path and the query; `/` without a URL. */
  readonly path: string;
}

const PORTS = { https: 443, http: 80 } as const;
const URL_FORM = /^(https?):\/\/([^/?#@:[\]]+)(?::(\d{1,5}))?(\/[^#]*|\?[^#]*)?(?:#.*)?$/i;
const HOST_FORM = /^([^/?#@:[\]]+)(?::(\d{1,5}))?$/;

/** The target of a text; null where it is none. The path is kept as it was written: the decision is about exactly that. */
export function targetOf(text: string): Target | null {
  const url = URL_FORM.exec(text);
  if (url === null) return placed(HOST_FORM.exec(text) ?? [], null, '/');
  const [, named = '', name, port, path = '/'] = url;
  const scheme = named.toLowerCase() === 'http' ? 'http' : 'https';
  return placed(['', name, port], scheme, path.startsWith('?') ? `/${path}` : path);
}

function placed(
  [, name = '', number]: readonly (string | undefined)[],
  scheme: Target['scheme'],
  path: string,
): Target | null {
  const host = parseHost(name);
  const port = number === undefined ? PORTS[scheme ?? 'https'] : Number(number);
  return host === null || port < 1 || port > 65_535 ? null : { host, port, scheme, path };
}

/** The connection that a client would ask for. */
export function connectionOf({ host, port, scheme }: Target): AskedConnection {
  if (scheme === null) return { host, port, via: 'any' };
  return { host, port, via: scheme === 'http' ? 'http' : 'connect' };
}
