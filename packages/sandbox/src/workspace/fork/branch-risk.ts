// Risky changes of commits: judged by the rules for the changes of a fork, over the tree that the newest commit has.
//
// Paths and names are byte strings (latin1).

import { lstatSync } from 'node:fs';
import type { RiskyChange } from '../../contract/result.ts';
import { targetInside, bytes, fromText } from '../directory-look.ts';
import { readSmall } from '../git-directory.ts';
import type { TreeReader } from '../git-directory.ts';
import { LINK_OUT } from '../risky-names.ts';
import type { CommittedChange } from './branch.ts';
import type { CheckedCommits, TreeItem } from './branch-quarantine.ts';
import { kindOf, pathIn, shown, split } from './layers.ts';
import { ForkRisks } from './risk.ts';
import type { RiskView } from './risk.ts';

const KINDS: ReadonlyMap<string, 'link' | 'directory'> = new Map([
  ['120000', 'link'],
  ['040000', 'directory'],
  ['160000', 'directory'],
]);

/** The risky ones among the changes of commits. */
export function risksOfCommits(checked: CheckedCommits, workspace: string): RiskyChange[] {
  const risks = new ForkRisks(new CommitView(fromText(workspace), checked));
  for (const { path, change, kind } of checked.changes) {
    const text = shown(path).text;
    risks.add({
      bytes: path,
      mode: null,
      change: { path: text, change, kind: kind === 'submodule' ? 'directory' : kind },
    });
  }
  const found = risks.finish();
  const known = new Set(found.map(({ kind, path }) => `${kind} ${path}`));
  const more = checked.changes.flatMap(change => ofOwn(change, checked.links));
  return [...found, ...more.filter(({ kind, path }) => !known.has(`${kind} ${path}`))];
}

// What the newest tree does not show: a link that a later commit takes back, and what only git knows.
function ofOwn({ path, change, kind, id }: CommittedChange, links: ReadonlyMap<string, string>): RiskyChange[] {
  if (change === 'deleted') return [];
  const text = shown(path).text;
  if (kind === 'submodule')
    return [{ path: text, kind: 'git-settings', reason: 'git fetches and checks out the commit that it names' }];
  return kind === 'link' && leadsOut(path, links.get(id)) ? [{ path: text, ...LINK_OUT }] : [];
}

// By its text alone; one that is too long to be a link counts as well.
function leadsOut(path: string, target: string | undefined): boolean {
  if (target === undefined || target.startsWith('/') || target.includes('\0')) return true;
  let depth = path.split('/').length - 1;
  for (const step of target.split('/')) {
    if (step === '' || step === '.') continue;
    depth += step === '..' ? -1 : 1;
    if (depth < 0) return true;
  }
  return false;
}

// The tree of a commit with the host’s own git directory in it, as it would be once the commit is checked out.
class CommitView implements RiskView {
  readonly root: string;
  readonly reader: Required<TreeReader>;
  readonly #items = new Map<string, TreeItem>();
  readonly #names = new Map<string, string[]>();
  readonly #links: ReadonlyMap<string, string>;

  constructor(root: string, { tree, links }: CheckedCommits) {
    this.root = root;
    this.#links = links;
    for (const item of tree) {
      this.#items.set(item.path, item);
      const { directory, name } = split(item.path);
      const names = this.#names.get(directory);
      if (names) names.push(name);
      else this.#names.set(directory, [name]);
    }
    this.reader = {
      read: (path, most, encoding) => (this.#insideTree(path) === null ? readSmall(path, most, encoding) : null),
      linkAt: path => this.#linkAt(path),
    };
  }

  at(path: string): { readonly kind: ReturnType<typeof kindOf>; readonly isHosts: boolean } | null {
    if (path === '') return { kind: 'directory', isHosts: false };
    if (isGit(path)) {
      const stats = lstatSync(bytes(pathIn(this.root, path)), { throwIfNoEntry: false });
      return stats ? { kind: kindOf(stats), isHosts: true } : null;
    }
    const item = this.#items.get(path);
    return item ? { kind: kindIn(item.mode), isHosts: false } : null;
  }

  resolve(path: string): string | null {
    const target = targetInside(this.root, path, this.reader.linkAt)?.path ?? null;
    return target === null || this.at(target) === null ? null : target;
  }

  names(path: string): readonly string[] {
    const names = this.#names.get(path) ?? [];
    return path === '' && this.at('.git') !== null ? ['.git', ...names] : names;
  }

  #linkAt(absolute: string): string | null {
    const path = this.#insideTree(absolute);
    const item = path === null ? undefined : this.#items.get(path);
    return item?.mode === '120000' ? (this.#links.get(item.id) ?? null) : null;
  }

  // Null for what is the host’s.
  #insideTree(absolute: string): string | null {
    if (!absolute.startsWith(`${this.root}/`)) return null;
    const path = absolute.slice(this.root.length + 1);
    return isGit(path) ? null : path;
  }
}

function kindIn(mode: string): 'file' | 'link' | 'directory' {
  return KINDS.get(mode) ?? 'file';
}

function isGit(path: string): boolean {
  return path === '.git' || path.startsWith('.git/');
}
