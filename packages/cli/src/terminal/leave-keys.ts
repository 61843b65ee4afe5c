// The keys that leave a shell whatever the program inside does: Enter, tilde, dot, as in ssh.

const RETURN = 0x0d;
const NEWLINE = 0x0a;
const TILDE = 0x7e;
const DOT = 0x2e;

/** What was typed: what goes inside, and whether the user wants out. */
export interface Typed {
  readonly data: Uint8Array;
  readonly leave: boolean;
}

/** Watches what is typed. A tilde that begins a line is held until the next key; two of them are one. */
export class LeaveKeys {
  #lineBegins = true;
  #held = false;

  /** The next bytes that were typed. */
  push(typed: Uint8Array): Typed {
    const out: number[] = [];
    for (const key of typed) {
      if (this.#held && key === DOT) return { data: Uint8Array.from(out), leave: true };
      if (this.#lineBegins && !this.#held && key === TILDE) {
        this.#held = true;
        continue;
      }
      if (this.#held && key !== TILDE) out.push(TILDE);
      out.push(key);
      this.#held = false;
      this.#lineBegins = key === RETURN || key === NEWLINE;
    }
    return { data: Uint8Array.from(out), leave: false };
  }
}
