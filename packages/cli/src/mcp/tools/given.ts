// What is left of arguments when those that were not given are taken out: the library tells absent from undefined.

/** An object without the fields that are undefined. */
export type Given<Fields> = { [Key in keyof Fields]?: Exclude<Fields[Key], undefined> };

/** Takes out the fields that are undefined. */
export function given<Fields extends object>(fields: Fields): Given<Fields> {
  const kept: Given<Fields> = { ...fields };
  for (const key in kept) if (kept[key] === undefined) delete kept[key];
  return kept;
}
