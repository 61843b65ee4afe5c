// First steps on a machine: what is here, a configuration file to begin with, the doctor, and what to try.

import { PRESETS } from '@acode/agents';
import type { DoctorReport, Status } from '@acode/sandbox';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Call } from '../call.ts';
import { configurationOf } from '../commands/config-actions.ts';
import { renderDoctor } from '../commands/doctor-card.ts';
import { UsageError } from '../failure/usage.ts';
import { HOOKED } from '../hooks/agents.ts';
import type { Hooked } from '../hooks/agents.ts';
import { programOf } from '../hooks/launch.ts';
import { findProject } from '../project/detect.ts';
import type { Project } from '../project/detect.ts';
import type { Place } from '../workspace.ts';
import { ask, canAsk } from '../terminal/ask.ts';
import type { Look } from '../terminal/look.ts';
import { fields } from '../terminal/table.ts';
import { oneLine } from '../terminal/text.ts';
import { fitted } from '../terminal/wrap.ts';
import { firstConfig, installEntry } from './config-text.ts';

/** A command to try, and what it is for. */
export interface Suggestion {
  readonly type: string;
  readonly for: string;
}

interface Found {
  readonly status: Status;
  readonly project: Project | null;
  readonly agents: readonly Hooked[];
}

type Outcome = 'created' | 'exists' | 'declined';

/** Sets acode up for the user, and returns the exit status. */
export async function init(call: Call, yes: boolean): Promise<number> {
  const { Acode } = await import('@acode/sandbox');
  const configuration = await configurationOf(call);
  const { file, exists } = await ownFile(configuration);
  if (!exists && !yes && (!canAsk(call.io) || call.options.json))
    throw new UsageError(
      `acode init asks before it writes ${oneLine(file)}, and there is no terminal to ask at.`,
      'Run it at a terminal, or add --yes. Nothing in the file loosens anything.',
    );
  const place = await call.place();
  const options = await call.hostOptions();
  const status = await call.progress.during('Looking around…', Acode.survey(options));
  const found: Found = { status, project: await projectOf(place), agents: agentsOf(call, place) };
  await say(call, look => renderFound(found, look));

  const text = firstConfig({
    head: configuration.newFile(),
    tool: found.project?.tool.name ?? null,
    image: status.defaultImage,
  });
  const write = async (): Promise<void> =>
    configuration.install(await configuration.plan({ kind: 'text', text }), undefined);
  const outcome = exists ? 'exists' : await offered(call, { file, text, yes, write });
  await say(call, look => renderOutcome(outcome, file, look));

  const doctor = await call.progress.during('Checking this machine…', Acode.examine(options));
  const next = suggestions(found, call.io.env);
  if (call.options.json) await call.printJson('acode.init/1', { ...about(found), file, outcome, doctor, next });
  await say(call, look => `${renderDoctor(doctor, look, true)}${renderNext(next, doctor, look)}`);
  return doctor.ok ? 0 : 1;
}

async function ownFile(configuration: Awaited<ReturnType<typeof configurationOf>>) {
  const own = (await configuration.files()).find(({ layer }) => layer === 'user');
  if (!own) throw new Error('there is no place for the user’s configuration');
  return { file: own.path, exists: own.exists };
}

async function projectOf(place: Place): Promise<Project | null> {
  try {
    return await findProject(place, 'test');
  } catch (error) {
    // None, or several tools: nothing that a first configuration depends on.
    if (error instanceof UsageError) return null;
    throw error;
  }
}

function agentsOf({ io }: Call, { root }: Place): readonly Hooked[] {
  return HOOKED.filter(agent => {
    try {
      return programOf(agent, io.env['PATH'] ?? '', root) !== '';
    } catch {
      return false;
    }
  });
}

async function offered(
  call: Call,
  offer: { readonly file: string; readonly text: string; readonly yes: boolean; readonly write: () => Promise<void> },
): Promise<Outcome> {
  const { file, text, yes, write } = offer;
  await say(call, ({ colours: { dim } }) => {
    const lines = text.split('\n').map(line => `${dim('│')} ${line}`.trimEnd());
    return `\n${oneLine(file)} does not exist. ${yes ? 'acode writes' : 'acode would write'}:\n${lines.slice(0, -1).join('\n')}\n`;
  });
  if (!yes && !(await ask(call.io, 'acode: Write it?', call.interruption.signal, true))) return 'declined';
  await write();
  return 'created';
}

function suggestions({ project, agents }: Found, env: Call['io']['env']): readonly Suggestion[] {
  return [first(project), second(), third(agents, env)];
}

function first(project: Project | null): Suggestion {
  if (project === null)
    return { type: 'acode run --image busybox "id; touch /x"', for: 'a command in a sandbox, and what it may not do' };
  const { directory, tool } = project;
  const install = installEntry(tool.name);
  const isInstalled = tool.scripts !== true || existsSync(join(directory, 'node_modules'));
  return isInstalled || install === null
    ? { type: 'acode test', for: `runs ${tool.test.join(' ')} in a sandbox` }
    : {
        type: `acode run --network allow=${install} -- ${tool.name} install`,
        for: 'dependencies, from the registry and no other host',
      };
}

function second(): Suggestion {
  return { type: 'acode run --fork "echo hello > made.txt"', for: 'writes a copy; `acode fork apply` makes it yours' };
}

// acode downloads an agent that is not there. One whose key is there works at once.
function third(installed: readonly Hooked[], env: Call['io']['env']): Suggestion {
  const hasKey = (agent: Hooked): boolean => (env[keyOf(agent)] ?? '') !== '';
  const agent = installed.find(hasKey) ?? HOOKED.find(hasKey) ?? installed[0] ?? 'claude';
  const needs = hasKey(agent) ? '' : `; first: export ${keyOf(agent)}=…`;
  return { type: `acode agent ${agent}`, for: `the whole agent in a sandbox, on a copy${needs}` };
}

function keyOf(agent: Hooked): string {
  return PRESETS.find(({ name }) => name === agent)?.network?.credential?.variables?.[0] ?? '';
}

function about({ status, project, agents }: Found) {
  const { engine, workspace, defaultImage } = status;
  return {
    engine: engine === undefined ? null : { socket: engine.socket, version: engine.version },
    workspace,
    project: project === null ? null : { directory: project.directory, tool: project.tool.name },
    image: defaultImage,
    agents,
  };
}

// With --json there is one object, at the end.
async function say(call: Call, render: (look: Look) => string): Promise<void> {
  if (!call.options.json) await call.stdout.write(render(call.look), call.interruption.signal);
}

function renderFound({ status, project, agents }: Found, look: Look): string {
  const { engine } = status;
  return `${look.colours.bold('Found here')}\n${fields(
    [
      ['Engine', engine ? `${engine.version} at ${engine.socket}` : (status.unavailableReason ?? 'none')],
      [
        'Project',
        project ? `${project.directory}, with ${project.tool.name}` : 'not recognised: acode found no test command',
      ],
      ['Image', status.defaultImage],
      ['Agents', agents.join(', ') || 'none in your PATH; `acode agent` downloads one'],
    ],
    look,
  )}`;
}

function renderOutcome(outcome: Outcome, file: string, look: Look): string {
  const { green } = look.colours;
  const name = oneLine(file);
  const texts: Readonly<Record<Outcome, string>> = {
    created: `${green('✔')} created ${name}`,
    exists: `${name} exists, and acode init never changes it: \`acode config edit\` does.`,
    declined: 'Nothing was written. acode works without a file.',
  };
  return `\n${fitted(texts[outcome], look)}\n\n`;
}

function renderNext(next: readonly Suggestion[], { ok }: DoctorReport, look: Look): string {
  const { bold, cyan, dim } = look.colours;
  const title = ok ? 'Try' : 'Try, once the failed checks are corrected';
  const lines = next.map(({ type, for: what }) => `  ${cyan(type)}\n      ${dim(what)}\n`);
  return `\n${bold(title)}\n${lines.join('')}`;
}
