// A scripted model behind TLS, as the host of a company that agents reach by the allow-list; and the ways of each agent to run a line.

import { request as httpRequest } from 'node:http';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { ScriptedModel } from '../../packages/cli/src/hooks/scripted-model.ts';
import type { Move, Script } from '../../packages/cli/src/hooks/scripted-model.ts';
import { ONE, Site } from '../egress/servers.ts';

/** A model on the name `one.acode.test`. */
export class ModelHost implements AsyncDisposable {
  readonly model: ScriptedModel;
  readonly site: Site;
  /** The keys that came, as the server saw them. */
  readonly keys: Set<string>;
  /** Whether a key is taken; others are refused. */
  takes: (key: string) => boolean = () => true;
  /** How many requests were refused. */
  refused = 0;

  private constructor(model: ScriptedModel, site: Site, keys: Set<string>) {
    this.model = model;
    this.site = site;
    this.keys = keys;
  }

  static async listen(script: Script): Promise<ModelHost> {
    const model = await ScriptedModel.listen(script);
    const keys = new Set<string>();
    let own: ModelHost | null = null;
    const site = await Site.https([ONE], (request, response) => own?.answer(request, response));
    own = new ModelHost(model, site, keys);
    return own;
  }

  answer(request: IncomingMessage, response: ServerResponse): void {
    const { authorization = '', 'x-api-key': claude, 'x-goog-api-key': google } = request.headers;
    const key = String(claude ?? google ?? authorization.replace(/^Bearer /, ''));
    this.keys.add(key);
    if (!this.takes(key)) {
      this.refused += 1;
      response.writeHead(401, { 'Content-Type': 'application/json' }).end('{"error":{"message":"no such key"}}');
    } else passOn(this.model.url, request, response);
  }

  /** The entry of an allow-list for it. */
  get host(): string {
    return `${ONE}:${this.site.port}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.site[Symbol.asyncDispose]();
    await this.model[Symbol.asyncDispose]();
  }
}

function passOn(url: string, request: IncomingMessage, response: ServerResponse): void {
  const { method, headers } = request;
  const further = httpRequest(new URL(request.url ?? '/', url), { method, headers }, answer => {
    response.writeHead(answer.statusCode ?? 500, answer.headers);
    answer.pipe(response);
  });
  further.on('error', () => response.destroy());
  request.pipe(further);
}

const tool = (name: string, given: Readonly<Record<string, unknown>>): Move => ({ tool: name, given });

/** How each agent is told to run a line. */
const LINE: Readonly<Record<string, (line: string) => Move>> = {
  claude: command => tool('Bash', { command, description: 'work' }),
  codex: cmd => tool('exec_command', { cmd, yield_time_ms: 20_000 }),
  gemini: command => tool('run_shell_command', { command }),
  opencode: command => tool('bash', { command, description: 'work' }),
};

/** How an agent is told to run a line. */
export function lineOf(agent: string, line: string): Move {
  return LINE[agent]?.(line) ?? { say: 'unknown' };
}

/** A script of lines, one after the other, also over several sessions: each prints its number first. */
export function lines(
  agent: string,
  all: () => readonly string[],
  atEnd: () => Promise<void> | undefined = () => undefined,
): Script {
  return async results => {
    const next = all().findIndex((_, at) => outputOf(results, at) === undefined);
    const line = all()[next];
    if (line === undefined) await atEnd();
    return line === undefined ? { say: 'All is done.' } : lineOf(agent, `echo step-${next}-; ${line}`);
  };
}

/** What a line of such a script printed; undefined where the agent has not sent it back. */
export function outputOf(results: readonly string[], at: number): string | undefined {
  return results.find(result => result.includes(`step-${at}-`));
}

const CREDENTIALS: Readonly<Record<string, readonly [name: string, variable: string, url: string]>> = {
  claude: ['anthropic', 'ANTHROPIC_API_KEY', 'ANTHROPIC_BASE_URL'],
  codex: ['openai', 'OPENAI_API_KEY', 'OPENAI_BASE_URL'],
  gemini: ['google-ai', 'GEMINI_API_KEY', 'GOOGLE_GEMINI_BASE_URL'],
  opencode: ['anthropic', 'ANTHROPIC_API_KEY', 'ANTHROPIC_BASE_URL'],
};

/**
 * An entry of the user’s file of agents: this host in place of the vendor’s, with the key from a variable. Without one, the user’s
 * configuration has the credential of this name.
 */
export function agentsEntry(agent: string, host: string, key: { env: string } | { credential: string }): object {
  const [name, variable, baseUrlVariable] = CREDENTIALS[agent] ?? [];
  const own = 'env' in key ? { name, from: key } : { name: key.credential };
  const credential = { ...own, hosts: [host], variable, baseUrlVariable };
  return { network: { allow: [host], credential } };
}

/** The user’s file of agents with that entry, with the key from a variable. */
export function agentsFile(agent: string, host: string, from: string): string {
  return JSON.stringify({ agents: { [agent]: agentsEntry(agent, host, { env: from }) } });
}
