// Doctor report: a list of checks, and a report card of 80 columns.

import type { AttackReport, Check, DoctorReport, Probe } from '@acode/sandbox';
import type { Look } from '../terminal/look.ts';
import { cut, oneLine, pad, widthOf } from '../terminal/text.ts';
import { hanging, wrapped as inLines } from '../terminal/wrap.ts';

const WIDTH = 80;
const TITLE_WIDTH = 22;
const GAP = '  ';
const NARROW = 60;
const GROUPS: Readonly<Record<string, string>> = {
  A: 'Escape',
  B: 'Mounts',
  C: 'Execution on the host afterwards',
  D: 'Network',
  E: 'Resources',
  F: 'Secrets, policy, supply chain',
};

const NO_BOUNDARY =
  'This level is no security boundary: a command can do whatever you can. Attacks\nthat could do harm were not tried, and count as not stopped.';

/** The checks for a person; `brief` counts those that passed. */
export function renderDoctor(report: DoctorReport, look: Look, brief = false): string {
  const { bold, green, red, yellow } = look.colours;
  const count = (status: Check['status']): number => report.checks.filter(check => check.status === status).length;
  const [failed, warned] = [count('fail'), count('warn')];
  // Who sets acode up needs what to do; `acode doctor` has the rest.
  const shown = brief ? report.checks.filter(({ status }) => status !== 'ok') : report.checks;
  if (brief) {
    const passed = `${count('ok')} checks passed (\`acode doctor\` lists them)`;
    return `${shown.map(check => checkLines(check, look)).join('')}${green('✔')} ${passed}\n`;
  }
  const total = `${report.checks.length} checks, ${warned} warned, ${failed} failed (${report.durationMs} ms)`;
  const colour = failed > 0 ? red : warned > 0 ? yellow : green;
  return `${shown.map(check => checkLines(check, look)).join('')}\n${colour(bold(total))}\n`;
}

function checkLines({ status, title, seen, remedy }: Check, look: Look): string {
  const { cyan, dim, green, red, yellow } = look.colours;
  const mark = { ok: green('✔'), warn: yellow('!'), fail: red('✘') }[status];
  const { width } = look;
  const hint =
    remedy === undefined ? '' : `${hanging(`  ${dim('╰▶')} `, `${cyan('remedy:')} ${oneLine(remedy)}`, width)}\n`;
  // In a narrow terminal what was seen stands below its title, where it has room.
  const beside =
    width === null || width >= NARROW
      ? hanging(`${mark} ${pad(title, TITLE_WIDTH - GAP.length)}${GAP}`, oneLine(seen), width)
      : `${mark} ${title}\n${hanging('    ', oneLine(seen), width)}`;
  return `${beside}\n${hint}`;
}

/** The report card for a person. */
export function renderCard(report: AttackReport, look: Look): string {
  const { backend, image, imageReason, grade, probes, durationMs } = report;
  const chosen = imageReason === undefined ? '' : ` (${imageReason})`;
  const { bold, green, red, yellow } = look.colours;
  const count = (verdict: Probe['verdict']): number => probes.filter(probe => probe.verdict === verdict).length;
  const failed = probes.filter(({ verdict }) => verdict === 'fail').map(({ id }) => id);
  const untried = probes.filter(({ verdict }) => verdict === 'not-tried').map(({ id }) => id);
  const line = '─'.repeat(WIDTH);
  const made =
    backend.version === '' ? 'no engine' : `${backend.engine} ${backend.version}, runtime ${backend.runtime}`;
  const about = [
    `Level    ${backend.level} (${made})`,
    `Kernel   ${backend.kernel}`,
    ...(backend.version === '' ? [] : [`Image    ${image}${chosen}`]),
  ].map(text => `${cut(oneLine(text), WIDTH)}\n`);
  const groups = Object.entries(GROUPS).map(([letter, title]) => {
    const own = probes.filter(({ id }) => id.startsWith(letter));
    return own.length === 0
      ? ''
      : `\n${bold(`${letter}  ${title}`)}\n${own.map(probe => probeLines(probe, look)).join('')}`;
  });
  const totals = `${count('pass')} passed, ${failed.length} failed, ${count('not-applicable')} not applicable, ${untried.length === 0 ? '' : `${untried.length} not tried, `}${(durationMs / 1000).toFixed(1)} s`;
  const colour = failed.length > 0 ? red : untried.length > 0 ? yellow : green;
  const which =
    failed.length > 0
      ? `${inLines(`Failed: ${failed.join(', ')}`, WIDTH)
          .map(one => red(one))
          .join('\n')}\n`
      : '';
  const again =
    untried.length > 0
      ? `${inLines(`Could not be tried: ${untried.join(', ')}. The engine gave no sandbox in time; run it again when this machine is less busy.`, WIDTH).join('\n')}\n`
      : '';
  const warning = backend.boundary ? '' : `${red(NO_BOUNDARY)}\n`;
  return `${bold('acode: attacks on a live sandbox')}\n${about.join('')}${line}${groups.join('')}${line}\n${colour(bold(`Grade ${grade}`))}   ${totals}\n${warning}${which}${again}`;
}

// Two lines: what was tried and what was seen; then what showed that the attempt works.
function probeLines({ id, title, verdict, observed, control }: Probe, look: Look): string {
  const { dim, green, red, yellow } = look.colours;
  const mark = { pass: green('✔'), fail: red('✘'), 'not-applicable': yellow('–'), 'not-tried': yellow('?') }[verdict];
  const head = `${mark} ${pad(id, 5)}${cut(oneLine(title), 46)}`;
  const room = WIDTH - 7;
  const width = WIDTH - (2 + 5 + Math.min(46, widthOf(title))) - 2;
  const fits = widthOf(observed) <= width;
  const seen = fits ? `  ${dim(oneLine(observed))}\n` : `\n${wrapped(observed, room, verdict === 'fail' ? red : dim)}`;
  const shown =
    verdict === 'not-applicable' || verdict === 'not-tried' || control === ''
      ? ''
      : wrapped(`control: ${control}`, room, dim);
  return `${head}${seen}${shown}`;
}

function wrapped(text: string, width: number, colour: (line: string) => string): string {
  const lines: string[] = [];
  let line = '';
  for (const word of oneLine(text).split(' ')) {
    if (line !== '' && line.length + 1 + word.length > width) {
      lines.push(line);
      line = '';
    }
    line = line === '' ? word : `${line} ${word}`;
  }
  return [...lines, line].map(one => `       ${colour(cut(one, width))}\n`).join('');
}
