// Report of `acode doctor --agent`: which ways of an agent ran in a sandbox, and which on this machine.

import type { Look } from '../terminal/look.ts';
import { oneLine } from '../terminal/text.ts';
import type { AgentCheck, CheckedStart, CheckedWay } from './check.ts';

const STARTS = { exec: 'Started by acode hook exec', plain: 'Started by itself, with your settings' } as const;

/** The report as text. */
export function renderCheck({ agent, program, version, starts, ok }: AgentCheck, look: Look): string {
  const { bold, green, red } = look.colours;
  const verdict = ok
    ? green(`Every command of ${agent} ran in a sandbox when acode started it.`)
    : red(`Commands of ${agent} ran outside of a sandbox, or could not be checked.`);
  return [
    `${bold(`${agent} ${version}`)} (${oneLine(program)})`,
    ...starts.flatMap(start => ['', ...startLines(start, look)]),
    '',
    verdict,
    'Repeat this after every update of the agent. Against a hostile repository use `acode agent`.',
    '',
  ].join('\n');
}

function startLines({ start, ways, fault }: CheckedStart, look: Look): string[] {
  const title = look.colours.bold(`${STARTS[start]}:`);
  return fault === null ? [title, ...ways.map(way => wayLine(way, look))] : [title, `  ${oneLine(fault)}`];
}

function wayLine({ way, ran, isHooked }: CheckedWay, { colours: { green, red, yellow } }: Look): string {
  const where = { inside: green('in a sandbox'), outside: red('ON THIS MACHINE'), 'not run': yellow('not run') }[ran];
  return `  ${way.padEnd(36)}${where}${isHooked || ran !== 'outside' ? '' : ' (no hook reaches it)'}`;
}
