// Explanation of a command: its policy, plan and notes. Loaded by `acode explain` only.

import { posix } from 'node:path';
import { formatBytes, isAtLeast } from '@acode/sandbox';
import type { CacheSpec, DependencySpec, Explanation, MaskedPath, MountSpec } from '@acode/sandbox';
import { quoted } from '../arguments/command-arguments.ts';
import { requestOf } from '../arguments/request.ts';
import type { RequestOptions } from '../arguments/request.ts';
import type { Call } from '../call.ts';
import { denialLine } from '../execution/closing-lines.ts';
import { commandIn } from '../execution/execute.ts';
import { terminalVariables } from '../execution/terminal-variables.ts';
import type { Look } from '../terminal/look.ts';
import { fields } from '../terminal/table.ts';
import { harmless, oneLine } from '../terminal/text.ts';
import { fitted, wrapped } from '../terminal/wrap.ts';
import { policyTable } from './policy-table.ts';

// The system call filter is thousands of lines, too many for a terminal.
const MAX_TEXT = 200;
const SHOWN_TEXT = 60;

/** Explains the command of a call, and returns the exit status. */
export async function explain(
  call: Call,
  argv: readonly string[],
  options: RequestOptions,
  flags: readonly string[],
): Promise<number> {
  const command = commandIn(call, argv, flags);
  const request = await requestOf(options, await call.place(), call.io.env);
  const { signal } = call.interruption;
  const explained = await call.withHost(acode =>
    call.progress.during(
      'Asking the engine…',
      acode.explain(command, { ...request, envDefaults: terminalVariables(call), signal }),
    ),
  );
  const explanation = { ...explained, warmReason: await warmReasonOf(call, explained) };
  const { verbose } = call.options;
  await call.print('acode.explain/1', explanation, look =>
    renderExplanation(explanation, request.cwd ?? '.', look, verbose),
  );
  return 0;
}

// One process of the command line never has any waiting, and a server of the workspace may.
async function warmReasonOf(call: Call, { warmReason, warmCause }: Explanation): Promise<string> {
  if (warmCause !== 'no pool') return warmReason;
  return (await call.isServed())
    ? 'none in this process; `acode serve` runs for this workspace, and a command takes a pre-started one there'
    : 'none in this process; if `acode serve` runs for this workspace, commands use its warm sandboxes (`acode serve status`)';
}

/** An explanation for a person, of a command run in `cwd`; with `verbose`, also the request the engine would get. */
export function renderExplanation(explanation: Explanation, cwd: string, look: Look, verbose: boolean): string {
  const { command, policy, notes } = explanation;
  const { bold, dim } = look.colours;
  const line = typeof command === 'string' ? command : command.map(quoted).join(' ');
  const sections = [
    `${bold('Command')}  ${oneLine(line)}\n`,
    policyTable(policy, look, explanation.rules),
    fields([...planFields(explanation, cwd), ['Warm', warmText(explanation)]], look),
    ...environmentSection(explanation, look),
    ...(policy.denials.length > 0
      ? [
          `${bold('Denied')}\n${bullets(
            policy.denials.map(denial => denialLine(denial)),
            look,
          )}`,
        ]
      : []),
    ...(notes.length > 0 ? [`${bold('Notes')}\n${bullets(notes, look)}`] : []),
    verbose
      ? `${bold('Engine request')}\n${harmless(requestText(explanation.engineRequest))}\n`
      : fitted(`${dim('--verbose shows the request to the engine; --json has all of it.')}\n`, look),
  ];
  return sections.join('\n');
}

function warmText({ warm, warmReason }: Explanation): string {
  return `${warm ? 'yes' : 'no'}: ${warmReason}`;
}

function planFields({ level, spec, masked }: Explanation, cwd: string): (readonly [label: string, value: string])[] {
  return [
    ['Level', level],
    ...(isAtLeast(spec.level, 'docker')
      ? [['Image', `${spec.image.reference} (${spec.image.id || 'not on this engine yet'})`] as const]
      : []),
    ['User', `${spec.user.uid}:${spec.user.gid}`],
    ['Directory', posix.join(spec.workdir, cwd)],
    ...spec.mounts.filter(({ purpose }) => purpose !== 'masked').map(mountField),
    ...masked.map(maskField),
    ...spec.caches.map(cacheField),
    ...(spec.dependencies ?? []).map(dependencyField),
    ...spec.tmpfs.map(({ target, bytes }) => ['In memory', `${target} (${formatBytes(bytes)})`] as const),
    ['Plan', spec.hash],
  ];
}

// On a terminal there are also TERM and its like, which need no explanation.
function environmentSection({ environment, spec }: Explanation, look: Look): string[] {
  const names = Object.keys(environment);
  if (names.length === 0) return [];
  const why = [
    ...(names.includes('ACODE_TASK_ID')
      ? ['ACODE_SANDBOX and ACODE_TASK_ID tell a program that it is in a sandbox, and for which task.']
      : []),
    ...(names.some(name => /offline/i.test(name)) ? ['There is no network, so package managers work offline.'] : []),
    ...(spec.mounts.some(({ purpose }) => purpose === 'ca') ? ['Clients find your CA bundle by these variables.'] : []),
    '--env overrides a variable.',
  ];
  const set = Object.entries(environment).map(([name, value]) => `${name}=${value}`);
  return [`${look.colours.bold('Environment')}\n${bullets([set.join(' '), why.join(' ')], look)}`];
}

function mountField({ purpose, source, target, readOnly }: MountSpec): readonly [label: string, value: string] {
  // The other purposes say by themselves why something is mounted.
  const why = purpose === 'identity' ? 'the image’s own file plus an entry for your user' : purpose;
  return ['Mount', `${source} → ${target} (${why}, ${readOnly ? 'read-only' : 'writable'})`];
}

function maskField({ path, kind, rule }: MaskedPath): readonly [label: string, value: string] {
  return ['Masked', `${path}${kind === 'directory' ? '/' : ''} (${rule}; empty inside, read-only)`];
}

function cacheField({ volume, target, fill }: CacheSpec): readonly [label: string, value: string] {
  return ['Cache', `${volume} → ${target} (${fill ? 'to be filled' : 'a layer of its own over it'})`];
}

function dependencyField({ source, target }: DependencySpec): readonly [label: string, value: string] {
  return ['Dependencies', `${source} of the image → ${target} (a layer of its own over it)`];
}

function bullets(items: readonly string[], look: Look): string {
  const room = look.width === null ? null : look.width - 4;
  return items.map(item => `  - ${wrapped(oneLine(item), room).join('\n    ')}\n`).join('');
}

function requestText(request: unknown): string {
  const abbreviated = (_key: string, value: unknown): unknown =>
    typeof value === 'string' && value.length > MAX_TEXT
      ? `${value.slice(0, SHOWN_TEXT)}… (${value.length} characters; whole in --json)`
      : value;
  return JSON.stringify(request, abbreviated, 2);
}
