// The last lines about a run: which limit it hit, what the limit was, who set it, and how to raise it.

import { ERRORS, formatBytes } from '@acode/sandbox';
import type { Command, EffectivePolicy, RunResult, Sourced } from '@acode/sandbox';
import { POLICY_OPTIONS } from '../arguments/request.ts';

const NOT_FOUND = 127;
const MIB = 1024 ** 2;

/** The lines about a run, without line ends; none for a run that hit nothing. */
export function closingLines(result: RunResult, policy: EffectivePolicy | null, command: Command): string[] {
  const lines: string[] = [];
  if (result.timedOut) lines.push(timeLine(policy));
  if (result.oomKilled) lines.push(limitLine('memory', policy?.limits.memoryBytes, formatBytes, memoryOption));
  if (result.limitExceeded === 'pids')
    lines.push(limitLine('process', policy?.limits.pids, String, pids => `--pids ${pids * 2}`));
  if (result.dropped.stdout + result.dropped.stderr > 0)
    lines.push(`${limitLine('output', policy?.limits.outputBytes, formatBytes, outputOption)} ${dropped(result)}`);
  if (typeof command === 'string' && result.exitCode === NOT_FOUND) lines.push(missingLine(result));
  return lines;
}

/** Who set a value, in words for a person. */
export function setBy({ layer, where }: Pick<Sourced<unknown>, 'layer' | 'where'>): string {
  if (layer === 'request') return POLICY_OPTIONS[where] ?? where;
  return layer === 'built-in' ? 'the built-in default' : where;
}

function timeLine(policy: EffectivePolicy | null): string {
  const row = ERRORS['ACODE-SBX-007'];
  if (!policy)
    return `ACODE-SBX-007: The command was stopped at its time limit. Give it more with --timeout <seconds>.`;
  const context = { timeoutMs: policy.timeoutMs.value, setBy: setBy(policy.timeoutMs) };
  return `ACODE-SBX-007: ${row.message(context)} ${row.hint(context)}`;
}

function limitLine(
  limit: string,
  sourced: Sourced<number> | undefined,
  shown: (value: number) => string,
  raise: (value: number) => string,
): string {
  const row = ERRORS['ACODE-SBX-004'];
  if (!sourced) return `ACODE-SBX-004: The command hit its ${limit} limit.`;
  const { value } = sourced;
  const context = { limit, value: shown(value), setBy: setBy(sourced), raise: raise(value) };
  return `ACODE-SBX-004: ${row.message(context)} ${row.hint(context)}`;
}

function dropped({ dropped: { stdout, stderr } }: RunResult): string {
  return `Not shown: ${stdout} bytes of standard output, ${stderr} bytes of standard error.`;
}

function missingLine(result: RunResult): string {
  const image = result.image?.reference ?? 'the image';
  return `hint: status 127 says that a command was not found; ${image} may not have it. --image chooses another.`;
}

function memoryOption(bytes: number): string {
  return `--memory ${Math.ceil((bytes * 2) / MIB)}`;
}

function outputOption(bytes: number): string {
  return bytes * 2 >= MIB ? `--max-output ${Math.ceil((bytes * 2) / MIB)}` : `--max-output ${Math.max(1, bytes * 2)}b`;
}
