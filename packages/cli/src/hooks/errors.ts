// Errors of `acode hook`, each with a message and what to type next.

import { defineErrors, errorEntry } from '@acode/sandbox';

/** Every error of `acode hook`, by code. */
export const HOOK_ERRORS = defineErrors({
  'ACODE-HOK-001': errorEntry<{ agent: string; reason: string }>({
    title: 'the agent’s program is missing',
    message: c => `${c.agent} cannot be started: ${c.reason}.`,
    hint: c =>
      `Install ${c.agent}, or name its program: acode hook exec ${c.agent} --program <file>. \`acode agent ${c.agent}\` needs none: it downloads one.`,
    exit: 127,
    example: { agent: 'claude', reason: 'no directory of PATH has a program of that name' },
  }),
  'ACODE-HOK-002': errorEntry<{ agent: string; file: string; keys: readonly string[] }>({
    title: 'settings of the repository run programs, or undo the hook',
    message: c => `${c.file} sets ${c.keys.join(', ')}, with which a repository runs programs outside of a sandbox.`,
    hint: c =>
      `Read the file, and remove these settings; or accept them: acode hook exec ${c.agent} --project-settings. Against a hostile repository use acode agent ${c.agent}.`,
    exit: 125,
    example: { agent: 'claude', file: '/home/me/project/.claude/settings.json', keys: ['env', 'hooks'] },
  }),
  'ACODE-HOK-003': errorEntry<{ agent: string; option: string }>({
    title: 'an option of the agent would undo the hook',
    message: c => `${c.option} is set by acode, and another one would undo the hook.`,
    hint: c => `Put what you need into your own settings of ${c.agent}, and leave ${c.option} out.`,
    exit: 2,
    example: { agent: 'claude', option: '--settings' },
  }),
  'ACODE-HOK-004': errorEntry<{ agent: string; file: string; reason: string }>({
    title: 'a settings file cannot be read or changed',
    message: c => `${c.file} ${c.reason}. Nothing was changed.`,
    hint: c => `Correct the file, and try again. \`acode hook status ${c.agent}\` shows what is installed.`,
    exit: 125,
    example: { agent: 'gemini', file: '/home/me/.gemini/settings.json', reason: 'is not plain JSON' },
  }),
  'ACODE-HOK-005': errorEntry<{ agent: string; reason: string }>({
    title: 'the hook is not in force',
    message: c => `${c.agent} was not started, because its commands would run on this machine: ${c.reason}.`,
    hint: c =>
      c.agent === 'codex'
        ? 'Run acode hook install codex, then start codex, type /hooks and trust the hook of acode. Better: acode agent codex, which needs no hook.'
        : `Run acode hook install ${c.agent}.`,
    exit: 125,
    example: { agent: 'codex', reason: 'you have not trusted the hook yet' },
  }),
});

/** Makes an error of `acode hook`. */
export const hookError = HOOK_ERRORS.create;
