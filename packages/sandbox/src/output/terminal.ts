// Makes output safe to show on a terminal: what was printed by untrusted code must not drive it.

// Colour and weight (SGR) are the only sequences worth keeping; anything else could move the cursor over what the user
// reads, set the title, write the clipboard or answer back on standard input.
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

  /** What is left at the end of the stream, with colours reset. */
  end(): string {
    return this.#clean(this.#held + this.#decoder.decode(), true);
  }

  #clean(text: string, last: boolean): string {
    this.#held = '';
    let out = '';
    for (let at = 0; at < text.length;) {
      const character = text[at] ?? '';
      if (character === '\u001b') {
        const rest = text.slice(at, at + 64);
        const colour = SGR.exec(rest);
        if (!colour && !last && /^\u001b(?:\[[0-9;]*)?$/.test(rest)) {
          this.#held = text.slice(at);
          return out;
        }
        out += colour ? colour[0] : '␛';
        at += colour ? colour[0].length : 1;
        continue;
      }
      if (character === '\r' && at + 1 === text.length && !last) {
        this.#held = '\r';
        return out;
      }
      out += safe(character, text[at + 1]);
      at += 1;
    }
    return out;
  }
}

function safe(character: string, next: string | undefined): string {
  const code = character.charCodeAt(0);
  if (character === '\n' || character === '\t') return character;
  // A carriage return before a newline is a line end; alone it would overwrite the line, so it begins a new one.
  if (character === '\r') return next === '\n' ? '' : '\n';
  if (code < 0x20) return String.fromCharCode(0x2400 + code);
  if (code === 0x7f) return '␡';
  if ((code >= 0x80 && code < 0xa0) || BIDI.test(character)) return '�';
  return character;
}
