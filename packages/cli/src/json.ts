// The one object that --json prints.

// Longer strings are written in parts: escaped as a whole, the output of a command could exceed the longest string there is.
const PART = 1024 ** 2;

/** The text of `{ "schema": …, …value }`, in pieces. Bytes become base64. */
export function* jsonPieces(schema: string, value: object): Generator<string, void, undefined> {
  yield* pieces({ schema, ...value });
  yield '\n';
}

function* pieces(value: unknown): Generator<string, void, undefined> {
  if (typeof value === 'string') yield* stringPieces(value);
  else if (value instanceof Uint8Array) yield* stringPieces(Buffer.from(value).toString('base64'));
  else if (Array.isArray(value)) yield* listPieces(value);
  else if (typeof value === 'object' && value !== null) yield* objectPieces(value);
  else yield JSON.stringify(value) ?? 'null';
}

function* objectPieces(value: object): Generator<string, void, undefined> {
  let before = '{';
  for (const [key, item] of Object.entries(value)) {
    if (item === undefined) continue;
    yield `${before}${JSON.stringify(key)}:`;
    yield* pieces(item);
    before = ',';
  }
  yield before === '{' ? '{}' : '}';
}

function* listPieces(items: readonly unknown[]): Generator<string, void, undefined> {
  yield '[';
  for (const [index, item] of items.entries()) {
    if (index > 0) yield ',';
    yield* pieces(item);
  }
  yield ']';
}

// A pair of surrogates that falls on both sides of a cut is escaped as two halves, which JSON reads as one character.
function* stringPieces(text: string): Generator<string, void, undefined> {
  if (text.length <= PART) {
    yield JSON.stringify(text);
    return;
  }
  yield '"';
  for (let at = 0; at < text.length; at += PART) yield JSON.stringify(text.slice(at, at + PART)).slice(1, -1);
  yield '"';
}
