// `acode explain`: what a command would come to, without running it.

import { posix } from 'node:path';
import { formatBytes } from '@acode/sandbox';
import type { EffectivePolicy, Explanation, Sourced } from '@acode/sandbox';
import { requestCommand, requestOf } from '../arguments/request.ts';
import type { RequestOptions } from '../arguments/request.ts';
import { quoted } from '../arguments/command-words.ts';
import type { Call, Perform } from '../call.ts';
import { setBy } from '../execution/closing-lines.ts';
import { commandIn } from '../execution/execute.ts';
import type { Look } from '../terminal/look.ts';
import { fields, table } from '../terminal/table.ts';
import { harmless, oneLine } from '../terminal/text.ts';
import { flagsOf } from './exec.ts';

/** The command. */
export function explainCommand(perform: Perform) {
  return requestCommand('explain')
    .description('Show what a command would be allowed to do and who decided; runs nothing')
    .action((words, options, command) => perform(command, call => explain(call, words, options, flagsOf(command))));
}

async function explain(
  call: Call,
  words: readonly string[],
  options: RequestOptions,
  flags: readonly string[],
): Promise<number> {
  const command = commandIn(call, words, flags);
  const request = requestOf(options, (await call.place()).inside);
  const { signal } = call.interruption;
  const explanation = await call.withHost(acode =>
    call.progress.during('Asking the engine…', acode.explain(command, { ...request, signal })),
  );
  const { verbose } = call.options;
  await call.print('acode.explain/1', explanation, look =>
    renderExplanation(explanation, request.cwd ?? '.', look, verbose),
  );
  return 0;
}

/** An explanation for a person, of a command run in `cwd`; with `verbose`, also the request the engine would get. */
export function renderExplanation(explanation: Explanation, cwd: string, look: Look, verbose: boolean): string {
  const { command, level, policy, spec, notes } = explanation;
  const { bold } = look.colours;
  const line = typeof command === 'string' ? command : command.map(quoted).join(' ');
  const sections = [
    `${bold('Command')}  ${oneLine(line)}\n`,
    table(['POLICY', 'VALUE', 'SET BY', 'WHERE'], policyRows(policy), look),
    fields(
      [
        ['Level', level],
        ['Image', `${spec.image.reference} (${spec.image.id})`],
        ['User', `${spec.user.uid}:${spec.user.gid}`],
        ['Directory', posix.join(spec.workdir, cwd)],
        ...spec.mounts.map(
          ({ source, target, readOnly }) =>
            ['Mount', `${source} → ${target} (${readOnly ? 'read-only' : 'writable'})`] as const,
        ),
        ...spec.tmpfs.map(({ target, bytes }) => ['In memory', `${target} (${formatBytes(bytes)})`] as const),
        ['Plan', spec.hash],
      ],
      look,
    ),
    ...(verbose
      ? [`${bold('Engine request')}\n${harmless(JSON.stringify(explanation.engineRequest, null, 2))}\n`]
      : []),
    `${bold('Notes')}\n${notes.map(note => `  - ${oneLine(note)}\n`).join('')}`,
  ];
  return sections.join('\n');
}

function policyRows(policy: EffectivePolicy): string[][] {
  const { limits } = policy;
  return [
    row('profile', policy.profile, String),
    row('level', policy.level, String),
    row('image', policy.image, String),
    row('pull', policy.pull, String),
    row('memory', limits.memoryBytes, formatBytes),
    row('swap', limits.swapBytes, formatBytes),
    row('cpus', limits.cpus, String),
    row('processes', limits.pids, String),
    row('open files', limits.openFiles, String),
    row('temporary files', limits.tmpBytes, formatBytes),
    row('output', limits.outputBytes, formatBytes),
    row('time', policy.timeoutMs, ms => `${ms / 1000} s`),
    row('network', policy.network, String),
    row('workspace', policy.workspace, String),
    row('user', policy.user, ({ uid, gid }) => `${uid}:${gid}`),
  ];
}

function row<Value>(name: string, sourced: Sourced<Value>, shown: (value: Value) => string): string[] {
  return [
    name,
    shown(sourced.value),
    sourced.layer === 'request' ? 'this call' : sourced.layer,
    sourced.layer === 'built-in' ? '' : setBy(sourced),
  ];
}
