// Long identifiers as tables show them: enough to tell them apart and to name them again.

const LONG = /^(sha256:)?([0-9a-f]{12})[0-9a-f]+$/;

/** The beginning of a long hexadecimal id or digest; any other name as it is. */
export function shortId(id: string): string {
  const [, algorithm = '', beginning] = LONG.exec(id) ?? [];
  return beginning === undefined ? id : algorithm + beginning;
}
