// Saved outputs: what commands printed beyond an excerpt; the newest, bounded in number and size.

const SCHEME = 'acode://output/';
const MAX_OUTPUTS = 32;
const MAX_CHARACTERS = 8 * 1024 ** 2;

/** The bounds of what is kept. */
export interface KeptBounds {
  readonly outputs: number;
  readonly characters: number;
}

/** The address of a kept output, as a template. */
export const OUTPUT_TEMPLATE = `${SCHEME}{id}`;

/** The outputs of one session. */
export class KeptOutputs {
  readonly #texts = new Map<string, string>();
  readonly #bounds: KeptBounds;
  #characters = 0;
  #count = 0;

  constructor(bounds: KeptBounds = { outputs: MAX_OUTPUTS, characters: MAX_CHARACTERS }) {
    this.#bounds = bounds;
  }

  /** Keeps a text, at the cost of the oldest ones; the address it has from now on. What is too long loses its end. */
  keep(text: string): string {
    const kept = text.slice(0, this.#bounds.characters);
    while (this.#texts.size >= this.#bounds.outputs || this.#characters + kept.length > this.#bounds.characters)
      if (!this.#forgetOldest()) break;
    this.#count += 1;
    const uri = `${SCHEME}${this.#count}`;
    this.#texts.set(uri, kept);
    this.#characters += kept.length;
    return uri;
  }

  /** The text at an address; null where none is kept. */
  find(uri: string): string | null {
    return this.#texts.get(uri) ?? null;
  }

  /** The addresses, oldest first, with the number of characters at each. */
  list(): { readonly uri: string; readonly characters: number }[] {
    return [...this.#texts].map(([uri, text]) => ({ uri, characters: text.length }));
  }

  /** Forgets everything. */
  clear(): void {
    this.#texts.clear();
    this.#characters = 0;
  }

  #forgetOldest(): boolean {
    const [oldest] = this.#texts;
    if (!oldest) return false;
    this.#texts.delete(oldest[0]);
    this.#characters -= oldest[1].length;
    return true;
  }
}
