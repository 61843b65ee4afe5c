// The commands of `acode hook`: start an agent, install and remove its hook, and show what is in force.

import { spawn } from 'node:child_process';
import { constants } from 'node:os';
import { resolve } from 'node:path';
import type { Call } from '../call.ts';
import { NOBODY_TO_ASK, consentFor } from '../consent.ts';
import { UsageError } from '../failure/usage.ts';
import { canAsk } from '../terminal/ask.ts';
import { oneLine } from '../terminal/text.ts';
import { fitted, hanging, proseWidth } from '../terminal/wrap.ts';
import type { Place } from '../workspace.ts';
import { HOOKED } from './agents.ts';
import type { Hooked } from './agents.ts';
import { hookError } from './errors.ts';
import { installHook, removeHook } from './install.ts';
import type { HookChange, Installing } from './install.ts';
import { cleanEnvironment, launchOf, programOf } from './launch.ts';
import type { Launch, Launching } from './launch.ts';
import { SETTINGS } from './settings.ts';
import { hookStatus, trustFault, whyNotInForce } from './status.ts';
import { checkAgent } from './check.ts';
import { renderCheck } from './check-view.ts';

const BY_SIGNAL = 128;
const NOT_STARTED = 126;

/** The options of `acode hook exec`. */
export interface ExecOptions {
  readonly projectSettings?: true | undefined;
  readonly program?: string | undefined;
}

/** Starts an agent, and returns its exit status. */
export async function execAgent(call: Call, agent: Hooked, options: ExecOptions): Promise<number> {
  const place = await call.place();
  const about: Launching = {
    ...installing(call, agent),
    place,
    program: options.program === undefined ? undefined : resolve(place.here, options.program),
    args: call.argv ?? [],
    projectSettings: options.projectSettings === true,
  };
  const launch = await launchOf(about);
  const fault = await whyNotInForce(about, { ...launch, cwd: place.here });
  if (fault !== null) throw hookError('ACODE-HOK-005', { agent, reason: fault });
  const also = about.projectSettings ? ' Settings of the repository are in force too, and may run programs here.' : '';
  await call.say(
    `acode: commands of ${agent} run in sandboxes of ${oneLine(place.root)}; ${SETTINGS[agent].outside}.${also}\n`,
  );
  return started(call, launch, place.here);
}

// The agent has the terminal, and gets the signals that are sent to acode alone.
function started({ interruption }: Call, { program, argv, env }: Launch, cwd: string): Promise<number> {
  return new Promise(done => {
    const child = spawn(program, argv, { cwd, env, stdio: 'inherit' });
    // Ctrl-C reaches the agent from the terminal itself.
    const stop = (): void => void (interruption.name === 'SIGINT' || child.kill('SIGTERM'));
    interruption.signal.addEventListener('abort', stop, { once: true });
    child.on('error', () => done(NOT_STARTED));
    child.on('exit', (code, signal) => done(code ?? BY_SIGNAL + (signal === null ? 0 : constants.signals[signal])));
  });
}

function installing({ io, program }: Call, agent: Hooked): Installing {
  return { agent, env: io.env, node: process.execPath, entry: program?.entry ?? resolve(process.argv[1] ?? 'acode') };
}

/** Installs the hook of an agent. */
export async function install(call: Call, agent: Hooked, yes: boolean): Promise<number> {
  const isLooser = agent === 'codex';
  if (isLooser && !yes && !(await agrees(call))) {
    await call.say('acode: nothing was changed.\n');
    return 1;
  }
  const change = await installHook(installing(call, agent));
  await call.print('acode.hook/1', change, look => fitted(`${changeText(change)}${NEXT[agent]}`, look));
  return 0;
}

const CODEX_NOTE =
  'Codex’s own sandbox must be off for this hook: with it, a command cannot reach the engine, and nothing runs. Then apply_patch, ' +
  'MCP servers and `!` of Codex work on this machine without any sandbox.\nBetter: `acode agent codex` runs all of Codex in a sandbox.\n';

async function agrees(call: Call): Promise<boolean> {
  if (!canAsk(call.io) || call.options.json)
    throw new UsageError(
      'Codex’s own sandbox must be off for this hook, and there is no terminal to ask at.',
      NOBODY_TO_ASK,
    );
  const question = 'Install the hook?';
  return (await consentFor(call, { shown: () => CODEX_NOTE, question })) !== null;
}

const NEXT: Readonly<Record<Hooked, string>> = {
  claude:
    'A repository’s .claude/settings.json can undo it. Start with `acode hook exec claude`, which such settings do not reach.\n' +
    'It keeps an honest agent’s commands inside. Against a hostile repository: acode agent claude\n',
  codex:
    'Now start codex, type /hooks and trust the hook: until then Codex skips it without a word.\n' +
    'Then start with `acode hook exec codex`, which checks that trust and switches Codex’s own sandbox off.\n',
  gemini:
    'A repository’s .gemini/settings.json can undo it. Start with `acode hook exec gemini`, which refuses such a repository.\n' +
    'It keeps an honest agent’s commands inside. Against a hostile repository: acode agent gemini\n',
  opencode:
    'If the program it names is missing, opencode runs commands on this machine: `acode hook status` watches it.\n' +
    'A repository’s opencode.json can undo it. Start with `acode hook exec opencode`.\n',
};

/** Removes the hook of an agent. */
export async function remove(call: Call, agent: Hooked): Promise<number> {
  const change = await removeHook(installing(call, agent));
  await call.print('acode.hook/1', change, look => fitted(changeText(change), look));
  return 0;
}

function changeText({ agent, file, outcome }: HookChange): string {
  const path = oneLine(file);
  const text = {
    installed: `Installed the hook for ${agent} in ${path}; ${SETTINGS[agent].outside}.`,
    updated: `Updated the hook for ${agent} in ${path}; ${SETTINGS[agent].outside}.`,
    unchanged: `The hook for ${agent} is up to date in ${path}; ${SETTINGS[agent].outside}.`,
    removed: `Removed the hook for ${agent} from ${path}.`,
    absent: `${path} has no hook of acode.`,
  }[outcome];
  return `${text}\n`;
}

/** Shows which agents have the hook. Status 1 where a hook is there and not whole. */
export async function status(call: Call, named: Hooked | undefined): Promise<number> {
  const place = await call.place();
  const items = await Promise.all(
    (named === undefined ? HOOKED : [named]).map(async agent => {
      const about = installing(call, agent);
      const found = await hookStatus(about);
      if (agent !== 'codex' || found.state === 'none') return found;
      const faults = [...found.faults, ...(await codexFaults(call, place))];
      return { ...found, faults };
    }),
  );
  await call.print('acode.hook-status/1', { items }, look => {
    const width = proseWidth(look);
    const lines = items.flatMap(({ agent, state, file, outside, faults }) => [
      hanging(
        look.colours.bold(agent.padEnd(10)),
        `${STATES[state]}${state === 'none' ? '' : ` in ${oneLine(file)}`}`,
        width,
      ),
      ...(state === 'none' ? [] : [hanging('  stays outside: ', outside, width, '    ')]),
      ...faults.map(fault => hanging('  fault: ', oneLine(fault), width, '    ')),
    ]);
    return [...lines, fitted(HONEST, look), ''].join('\n');
  });
  return items.some(({ faults }) => faults.length > 0) ? 1 : 0;
}

const HONEST = 'A hook keeps an honest agent’s commands inside. Against a hostile repository use `acode agent`.';

const STATES = { none: 'no hook', whole: 'hook installed', faulty: 'hook NOT in force' } as const;

async function codexFaults(call: Call, { root, here }: Place): Promise<readonly string[]> {
  const env = cleanEnvironment(call.io.env, root);
  try {
    const program = programOf('codex', env['PATH'] ?? '', root);
    const fault = await trustFault(installing(call, 'codex'), { program, env, cwd: here });
    return fault === null ? [] : [fault];
  } catch {
    return ['codex is not installed, so its trust in the hook is not known'];
  }
}

/** Checks on the real program of an agent where its commands run. Status 1 where one ran on this machine. */
export async function check(call: Call, agent: Hooked): Promise<number> {
  const { signal } = call.interruption;
  const checking = checkAgent({ ...installing(call, agent), signal });
  const report = await call.progress.during(`Checking ${agent}, for up to two minutes…`, checking);
  await call.print('acode.doctor-agent/1', report, look => renderCheck(report, look));
  return report.ok ? 0 : 1;
}
