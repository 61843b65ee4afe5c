// The one text of a value: what is hashed must not depend on who wrote the object, or in which order.

// Records are a few levels deep; what is deeper was not made by us, and would end in the stack.
const MAX_DEPTH = 16;

/**
 * Canonical JSON: keys sorted, no white space, absent where undefined. Only what JSON itself can say is taken; everything
 * else is a mistake of the caller, since its text could not be read back.
 */
export function canonicalJson(value: unknown): string {
  return textOf(value, 0);
}

function textOf(value: unknown, depth: number): string {
  if (depth > MAX_DEPTH) throw new TypeError('an audit record is too deep');
  if (Array.isArray(value)) return `[${value.map(item => textOf(item, depth + 1)).join(',')}]`;
  if (typeof value === 'object' && value !== null) return objectText(value, depth);
  return scalarText(value);
}

function scalarText(value: unknown): string {
  const known =
    value === null || typeof value === 'string' || typeof value === 'boolean' || Number.isFinite(value)
      ? JSON.stringify(value)
      : undefined;
  if (known === undefined) throw new TypeError(`an audit record cannot hold ${typeof value}`);
  return known;
}

function objectText(value: object, depth: number): string {
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null)
    throw new TypeError('an audit record holds plain data only');
  const entries: [string, unknown][] = Object.entries(value).filter(([, item]) => item !== undefined);
  // By code units, as the language sorts: the same on every machine, whatever its locale.
  entries.sort(([one], [other]) => (one < other ? -1 : 1));
  return `{${entries.map(([key, item]) => `${JSON.stringify(key)}:${textOf(item, depth + 1)}`).join(',')}}`;
}
