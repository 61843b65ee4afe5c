// Packages of a workspace: read from its manifest as data. Nothing of the project is executed, no link is followed, no
// pattern leads out of the workspace, and the number of directories read is bounded.

import { basename, join, relative, sep } from 'node:path';
import { UsageError } from '../failure/usage.ts';
import { oneLine } from '../terminal/text.ts';
import { BoundedReader, isDirectory, isFile, memberOf, smallFile, smallJson } from './reading.ts';
import { markerIn } from './tools.ts';
import type { ToolName } from './names.ts';
import type { Tool } from './tools.ts';

/** A package of a workspace. */
export interface Member {
  /** Its directory, as an absolute path. */
  readonly directory: string;
  /** Its directory relative to the workspace’s manifest. */
  readonly name: string;
}

/** Where the packages are: patterns to take and patterns to leave out, and the file they are from. */
interface Patterns {
  readonly file: string;
  readonly take: readonly string[];
  readonly leave: readonly string[];
}

const MAX_MEMBERS = 200;
const MAX_PATTERNS = 200;
const MAX_PATTERN = 200;
const MAX_DEPTH = 8;
// Directories that a wildcard never enters: copies of packages, and what tools made.
const NEVER = new Set(['node_modules', 'vendor', 'target', 'testdata', 'bower_components']);

/** The packages of the workspace at a directory, in alphabetical order. */
export async function membersOf(directory: string, tool: Tool): Promise<Member[]> {
  const patterns = await PATTERNS[tool.name](directory);
  if (patterns === null) throw noWorkspace(directory, tool);
  refuseStrange(patterns);
  const reader = new BoundedReader();
  const members = await packagesIn(directory, patterns, tool, reader);
  if (reader.exhausted || members.length > MAX_MEMBERS) throw tooMany(patterns.file);
  if (members.length === 0) throw noMembers(patterns, tool);
  return members;
}

async function packagesIn(
  directory: string,
  { take, leave }: Patterns,
  tool: Tool,
  reader: BoundedReader,
): Promise<Member[]> {
  const found = new Set<string>();
  for (const pattern of take)
    for (const path of await matching(directory, segmentsOf(pattern), reader)) found.add(path);
  const left = leave.map(segmentsOf);
  const members: Member[] = [];
  for (const path of [...found].sort()) {
    const name = relative(directory, path).split(sep).join('/') || '.';
    const isLeft = left.some(segments => matches(segments, name.split('/')));
    if (!isLeft && markerIn(tool, (await reader.list(path)).files) !== null) members.push({ directory: path, name });
  }
  return members;
}

type Read = (directory: string) => Promise<Patterns | null>;

const PATTERNS: Readonly<Record<ToolName, Read>> = {
  npm: inPackageJson,
  yarn: inPackageJson,
  pnpm: inPnpmWorkspace,
  pytest: directory => inToml(directory, 'pyproject.toml', 'tool.uv.workspace'),
  cargo: directory => inToml(directory, 'Cargo.toml', 'workspace'),
  go: inGoWork,
  dotnet: inSolution,
  make: () => Promise.resolve(null),
};

async function inPackageJson(directory: string): Promise<Patterns | null> {
  const file = 'package.json';
  const declared = memberOf(await smallJson(join(directory, file)), 'workspaces');
  const list = Array.isArray(declared) ? declared : memberOf(declared, 'packages');
  return Array.isArray(list) ? withExclamations(file, list.filter(isText)) : null;
}

async function inPnpmWorkspace(directory: string): Promise<Patterns | null> {
  const file = 'pnpm-workspace.yaml';
  const text = await smallFile(join(directory, file));
  return text === null ? null : withExclamations(file, yamlList(text, 'packages'));
}

async function inToml(directory: string, file: string, section: string): Promise<Patterns | null> {
  const text = await smallFile(join(directory, file));
  const lines = text === null ? null : tomlSection(text, section);
  if (lines === null) return null;
  // Cargo counts the package at the root, if there is one, as a member.
  const own = section === 'workspace' && tomlSection(text ?? '', 'package') !== null ? ['.'] : [];
  return { file, take: [...own, ...tomlList(lines, 'members')], leave: tomlList(lines, 'exclude') };
}

async function inGoWork(directory: string): Promise<Patterns | null> {
  const file = 'go.work';
  const text = await smallFile(join(directory, file));
  // Several modules in one repository need no go.work.
  if (text === null) return { file: 'go.mod', take: ['**'], leave: [] };
  const plain = text.replaceAll(/\/\/.*$/gm, '');
  const single = [...plain.matchAll(/^[ \t]*use[ \t]+([^\s(][^\n]*)$/gm)].map(([, path = '']) => path);
  const take = [...goBlocks(plain), ...single].map(line => unquoted(line.trim()));
  return { file, take: take.filter(line => line !== ''), leave: [] };
}

// Each block once: a regular expression for whole blocks would take too long on a file that was made for it.
function goBlocks(text: string): string[] {
  const uses: string[] = [];
  const opening = /^[ \t]*use[ \t]*\(/gm;
  while (opening.test(text)) {
    const end = text.indexOf(')', opening.lastIndex);
    if (end < 0) break;
    uses.push(...text.slice(opening.lastIndex, end).split('\n'));
    opening.lastIndex = end;
  }
  return uses;
}

async function inSolution(directory: string): Promise<Patterns | null> {
  const { files } = await new BoundedReader().list(directory);
  const file = files.find(name => /\.slnx?$/i.test(name));
  const text = file === undefined ? null : await smallFile(join(directory, file));
  if (file === undefined || text === null) return null;
  const projects = [...text.matchAll(/"([^"\n]{1,300}\.(?:cs|fs|vb)proj)"/gi)].map(([, path = '']) => path);
  const folders = projects.map(path => path.split(/[\\/]/).slice(0, -1).join('/') || '.');
  return { file, take: [...new Set(folders)], leave: [] };
}

function withExclamations(file: string, list: readonly string[]): Patterns {
  const leave = list.filter(one => one.startsWith('!')).map(one => one.slice(1));
  return { file, take: list.filter(one => !one.startsWith('!')), leave };
}

function isText(value: unknown): value is string {
  return typeof value === 'string';
}

/** The items of a list of plain texts in a YAML file: `key:` with `- item` lines, or `key: [item, item]`. */
function yamlList(text: string, key: string): string[] {
  const lines = text.split(/\r?\n/);
  const at = lines.findIndex(line => line.startsWith(`${key}:`));
  if (at < 0) return [];
  const after = withoutComment((lines[at] ?? '').slice(key.length + 1)).trim();
  if (after.startsWith('['))
    return after
      .slice(1, after.lastIndexOf(']'))
      .split(',')
      .map(item => unquoted(item.trim()))
      .filter(Boolean);
  const items: string[] = [];
  for (const line of lines.slice(at + 1)) {
    const item = /^\s*-\s+(.*)$/.exec(line)?.[1];
    if (item !== undefined) items.push(unquoted(withoutComment(item).trim()));
    else if (withoutComment(line).trim() !== '') break;
  }
  return items.filter(Boolean);
}

/** The lines of a section of a TOML file, without comments; null if there is no such section. */
function tomlSection(text: string, section: string): string | null {
  const lines = text.split(/\r?\n/);
  const at = lines.findIndex(line => withoutComment(line).trim() === `[${section}]`);
  if (at < 0) return null;
  const rest = lines.slice(at + 1);
  const end = rest.findIndex(
    line => /^\s*\[{1,2}[\w."' -]+\]{1,2}\s*(?:#.*)?$/.test(line) && !/^\s*\[\s*["']/.test(line),
  );
  return (end < 0 ? rest : rest.slice(0, end)).map(withoutComment).join('\n');
}

/** A list of texts in a section of a TOML file. */
function tomlList(lines: string, key: string): string[] {
  const found = new RegExp(`^[ \\t]*${key}[ \\t]*=[ \\t]*\\[`, 'm').exec(lines);
  const from = found ? found.index + found[0].length : lines.length;
  const list = lines.slice(from, Math.max(from, lines.indexOf(']', from)));
  return [...list.matchAll(/"([^"\n]*)"|'([^'\n]*)'/g)].map(([, one, other]) => one ?? other ?? '').filter(Boolean);
}

// A `#` inside quotes is part of the text.
function withoutComment(line: string): string {
  return /^(?:"[^"]*"|'[^']*'|[^"'#])*/.exec(line)?.[0] ?? line;
}

function unquoted(text: string): string {
  return /^(["'`])(.*)\1$/.exec(text)?.[2] ?? text;
}

function refuseStrange({ file, take, leave }: Patterns): void {
  const all = [...take, ...leave];
  if (all.length > MAX_PATTERNS) throw tooMany(file);
  const strange = all.find(pattern => pattern.length > MAX_PATTERN || isStrange(pattern));
  if (strange === undefined) return;
  throw new UsageError(
    `${file} names packages with ${JSON.stringify(oneLine(strange.slice(0, MAX_PATTERN)))}, which acode does not follow.`,
    'It follows relative paths inside the workspace, with `*`, `**` and `?`. Without --parallel the tool reads the file itself.',
  );
}

function isStrange(pattern: string): boolean {
  return pattern.startsWith('/') || /[\0\\{}[\]()]/.test(pattern) || pattern.split('/').includes('..');
}

function segmentsOf(pattern: string): string[] {
  return pattern.split('/').filter(segment => segment !== '' && segment !== '.');
}

// The directories that segments of a pattern lead to, from a directory. Links are no directories here.
async function matching(
  from: string,
  segments: readonly string[],
  reader: BoundedReader,
  depth = 0,
): Promise<string[]> {
  const [first, ...rest] = segments;
  if (first === undefined) return (await isDirectory(from)) ? [from] : [];
  if (depth > MAX_DEPTH || reader.exhausted) return [];
  if (/[*?]/.test(first)) return matchingWildcard(from, first, rest, reader, depth + 1);
  const next = join(from, first);
  return (await isDirectory(next)) ? matching(next, rest, reader, depth + 1) : [];
}

async function matchingWildcard(
  from: string,
  first: string,
  rest: readonly string[],
  reader: BoundedReader,
  depth: number,
): Promise<string[]> {
  const any = first === '**';
  const found = any ? await matching(from, rest, reader, depth) : [];
  for (const path of await reader.below(from)) {
    const name = basename(path);
    if (NEVER.has(name) || name.startsWith('.') || !(any || matchesName(first, name))) continue;
    found.push(...(await matching(path, any ? [first, ...rest] : rest, reader, depth)));
  }
  return [...new Set(found)];
}

function matches(segments: readonly string[], names: readonly string[]): boolean {
  return matchesAll(segments, names, '**', matchesName);
}

function matchesName(pattern: string, name: string): boolean {
  return matchesAll(pattern.split(''), name.split(''), '*', (one, other) => one === '?' || one === other);
}

// By hand, and back to the last wildcard only: a pattern with many of them must not take long on names made for it.
function matchesAll(
  pattern: readonly string[],
  names: readonly string[],
  wildcard: string,
  isSame: (one: string, name: string) => boolean,
): boolean {
  let at = 0;
  let reached = 0;
  let star = -1;
  let mark = 0;
  while (reached < names.length) {
    const one = pattern[at];
    if (one === wildcard) {
      star = at++;
      mark = reached;
    } else if (one !== undefined && isSame(one, names[reached] ?? '')) {
      at++;
      reached++;
    } else if (star >= 0) {
      at = star + 1;
      reached = ++mark;
    } else return false;
  }
  while (pattern[at] === wildcard) at++;
  return at === pattern.length;
}

const WORKSPACE_FILES: Readonly<Record<ToolName, string>> = {
  npm: '`workspaces` in package.json',
  yarn: '`workspaces` in package.json',
  pnpm: 'pnpm-workspace.yaml',
  pytest: '`[tool.uv.workspace]` in pyproject.toml',
  cargo: '`[workspace]` in Cargo.toml',
  go: 'go.work, or go.mod in directories below',
  dotnet: 'a solution (*.sln, *.slnx)',
  make: 'nothing: make has no workspaces',
};

function noWorkspace(directory: string, { name }: Tool): UsageError {
  return new UsageError(
    `--parallel needs a workspace of several packages, and ${oneLine(directory)} is none.`,
    `Looked for ${WORKSPACE_FILES[name]}. Leave --parallel out to run one command.`,
  );
}

function noMembers({ file, take }: Patterns, { name, markers }: Tool): UsageError {
  const shown =
    take
      .slice(0, 5)
      .map(pattern => oneLine(pattern))
      .join(', ') || 'nothing';
  return new UsageError(
    `${file} names no directory that holds a package of ${name}.`,
    `It names ${shown}; each package needs ${markers.join(' or ')}. Leave --parallel out to run one command.`,
  );
}

function tooMany(file: string): UsageError {
  return new UsageError(
    `The packages that ${file} names are more than acode reads: ${MAX_MEMBERS} packages, or 20,000 entries of directories.`,
    'Change into a directory with fewer of them, or leave --parallel out.',
  );
}

/** Whether a directory holds a workspace file of a tool. */
export async function isWorkspaceRoot(directory: string, { name }: Tool): Promise<boolean> {
  if (name === 'go') return isFile(join(directory, 'go.work'));
  return (await PATTERNS[name](directory)) !== null;
}
