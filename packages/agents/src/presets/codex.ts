// Codex CLI.

import type { AgentPreset } from '../preset.ts';

const VERSION = '0.169.0';
const OPTIONS = ['--dangerously-bypass-approvals-and-sandbox'];

/** Codex, a static executable that runs on every image. */
export const codex: AgentPreset = {
  name: 'codex',
  title: 'Codex',
  version: VERSION,
  program: {
    // Its voice parts are left out.
    packages: [
      {
        name: '@openai/codex',
        version: '{version}-linux-x64',
        arch: 'x64',
        bytes: 167_001_509,
        files: [
          { from: 'vendor/x86_64-unknown-linux-musl/bin', to: 'bin' },
          { from: 'vendor/x86_64-unknown-linux-musl/codex-path', to: 'codex-path' },
          { from: 'vendor/x86_64-unknown-linux-musl/codex-package.json', to: 'codex-package.json' },
        ],
      },
      {
        name: '@openai/codex',
        version: '{version}-linux-arm64',
        arch: 'arm64',
        files: [
          { from: 'vendor/aarch64-unknown-linux-musl/bin', to: 'bin' },
          { from: 'vendor/aarch64-unknown-linux-musl/codex-path', to: 'codex-path' },
          { from: 'vendor/aarch64-unknown-linux-musl/codex-package.json', to: 'codex-package.json' },
        ],
      },
    ],
    integrity: {
      [`@openai/codex@${VERSION}-linux-x64`]:
        'sha512-o05NyAOCDygSPRo1yinzxvkRSdmsZyBD9E7mbpmjRanSfM8lypqWtQgEo4XfNkwhuCR2aFu8mlGOsQGFXVbVww==',
      [`@openai/codex@${VERSION}-linux-arm64`]:
        'sha512-NZ/DaQUpcQmxmqee7Z9uC1rzw3GhSbooawcaTe1LN5Yk+WlinUKGdTXJgClRT/9ogQEEM9TWxYzvxPfj5G/xFg==',
    },
    path: ['codex-path'],
  },
  command: ['{program}/bin/codex'],
  start: {
    // A daemon would copy the program into the home directory and outlive the terminal.
    terminal: ['--no-daemon', ...OPTIONS, '{arguments}'],
    prompt: ['exec', ...OPTIONS, '--skip-git-repo-check', '{arguments}', '--', '{prompt}'],
    resumeTerminal: ['resume', '--last', '--no-daemon', ...OPTIONS, '{arguments}'],
    resumePrompt: ['exec', 'resume', '--last', ...OPTIONS, '--skip-git-repo-check', '{arguments}', '--', '{prompt}'],
  },
  environment: { CODEX_HOME: '{state}/codex' },
  settings: [
    {
      path: '{state}/codex/config.toml',
      format: 'toml',
      values: {
        // It ignores OPENAI_BASE_URL, so it has a provider of acode’s.
        model_provider: 'acode',
        approval_policy: 'never',
        sandbox_mode: 'danger-full-access',
        check_for_update_on_startup: false,
        analytics: { enabled: false },
        features: { plugins: false },
        projects: { '{workspace}': { trust_level: 'trusted' } },
        model_providers: {
          acode: { name: 'OpenAI', base_url: '{base-url}/v1', env_key: 'OPENAI_API_KEY', wire_api: 'responses' },
        },
      },
    },
  ],
  copies: {
    home: { path: '~/.codex', variable: 'CODEX_HOME' },
    texts: [
      { from: 'AGENTS.md', to: '{state}/codex/AGENTS.md' },
      { from: 'prompts', to: '{state}/codex/prompts' },
      { from: 'skills', to: '{state}/codex/skills' },
    ],
    keys: [
      {
        from: ['config.toml'],
        to: '{state}/codex/config.toml',
        format: 'toml',
        keys: ['model', 'model_reasoning_effort', 'model_reasoning_summary', 'model_verbosity', 'personality'],
        servers: { key: 'mcp_servers', fields: ['command', 'args', 'url'] },
      },
    ],
  },
  network: {
    allow: ['openai'],
    credential: {
      name: 'openai',
      variables: ['OPENAI_API_KEY', 'CODEX_API_KEY'],
      variable: 'OPENAI_API_KEY',
      baseUrlVariable: 'OPENAI_BASE_URL',
    },
  },
  // Of the program itself, version 0.169.0.
  login: {
    authorize: 'https://auth.openai.com/oauth/authorize',
    token: 'https://auth.openai.com/oauth/token',
    client: 'app_EMoamEEZ73f0CkXaXp7hrann',
    hosts: ['auth.openai.com'],
    scopes: ['openid', 'profile', 'email', 'offline_access'],
    redirect: 'http://localhost:1455/auth/callback',
  },
  ownSandbox: 'it cannot make a sandbox inside this one',
};
