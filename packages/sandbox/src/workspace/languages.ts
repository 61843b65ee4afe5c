// Recognises what a workspace is written in, by the names of files in its top directory.
//
// Those files are untrusted: none is opened, no link is followed, and the cost is the same however many there are.

import type { Language, LanguageFound } from '../contract/languages.ts';
import { DirectoryLook, fromText, toText } from './directory-look.ts';
import { stampOf } from './file-identity.ts';

// The first of a language that is there speaks for it.
const NAMES: readonly (readonly [file: string, language: Language])[] = [
  ['global.json', 'dotnet'],
  ['go.mod', 'go'],
  ['package.json', 'node'],
  ['pyproject.toml', 'python'],
  ['requirements.txt', 'python'],
  ['setup.py', 'python'],
  ['Cargo.toml', 'rust'],
];

const PROJECT = /\.(?:sln|slnx|csproj|fsproj)$/i;

// Names with any beginning need the directory to be read, and an attacker may have put a million files there.
const MAX_ENTRIES = 1000;

let known: { readonly root: string; readonly stamp: string; readonly found: readonly LanguageFound[] } | null = null;

/**
 * The languages of a workspace, in the order of the alphabet, each once. It is asked before each command: whatever comes into
 * a directory or leaves it changes the directory’s own time, so one that has the same is not looked into again.
 */
export function recogniseLanguages(root: string): readonly LanguageFound[] {
  const stamp = stampOf(root);
  if (stamp !== null && known?.stamp === stamp && known.root === root) return known.found;
  const found = look(root);
  if (stamp !== null) known = { root, stamp, found };
  return found;
}

function look(root: string): LanguageFound[] {
  const opened = DirectoryLook.open(fromText(root));
  if (typeof opened === 'string') return [];
  using top = opened;
  const found = new Map<Language, string>();
  const project = projectFile(top);
  if (project !== null) found.set('dotnet', project);
  for (const [file, language] of NAMES)
    if (!found.has(language) && top.lstat(file)?.isFile() === true) found.set(language, file);
  return [...found].map(([language, file]) => ({ language, file })).sort((a, b) => (a.language < b.language ? -1 : 1));
}

// The first by name of those that were seen, so that one workspace has one answer whatever the file system’s order.
function projectFile(top: DirectoryLook): string | null {
  const seen: string[] = [];
  for (let count = 0; count < MAX_ENTRIES; count += 1) {
    const entry = top.next();
    if (entry === null || entry === 'unreadable') break;
    if (PROJECT.test(entry.name) && top.lstat(entry.name)?.isFile() === true) seen.push(toText(entry.name));
  }
  return seen.sort()[0] ?? null;
}
