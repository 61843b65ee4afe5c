// Errors of swarms, each with a message and what to type next.

import { AcodeError, defineErrors, errorEntry } from '@acode/sandbox';

/** How a message of the swarm protocol is wrong. */
export type ProtocolFault =
  'malformed' | 'oversized' | 'encoding' | 'version' | 'direction' | 'schema' | 'identity' | 'order' | 'flood' | 'cut';

/** Every error of swarms, by code. */
export const SWARM_ERRORS = defineErrors({
  'ACODE-SWM-001': errorEntry<{ problems: readonly { readonly what: string; readonly remedy: string }[] }>({
    title: 'a swarm cannot begin',
    message: c => `The swarm was not started: ${c.problems.map(({ what }) => what.replace(/\.$/, '')).join('; ')}.`,
    hint: c => c.problems.map(({ remedy }) => remedy).join(' '),
    exit: 125,
    example: {
      problems: [{ what: 'the image acme/app:1 has no git', remedy: 'Name an image with git and Node.js: --image.' }],
    },
  }),
  'ACODE-SWM-002': errorEntry<{ name: string; reason: string }>({
    title: 'invalid name',
    message: c => `${JSON.stringify(c.name)} is not a name of a swarm or task: ${c.reason}.`,
    hint: () => 'Names begin with a letter or digit and consist of letters, digits, - and _: at most 40.',
    exit: 2,
    example: { name: '../x', reason: 'it has a character that is not allowed' },
  }),
  'ACODE-SWM-003': errorEntry<{ file: string; reason: string; at?: string }>({
    title: 'invalid task file',
    message: c => `${c.file}${c.at === undefined ? '' : ` (${c.at})`}: ${c.reason}.`,
    hint: () =>
      'Correct the file; docs/swarm.md describes it. `acode swarm run --dry-run` checks all of them and runs nothing.',
    exit: 125,
    example: { file: '.agent/tasks/login.json', at: 'stories[0].id', reason: 'a story id is US- and three digits' },
  }),
  'ACODE-SWM-004': errorEntry<{ what: 'branch' | 'variable' | 'policy'; value: string; reason: string; task?: string }>(
    {
      title: 'branch, variable or policy refused',
      message: c =>
        `${c.task === undefined ? '' : `Task ${c.task}: `}the ${c.what} ${JSON.stringify(c.value)} is refused: ${c.reason}.`,
      hint: c =>
        c.what === 'policy'
          ? 'A task file can only tighten what the command line and your configuration allow. Allow it there, if you want it.'
          : 'Choose another one.',
      exit: 125,
      example: { what: 'branch', value: 'main', reason: 'the repository has a branch of this name', task: 'login' },
    },
  ),
  'ACODE-SWM-005': errorEntry<{ file: string; reason: string }>({
    title: 'state of a swarm cannot be used',
    message: c => `${c.file} ${c.reason}. acode did not act upon it.`,
    hint: () =>
      '`acode swarm repair` writes it again from the record in your state directory; `acode swarm list` shows what that has.',
    exit: 125,
    example: { file: '.agent/swarm-state.json', reason: 'was not written by you on this machine' },
  }),
  'ACODE-SWM-006': errorEntry<{ task: string; fault: ProtocolFault; detail: string }>({
    title: 'swarm protocol violated',
    message: c => `The adapter of task ${c.task} violated the swarm protocol (${c.fault}): ${c.detail}.`,
    hint: c =>
      `Its sandbox was ended. \`acode swarm logs ${c.task}\` has its output; \`acode swarm retry ${c.task}\` tries again.`,
    exit: 125,
    example: { task: 'login', fault: 'order', detail: 'a progress-update after the completion' },
  }),
  'ACODE-SWM-007': errorEntry<{ what: 'swarm' | 'task'; name: string; known: readonly string[] }>({
    title: 'no such swarm or task',
    message: c =>
      `There is no ${c.what} ${JSON.stringify(c.name)}${c.known.length === 0 ? '' : `: ${c.known.join(', ')}`}.`,
    hint: () => '`acode swarm list` shows the swarms of this workspace, `acode swarm status` the tasks of the latest.',
    exit: 125,
    example: { what: 'task', name: 'logn', known: ['login', 'logout'] },
  }),
  'ACODE-SWM-008': errorEntry<{ what: string; reason: string; remedy: string }>({
    title: 'not possible now',
    message: c => `${c.what} is not possible: ${c.reason}.`,
    hint: c => c.remedy,
    exit: 125,
    example: {
      what: 'acode swarm run',
      reason: 'swarm 1f0c2d3e of this workspace is running',
      remedy: '`acode swarm status` shows it, `acode swarm stop` ends it.',
    },
  }),
  'ACODE-SWM-009': errorEntry<{ swarm: string; reason: string }>({
    title: 'orchestrator not reached',
    message: c => `The orchestrator of swarm ${c.swarm} does not answer: ${c.reason}.`,
    hint: c => `\`acode swarm resume ${c.swarm}\` continues the swarm; nothing that was committed is lost.`,
    exit: 125,
    example: { swarm: '1f0c2d3e', reason: 'no process listens' },
  }),
  'ACODE-SWM-010': errorEntry<{ needed: string; available: string; slots: number }>({
    title: 'machine too small for the swarm',
    message: c => `${c.slots} tasks at once need ${c.needed}; this machine has ${c.available}.`,
    hint: () =>
      'Choose fewer at once (--parallel), or less for each (--memory, --cpus). Without --strict-sizing this is a warning.',
    exit: 125,
    example: { needed: '16 GiB of memory and 8 CPUs', available: '8 GiB and 4 CPUs', slots: 4 },
  }),
  'ACODE-SWM-011': errorEntry<{ file: string; reason: string }>({
    title: 'settings of swarms cannot be used',
    message: c => `${c.file} ${c.reason}.`,
    hint: () => 'Correct it; docs/swarm.md describes it. It has to be a file that only you can write.',
    exit: 125,
    example: { file: '/home/me/.config/acode/swarm.yml', reason: 'has a notify.command of the workspace' },
  }),
});

/** Makes an error of swarms. */
export const swarmError = SWARM_ERRORS.create;

/** Whether something that was thrown is an error of acode. */
export function isAcodeError(error: unknown): error is AcodeError {
  return error instanceof AcodeError;
}
