// How each agent is pointed at a model on the loopback, and started for one prompt without a person.

import type { Hooked } from './agents.ts';
import type { Fields } from './json-file.ts';

/** What points an agent at a model. */
export interface Pointing {
  readonly argv: readonly string[];
  readonly variables: Readonly<Record<string, string>>;
  /** Fields for the user’s settings of the agent. */
  readonly settings: Fields;
}

const PROMPT = 'Do what has to be done.';

/** What points each agent at the model at an address. */
export const POINTING: Readonly<Record<Hooked, (model: string) => Pointing>> = {
  claude: model => ({
    argv: ['-p', PROMPT, '--dangerously-skip-permissions'],
    variables: { ANTHROPIC_BASE_URL: model, ANTHROPIC_API_KEY: 'x', CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1' },
    settings: {},
  }),
  codex(model) {
    const provider = `{name="scripted",base_url="${model}/v1",env_key="SCRIPTED_KEY",wire_api="responses"}`;
    const settings = [
      'model="gpt-5.5"',
      'model_provider="scripted"',
      'check_for_update_on_startup=false',
      'analytics.enabled=false',
      'features.plugins=false',
      `model_providers.scripted=${provider}`,
    ];
    const options = settings.flatMap(setting => ['-c', setting]);
    return {
      argv: ['exec', '--dangerously-bypass-approvals-and-sandbox', '--skip-git-repo-check', ...options, PROMPT],
      variables: { SCRIPTED_KEY: 'x' },
      settings: {},
    };
  },
  gemini: model => ({
    argv: ['-m', 'gemini-2.5-flash', '-p', PROMPT, '--yolo'],
    variables: { GEMINI_CLI_TRUST_WORKSPACE: 'true', GOOGLE_GEMINI_BASE_URL: model, GEMINI_API_KEY: 'x' },
    settings: {
      security: { auth: { selectedType: 'gemini-api-key' }, folderTrust: { enabled: false } },
      general: { enableAutoUpdate: false },
      privacy: { usageStatisticsEnabled: false },
    },
  }),
  opencode: model => ({
    argv: ['run', PROMPT],
    variables: { OPENCODE_DISABLE_MODELS_FETCH: '1', OPENCODE_DISABLE_AUTOUPDATE: '1' },
    settings: {
      model: 'scripted/scripted',
      small_model: 'scripted/scripted',
      autoupdate: false,
      share: 'disabled',
      provider: {
        scripted: {
          npm: '@ai-sdk/openai-compatible',
          options: { baseURL: `${model}/v1`, apiKey: 'x' },
          models: { scripted: {} },
        },
      },
    },
  }),
};
