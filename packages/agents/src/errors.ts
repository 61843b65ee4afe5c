// Errors of presets and programs of coding agents, each with a message and what to type next.

import { defineErrors, errorEntry } from '@acode/sandbox';

/** Every error of this package, by code. */
export const AGENT_ERRORS = defineErrors({
  'ACODE-AGT-001': errorEntry<{ agent: string; known: readonly string[]; meant?: string }>({
    title: 'there is no such agent',
    message: c => `There is no agent ${c.agent}.`,
    hint: c =>
      c.meant === undefined
        ? `Agents: ${c.known.join(', ')}. Your own file can add one: docs/agents.md.`
        : `Did you mean ${c.meant}? \`acode agent list\` shows all.`,
    exit: 2,
    example: { agent: 'cluade', known: ['claude', 'codex', 'gemini', 'opencode'], meant: 'claude' },
  }),
  'ACODE-AGT-002': errorEntry<{ agent: string; platform: string; image?: string; others: readonly string[] }>({
    title: 'there is no build of the agent for this image',
    message: c =>
      `${c.agent} has no build for ${c.platform}${c.image === undefined ? '' : `, which is what the image ${c.image} needs`}.`,
    hint: c =>
      c.others.length === 0
        ? 'Use another agent: `acode agent list` shows which there are.'
        : `Name an image for ${c.others.join(' or ')} with --image, such as node:20-bookworm in place of node:20-alpine.`,
    exit: 125,
    example: {
      agent: 'gemini',
      platform: 'linux x64 with musl',
      image: 'node:20-alpine',
      others: ['linux x64 with glibc'],
    },
  }),
  'ACODE-AGT-003': errorEntry<{ agent: string; package: string; reason: string }>({
    title: 'the program of the agent could not be fetched',
    message: c => `${c.package}, the program of ${c.agent}, could not be fetched: ${c.reason}.`,
    hint: () =>
      'acode asks the registry that your npm is configured for: try `npm ping`. Once fetched, the program is used without a network.',
    exit: 125,
    example: {
      agent: 'claude',
      package: '@anthropic-ai/claude-code-linux-x64@2.1.326',
      reason: 'npm is not installed',
    },
  }),
  'ACODE-AGT-004': errorEntry<{ agent: string; package: string; expected: string; found: string }>({
    title: 'the program of the agent is not the one that was pinned',
    message: c => `${c.package}, the program of ${c.agent}, is not what this preset pins. Nothing of it was kept.`,
    hint: c =>
      `Pinned is ${c.expected.slice(0, 23)}…, the registry sent ${c.found.slice(0, 23)}…. Find out what your registry serves. To pin another version: acode agent update ${c.agent}.`,
    exit: 125,
    example: {
      agent: 'claude',
      package: '@anthropic-ai/claude-code-linux-x64@2.1.326',
      expected: 'sha512-RvNuaeMGfPGUyUGttVvhHg',
      found: 'sha512-AAAuaeMGfPGUyUGttVvhHg',
    },
  }),
  'ACODE-AGT-005': errorEntry<{ agent: string; credential: string; variables: readonly string[] }>({
    title: 'there is no key for the model of the agent',
    message: c => `acode has no key for the model of ${c.agent}.`,
    hint: c => {
      const [variable = 'TOKEN'] = c.variables;
      return `Put it into ${variable}; or name where acode reads it: \`acode config set sandbox.network.credentials.${c.credential} "{ from: { file: $HOME/.keys/${c.credential} } }"\`. The sandbox never has it.`;
    },
    exit: 125,
    example: { agent: 'claude', credential: 'anthropic', variables: ['ANTHROPIC_API_KEY'] },
  }),
  'ACODE-AGT-006': errorEntry<{ file: string; reason: string }>({
    title: 'your file of agents is not valid',
    message: c => `${c.file} ${c.reason}.`,
    hint: () => 'docs/agents.md shows what it may say. `acode agent list` reads it again.',
    exit: 125,
    example: { file: '/home/me/.config/acode/agents.yml', reason: 'agents.claude: there is no key "comand"' },
  }),
  'ACODE-AGT-007': errorEntry<{ agent: string; what: string }>({
    title: 'the agent cannot do this',
    message: c => `${c.agent} has no way to ${c.what}.`,
    hint: c => `\`acode agent show ${c.agent}\` shows what it has.`,
    exit: 2,
    example: { agent: 'aider', what: 'go on with an earlier session' },
  }),
  'ACODE-AGT-008': errorEntry<{ agent: string; image: string; shells: readonly string[] }>({
    title: 'the image has no shell that the agent can use',
    message: c => `${c.agent} runs its commands with ${c.shells.join(' or ')}, and the image ${c.image} has none.`,
    hint: () =>
      'Name an image that has it with --image, such as node:20-bookworm in place of node:20-alpine; or add it to yours: `apk add bash`.',
    exit: 125,
    example: { agent: 'claude', image: 'node:20-alpine', shells: ['bash', 'zsh'] },
  }),
});

/** Makes an error of this package. */
export const agentError = AGENT_ERRORS.create;
