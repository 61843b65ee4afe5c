// Names that were mistyped. Without imports: the command line loads it with every call.

/** Whether one name was probably meant by another: it differs by one letter, or by two that changed places. */
export function isNear(name: string, typed: string): boolean {
  if (name === typed || Math.abs(name.length - typed.length) > 1) return name === typed;
  let at = 0;
  while (at < name.length && name[at] === typed[at]) at += 1;
  const [rest, other] = [name.slice(at), typed.slice(at)];
  const swapped = `${rest[1] ?? ''}${rest[0] ?? ''}${rest.slice(2)}`;
  return rest.slice(1) === other || rest === other.slice(1) || rest.slice(1) === other.slice(1) || swapped === other;
}
