// What `acode config` does: values with their places, changes that are checked before they are written, problems of files.

import { spawn } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { AcodeError } from '@acode/sandbox';
import type {
  CheckedConfigFile,
  ConfigChange,
  ConfigFile,
  ConfigLayer,
  ConfigPlan,
  ConfigValue,
  Configuration,
} from '@acode/sandbox';
import type { Call } from '../call.ts';
import { consentTo } from '../consent.ts';
import { UsageError } from '../failure/usage.ts';
import { ask, canAsk } from '../terminal/ask.ts';
import type { Look } from '../terminal/look.ts';
import { table } from '../terminal/table.ts';
import { oneLine, plural } from '../terminal/text.ts';
import { wrapped } from '../terminal/wrap.ts';

const SCHEMA = 'acode.config/1';
const PROBLEM = 1;

/** The configuration files of a call. */
export async function configurationOf(call: Call): Promise<Configuration> {
  const { Acode } = await import('@acode/sandbox');
  const { workspace, configFile } = await call.hostOptions();
  return Acode.configuration({
    ...(workspace === undefined ? {} : { workspace }),
    ...(configFile === undefined ? {} : { configFile }),
  });
}

/** Shows what is set. */
export async function showValues(call: Call, key: string | undefined): Promise<number> {
  const items = await (await configurationOf(call)).get(key);
  await call.print(SCHEMA, { items }, look => (key === undefined ? renderAll(items, look) : renderOne(key, items)));
  return key !== undefined && items.length === 0 ? PROBLEM : 0;
}

const WHOSE: Readonly<Record<ConfigLayer, string>> = {
  user: 'your own file',
  team: 'the team’s defaults',
  machine: 'the machine’s policy',
  repository: 'the repository’s file',
};

function renderAll(items: readonly ConfigValue[], look: Look): string {
  if (items.length === 0)
    return 'Nothing is set: the built-in values apply. `acode config set <key> <value>` sets one.\n';
  const rows = items.map(({ key, value, layer, where, overridden }) => [
    key,
    shown(value),
    overridden ? `${layer}, overridden` : layer,
    where,
  ]);
  const lines = [['KEY', 'VALUE', 'SET BY', 'WHERE'], ...rows];
  const widths = [0, 1, 2, 3].map(column => Math.max(...lines.map(line => (line[column] ?? '').length)));
  const needed = widths.reduce((sum, width) => sum + width + 2, -2);
  // Keys, values and places are never cut: half a path is of no use.
  if (look.width === null || needed <= look.width) return table(['KEY', 'VALUE', 'SET BY', 'WHERE'], rows, look);
  return items.map(item => renderValue(item)).join('');
}

function renderOne(key: string, items: readonly ConfigValue[]): string {
  if (items.length > 0) return items.map(item => renderValue(item)).join('');
  return `${oneLine(key)} is not set. The built-in value applies; \`acode explain -- <command>\` shows it.\n`;
}

function renderValue({ key, value, layer, where, overridden }: ConfigValue): string {
  const by = overridden ? `${WHOSE[layer]}, overridden` : WHOSE[layer];
  return `${oneLine(key)}: ${oneLine(shown(value))}\n  ${by}, ${oneLine(where)}\n`;
}

function shown(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value);
}

/** Shows where the files are. */
export async function showFiles(call: Call, layer: ConfigLayer | undefined): Promise<number> {
  const all = await (await configurationOf(call)).files();
  const items = layer === undefined ? all : all.filter(file => file.layer === layer);
  await call.print(SCHEMA, { items }, look => (layer === undefined ? renderFiles(items, look) : paths(items)));
  return 0;
}

function paths(items: readonly ConfigFile[]): string {
  return items.map(({ path }) => `${oneLine(path)}\n`).join('');
}

const ABOUT: Readonly<Record<ConfigLayer, string>> = {
  repository: 'may tighten',
  user: 'yours',
  team: 'defaults',
  machine: 'upper limits for all of them',
};

function renderFiles(items: readonly ConfigFile[], { colours: { bold, dim } }: Look): string {
  return items
    .map(({ layer, path, exists }) => {
      const state = exists ? bold('exists') : dim('does not exist');
      return `${oneLine(path)}\n  ${layer} (${ABOUT[layer]}), ${state}\n`;
    })
    .join('');
}

/** Checks files; 1 where one has a problem. */
export async function checkFiles(call: Call, file: string | undefined, as: ConfigLayer | undefined): Promise<number> {
  if (file === undefined && as !== undefined)
    throw new UsageError('--as needs a file.', `Write \`acode config check --as ${as} <file>\`.`);
  const configuration = await configurationOf(call);
  const checked = await configuration.check(file === undefined ? undefined : resolve(call.io.cwd(), file), as);
  const items = file === undefined ? await withTrust(call, checked) : checked;
  const ok = items.every(({ problems }) => problems.length === 0);
  await call.print(SCHEMA, { ok, items }, look => renderCheck(items, look));
  return ok ? 0 : PROBLEM;
}

// A valid file of a repository may still keep every command from running, until a person trusts it.
async function withTrust(call: Call, items: readonly CheckedConfigFile[]): Promise<readonly CheckedConfigFile[]> {
  const isThere = items.some(({ layer, exists }) => layer === 'repository' && exists);
  if (!isThere || items.some(({ problems }) => problems.length > 0)) return items;
  const { trusted, needsTrust } = await call.withObserver(observer => observer.trust.show());
  if (trusted || needsTrust.length === 0) return items;
  const keys = [...new Set(needsTrust.map(({ key }) => key))].join(', ');
  const warning = `commands are refused until you trust it, because it sets ${keys}: read it, and run \`acode trust\``;
  return items.map(item => (item.layer === 'repository' ? { ...item, warnings: [...item.warnings, warning] } : item));
}

function renderCheck(items: readonly CheckedConfigFile[], look: Look): string {
  const lines = items.flatMap(item => fileLines(item, look));
  const problems = items.reduce((sum, item) => sum + item.problems.length, 0);
  const { bold, green, red } = look.colours;
  const end = problems === 0 ? green(bold('No problem found')) : red(bold(plural(problems, 'problem')));
  return `${[...lines, end].join('\n')}\n`;
}

function fileLines({ path, layer, exists, problems, warnings }: CheckedConfigFile, look: Look): string[] {
  const { dim, green, red, yellow } = look.colours;
  const name = `${oneLine(path)} ${dim(`(${layer})`)}`;
  const notes = warnings.flatMap(warning => folded(`${yellow('warning:')} ${oneLine(warning)}`, look, '  '));
  if (!exists) return [`${dim('–')} ${name}: does not exist`];
  if (problems.length === 0) return [`${green('✓')} ${name}`, ...notes];
  return [
    `${red('✗')} ${name}`,
    ...problems.flatMap(({ message, hint }) => [
      ...folded(oneLine(message), look, '  '),
      ...folded(`${dim('╰▶')} ${oneLine(hint)}`, look, '  '),
    ]),
    ...notes,
  ];
}

function folded(text: string, { width }: Look, lead: string): string[] {
  return wrapped(text, width === null ? null : width - lead.length).map(line => lead + line);
}

/** Changes the user’s own file. */
export async function change(call: Call, wanted: ConfigChange, yes: boolean): Promise<number> {
  const configuration = await configurationOf(call);
  const plan = await configuration.plan(wanted);
  return install(call, configuration, plan, yes);
}

async function install(call: Call, configuration: Configuration, plan: ConfigPlan, yes: boolean): Promise<number> {
  const { file, before, after, loosens } = plan;
  const changed = after !== (before ?? '') || (before === null && after !== '');
  if (changed) {
    const loosened = loosens.map(({ key, value, allows }) => ({
      what: value === undefined ? `${key} (taken out)` : `${key}: ${shown(value)}`,
      allows,
    }));
    const consent =
      loosens.length === 0 ? undefined : await consentTo(call, loosened, { question: 'acode: Change the file?', yes });
    if (consent === null) {
      await call.say('acode: Nothing was changed.\n');
      return PROBLEM;
    }
    await configuration.install(plan, consent);
  }
  await call.print(SCHEMA, { file, changed, created: changed && before === null, loosens }, () =>
    changed ? `${before === null ? 'Created' : 'Changed'} ${oneLine(file)}\n` : `${oneLine(file)} says so already.\n`,
  );
  return 0;
}

/** Lets the user edit a copy of their file, until it is valid or they give up. */
export async function editFile(call: Call, yes: boolean): Promise<number> {
  const editor = call.io.env['VISUAL'] || call.io.env['EDITOR'];
  if (!editor)
    throw new UsageError(
      'There is no editor to open: neither VISUAL nor EDITOR is set.',
      'Name one, as in `EDITOR=nano acode config edit`, or change single keys with `acode config set <key> <value>`.',
    );
  const configuration = await configurationOf(call);
  const before = await configuration.read();
  // Only its owner can enter a directory that mkdtemp made.
  const directory = await mkdtemp(join(tmpdir(), 'acode-edit-'));
  try {
    const copy = join(directory, 'config.yml');
    await writeFile(copy, before ?? configuration.newFile(), { mode: 0o600 });
    for (;;) {
      await opened(editor, copy);
      const text = await readFile(copy, 'utf8');
      if (text === (before ?? configuration.newFile())) {
        await call.say('acode: Nothing was changed.\n');
        return 0;
      }
      const plan = await planned(call, configuration, text);
      if (plan) return await install(call, configuration, plan, yes);
      if (!canAsk(call.io)) return PROBLEM;
      if (!(await ask(call.io, 'acode: Edit it again?', call.interruption.signal, true))) {
        await call.say('acode: Nothing was changed.\n');
        return PROBLEM;
      }
    }
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

// The plan, or null where the text is not valid: every problem is shown, with its line in the copy.
async function planned(call: Call, configuration: Configuration, text: string): Promise<ConfigPlan | null> {
  try {
    return await configuration.plan({ kind: 'text', text });
  } catch (error) {
    if (!(error instanceof AcodeError)) throw error;
    const problems = await configuration.problemsIn(text);
    const lines = problems.flatMap(({ message, hint }) => [
      ...folded(oneLine(message), call.errorLook, '  '),
      ...folded(`╰▶ ${oneLine(hint)}`, call.errorLook, '  '),
    ]);
    await call.say(`acode: The edited text is not valid, so it was not installed:\n${lines.join('\n')}\n`);
    return null;
  }
}

// The variable may hold options too, as every program that reads it allows: `code --wait`.
async function opened(editor: string, file: string): Promise<void> {
  const child = spawn('/bin/sh', ['-c', `${editor} "$1"`, 'sh', file], { stdio: 'inherit' });
  const status = await new Promise<number | null>((done, failed) => {
    child.on('error', failed);
    child.on('close', done);
  });
  if (status === 0) return;
  throw new UsageError(
    `The editor ended with status ${status ?? 'unknown'}, so nothing was changed.`,
    `It was called as \`${oneLine(editor)} ${file}\`: check VISUAL and EDITOR.`,
  );
}
