// Heap whose members may change their place: the first one is found at once, and a change costs the logarithm of how many there are.

/** Members in an order of their own. Each is in it once. */
export class Heap<Member extends object> {
  readonly #isBefore: (one: Member, other: Member) => boolean;
  readonly #members: Member[] = [];
  readonly #places = new Map<Member, number>();

  constructor(isBefore: (one: Member, other: Member) => boolean) {
    this.#isBefore = isBefore;
  }

  /** The first one; undefined where there is none. */
  get first(): Member | undefined {
    return this.#members[0];
  }

  /** How many there are. */
  get size(): number {
    return this.#members.length;
  }

  /** Whether a member is in it. */
  has(member: Member): boolean {
    return this.#places.has(member);
  }

  /** Adds a member, or finds the place of one whose rank has changed. */
  put(member: Member): void {
    let at = this.#places.get(member);
    if (at === undefined) {
      at = this.#members.length;
      this.#members.push(member);
      this.#places.set(member, at);
    }
    this.#down(this.#up(at));
  }

  /** Takes a member out, if it is there. */
  remove(member: Member): void {
    const at = this.#places.get(member);
    if (at === undefined) return;
    this.#places.delete(member);
    const last = this.#members.pop();
    if (last === undefined || last === member) return;
    this.#set(at, last);
    this.#down(this.#up(at));
  }

  #up(from: number): number {
    let at = from;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!this.#swappedIfBefore(at, parent)) break;
      at = parent;
    }
    return at;
  }

  #down(from: number): void {
    for (let at = from; ;) {
      const left = 2 * at + 1;
      const next = this.#earlier(left, left + 1);
      if (next === null || !this.#swappedIfBefore(next, at)) return;
      at = next;
    }
  }

  #earlier(left: number, right: number): number | null {
    const [one, other] = [this.#members[left], this.#members[right]];
    if (one === undefined) return null;
    return other !== undefined && this.#isBefore(other, one) ? right : left;
  }

  #swappedIfBefore(below: number, above: number): boolean {
    const [one, other] = [this.#members[below], this.#members[above]];
    if (one === undefined || other === undefined || !this.#isBefore(one, other)) return false;
    this.#set(above, one);
    this.#set(below, other);
    return true;
  }

  #set(at: number, member: Member): void {
    this.#members[at] = member;
    this.#places.set(member, at);
  }
}
