// Where whole agents run in tests: the built command, the programs of the presets, a scripted model behind TLS in place of the vendor, a
// person’s own files with canaries in them, and a repository with a task.

import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { PRESETS } from '../../packages/agents/src/known.ts';
import { BIN, Bench } from '../cli/bench.ts';
import { Site, TWO } from '../egress/servers.ts';
import { images, mainEngine } from '../support/engines.ts';
import { ModelHost, agentsEntry, lines } from './model-host.ts';

// The programs of the presets, fetched once for a machine by tests/agents/programs-of-presets.mjs.
const STORE = process.env['ACODE_AGENT_PROGRAMS'] ?? '/var/lib/acode-engines/agents/acode/programs';
/** What is there of them, by id. */
const stored: readonly string[] = existsSync(STORE) ? readdirSync(STORE) : [];

/** The key of the model, as the person has it. */
export const KEY = `sk-test-${'k3y'.repeat(12)}`;
/** What is in the person’s files and nobody inside may find. */
export const CANARY = 'canary-77e1f0';

/** What is beside it in the same files and does no harm: that it is inside shows that the files were read. */
export const COPIED = 'copied-2f81';

/** The agents to try. ACODE_AGENT_NAMES names others, such as `codex,gemini`; the long test suite tries all of them. */
export const agents = (process.env['ACODE_AGENT_NAMES'] ?? 'claude').split(',');

// A model that Codex does not know gets other tools.
const MODEL: Readonly<Record<string, readonly string[]>> = { codex: ['-m', 'gpt-5.5'] };

/** Lines for an agent to run, one after the other. */
interface Lines {
  all: readonly string[];
  /** What is done before the model says that all is done, while the agent waits for it. */
  atEnd: (() => Promise<void>) | null;
}

interface Parts {
  readonly bench: Bench;
  readonly host: ModelHost;
  readonly canary: Site;
  readonly script: Lines;
}

/** What an agent is called in sentences. */
export function titleOf(agent: string): string {
  return PRESETS.find(({ name }) => name === agent)?.title ?? agent;
}

/** The words of a call of an agent. */
export function wordsOf(agent: string, ...argv: string[]): string[] {
  return ['agent', agent, ...argv, ...(MODEL[agent] ? ['--', ...(MODEL[agent] ?? [])] : [])];
}

/** A person with a project, and the model of an agent. */
export class AgentPlace implements AsyncDisposable {
  readonly name: string;
  readonly bench: Bench;
  readonly host: ModelHost;
  /** A host that nothing inside may reach. */
  readonly canary: Site;
  /** What the model has the agent run. */
  readonly script: Lines;

  private constructor(name: string, { bench, host, canary, script }: Parts) {
    this.name = name;
    this.bench = bench;
    this.host = host;
    this.canary = canary;
    this.script = script;
  }

  /** `variable` holds the key; `withProgram` is false where the program is to be fetched from npm; `image` is that of the sandbox. */
  static async open(
    name: string,
    {
      variable = 'ACODE_TEST_KEY',
      withProgram = true,
      image = images.debian,
    }: { variable?: string; withProgram?: boolean; image?: string } = {},
  ): Promise<AgentPlace> {
    const script: Lines = { all: [], atEnd: null };
    const host = await ModelHost.listen(
      lines(
        name,
        () => script.all,
        () => script.atEnd?.(),
      ),
    );
    const place = new AgentPlace(name, {
      bench: await Bench.at(mainEngine),
      host,
      canary: await Site.https([TWO]),
      script,
    });
    const { bench, canary, home } = place;
    const roots = join(bench.env['XDG_CONFIG_HOME'] ?? '', 'roots.pem');
    writeFileSync(roots, `${host.site.pem}\n${canary.pem}`);
    await bench.configure({
      images: { default: image },
      network: { private_hosts: ['*.acode.test'], ca_file: roots },
    });
    writeFileSync(place.agentsFile, place.agentsText(variable), { mode: 0o600 });
    mkdirSync(place.programs, { recursive: true, mode: 0o700 });
    if (withProgram) place.addProgram(name);
    mkdirSync(join(home, '.ssh'), { recursive: true });
    writeFileSync(join(home, '.ssh/id_rsa'), CANARY);
    canaries(home);
    const env = { ...process.env, HOME: home };
    execFileSync('git', ['config', '--global', 'user.name', 'Ada Test'], { env });
    execFileSync('git', ['config', '--global', 'user.email', 'ada@acode.test'], { env });
    repository(bench.workspace);
    return place;
  }

  /** What it is called in sentences. */
  get title(): string {
    return titleOf(this.name);
  }

  get home(): string {
    return this.bench.env['HOME'] ?? '';
  }

  /** Puts the program of an agent where acode finds it. */
  addProgram(name: string): void {
    for (const id of stored.filter(one => one.startsWith(`agent-${name}-`)))
      execFileSync('cp', ['-aln', join(STORE, id), this.programs]);
  }

  /** Where acode keeps programs. */
  get programs(): string {
    return join(this.bench.env['XDG_STATE_HOME'] ?? '', 'acode/programs');
  }

  /** The user’s file of agents. */
  get agentsFile(): string {
    return join(this.bench.env['XDG_CONFIG_HOME'] ?? '', 'acode/agents.yml');
  }

  /** The text of that file, with what else an agent is given. */
  agentsText(variable: string, further: object = {}): string {
    const entry = agentsEntry(this.name, this.host.host, { env: variable });
    return JSON.stringify({ agents: { [this.name]: { ...entry, ...further } } });
  }

  /** The words of a call. */
  words(...argv: string[]): string[] {
    return wordsOf(this.name, ...argv);
  }

  /** Calls `acode agent` with these words. */
  call(...argv: string[]): ReturnType<Bench['call']> {
    return this.bench.call(this.words(...argv), { env: { ACODE_TEST_KEY: KEY } });
  }

  /** An environment for a person who types: `acode` is in the PATH, and colours are off. */
  get typed(): Record<string, string> {
    const bin = join(this.home, 'bin');
    mkdirSync(bin, { recursive: true });
    writeFileSync(join(bin, 'acode'), `#!/bin/sh\nexec '${process.execPath}' '${BIN}' "$@"\n`, { mode: 0o755 });
    const { env } = this.bench;
    return { ...env, PATH: `${bin}:${env['PATH'] ?? ''}`, LANG: 'C.UTF-8' };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.host[Symbol.asyncDispose]();
    await this.canary[Symbol.asyncDispose]();
    await this.bench[Symbol.asyncDispose]();
  }
}

// In the files of each agent where a login leaves it, and wherever a person may have written a key.
function canaries(home: string): void {
  const put = (path: string, content: unknown): void => {
    mkdirSync(join(home, path, '..'), { recursive: true });
    writeFileSync(join(home, path), typeof content === 'string' ? content : JSON.stringify(content), { mode: 0o600 });
  };
  const server = { command: 'docs', args: [COPIED], env: { KEY: CANARY }, headers: { Authorization: CANARY } };
  put('.claude.json', { oauthAccount: { id: CANARY }, env: { A: CANARY }, mcpServers: { docs: server } });
  put('.claude/settings.json', { model: 'opus', env: { A: CANARY }, apiKeyHelper: CANARY });
  put('.claude/.credentials.json', { token: CANARY });
  put('.codex/auth.json', { OPENAI_API_KEY: CANARY, tokens: { access_token: CANARY } });
  put(
    '.codex/config.toml',
    `model = "gpt-5.5"\n[mcp_servers.docs]\ncommand = "docs"\nargs = ["${COPIED}"]\nenv = { KEY = "${CANARY}" }\nhttp_headers = { Authorization = "${CANARY}" }\n`,
  );
  put('.gemini/oauth_creds.json', { access_token: CANARY });
  put('.gemini/.env', `GEMINI_API_KEY=${CANARY}\n`);
  put('.gemini/settings.json', { mcpServers: { docs: server } });
  put('.local/share/opencode/auth.json', { anthropic: { type: 'api', key: CANARY } });
  put('.config/opencode/opencode.json', {
    provider: { anthropic: { options: { apiKey: CANARY, headers: { Authorization: CANARY } } } },
    mcp: { docs: { type: 'remote', url: `https://docs.example/${COPIED}`, headers: { Authorization: CANARY } } },
  });
}

function repository(root: string): void {
  writeFileSync(join(root, 'a.txt'), 'one\n');
  writeFileSync(join(root, 'test.sh'), 'grep -q two a.txt && echo all is well\n');
  writeFileSync(join(root, '.gitignore'), '.env\n');
  writeFileSync(join(root, '.env'), `SECRET=${CANARY}\n`);
  const git = (...argv: string[]): void =>
    void execFileSync('git', ['-c', 'user.name=x', '-c', 'user.email=x@x', ...argv], { cwd: root });
  git('init', '-q');
  git('add', '-A');
  git('commit', '-qm', 'first');
}
