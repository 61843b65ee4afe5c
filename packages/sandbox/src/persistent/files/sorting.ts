// Sorts as much as a sandbox can list, without holding up everything else meanwhile.

import type { Pauses } from '../../lifecycle/pauses.ts';

// A few milliseconds of work, wherever it is done in one go.
const RUN = 4096;

/** The items in the order of their keys, with pauses. Equal ones stay as they were. */
export async function sortedBy<Item>(
  items: readonly Item[],
  keyOf: (item: Item) => string,
  pauses: Pauses,
): Promise<Item[]> {
  let runs: Item[][] = [];
  for (let at = 0; at < items.length; at += RUN) {
    runs.push(items.slice(at, at + RUN).sort((one, other) => order(keyOf(one), keyOf(other))));
    if (pauses.isDue) await pauses.take();
  }
  while (runs.length > 1) {
    const longer: Item[][] = [];
    for (let at = 0; at < runs.length; at += 2)
      longer.push(await merged(runs[at] ?? [], runs[at + 1] ?? [], keyOf, pauses));
    runs = longer;
  }
  return runs[0] ?? [];
}

async function merged<Item>(
  ones: readonly Item[],
  others: readonly Item[],
  keyOf: (item: Item) => string,
  pauses: Pauses,
): Promise<Item[]> {
  // What comes in order, or in the opposite one, as many file systems give it, is put together as it is.
  if (isBefore(ones, others, keyOf)) return ones.concat(others);
  if (isBefore(others, ones, keyOf)) return others.concat(ones);
  const all: Item[] = [];
  let [here, there] = [0, 0];
  let [one, other] = [ones[0], others[0]];
  while (one !== undefined && other !== undefined) {
    if (order(keyOf(one), keyOf(other)) <= 0) {
      all.push(one);
      one = ones[++here];
    } else {
      all.push(other);
      other = others[++there];
    }
    if (all.length % RUN === 0 && pauses.isDue) await pauses.take();
  }
  // One of the two has nothing left.
  return all.concat(ones.slice(here), others.slice(there));
}

// Strictly, so that equal ones stay as they were.
function isBefore<Item>(ones: readonly Item[], others: readonly Item[], keyOf: (item: Item) => string): boolean {
  const [last, first] = [ones.at(-1), others[0]];
  return last === undefined || first === undefined || order(keyOf(last), keyOf(first)) < 0;
}

function order(one: string, other: string): number {
  return one < other ? -1 : Number(one > other);
}
