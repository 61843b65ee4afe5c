// Heads of HTTP requests and responses: what is refused before anything is decided, and what is written anew for the other side.
//
// A request is never passed on as it came: a server that reads it differently would see another request than the one decided upon.

/** The head of a request as Node’s parser read it. */
export interface RequestHead {
  readonly method: string;
  readonly url: string;
  /** Names and values in turn. */
  readonly rawHeaders: readonly string[];
}

/** Where a request goes: the authority in its target (absolute form) or none (origin form), and the path with its query. */
export interface RequestTarget {
  readonly authority: string | null;
  readonly path: string;
  /** Whether an absolute form asks the proxy to encrypt the connection. */
  readonly isEncrypted: boolean;
}

// What belongs to one connection. `te` and `trailer` go too: trailers are not passed on.
const HOP_BY_HOP: ReadonlySet<string> = new Set([
  'connection',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authentication-info',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  'http2-settings',
]);
// A request that names these as belonging to its connection asks the proxy to drop what the server decides by.
const END_TO_END: ReadonlySet<string> = new Set(['content-length', 'host', 'authorization', 'cookie', 'expect']);
const TARGET = /^\/[\x21-\x22\x24-\x5b\x5d-\x7e]*$/;
const ABSOLUTE = /^http(s?):\/\/([^/?#@\\]+)(\/[\x21-\x22\x24-\x5b\x5d-\x7e]*)?$/i;
const LENGTH = /^\d{1,15}$/;

/** The target of a request; null if it has neither origin form nor absolute form. */
export function targetOf(url: string): RequestTarget | null {
  if (TARGET.test(url)) return { authority: null, path: url, isEncrypted: false };
  const [whole, s, authority = '', path = '/'] = ABSOLUTE.exec(url) ?? [];
  return whole === undefined ? null : { authority, path, isEncrypted: s !== '' };
}

/** The host as written and the port of an authority; null if it is not one. The host is not checked. */
export function splitAuthority(authority: string, standard: number | null): { host: string; port: number } | null {
  const [whole, host = '', digits] = /^([^:]+)(?::(\d{1,5}))?$/.exec(authority) ?? [];
  const port = digits === undefined ? standard : Number(digits);
  return whole === undefined || port === null || port < 1 || port > 65_535 ? null : { host, port };
}

/** The values of a header, in any case of its name. */
export function valuesOf(rawHeaders: readonly string[], name: string): readonly string[] {
  return rawHeaders.filter((_, at) => at % 2 === 1 && rawHeaders[at - 1]?.toLowerCase() === name);
}

/** What makes the framing of a request ambiguous; null if nothing does. */
export function framingFault({ rawHeaders }: RequestHead): string | null {
  const lengths = valuesOf(rawHeaders, 'content-length');
  const codings = valuesOf(rawHeaders, 'transfer-encoding');
  if (valuesOf(rawHeaders, 'host').length !== 1) return 'a request needs exactly one Host';
  if (lengths.length + codings.length > 1) return 'the length of the body is given twice';
  if (lengths.some(length => !LENGTH.test(length))) return 'Content-Length is not a number';
  if (codings.some(coding => coding.toLowerCase() !== 'chunked')) return 'Transfer-Encoding is not chunked';
  // A folded line, or a character that other parsers take for the end of one.
  if (rawHeaders.some(text => /[\0\r\n]/.test(text))) return 'a header has a line break';
  if (rawHeaders.some((text, at) => at % 2 === 0 && !/^[!#$%&'*+.^_`|~\w-]+$/.test(text)))
    return 'a header has no name';
  const named = connectionOptions(rawHeaders).find(option => END_TO_END.has(option) || option === 'transfer-encoding');
  return named === undefined ? null : `Connection names ${named}`;
}

/** The header names that belong to the connection alone, by its Connection header. */
function connectionOptions(rawHeaders: readonly string[]): readonly string[] {
  return valuesOf(rawHeaders, 'connection').flatMap(value => value.split(',').map(part => part.trim().toLowerCase()));
}

/** The headers that are passed on: those of the message, without those of its connection. */
export function endToEndHeaders(rawHeaders: readonly string[], without: readonly string[] = []): string[] {
  const dropped = new Set([...HOP_BY_HOP, ...connectionOptions(rawHeaders), ...without]);
  return rawHeaders.flatMap((value, at) => {
    const name = rawHeaders[at - 1] ?? '';
    return at % 2 === 1 && !dropped.has(name.toLowerCase()) ? [name, value] : [];
  });
}

/** The framing headers that a request is written with: its own length, chunks, or no body. */
export function framingHeaders({ method, rawHeaders }: RequestHead): string[] {
  if (valuesOf(rawHeaders, 'transfer-encoding').length > 0) return ['Transfer-Encoding', 'chunked'];
  const [length] = valuesOf(rawHeaders, 'content-length');
  if (length !== undefined) return ['Content-Length', length];
  return ['GET', 'HEAD', 'OPTIONS'].includes(method) ? [] : ['Content-Length', '0'];
}

/** About how many bytes a head has on the wire. */
export function headBytes(rawHeaders: readonly string[], line: string): number {
  return rawHeaders.reduce((sum, text) => sum + text.length + 2, line.length + 2);
}
