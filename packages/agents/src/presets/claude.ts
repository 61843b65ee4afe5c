// Claude Code.

import type { AgentPreset, ProgramPackage } from '../preset.ts';

const VERSION = '2.1.326';
const PACKAGE = '@anthropic-ai/claude-code-linux';

function build(arch: 'x64' | 'arm64', libc: 'glibc' | 'musl', bytes?: number): ProgramPackage {
  const name = `${PACKAGE}-${arch}${libc === 'musl' ? '-musl' : ''}`;
  const files = [{ from: 'claude', to: 'bin/claude' }];
  return { name, version: '{version}', arch, libc, files, ...(bytes === undefined ? {} : { bytes }) };
}

/** Claude Code, one executable with everything in it. */
export const claude: AgentPreset = {
  name: 'claude',
  title: 'Claude Code',
  version: VERSION,
  program: {
    packages: [
      build('x64', 'glibc', 171_802_778),
      build('x64', 'musl', 164_044_270),
      build('arm64', 'glibc'),
      build('arm64', 'musl'),
    ],
    integrity: {
      [`${PACKAGE}-x64@${VERSION}`]:
        'sha512-RvNuaeMGfPGUyUGttVvhHgVUZ3B2L+Pgf336ImZLsPP2UQHYblewi47CPFLObqz+K6D++PLP1eAsDBLYko3w+g==',
      [`${PACKAGE}-x64-musl@${VERSION}`]:
        'sha512-Gnd/9lghe4q2CX9mzPgz8db9GngP6KHx/q1V6wepDM2CG1pQSwgrvzrs8M5Z8KmbSrun1Fgd1d6InedeZeMZ/w==',
      [`${PACKAGE}-arm64@${VERSION}`]:
        'sha512-lZCCWXarB/1IeHkotI937eEdN4BCbVdWDdmejtlkbUO9M29rHjITtXW9BWCDFlxvo0GXsFogN0SFIJWgMelKLw==',
      [`${PACKAGE}-arm64-musl@${VERSION}`]:
        'sha512-IB793mtG7aA1m4WxwQabigUD4sHDEcXu9lRltZITLQCPzBdGFlWINxdSCnk9TVWAv0Bb5eyirxyPI9WMER0wiA==',
    },
  },
  shells: ['bash', 'zsh'],
  command: ['{program}/bin/claude'],
  start: {
    terminal: ['--dangerously-skip-permissions', '{arguments}'],
    prompt: ['-p', '--dangerously-skip-permissions', '{arguments}', '--', '{prompt}'],
    resumeTerminal: ['--continue', '--dangerously-skip-permissions', '{arguments}'],
    resumePrompt: ['-p', '--continue', '--dangerously-skip-permissions', '{arguments}', '--', '{prompt}'],
  },
  environment: {
    CLAUDE_CONFIG_DIR: '{state}/claude',
    // Less is not enough: without it, Claude asks its vendor’s host whatever the base URL is.
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
    DISABLE_AUTOUPDATER: '1',
  },
  settings: [
    {
      path: '{state}/claude/settings.json',
      format: 'json',
      values: { sandbox: { enabled: false }, skipDangerousModePermissionPrompt: true },
    },
    {
      // Without these it asks the vendor’s host at the first start, and the person four questions.
      path: '{state}/claude/.claude.json',
      format: 'json',
      values: {
        hasCompletedOnboarding: true,
        theme: 'dark',
        bypassPermissionsModeAccepted: true,
        customApiKeyResponses: { approved: ['{key-end}'], rejected: [] },
        projects: { '{workspace}': { hasTrustDialogAccepted: true, hasCompletedProjectOnboarding: true } },
      },
    },
  ],
  copies: {
    home: { path: '~/.claude', variable: 'CLAUDE_CONFIG_DIR' },
    texts: [
      { from: 'CLAUDE.md', to: '{state}/claude/CLAUDE.md' },
      { from: 'skills', to: '{state}/claude/skills' },
      { from: 'agents', to: '{state}/claude/agents' },
      { from: 'commands', to: '{state}/claude/commands' },
      { from: 'output-styles', to: '{state}/claude/output-styles' },
    ],
    keys: [
      {
        from: ['settings.json'],
        to: '{state}/claude/settings.json',
        format: 'json',
        keys: [
          'model',
          'language',
          'outputStyle',
          'alwaysThinkingEnabled',
          'effortLevel',
          'includeCoAuthoredBy',
          'attribution',
        ],
      },
      {
        from: ['.claude.json', '~/.claude.json'],
        to: '{state}/claude/.claude.json',
        format: 'json',
        keys: ['theme', 'editorMode'],
        servers: { key: 'mcpServers', fields: ['type', 'command', 'args', 'url'] },
      },
    ],
  },
  network: {
    allow: ['anthropic'],
    credential: {
      name: 'anthropic',
      variables: ['ANTHROPIC_API_KEY'],
      variable: 'ANTHROPIC_API_KEY',
      baseUrlVariable: 'ANTHROPIC_BASE_URL',
    },
  },
  // Of the program itself, version 2.1.326.
  login: {
    authorize: 'https://claude.com/cai/oauth/authorize',
    token: 'https://platform.claude.com/v1/oauth/token',
    client: '9d1c250a-e61b-44d9-88ed-5944d1962f5e',
    hosts: ['platform.claude.com'],
    scopes: ['user:profile', 'user:inference'],
    redirect: 'https://platform.claude.com/oauth/code/callback',
    request: 'json',
  },
  ownSandbox: 'it cannot make a sandbox inside this one',
};
