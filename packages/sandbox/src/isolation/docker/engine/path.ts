// Builds request paths so that an id or a name can never become another path or a query.
import { EngineError } from './error.ts';

/** A request path whose variable parts are encoded. Only {@link path} makes one. */
export class EnginePath {
  readonly text: string;

  private constructor(text: string) {
    this.text = text;
  }

  /** What the tag {@link path} does. */
  static fromTemplate(strings: readonly string[], values: readonly string[]): EnginePath {
    return new EnginePath(strings.reduce((text, part, index) => text + encodeSegment(values[index - 1] ?? '') + part));
  }
}

/**
 * Tag for request paths: every substitution is one encoded segment.
 *
 * @example path`/containers/${id}/json`
 */
export function path(strings: TemplateStringsArray, ...values: readonly string[]): EnginePath {
  return EnginePath.fromTemplate(strings, values);
}

/** The engine cleans `.`, `..` and empty segments away after decoding, which would lead to another endpoint. */
function encodeSegment(value: string): string {
  const cleanedAway = value.split('/').some(segment => segment === '' || segment === '.' || segment === '..');
  // Half a character has no encoding.
  if (cleanedAway || /\p{Surrogate}/u.test(value)) {
    throw new EngineError({
      kind: 'protocol',
      operation: 'build a path',
      detail: `${JSON.stringify(value)} is not a name an engine knows`,
    });
  }
  return encodeURIComponent(value);
}

/** A query string with its question mark, or nothing; what is undefined is left out. */
export function queryString(query: Readonly<Record<string, string | number | boolean | undefined>> = {}): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined) parameters.set(name, String(value));
  }
  const text = parameters.toString();
  return text === '' ? '' : `?${text}`;
}
