// Chart of a simulated day, as SVG: tasks that wait and run, and how long tasks waited.

const WIDTH = 960;
const HEIGHT = 180;
const LEFT = 70;
const GAP = 60;

/** A part of the day. */
export interface Bin {
  readonly begun: number;
  readonly waiting: number;
  readonly running: number;
  readonly wait: { at(share: number): number };
}

/** The chart of a day. */
export function chart(bins: readonly Bin[], untilMs: number): string {
  const panels = [
    panel(
      'running tasks',
      bins.map(({ running }) => running),
      0,
    ),
    panel(
      'queued tasks',
      bins.map(({ waiting }) => Math.max(0, waiting)),
      1,
    ),
    panel(
      'wait of tasks, p99, ms',
      bins.map(({ wait }) => wait.at(0.99)),
      2,
    ),
  ];
  const height = panels.length * (HEIGHT + GAP) + 30;
  const hours = (untilMs / 3_600_000).toFixed(2);
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${LEFT + WIDTH + 20} ${height}" font-family="sans-serif" font-size="13">`,
    `<rect width="100%" height="100%" fill="white"/>`,
    ...panels,
    `<text x="${LEFT}" y="${height - 10}">from left to right: ${hours} h</text>`,
    '</svg>',
    '',
  ].join('\n');
}

function panel(title: string, values: readonly number[], at: number): string {
  const top = at * (HEIGHT + GAP) + 40;
  const most = Math.max(1, ...values);
  const points = values.map((value, index) => {
    const x = LEFT + (index / Math.max(1, values.length - 1)) * WIDTH;
    return `${x.toFixed(1)},${(top + HEIGHT - (value / most) * HEIGHT).toFixed(1)}`;
  });
  return [
    `<text x="${LEFT}" y="${top - 12}" font-weight="bold">${title}</text>`,
    `<text x="${LEFT - 8}" y="${top + 10}" text-anchor="end">${Math.round(most)}</text>`,
    `<text x="${LEFT - 8}" y="${top + HEIGHT}" text-anchor="end">0</text>`,
    `<path d="M${LEFT} ${top}V${top + HEIGHT}H${LEFT + WIDTH}" fill="none" stroke="#999"/>`,
    `<polyline points="${points.join(' ')}" fill="none" stroke="#0a5" stroke-width="1.5"/>`,
  ].join('\n');
}
