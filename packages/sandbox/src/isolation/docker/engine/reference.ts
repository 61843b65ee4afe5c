// Splits an image reference the way the pull endpoint wants it.

/** The two parts a pull is asked for. */
export interface SplitReference {
  readonly name: string;
  /** A tag or a digest. */
  readonly version: string;
}

/**
 * `name[:tag][@digest]` as name and version; a digest wins over a tag. Never without a version: the engine
 * takes that for "all tags of the repository".
 */
export function splitReference(reference: string): SplitReference {
  const at = reference.indexOf('@');
  const tagged = at === -1 ? reference : reference.slice(0, at);
  const colon = tagged.lastIndexOf(':');
  // A colon before the last slash belongs to the port of the registry.
  const hasTag = colon > tagged.lastIndexOf('/');
  const name = hasTag ? tagged.slice(0, colon) : tagged;
  if (at !== -1) return { name, version: reference.slice(at + 1) };
  return { name, version: hasTag ? tagged.slice(colon + 1) : 'latest' };
}
