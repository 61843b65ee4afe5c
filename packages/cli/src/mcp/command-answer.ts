// Command result for a model: exit status, denials, risky changes, what to try next, and the output cut to fit.

import type { Command, RunResult } from '@acode/sandbox';
import { notFoundCause } from '../execution/closing-lines.ts';
import { findMissingDependencies, installLine } from '../execution/missing-dependencies.ts';
import { lacksNames, unreachedHosts } from '../execution/unresolved-names.ts';
import { oneLine } from '../terminal/text.ts';
import { excerptOf, sharesOf } from './excerpt.ts';
import { denialText, toldDenials } from './failure.ts';
import { INSIDE } from './paths.ts';
import { riskTexts, toldRisks } from './risks.ts';
import type { Session } from './session.ts';
import type { Answer } from './tool.ts';

/** Characters of output that go into a model’s context. */
export const MAX_SHOWN = 30_000;

/** A command that has ended, and what was asked for. */
export interface EndedCommand {
  readonly command: Command;
  readonly cwd: string | undefined;
  readonly result: RunResult;
  readonly notes: readonly string[];
  /** How a model gets another image. */
  readonly anotherImage: string;
}

/** The answer about a command that has ended. */
export async function commandAnswer(session: Session, ended: EndedCommand): Promise<Answer> {
  const { result } = ended;
  const shares = sharesOf(result.stdout.length, result.stderr.length, MAX_SHOWN);
  const [stdout, stderr] = [excerptOf(result.stdout, shares[0]), excerptOf(result.stderr, shares[1])];
  const outputs = [
    ...(stdout.omitted > 0 ? [session.outputs.keep(result.stdout)] : []),
    ...(stderr.omitted > 0 ? [session.outputs.keep(result.stderr)] : []),
  ];
  const notes = [...ended.notes, ...(await hints(session, ended))];
  const denials = toldDenials(result.denials);
  const risks = toldRisks(result.riskyChanges);
  const structured = {
    exitCode: result.exitCode,
    durationMs: Math.round(result.durationMs),
    timedOut: result.timedOut || undefined,
    outOfMemory: result.oomKilled || undefined,
    denials,
    ...risks,
    notes,
    // Characters left out here, and bytes lost beyond the output limit of the policy.
    omitted: counts(stdout.omitted, stderr.omitted),
    outputs,
    dropped: counts(result.dropped.stdout, result.dropped.stderr),
    stdout: stdout.text,
    stderr: stderr.text,
  };
  // What the command printed stands last: nothing of acode’s follows it that a command could have written itself.
  const text = [
    endText(result),
    ...denials.map(denialText),
    ...riskTexts(risks),
    ...notes,
    ...(outputs.length === 0 ? [] : [`The whole output: ${outputs.join(', ')} (read_output reads it).`]),
    ...(stdout.text === '' ? [] : [`stdout:\n${stdout.text}`]),
    ...(stderr.text === '' ? [] : [`stderr:\n${stderr.text}`]),
  ].join('\n');
  return { text, structured, outputs };
}

function counts(stdout: number, stderr: number): object {
  return { stdout: stdout || undefined, stderr: stderr || undefined };
}

function endText({ exitCode, timedOut, oomKilled, durationMs }: RunResult): string {
  const after = `after ${Math.round(durationMs) / 1000} s`;
  if (timedOut)
    return `Stopped by the time limit ${after}. Make it do less, or run it in the background with run_in_sandbox.`;
  if (oomKilled) return `Ran out of memory ${after}. Make it use less, such as fewer processes at once.`;
  return exitCode === null ? `Stopped ${after}.` : `Exit code ${exitCode} ${after}.`;
}

// What the command line says of the same ends, for a reader who has no command line.
async function hints(session: Session, ended: EndedCommand): Promise<string[]> {
  const { command, result } = ended;
  const { workspace } = session;
  const named = result.exitCode !== 0 && workspace.isNamedIn(command);
  const fork = await session.host.forkNote?.(result);
  return [
    ...(fork ? [fork] : []),
    ...(named ? [`${workspace.shown} is ${INSIDE} in the sandbox: use that, or relative paths, in commands.`] : []),
    ...(lacksNames(result)
      ? [
          'The sandbox has a network, but a name was not resolved. Check the name. If it is right, ask the user to set sandbox.network.dns_servers.',
        ]
      : []),
    ...toldHosts(result),
    ...(await notFoundHints(session, ended)),
  ];
}

function toldHosts(result: RunResult): string[] {
  const unreached = unreachedHosts(result);
  return unreached === null ? [] : [`The user can change this: ${unreached}`];
}

async function notFoundHints(
  { workspace }: Session,
  { command, cwd, result, anotherImage }: EndedCommand,
): Promise<string[]> {
  const cause = notFoundCause(result);
  if (cause === null) return [];
  const found = await findMissingDependencies(
    { root: workspace.root, here: workspace.onHost(cwd ?? '.') },
    { ...result, command },
  );
  if (found)
    return [
      `Status 127 means that a command was not found; ${found.what}. Where status says that there is no network, ask the user to run \`${installLine(found)}\`.`,
    ];
  return [
    `Status 127 means that a command was not found; ${oneLine(cause.image)} may not have it. ${anotherImage} Nothing can be installed with apt or sudo: there is no root in a sandbox.`,
  ];
}
