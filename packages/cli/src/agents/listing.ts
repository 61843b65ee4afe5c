// The commands `acode agent list`, `show` and `update`.

import {
  agentCalled,
  agentsFile,
  knownAgents,
  offeredVersion,
  pinVersion,
  platformsOf,
  platformText,
} from '@acode/agents';
import type { AgentPreset, KnownAgent } from '@acode/agents';
import type { Call } from '../call.ts';
import { NOBODY_TO_ASK, consentFor } from '../consent.ts';
import { UsageError } from '../failure/usage.ts';
import { homeDirectory } from '../serve/identity.ts';
import { canAsk } from '../terminal/ask.ts';
import { fields, table } from '../terminal/table.ts';
import { oneLine, shortPath } from '../terminal/text.ts';

/** Lists the agents. */
export async function listAgents(call: Call): Promise<number> {
  const all = await knownAgents(call.io.env);
  const items = all.map(({ preset: { name, title, version, network }, changedBy }) => ({
    name,
    title,
    version: version ?? null,
    network: network?.allow ?? [],
    changedBy,
  }));
  await call.print('acode.agents/1', { items }, look => {
    const rows = items.map(item => [
      item.name,
      item.title,
      item.version ?? 'of the image',
      item.network.join(', ') || 'none',
      item.changedBy === null ? 'acode' : 'your file',
    ]);
    return table(['NAME', 'TITLE', 'VERSION', 'NETWORK', 'FROM'], rows, look, ['TITLE', 'FROM']);
  });
  return 0;
}

/** Shows a preset. */
export async function showAgent(call: Call, name: string): Promise<number> {
  const known = await agentCalled(name, call.io.env);
  await call.print('acode.agent-preset/1', known, look => {
    const { bold } = look.colours;
    return `${bold(oneLine(known.preset.title))}\n${fields(pairsOf(call, known), look)}`;
  });
  return 0;
}

function pairsOf(call: Call, { preset, changedBy }: KnownAgent): [string, string][] {
  const { command, start } = preset;
  const line = (words: readonly string[] | undefined): string =>
    words ? [...command, ...words].join(' ') : 'no way to';
  return [
    ...programPairs(preset),
    ['command', line(start.terminal)],
    ['with a task', line(start.prompt)],
    ['going on', line(start.resumeTerminal)],
    ...networkPairs(preset),
    ['copied', copiedText(preset.copies)],
    ['from', changedBy === null ? 'acode' : shortPath(changedBy, homeDirectory(call.io.env))],
  ];
}

function programPairs(preset: AgentPreset): [string, string][] {
  const { version, program, environment = {}, settings = [] } = preset;
  const variables = Object.entries(environment).map(([key, value]) => `${key}=${value}`);
  return [
    ['version', version ?? 'the one of the image'],
    [
      'builds',
      program === undefined ? 'none: a program of the image' : platformsOf(preset).map(platformText).join(', '),
    ],
    ['variables', variables.join(' ') || 'none'],
    ['settings', settings.map(({ path }) => path).join(', ') || 'none'],
  ];
}

function networkPairs({ network, login }: AgentPreset): [string, string][] {
  const credential = network?.credential;
  const key = credential && `${credential.name}, from ${sourceText(credential)}; the sandbox has a placeholder`;
  return [
    ['network', network?.allow.join(', ') ?? 'none'],
    ['key', key ?? 'none'],
    ['login', login?.hosts.join(', ') ?? 'none'],
  ];
}

function sourceText({ from, variables = [] }: NonNullable<NonNullable<AgentPreset['network']>['credential']>): string {
  if (from === undefined) return `your configuration, else ${variables.join(' or ') || 'nowhere'}`;
  if ('env' in from) return from.env;
  return 'file' in from ? from.file : from.command.join(' ');
}

function copiedText(copies: AgentPreset['copies']): string {
  if (copies === undefined) return 'nothing';
  const texts = (copies.texts ?? []).map(({ from }) => from);
  const keys = (copies.keys ?? []).flatMap(({ from: [file = ''], keys: names = [], servers }) =>
    [...names, ...(servers === undefined ? [] : [servers.key])].map(key => `${file} ${key}`),
  );
  return `of ${copies.home.path}: ${[...texts, ...keys].join(', ')}`;
}

/** Pins another version. */
export async function updateAgent(
  call: Call,
  name: string,
  { to, yes }: { readonly to: string; readonly yes?: true | undefined },
): Promise<number> {
  const { env } = call.io;
  const { preset } = await agentCalled(name, env);
  const around = { env, workspace: (await call.place()).root, signal: call.interruption.signal };
  const offered = await call.progress.during('Asking the registry…', offeredVersion(preset, to, around));
  const { version } = offered;
  const before = preset.version ?? null;
  const file = agentsFile(env);
  const isNew = version !== before;
  if (isNew && yes !== true && !(await agrees(call, { name, before, version }))) {
    await call.say('acode: nothing was changed.\n');
    return 1;
  }
  if (isNew) await pinVersion(preset, offered, env);
  await call.print('acode.agent-update/1', { agent: name, before, version, changed: isNew, file }, () =>
    isNew
      ? `Pinned ${name} ${version} in ${shortPath(file, homeDirectory(env))}. \`acode agent ${name}\` fetches it at its next start.\n`
      : `${name} ${version} is the one that is pinned.\n`,
  );
  return 0;
}

async function agrees(
  call: Call,
  { name, before, version }: { readonly name: string; readonly before: string | null; readonly version: string },
): Promise<boolean> {
  if (!canAsk(call.io) || call.options.json)
    throw new UsageError(
      `${name} ${version} is another program than the one that acode was tried with, and there is no terminal to ask at.`,
      NOBODY_TO_ASK,
    );
  const shown = (): string =>
    `${name} ${oneLine(version)} in place of ${before ?? 'none'}: acode was not tried with it. Its hashes are those that your registry names now.\n`;
  return (await consentFor(call, { shown, question: `Pin ${name} ${oneLine(version)}?` })) !== null;
}
