// Screen sequences: the control sequences that a program inside may draw with. All others are dropped.

/** What remains changed when a program ends, and what restores it; null where it was just restored. */
export type Touches = readonly (readonly [what: string, undo: string | null])[];

/** A sequence that passes, and what of the terminal it changes beyond the picture. */
export interface Drawing {
  readonly text: string;
  readonly touches?: Touches;
}

const ESCAPE = '\u001b';
const CSI = `${ESCAPE}[`;

const NOTHING: Drawing = { text: '' };

// Modes that full-screen programs need, and whether each is on by itself. Left out: those that make the terminal send
// something (mouse, focus), that change its size or its keys for good, and those that are the user’s own taste. 2026 holds
// the picture back until a frame is whole.
const MODES: ReadonlyMap<number, boolean> = new Map([
  [1, false],
  [5, false],
  [6, false],
  [7, true],
  [25, true],
  [47, false],
  [1047, false],
  [1048, false],
  [1049, false],
  [2004, false],
  [2026, false],
]);
const MOUSE_MODES: readonly number[] = [1000, 1002, 1003, 1006];
/** Saves and restores the cursor: nothing remains changed. */
const SAVED_CURSOR = 1048;

const ONE = /^\d{0,5}$/;
const TWO = /^\d{0,5}(?:;\d{0,5})?$/;
// Not 3, which would erase what the user can scroll back to.
const ERASE = /^[012]?$/;
const COLOURS = /^[\d;:]*$/;
const NONE = /^$/;
const INSERT = /^4$/;

// By the last character. Left out: all that the terminal answers (c, n, t, x), that prints (i) or moves tab stops (g).
const PLAIN: Readonly<Record<string, RegExp>> = {
  ...Object.fromEntries('@ABCDEFGILMPSTXZ`abde'.split('').map(final => [final, ONE])),
  H: TWO,
  f: TWO,
  r: TWO,
  J: ERASE,
  K: ERASE,
  m: COLOURS,
  s: NONE,
  u: NONE,
  h: INSERT,
  l: INSERT,
};

const CHARACTERS: Touches = [['characters', `${ESCAPE}(B${ESCAPE})B\u000f`]];

// Left out: what changes the encoding (% @), is answered (Z), or resets the whole terminal (c).
const ESCAPES: Readonly<Record<string, Touches>> = {
  '7': [],
  '8': [],
  '=': [['keypad', `${ESCAPE}>`]],
  '>': [['keypad', null]],
  D: [],
  E: [],
  M: [],
  '(0': CHARACTERS,
  ')0': CHARACTERS,
  '(B': [],
  ')B': [],
};

/** What may stand of an escape sequence, given without its first character. */
export function escapeDrawing(sequence: string): Drawing {
  const touches = Object.hasOwn(ESCAPES, sequence) ? ESCAPES[sequence] : undefined;
  return touches ? { text: `${ESCAPE}${sequence}`, touches } : NOTHING;
}

/** A control sequence in parts: a private character, numbers, and characters before the last one. */
export interface Control {
  readonly prefix: string;
  readonly numbers: string;
  readonly space: string;
  readonly final: string;
}

/** The parts of a control sequence, given as what is between `ESC [` and its last character, and that. */
export function controlOf(between: string, final: string): Control | null {
  const [, prefix, numbers = '', space] = /^([<-?]?)([\d;:]*)([ -/]*)$/.exec(between) ?? [];
  return prefix === undefined || space === undefined ? null : { prefix, numbers, space, final };
}

/** What may stand of a control sequence. */
export function controlDrawing({ prefix, numbers, space, final }: Control, mouse: boolean): Drawing {
  // By everything but the numbers.
  switch (`${prefix} ${space}${space === '' ? '' : final}`) {
    case ' ':
      return plainDrawing(numbers, final);
    case '? ':
      return 'hl'.includes(final) ? modes(numbers, final === 'h', mouse) : NOTHING;
    case '> ':
      return final === 'm' ? otherKeys(numbers) : NOTHING;
    case '  q':
      return /^[0-6]?$/.test(numbers) ? cursorStyle(numbers) : NOTHING;
    case ' !p':
      return { text: `${CSI}!p` };
    default:
      return NOTHING;
  }
}

/** What another set of characters changes. */
export function shiftDrawing(control: string): Drawing {
  return { text: control, touches: CHARACTERS };
}

function plainDrawing(numbers: string, final: string): Drawing {
  const allowed = Object.hasOwn(PLAIN, final) && PLAIN[final]?.test(numbers) === true;
  return allowed ? { text: `${CSI}${numbers}${final}`, touches: touchedBy(numbers, final) } : NOTHING;
}

function touchedBy(numbers: string, final: string): Touches {
  if (final === 'm') return [['colours', /^0*$/.test(numbers) ? null : `${CSI}0m`]];
  if (final === 'h') return [['inserting', `${CSI}4l`]];
  if (final === 'l') return [['inserting', null]];
  // Without margins the cursor moves to the first line, and is put back from there.
  if (final === 'r') return [['margins', numbers === '' ? null : `${ESCAPE}7${CSI}r${ESCAPE}8`]];
  return [];
}

function cursorStyle(number: string): Drawing {
  const taken = number === '' || number === '0' ? null : `${CSI}0 q`;
  return { text: `${CSI}${number} q`, touches: [['cursor style', taken]] };
}

// How xterm and tmux tell Shift-Enter from Enter (modifyOtherKeys). Keys that type text remain text.
function otherKeys(numbers: string): Drawing {
  const [, value = ''] = /^4(?:;([0-2]))?$/.exec(numbers) ?? [];
  if (numbers !== '4' && value === '') return NOTHING;
  const taken = value === '' || value === '0' ? null : `${CSI}>4m`;
  return { text: `${CSI}>${numbers}m`, touches: [['other keys', taken]] };
}

/** Whether a mode passes, and whether it is on by itself; null where it does not pass. */
export function modeDefault(mode: number, mouse: boolean): boolean | null {
  return MODES.get(mode) ?? (mouse && MOUSE_MODES.includes(mode) ? false : null);
}

function modes(numbers: string, on: boolean, mouse: boolean): Drawing {
  const known = numbers
    .split(';')
    .map(Number)
    .filter(mode => modeDefault(mode, mouse) !== null);
  if (known.length === 0) return NOTHING;
  const last = on ? 'h' : 'l';
  const back = on ? 'l' : 'h';
  return {
    text: `${CSI}?${known.join(';')}${last}`,
    touches: known
      .filter(mode => mode !== SAVED_CURSOR)
      .map(mode => [`mode ${mode}`, on === (MODES.get(mode) ?? false) ? null : `${CSI}?${mode}${back}`]),
  };
}
