// The screens of real coding agents in `acode run -t`, in a real terminal (tmux): drawn, pasted into, resized. Each is an SVG
// with its colours. No model answers: what is shown is the terminal.
// Usage, as an ordinary user: node scripts/agent-captures.mjs --programs DIR [--out DIR] [--socket PATH] [--image REFERENCE] > docs/results/agent-screens.md
// tests/agents/install.mjs makes the directory of the programs.

import { execFileSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { Home, commitHere } from './at-terminal.mjs';
import { screenSvg } from './screen-svg.mjs';

const { values } = parseArgs({
  options: {
    programs: { type: 'string', default: 'agents' },
    out: { type: 'string', default: 'docs/results/agents' },
    socket: { type: 'string', default: '/var/run/docker.sock' },
    image: { type: 'string', default: 'acode-test/debian:1' },
    only: { type: 'string', multiple: true },
  },
});
const MODEL = 'http://127.0.0.1:8900';
const NODE = 'export PATH=/agents/node/node_modules/node/bin:$PATH';
const LATE_MS = 120_000;
const PASTED = 'a first line\n~. is text here';

/** What each agent is given so that it draws its screen without a model, and what shows that it did. */
const AGENTS = {
  claude: {
    files: {
      '.claude.json': JSON.stringify({
        hasCompletedOnboarding: true,
        theme: 'dark',
        bypassPermissionsModeAccepted: true,
        customApiKeyResponses: { approved: ['x'], rejected: [] },
        projects: { '/workspace': { hasTrustDialogAccepted: true } },
      }),
    },
    start: `ANTHROPIC_BASE_URL=${MODEL} ANTHROPIC_API_KEY=x CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1 exec /agents/claude-code/node_modules/.bin/claude --dangerously-skip-permissions`,
    ready: /bypass permissions on/,
    keys: [],
  },
  codex: {
    files: {
      '.codex/config.toml': `model = "gpt-5.5"
model_provider = "scripted"
check_for_update_on_startup = false
[analytics]
enabled = false
[features]
plugins = false
[projects."/workspace"]
trust_level = "trusted"
[model_providers.scripted]
name = "scripted"
base_url = "${MODEL}/v1"
env_key = "SCRIPTED_KEY"
wire_api = "responses"
`,
    },
    start: `${NODE}; SCRIPTED_KEY=x exec /agents/codex/node_modules/.bin/codex --no-daemon --dangerously-bypass-approvals-and-sandbox`,
    ready: /Ask Codex|for shortcuts/,
    // It asks first whether it may take a newer model.
    keys: [[/Use existing model/, ['2', 'Enter']]],
  },
  gemini: {
    files: {
      '.gemini/settings.json': JSON.stringify({
        security: { auth: { selectedType: 'gemini-api-key' }, folderTrust: { enabled: false } },
        general: { enableAutoUpdate: false },
        privacy: { usageStatisticsEnabled: false },
      }),
    },
    start: `${NODE}; GEMINI_CLI_TRUST_WORKSPACE=true GOOGLE_GEMINI_BASE_URL=${MODEL} GEMINI_API_KEY=x exec /agents/gemini-cli/node_modules/.bin/gemini -m gemini-2.5-flash --yolo`,
    ready: /Type your message/,
    keys: [],
  },
  opencode: {
    files: {
      '.config/opencode/opencode.json': JSON.stringify({
        model: 'scripted/scripted',
        small_model: 'scripted/scripted',
        autoupdate: false,
        share: 'disabled',
        provider: {
          scripted: {
            npm: '@ai-sdk/openai-compatible',
            options: { baseURL: `${MODEL}/v1`, apiKey: 'x' },
            models: { scripted: {} },
          },
        },
      }),
    },
    start: `OPENCODE_DISABLE_MODELS_FETCH=1 OPENCODE_DISABLE_AUTOUPDATE=1 exec /agents/opencode/node_modules/.bin/opencode`,
    ready: /Ask anything|tab agents|ctrl\+p/i,
    keys: [],
  },
};

const programs = resolve(values.programs);
const out = resolve(values.out);
mkdirSync(out, { recursive: true });
const home = new Home(values.socket);
home.write(
  '.config/acode/config.yml',
  `sandbox:\n  images: { default: ${JSON.stringify(values.image)} }\n  mounts: { allowed_host_roots: [${JSON.stringify(programs)}] }\n`,
);
mkdirSync(join(home.top, 'run'), { mode: 0o700 });
const commit = commitHere();
const pause = ms => new Promise(done => setTimeout(done, ms));
let failed = false;
const rows = [];
try {
  for (const [name, agent] of Object.entries(AGENTS)) {
    if (values.only && !values.only.includes(name)) continue;
    try {
      rows.push(`| ${name} | ${await capture(name, agent)} |`);
    } catch (error) {
      failed = true;
      rows.push(`| ${name} | **failed** |`);
      console.error(`${name}: ${error instanceof Error ? error.message : error}`);
    }
  }
} finally {
  home.remove();
}
console.log(`# Coding agents on a terminal of acode

Written by \`node scripts/agent-captures.mjs\` for commit ${commit}: the real programs from npm in \`acode run -t\` in tmux, which has
24-bit colours and no kitty keys. No model answers, so nothing is asked of it. The pasted text has a line that begins with \`~.\`,
which must not leave the program.

| agent | drawn | pasted into | redrawn when resized | 24-bit colours |
| ----- | ----- | ----------- | -------------------- | -------------- |
${rows.join('\n')}
`);
for (const name of Object.keys(AGENTS)) console.log(`![The screen of ${name}](agents/${name}.svg)\n`);
process.exitCode = failed ? 1 : 0;

/** @param {string} name @param {(typeof AGENTS)['claude']} agent */
async function capture(name, { files, start, ready, keys }) {
  const seeds = Object.entries(files).map(
    ([path, text]) => `mkdir -p "$(dirname ~/${path})"\ncat > ~/${path} <<'END'\n${text.trimEnd()}\nEND\n`,
  );
  home.write(`project/${name}.sh`, `${seeds.join('')}${start}\n`);
  const socket = join(home.top, `${name}.sock`);
  const tmux = (...words) => execFileSync('tmux', ['-u', '-S', socket, ...words], { encoding: 'utf8', env: home.env });
  const screen = () => tmux('capture-pane', '-p');
  const until = async pattern => {
    for (const end = Date.now() + LATE_MS; !pattern.test(screen());) {
      if (Date.now() > end) throw new Error(`never showed ${pattern}:\n${screen()}`);
      await pause(200);
    }
  };
  const { NO_COLOR: _, ...env } = home.env;
  const shell = 'env TERM=tmux-256color COLORTERM=truecolor PS1="> " bash --norc --noprofile';
  execFileSync(
    'tmux',
    [
      '-u',
      '-S',
      socket,
      '-f',
      '/dev/null',
      'new-session',
      '-d',
      '-x',
      '100',
      '-y',
      '28',
      '-c',
      join(home.top, 'project'),
      shell,
    ],
    { env },
  );
  try {
    const line = `acode run -t --memory 3g --pids 512 --timeout 10m --mount ${programs}:/agents 'sh ${name}.sh'`;
    tmux('send-keys', `clear; ${line}`, 'Enter');
    for (const [seen, pressed] of keys) {
      await until(seen);
      tmux('send-keys', ...pressed);
    }
    await until(ready);
    // A program that has drawn its screen may not have said yet how it wants what is pasted.
    await pause(5000);
    tmux('set-buffer', '-b', 'pasted', PASTED);
    tmux('paste-buffer', '-d', '-p', '-b', 'pasted');
    await until(/is text here|Pasted|paste/i);
    await pause(1000);
    writeFileSync(join(out, `${name}.svg`), screenSvg(tmux('capture-pane', '-p', '-e'), 100));
    tmux('resize-window', '-x', '72', '-y', '22');
    await until(/is text here|Pasted|paste/i);
    await pause(3000);
    const widths = screen()
      .split('\n')
      .map(row => row.trimEnd().length);
    const colours = new Set(tmux('capture-pane', '-p', '-e').match(/[34]8;2;\d+;\d+;\d+/g) ?? []).size;
    return `yes | yes | yes, ${Math.max(...widths)} of 72 columns | ${colours}`;
  } finally {
    tmux('kill-server');
  }
}
