// Makes output safe to show on a terminal: what was printed by untrusted code must not drive it.

// Colour and weight (SGR) are the only sequences worth keeping; anything else could move the cursor over what the user
// reads, set the title, write the clipboard or answer back on standard input.
// No colour is longer; holding more back would let a program withhold output.
const MAX_LENGTH = 32;
const SGR = /^\u001b\[[0-9;]*m/;
// Direction overrides make text read otherwise than it is.
const BIDI = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/;

/** Neutralises a stream of text for a terminal. Keeps newlines, tabs and colours; shows everything else that acts. */
export class TerminalSanitiser {
  #decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  #held = '';

  /** The next bytes, made safe. */
  push(data: Uint8Array): string {
    return this.#clean(this.#held + this.#decoder.decode(data, { stream: true }), false);
  }

  /** What is left at the end of the stream. */
  end(): string {
    return this.#clean(this.#held + this.#decoder.decode(), true);
  }

  #clean(text: string, last: boolean): string {
    this.#held = '';
    let out = '';
    for (let at = 0; at < text.length;) {
      if (!last && mayGoOn(text.slice(at, at + MAX_LENGTH))) {
        this.#held = text.slice(at);
        return out;
      }
      const colour = SGR.exec(text.slice(at, at + MAX_LENGTH))?.[0];
      out += colour ?? safe(text[at] ?? '', text[at + 1]);
      at += colour?.length ?? 1;
    }
    return out;
  }
}

// An escape sequence or a line end of which only the beginning is there: what it is shows with the next bytes.
function mayGoOn(rest: string): boolean {
  if (rest.length === MAX_LENGTH) return false;
  return rest === '\r' || /^\u001b(?:\[[0-9;]*)?$/.test(rest);
}

function safe(character: string, next: string | undefined): string {
  const code = character.charCodeAt(0);
  if (character === '\n' || character === '\t') return character;
  // A carriage return before a newline is a line end; alone it would overwrite the line, so it begins a new one.
  if (character === '\r') return next === '\n' ? '' : '\n';
  // The pictures of control characters stand in the same order as they do.
  if (code < 0x20) return String.fromCharCode(0x2400 + code);
  if (code === 0x7f) return '␡';
  if ((code >= 0x80 && code < 0xa0) || BIDI.test(character)) return '�';
  return character;
}
