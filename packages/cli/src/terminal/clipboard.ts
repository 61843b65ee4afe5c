// Clipboard sequence (OSC 52): the text that a program inside may write to the clipboard where the user allows it. No program
// reads it.

const ESCAPE = '\u001b';
const BELL = '\u0007';
/** The longest sequence that is kept: what terminals take, 75 KB of text. */
export const MAX_CLIPBOARD = 100_000;
// Lines and tabs. Other controls could end a bracketed paste, or do something else where it is pasted.
// oxlint-disable-next-line no-control-regex
const UNSAFE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/;

/** What a terminal is sent for a string that it was sent: `52;c;<base64>`. Null where it is another one, or no plain text. */
export function clipboardWrite(content: string): string | null {
  const [, encoded] = /^52;[cps0-7]{0,10};([A-Za-z0-9+/]+={0,2})$/.exec(content) ?? [];
  if (encoded === undefined) return null;
  const bytes = Buffer.from(encoded, 'base64');
  const text = bytes.toString('utf8');
  if (text === '' || !Buffer.from(text).equals(bytes) || UNSAFE.test(text)) return null;
  return `${ESCAPE}]52;c;${bytes.toString('base64')}${BELL}`;
}
