// What a coding agent in a sandbox costs: how long until its program runs, how large its image is, and how much memory acode takes
// outside while it asks its model. Usage, as an ordinary user: npm run bench:agents -- [start] [size] [memory] [options]

import { execFileSync, spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { cpus, loadavg } from 'node:os';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { PRESETS } from '../packages/agents/src/known.ts';
import { ModelHost, agentsEntry } from '../tests/agents/model-host.ts';
import { ONE, withoutNames } from '../tests/egress/servers.ts';
import { images, mainEngine } from '../tests/support/engines.ts';
import { percentile } from './figures.mjs';

const BIN = resolve('packages/cli/bin/acode.js');
const STORE = process.env['ACODE_AGENT_PROGRAMS'] ?? '/var/lib/acode-engines/agents/acode/programs';
const MAX_START_MS = 1500;
const MAX_OUTSIDE = 150;
/** The mean of the last fifth of the time, against that of the second. */
const FLAT = 1.1;
const MB = 1e6;
const SAMPLE_MS = 5000;
const MINUTE_MS = 60_000;
const USAGE = `npm run bench:agents -- NAME… [options]

  NAME             start, size, memory
  --agents LIST    claude,codex,gemini,opencode
  --rounds N       rounds of start (11)
  --minutes N      how long memory is watched (60)`;

// Asks the model as an agent does, over and over, each time with a longer conversation until it begins anew.
const ASKS = `
import json, os, time, urllib.request
base, until, count, turns = os.environ["ANTHROPIC_BASE_URL"], time.time() + float(os.environ["SECONDS_TO_ASK"]), 0, []
while time.time() < until:
    turns = (turns + [{"role": "user", "content": "word " * 400}, {"role": "assistant", "content": "word " * 400}])[-60:]
    body = {"model": "m", "max_tokens": 9, "stream": True, "messages": turns + [{"role": "user", "content": "next"}]}
    headers = {"x-api-key": os.environ["ANTHROPIC_API_KEY"], "anthropic-version": "2023-06-01", "content-type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(base + "/v1/messages", json.dumps(body).encode(), headers)).read()
    count += 1
    time.sleep(0.3)
print("asked", count)
`;

type Values = { readonly agents: readonly string[]; readonly rounds: number; readonly minutes: number };
const MEASUREMENTS = { start, size, memory };

async function main(): Promise<number> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      help: { type: 'boolean' },
      agents: { type: 'string', default: 'claude,codex,gemini,opencode' },
      rounds: { type: 'string', default: '11' },
      minutes: { type: 'string', default: '60' },
    },
  });
  const names = Object.keys(MEASUREMENTS);
  if (values.help || positionals.length === 0 || positionals.some(name => !names.includes(name))) {
    console.log(USAGE);
    return values.help ? 0 : 2;
  }
  if (withoutNames) throw new Error(`${ONE} is not in /etc/hosts: \`npm run engines:up\` writes it`);
  const given = { agents: values.agents.split(','), rounds: Number(values.rounds), minutes: Number(values.minutes) };
  return (await measure(positionals, given)) ? 0 : 1;
}

async function measure(names: readonly string[], given: Values): Promise<boolean> {
  await using place = await Place.open();
  let isMet = true;
  for (const [name, work] of Object.entries(MEASUREMENTS))
    if (names.includes(name)) isMet = (await work(place, given)) && isMet;
  console.log(`FIGURE load ${loadavg()[0]?.toFixed(1)} on ${cpus().length} CPUs`);
  return isMet;
}

/** A person with a project, an agent of its own that is a shell, and a scripted model. */
class Place implements AsyncDisposable {
  readonly top: string;
  readonly host: ModelHost;
  readonly #env: NodeJS.ProcessEnv;

  private constructor(top: string, host: ModelHost) {
    this.top = top;
    this.host = host;
    const own = { HOME: 'home', XDG_CONFIG_HOME: 'config', XDG_STATE_HOME: 'state', XDG_RUNTIME_DIR: 'run' };
    const directories = Object.fromEntries(Object.entries(own).map(([name, path]) => [name, join(top, path)]));
    const { PATH } = process.env;
    this.#env = { PATH, CI: 'true', DOCKER_HOST: `unix://${mainEngine.socket}`, BENCH_KEY: 'sk-bench', ...directories };
  }

  static async open(): Promise<Place> {
    const top = mkdtempSync('/var/tmp/acode-bench-agents-');
    const place = new Place(top, await ModelHost.listen(() => ({ say: 'All is done.' })));
    for (const path of ['config/acode', 'home', 'project', 'state/acode/programs'])
      mkdirSync(join(top, path), { recursive: true, mode: 0o700 });
    mkdirSync(join(top, 'run'), { mode: 0o700 });
    writeFileSync(join(top, 'config/roots.pem'), place.host.site.pem);
    const network = { private_hosts: [ONE], ca_file: join(top, 'config/roots.pem') };
    const lines = { images: { default: images.debian }, network };
    writeFileSync(join(top, 'config/acode/config.yml'), JSON.stringify({ sandbox: lines }));
    place.agent(['bash', '-c', 'echo program runs']);
    writeFileSync(join(top, 'project/a.txt'), 'one\n');
    const git = (...words: string[]): void => {
      const who = ['-c', 'user.name=bench', '-c', 'user.email=bench@host'];
      execFileSync('git', [...who, ...words], { cwd: join(top, 'project') });
    };
    git('init', '-q');
    git('add', '-A');
    git('commit', '-qm', 'first');
    return place;
  }

  /** From now on, the agent `own` is this command; the others ask the scripted model, too. */
  agent(command: readonly string[], environment: Readonly<Record<string, string>> = {}): void {
    const entry = agentsEntry('claude', this.host.host, { env: 'BENCH_KEY' });
    const own = { ...entry, command, environment, start: { terminal: [], prompt: ['{arguments}'] } };
    const known = ['claude', 'codex', 'gemini', 'opencode'].map(name => [
      name,
      agentsEntry(name, this.host.host, { env: 'BENCH_KEY' }),
    ]);
    const agents = { ...Object.fromEntries(known), own };
    writeFileSync(join(this.top, 'config/acode/agents.yml'), JSON.stringify({ agents }), { mode: 0o600 });
  }

  /** Puts the program of an agent where acode finds it. Null if this machine has none. */
  program(name: string): string | null {
    const id = existsSync(STORE) ? readdirSync(STORE).find(one => one.startsWith(`agent-${name}-`)) : undefined;
    if (id === undefined) return null;
    const to = join(this.top, 'state/acode/programs');
    execFileSync('cp', ['-aln', join(STORE, id), to]);
    return join(to, id);
  }

  /** Calls the command, which ends by itself. */
  async call(argv: readonly string[], onOutput?: (text: string, child: ChildProcess) => void): Promise<void> {
    const child = spawn(process.execPath, [BIN, ...argv], {
      cwd: join(this.top, 'project'),
      env: this.#env,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let [printed, said] = ['', ''];
    child.stdout.setEncoding('utf8').on('data', (chunk: string) => onOutput?.((printed += chunk), child));
    child.stderr.setEncoding('utf8').on('data', (chunk: string) => (said += chunk));
    onOutput?.('', child);
    const status = await new Promise<number | null>(done => child.once('close', done));
    if (status !== 0) throw new Error(`acode ${argv.join(' ')} ended with ${status}: ${said.slice(-600)}`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.host[Symbol.asyncDispose]();
    await this.call(['fork', 'discard', '--all', '--yes']).catch(() => {});
    rmSync(this.top, { recursive: true, force: true });
  }
}

/** From Enter to the first line of the program, in milliseconds. */
async function untilFirstLine(place: Place, argv: readonly string[], line: RegExp): Promise<number> {
  const began = performance.now();
  let took = Number.NaN;
  await place.call(argv, text => {
    if (Number.isNaN(took) && line.test(text)) took = performance.now() - began;
  });
  if (Number.isNaN(took)) throw new Error(`acode ${argv.join(' ')} printed no line of the program`);
  return took;
}

async function start(place: Place, { rounds, agents }: Values): Promise<boolean> {
  const values = [];
  for (let round = -1; round < rounds; round += 1) {
    const took = await untilFirstLine(place, ['agent', 'own', '--fresh', '-p', 'x'], /program runs/);
    if (round >= 0) values.push(took);
  }
  const [p50, max] = [percentile(values, 0.5), Math.max(...values)];
  console.log(
    `FIGURE from the call of acode to the first line of an agent’s program: p50 ${p50.toFixed(0)} ms (≤ ${MAX_START_MS}: ${met(p50 <= MAX_START_MS)}), slowest ${max.toFixed(0)} of ${rounds}`,
  );
  let isMet = p50 <= MAX_START_MS;
  for (const name of agents) {
    const program = place.program(name);
    const preset = PRESETS.find(one => one.name === name);
    if (program === null || !preset) continue;
    const [file = '', ...words] = preset.command.map(word => word.replace('{program}', program));
    const [inside, alone]: [number[], number[]] = [[], []];
    for (let round = -1; round < rounds; round += 1) {
      const took = await untilFirstLine(place, ['agent', name, '--fresh', '-p', 'x', '--', '--version'], /\d\.\d/);
      const began = performance.now();
      execFileSync(file, [...words, '--version'], {
        env: { PATH: process.env['PATH'], HOME: join(place.top, 'home') },
      });
      if (round < 0) continue;
      inside.push(took);
      alone.push(performance.now() - began);
    }
    const [whole, own] = [percentile(inside, 0.5), percentile(alone, 0.5)];
    const isSoon = whole - own <= MAX_START_MS;
    console.log(
      `FIGURE from the call of acode to what ${name} --version prints: p50 ${whole.toFixed(0)} ms, ${(whole - own).toFixed(0)} more than the program alone (≤ ${MAX_START_MS}: ${met(isSoon)})`,
    );
    isMet &&= isSoon;
  }
  return isMet;
}

function size(place: Place, { agents }: Values): Promise<boolean> {
  let isMet = true;
  for (const name of agents) {
    const program = place.program(name);
    if (program === null) {
      console.log(`FIGURE ${name}: its program is not on this machine`);
      isMet = false;
      continue;
    }
    const files = readdirSync(program, { recursive: true, encoding: 'utf8' }).map(path =>
      statSync(join(program, path)),
    );
    const all = files.filter(file => file.isFile()).map(file => file.size);
    const [whole, largest] = [all.reduce((sum, one) => sum + one, 0) / MB, Math.max(...all) / MB];
    console.log(
      `FIGURE ${name}: acode mounts ${whole.toFixed(1)} MB into the image of the workspace, of which its largest file is ${largest.toFixed(1)} MB`,
    );
  }
  return Promise.resolve(isMet);
}

/** Resident memory of a process and of those that it started, in MB. */
function residentOf(pid: number): number {
  const children = new Map<number, number[]>();
  const resident = new Map<number, number>();
  for (const name of readdirSync('/proc').filter(one => /^\d+$/.test(one)))
    try {
      const status = readFileSync(`/proc/${name}/status`, 'utf8');
      const parent = Number(/^PPid:\s+(\d+)/m.exec(status)?.[1]);
      resident.set(Number(name), (Number(/^VmRSS:\s+(\d+)/m.exec(status)?.[1] ?? 0) * 1024) / MB);
      children.set(parent, [...(children.get(parent) ?? []), Number(name)]);
    } catch {
      // It has ended.
    }
  const sum = (one: number): number =>
    (children.get(one) ?? []).reduce((total, child) => total + sum(child), resident.get(one) ?? 0);
  return sum(pid);
}

async function memory(place: Place, { minutes }: Values): Promise<boolean> {
  place.agent(['python3', '-c', ASKS], { SECONDS_TO_ASK: String(minutes * 60) });
  const samples: number[] = [];
  let timer: NodeJS.Timeout | undefined;
  let asked = '';
  await place.call(['agent', 'own', '--fresh', '-p', 'x'], (text, child) => {
    asked = /asked (\d+)/.exec(text)?.[1] ?? asked;
    timer ??= setInterval(() => samples.push(residentOf(child.pid ?? 0)), SAMPLE_MS);
  });
  clearInterval(timer);
  const fifth = (at: number): number => {
    const part = samples.slice(Math.floor((samples.length * at) / 5), Math.floor((samples.length * (at + 1)) / 5));
    return part.reduce((sum, one) => sum + one, 0) / part.length;
  };
  const [most, growth] = [Math.max(...samples), fifth(4) / fifth(1)];
  console.log(
    `FIGURE memory of acode outside during ${asked} requests in ${((samples.length * SAMPLE_MS) / MINUTE_MS).toFixed(0)} minutes: at most ${most.toFixed(0)} MB (≤ ${MAX_OUTSIDE}: ${met(most <= MAX_OUTSIDE)}), the last fifth of the time ${growth.toFixed(2)} × the second (≤ ${FLAT}: ${met(growth <= FLAT)})`,
  );
  return most <= MAX_OUTSIDE && growth <= FLAT;
}

function met(isMet: boolean): string {
  return isMet ? 'met' : '**not met**';
}

process.exitCode = await main().catch((error: unknown) => {
  console.error(`bench: ${error instanceof Error ? error.message : String(error)}`);
  return 2;
});
