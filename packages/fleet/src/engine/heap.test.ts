import { expect, it } from 'vitest';
import { Heap } from './heap.ts';

it('has the first member first, whatever was added, changed and taken out', () => {
  const heap = new Heap<{ rank: number }>((one, other) => one.rank < other.rank);
  const members = new Set<{ rank: number }>();
  let seed = 7;
  const random = (below: number): number => {
    seed = (seed * 48_271) % 2_147_483_647;
    return seed % below;
  };
  for (let step = 0; step < 4000; step += 1) {
    const known = [...members][random(Math.max(1, members.size))];
    const what = random(4);
    if (what < 2 || !known) {
      const made = { rank: random(1000) };
      members.add(made);
      heap.put(made);
    } else if (what === 2) {
      known.rank = random(1000);
      heap.put(known);
    } else {
      members.delete(known);
      heap.remove(known);
      heap.remove(known);
    }
    expect(heap.size).toBe(members.size);
    for (const one of members.size > 60 ? [...members].slice(0, 30) : []) {
      members.delete(one);
      heap.remove(one);
    }
    const least = members.size === 0 ? undefined : Math.min(...[...members].map(({ rank }) => rank));
    expect(heap.first?.rank).toBe(least);
  }
});
