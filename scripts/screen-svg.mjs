// A screen as SVG: the text that `tmux capture-pane -e` prints, with its colours and weights.
// @ts-check

const FOREGROUND = '#d4d4d4';
const BACKGROUND = '#1e1e1e';
const WIDTH = 8.4;
const HEIGHT = 18;
const BASIC =
  '000000 cd3131 0dbc79 e5e510 2472c8 bc3fbc 11a8cd e5e5e5 666666 f14c4c 23d18b f5f543 3b8eea d670d6 29b8db ffffff';
const PALETTE = BASIC.split(' ').map(one => `#${one}`);

/** @typedef {{ fg: string | null, bg: string | null, bold: boolean, dim: boolean, underline: boolean, reverse: boolean }} Style */

/** @returns {Style} */
const plain = () => ({ fg: null, bg: null, bold: false, dim: false, underline: false, reverse: false });

/** @param {number} index */
function paletteColour(index) {
  if (index < 16) return PALETTE[index] ?? FOREGROUND;
  if (index > 231) return grey(8 + (index - 232) * 10);
  const level = (/** @type {number} */ step) => (step === 0 ? 0 : 55 + step * 40);
  const at = index - 16;
  return rgb(level(Math.floor(at / 36)), level(Math.floor(at / 6) % 6), level(at % 6));
}

/** @param {number} value */
const grey = value => rgb(value, value, value);

/** @param {number[]} values */
const rgb = (...values) => `#${values.map(value => value.toString(16).padStart(2, '0')).join('')}`;

/** @type {Readonly<Record<number, Partial<Style>>>} */
const CODES = {
  0: plain(),
  1: { bold: true },
  2: { dim: true },
  4: { underline: true },
  7: { reverse: true },
  22: { bold: false, dim: false },
  24: { underline: false },
  27: { reverse: false },
  39: { fg: null },
  49: { bg: null },
};

/**
 * @param {number} code
 * @returns {Partial<Style>}
 */
function change(code) {
  const [tens, one] = [Math.floor(code / 10), code % 10];
  if (one > 7) return CODES[code] ?? {};
  if (tens === 3 || tens === 9) return { fg: paletteColour(tens === 9 ? one + 8 : one) };
  if (tens === 4 || tens === 10) return { bg: paletteColour(tens === 10 ? one + 8 : one) };
  return CODES[code] ?? {};
}

/**
 * @param {Style} before
 * @param {string} numbers
 * @returns {Style}
 */
function styled(before, numbers) {
  let next = before;
  const codes = numbers.split(/[;:]/).map(Number);
  for (let at = 0; at < codes.length; at += 1) {
    const code = codes[at] ?? 0;
    if (code !== 38 && code !== 48) {
      next = { ...next, ...change(code) };
      continue;
    }
    const isRgb = codes[at + 1] === 2;
    const colour = isRgb ? rgb(...codes.slice(at + 2, at + 5)) : paletteColour(codes[at + 2] ?? 0);
    next = { ...next, [code === 38 ? 'fg' : 'bg']: colour };
    at += isRgb ? 4 : 2;
  }
  return next;
}

/** @param {string} text */
const escaped = text => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');

/**
 * @param {string} text
 * @param {number} columns
 */
export function screenSvg(text, columns) {
  const rows = text.replaceAll('\r', '').trimEnd().split('\n');
  const [width, height] = [Math.ceil(columns * WIDTH) + 16, rows.length * HEIGHT + 16];
  const shapes = rows.flatMap((row, line) => rowShapes(row, 8 + line * HEIGHT));
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" font-family="ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="14">
<rect width="${width}" height="${height}" rx="6" fill="${BACKGROUND}"/>
${shapes.join('\n')}
</svg>
`;
}

// oxlint-disable-next-line no-control-regex
const SEQUENCES = /(\u001b\[[\d;:]*m)/;
// oxlint-disable-next-line no-control-regex
const STYLE = /^\u001b\[([\d;:]*)m$/;
// oxlint-disable-next-line no-control-regex
const SHIFTS = /\u001b[()]B|[\u000e\u000f]/g;
let style = plain();

/**
 * @param {string} row
 * @param {number} top
 */
function rowShapes(row, top) {
  const shapes = [];
  let column = 0;
  for (const part of row.replaceAll(SHIFTS, '').split(SEQUENCES)) {
    const [, numbers] = STYLE.exec(part) ?? [];
    if (numbers !== undefined) style = styled(style, numbers);
    if (numbers !== undefined || part === '') continue;
    const cells = Array.from(part).length;
    shapes.push(...run(part, { x: 8 + column * WIDTH, top, cells }));
    column += cells;
  }
  return shapes;
}

/**
 * @param {string} text
 * @param {{ x: number, top: number, cells: number }} at
 */
function run(text, { x, top, cells }) {
  const { bold, dim, underline, reverse } = style;
  const [fg, bg] = reverse ? [style.bg ?? BACKGROUND, style.fg ?? FOREGROUND] : [style.fg ?? FOREGROUND, style.bg];
  const width = cells * WIDTH;
  const place = `x="${x.toFixed(1)}"`;
  const ground =
    bg === null ? [] : [`<rect ${place} y="${top}" width="${width.toFixed(1)}" height="${HEIGHT}" fill="${bg}"/>`];
  if (text.trim() === '') return ground;
  const looks = `fill="${fg}"${bold ? ' font-weight="bold"' : ''}${dim ? ' opacity="0.7"' : ''}${underline ? ' text-decoration="underline"' : ''}`;
  const words = `<text ${place} y="${top + 14}" textLength="${width.toFixed(1)}" lengthAdjust="spacingAndGlyphs" xml:space="preserve" ${looks}>${escaped(text)}</text>`;
  return [...ground, words];
}
