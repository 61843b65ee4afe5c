// opencode.

import type { AgentPreset } from '../preset.ts';

const VERSION = '1.18.33';

/** opencode, with the models of Anthropic unless the user’s file says otherwise. */
export const opencode: AgentPreset = {
  name: 'opencode',
  title: 'opencode',
  version: VERSION,
  program: {
    packages: [
      {
        name: 'opencode-linux-x64-baseline',
        version: '{version}',
        arch: 'x64',
        libc: 'glibc',
        bytes: 60_275_131,
        files: [{ from: 'bin/opencode', to: 'bin/opencode' }],
      },
    ],
    integrity: {
      [`opencode-linux-x64-baseline@${VERSION}`]:
        'sha512-1KQGBiiDDeL/VHHbHkOvvFo8Jr97WT5+C1tear+p7IcDTnXgVHXqIjU4O4jM4mHQzykTP2i884FCnW5LDa+zCA==',
    },
  },
  command: ['{program}/bin/opencode'],
  start: {
    terminal: ['{arguments}'],
    prompt: ['run', '{arguments}', '--', '{prompt}'],
    resumeTerminal: ['--continue', '{arguments}'],
    resumePrompt: ['run', '--continue', '{arguments}', '--', '{prompt}'],
  },
  environment: {
    XDG_DATA_HOME: '{state}/opencode/data',
    XDG_CONFIG_HOME: '{state}/opencode/config',
    XDG_STATE_HOME: '{state}/opencode/state',
    OPENCODE_DISABLE_MODELS_FETCH: '1',
    OPENCODE_DISABLE_AUTOUPDATE: '1',
    OPENCODE_DISABLE_LSP_DOWNLOAD: '1',
  },
  settings: [
    {
      path: '{state}/opencode/config/opencode/opencode.json',
      format: 'json',
      values: {
        $schema: 'https://opencode.ai/config.json',
        autoupdate: false,
        share: 'disabled',
        permission: { edit: 'allow', bash: 'allow', webfetch: 'allow', external_directory: 'allow' },
        provider: { anthropic: { options: { baseURL: '{base-url}/v1', apiKey: '{env:ANTHROPIC_API_KEY}' } } },
      },
    },
  ],
  copies: {
    home: { path: '~/.config/opencode' },
    texts: [
      { from: 'AGENTS.md', to: '{state}/opencode/config/opencode/AGENTS.md' },
      { from: 'agent', to: '{state}/opencode/config/opencode/agent' },
      { from: 'command', to: '{state}/opencode/config/opencode/command' },
    ],
    keys: [
      {
        from: ['opencode.json', 'config.json'],
        to: '{state}/opencode/config/opencode/opencode.json',
        format: 'json',
        keys: ['model', 'small_model', 'theme'],
        servers: { key: 'mcp', fields: ['type', 'command', 'url', 'enabled'] },
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
  limits: { memoryBytes: 3 * 1024 ** 3 },
};
