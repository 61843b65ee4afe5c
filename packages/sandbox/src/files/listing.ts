// Reads the portions in which a walk inside tells names and what is known of them: `name NUL … NUL NUL lines of stat NUL`, and
// another NUL after the last. Pure.

/** What a walk tells of one entry. The name is in latin1, byte for byte, and with all that leads to it. */
export interface Listed {
  readonly name: string;
  /** Null where it was gone before anything could be known of it. */
  readonly facts: Facts | null;
}

/** What is known of an entry. */
export interface Facts {
  readonly mode: number;
  /** Differs where the content may. */
  readonly version: string;
  readonly ino: string;
}

// What a kernel takes as the arguments of one call, several times over.
const LARGEST_PIECE = 16 * 1024 ** 2;
const DATE = String.raw`[-\d]+ [\d:.]+ [-+\d]+`;
const FACTS = new RegExp(`([0-9a-f]+) (\\d+) (\\d+) (${DATE}) (${DATE}) `, 'y');

/** Takes a walk apart while it comes in, and gives each whole one. */
export class ListingReader {
  #held: Buffer[] = [];
  #names: string[] = [];
  #entries: Listed[] = [];
  #expectsFacts = false;
  #heldBytes = 0;

  /** The walks that are complete with this chunk. */
  push(chunk: Buffer): Listed[][] {
    const walks: Listed[][] = [];
    let from = 0;
    for (let nul = chunk.indexOf(0); nul !== -1; nul = chunk.indexOf(0, from)) {
      const piece = Buffer.concat([...this.#held, chunk.subarray(from, nul)]).toString('latin1');
      this.#held = [];
      this.#heldBytes = 0;
      from = nul + 1;
      if (!this.#isEnd(piece)) continue;
      walks.push(this.#entries);
      this.#entries = [];
    }
    if (from < chunk.length) this.#hold(chunk.subarray(from));
    return walks;
  }

  /** How many entries there are of a walk that is not complete yet. */
  get pending(): number {
    return this.#entries.length + this.#names.length;
  }

  // A portion is as long as the names of one call of a program, and no longer.
  #hold(rest: Buffer): void {
    this.#held.push(rest);
    this.#heldBytes += rest.length;
    if (this.#heldBytes > LARGEST_PIECE) throw new Error('a listing has no end');
  }

  #isEnd(piece: string): boolean {
    if (this.#expectsFacts) {
      for (const entry of matched(this.#names, piece)) this.#entries.push(entry);
      this.#names = [];
      this.#expectsFacts = false;
      return false;
    }
    // A portion has at least one name, and no name is empty.
    if (piece === '' && this.#names.length === 0) return true;
    if (piece === '') this.#expectsFacts = true;
    else this.#names.push(piece);
    return false;
  }
}

// The order is the same, and what is gone has no line. The name after the facts may be of several lines: it is compared as a
// whole with the one that was told before.
function matched(names: readonly string[], lines: string): Listed[] {
  let at = 0;
  return names.map(name => {
    FACTS.lastIndex = at;
    const found = FACTS.exec(lines);
    const end = FACTS.lastIndex + name.length;
    if (!found || lines.slice(FACTS.lastIndex, end + 1) !== `${name}\n`) return { name, facts: null };
    at = end + 1;
    const [, mode = '', size = '', ino = '', modified = '', changed = ''] = found;
    return { name, facts: { mode: Number.parseInt(mode, 16), ino, version: `${size} ${modified} ${changed}` } };
  });
}

/** Bytes that were read as latin1, as the text they are. */
export function asText(latin1: string): string {
  return Buffer.from(latin1, 'latin1').toString('utf8');
}
