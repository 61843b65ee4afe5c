// Risky changes of a fork: those of its diff that programs on the host might execute or follow, by the rules of the scan after a run.
//
// The list of changes is complete, so that nothing has to be searched for. Only what leads to a changed path is read besides: links
// with risky names, `.git` files and the configuration of repositories, in the directories around the changes. Such a file of the
// host elsewhere is not found.
//
// Paths and names are byte strings (latin1). Untrusted code has filled the layers: no link is followed.

import { closeSync, fstatSync, readSync } from 'node:fs';
import type { Stats } from 'node:fs';
import type { RiskyChange, RiskyKind } from '../../contract/result.ts';
import { targetInside, writtenInside } from '../directory-look.ts';
import { CONFIG_FILES, HOOKS, commonDirectory, gitfileTarget, namedInside } from '../git-directory.ts';
import type { TreeReader } from '../git-directory.ts';
import { isInstalled, riskAt, roleOf } from '../regions.ts';
import type { Region, Visit } from '../regions.ts';
import {
  BARE_REPOSITORY,
  ENVIRONMENT,
  LINK_OUT,
  NAMED_BY_GIT,
  PRIVILEGED,
  riskOfDirectory,
  riskOfHolder,
  specialFile,
} from '../risky-names.ts';
import type { Risk } from '../risky-names.ts';
import { ROOT, notLookedAt } from '../risky.ts';
import type { ForkDiffEntry } from './diff.ts';
import { LayerStack, kindOf, pathIn, shown, split } from './layers.ts';
import type { MergedDirectory } from './layers.ts';

/** The most risky changes of each kind that are listed. A kind that occurs is always listed. */
const MAX_OF_KIND = 1000;
const MAX_REPOSITORIES = 64;
const MAX_POINTER_BYTES = 4096;
// Of one directory: each is judged by all of them.
const MAX_ALIASES = 16;
const SETUID_SETGID = 0o6000;
const OTHER_BARE_PARTS = ['config', 'config.worktree', 'commondir', 'objects', 'refs'];

// What leads to paths of the fork.
interface Leads {
  /** Directories that a link or a `.git` file leads to, with the names that they have there. */
  readonly aliases: Map<string, string[]>;
  /** Directories of hooks that the configuration of a repository names, with the key that does. */
  readonly hooks: Map<string, string>;
  /** Files that it names. */
  readonly files: Map<string, Risk>;
}

/** A tree in which changes are judged: that of a fork, or of a commit. Paths are relative to `root`. */
export interface RiskView {
  /** The workspace. */
  readonly root: string;
  /** Reads the tree at paths below the workspace, and the host elsewhere. */
  readonly reader: Required<TreeReader>;
  /** What is at a path; null for nothing. */
  at(path: string): { readonly kind: ReturnType<typeof kindOf>; readonly isHosts: boolean } | null;
  /** Where a path leads inside, links followed; null where it leads out, or nowhere. */
  resolve(path: string): string | null;
  /** Names in a directory. */
  names(path: string): readonly string[];
}

/** Finds the risky ones among changes of a fork. */
export class ForkRisks {
  readonly #view: RiskView;
  readonly #visits = new Map<string, Visit>([['', ROOT]]);
  readonly #found = new Map<RiskyKind, RiskyChange[]>();
  readonly #known = new Set<string>();
  readonly #unseen = new Set<string>();
  readonly #written: string[] = [];
  readonly #directories = new Set<string>(['']);

  constructor(tree: LayerStack | RiskView) {
    this.#view = tree instanceof LayerStack ? new MergedView(tree) : tree;
    if (this.#isBare('')) this.#visits.set('', { ...ROOT, region: { ...BARE_REPOSITORY, path: '', reported: false } });
  }

  /** Judges a change by its name, its kind and its mode. */
  add(entry: Pick<ForkDiffEntry, 'change' | 'bytes' | 'mode'>): void {
    const { change, bytes: path } = entry;
    const { directory, name } = split(path);
    const visit = this.#visitOf(directory);
    const isRegion = change.kind === 'directory' || name.toLowerCase() === '.git';
    const region = visit.region ?? (isRegion ? this.#visitOf(path).region : null);
    if (region?.whole) this.#add(region.path, region);
    if (change.kind === 'directory') this.#addDirectory(path, change);
    else if (change.change !== 'deleted') this.#addFile(entry, visit, region);
  }

  #addDirectory(path: string, { change, gap }: ForkDiffEntry['change']): void {
    if (gap !== undefined) this.#unseen.add(`${shown(path).text} could not be read`);
    if (change !== 'deleted') this.#directories.add(path);
  }

  #addFile(
    { change, bytes: path, mode }: Pick<ForkDiffEntry, 'change' | 'bytes' | 'mode'>,
    visit: Visit,
    region: Region | null,
  ): void {
    this.#written.push(path);
    this.#directories.add(visit.path);
    if (region?.whole) return;
    for (const risk of [riskAt(visit, split(path).name), ofKind(change.kind, mode)]) if (risk) this.#add(path, risk);
    if (change.kind === 'link') this.#addLink(path, visit);
  }

  /** The risky changes: by path, and a note where something could not be read. */
  finish(): RiskyChange[] {
    const leads = this.#leads();
    for (const path of this.#written) this.#addLed(path, leads);
    const found = [...this.#found.values()].flat().sort(byPath);
    return this.#unseen.size === 0 ? found : [...found, notLookedAt([...this.#unseen].join('; '))];
  }

  #addLed(path: string, { aliases, hooks, files }: Leads): void {
    const { directory, name } = split(path);
    const key = hooks.get(directory);
    if (key !== undefined && (directory !== '' || HOOKS.has(name))) this.#add(path, NAMED_BY_GIT.hooks(key));
    const risk = files.get(path);
    if (risk) this.#add(path, risk);
    if (aliases.size === 0) return;
    for (const at of [...ancestors(directory), ''])
      for (const as of aliases.get(at) ?? []) this.#addUnder(path, at, as);
  }

  // What a directory is to the tools of the host, by the names on the way to it.
  #visitOf(path: string): Visit {
    const known = this.#visits.get(path);
    if (known) return known;
    const { directory, name } = split(path);
    const parent = this.#visitOf(directory);
    const installed = parent.installed || isInstalled(name, parent.name);
    const region = parent.region ?? this.#regionAt(parent, path, name, installed);
    const visit = { ...ROOT, path, name, depth: parent.depth + 1, region, installed };
    this.#visits.set(path, visit);
    return visit;
  }

  #regionAt(parent: Visit, path: string, name: string, installed: boolean): Region | null {
    const byName = installed && name.toLowerCase() !== '.git' ? null : riskOfDirectory(name, parent.name);
    const isEnvironment = name === 'bin' && this.#view.at(pathIn(parent.path, 'pyvenv.cfg')) !== null;
    const risk = byName ?? (isEnvironment ? ENVIRONMENT : this.#isBare(path) ? BARE_REPOSITORY : null);
    return risk && { ...risk, path, reported: false };
  }

  // At least two of the parts that git asks for, HEAD among them.
  #isBare(path: string): boolean {
    if (this.#view.at(pathIn(path, 'HEAD')) === null) return false;
    return OTHER_BARE_PARTS.some(part => this.#view.at(pathIn(path, part)) !== null);
  }

  #addLink(path: string, visit: Visit): void {
    const { name } = split(path);
    const role = roleOf(visit, name, other => this.#view.resolve(pathIn(visit.path, other)) !== null);
    if (role) this.#add(path, role);
    if (targetInside(this.#view.root, path, this.#view.reader.linkAt) === null) this.#add(path, LINK_OUT);
  }

  // The change under the name by which tools reach it.
  #addUnder(path: string, target: string, as: string): void {
    const under = pathIn(as, target === '' ? path : path.slice(target.length + 1));
    const { directory, name } = split(under);
    const visit = this.#visitOf(directory);
    const risk = visit.region?.whole ? visit.region : riskAt(visit, name);
    if (risk) this.#add(path, { kind: risk.kind, reason: `${risk.reason}; ${shown(as).text} leads there` });
  }

  // What leads from the directories around the changes to others in the workspace.
  #leads(): Leads {
    const leads: Leads = { aliases: new Map(), hooks: new Map(), files: new Map() };
    const around = new Set(['', ...[...this.#directories].flatMap(ancestors)]);
    const gitdirs = [...around].flatMap(directory => this.#leadsIn(directory, leads));
    if (gitdirs.length > MAX_REPOSITORIES)
      this.#unseen.add(`the settings of only ${MAX_REPOSITORIES} repositories were read`);
    for (const path of gitdirs.slice(0, MAX_REPOSITORIES)) this.#readConfig(path, leads);
    this.#readConfigOutside(leads);
    return leads;
  }

  // The repositories in a directory.
  #leadsIn(directory: string, leads: Leads): string[] {
    const visit = this.#visitOf(directory);
    if (visit.installed || visit.region?.whole) return [];
    const paths = this.#view.names(directory).filter(name => mayLead(name, visit.name));
    return paths.flatMap(name => {
      const path = pathIn(directory, name);
      const target = this.#leadOf(path);
      if (target === null) return [];
      if (target !== path) addAlias(leads, target, path);
      return name.toLowerCase() === '.git' ? [path] : [];
    });
  }

  // The directory that a name stands for; null where it is none, or outside.
  #leadOf(path: string): string | null {
    const { root, reader } = this.#view;
    const kind = this.#view.at(path)?.kind;
    if (kind === 'directory') return path;
    if (kind === 'link') return this.#view.resolve(path);
    if (kind !== 'file' || split(path).name.toLowerCase() !== '.git') return null;
    const written = gitfileTarget(`${root}/${path}`, reader);
    const inside = written === null ? null : writtenInside(root, split(path).directory, written);
    return inside === null ? null : this.#view.resolve(inside);
  }

  #readConfig(as: string, leads: Leads): void {
    const { root, reader } = this.#view;
    const gitdir = this.#leadOf(as) ?? as;
    const common = commonDirectory(root, gitdir, reader);
    if (common !== null && common !== gitdir) addAlias(leads, common, as);
    const directories = [gitdir, ...(common === null ? [] : [common])];
    const gitdirs = directories.map(directory => `${root}/${directory}`);
    this.#takeNamed(gitdirs, split(as).directory, leads);
  }

  // Of a worktree of git, the repository is elsewhere on the host; it counts only if the fork left the `.git` file as it is.
  #readConfigOutside(leads: Leads): void {
    const { root, reader } = this.#view;
    if (this.#view.at('.git')?.isHosts !== true) return;
    const gitdir = gitfileTarget(`${root}/.git`);
    if (!gitdir?.startsWith('/') || writtenInside(root, '', gitdir) !== null) return;
    const common = reader.read(`${gitdir}/commondir`, MAX_POINTER_BYTES, 'latin1')?.trim() ?? '';
    const shared = common === '' ? [] : [common.startsWith('/') ? common : `${gitdir}/${common}`];
    this.#takeNamed([gitdir, ...shared], '', leads);
  }

  #takeNamed(gitdirs: readonly string[], worktree: string, { hooks, files }: Leads): void {
    const { root, reader } = this.#view;
    const configs = gitdirs.flatMap(gitdir => CONFIG_FILES.map(file => `${gitdir}/${file}`));
    for (const { as, path, key } of namedInside(root, configs, worktree, () => false, reader)) {
      const target = this.#view.resolve(path);
      if (target === null) continue;
      if (as === 'hooks') hooks.set(target, key);
      files.set(target, NAMED_BY_GIT[as](key));
    }
  }

  #add(path: string, { kind, reason }: Risk): void {
    const text = path === '' ? '.' : shown(path).text;
    const key = `${kind} ${text}`;
    const list = this.#found.get(kind) ?? [];
    if (this.#known.has(key) || list.length >= MAX_OF_KIND) return;
    this.#known.add(key);
    this.#found.set(kind, list);
    list.push({ path: text, kind, reason });
  }
}

// A fork as the overlay shows it: its layers, and the workspace where it shows through.
class MergedView implements RiskView {
  /** The workspace. */
  readonly root: string;
  readonly #layers: LayerStack;
  readonly #directories = new Map<string, MergedDirectory | null>();
  /** Reads the fork at paths below the workspace, and the host elsewhere. */
  readonly reader: Required<TreeReader>;

  constructor(layers: LayerStack) {
    this.#layers = layers;
    this.root = layers.workspace;
    this.#directories.set('', layers.root);
    this.reader = {
      read: (path, most, encoding) => this.#read(path, most, encoding),
      linkAt: path => this.#linkAt(path),
    };
  }

  /** What is at a path; null for nothing. */
  at(path: string): { readonly kind: ReturnType<typeof kindOf>; readonly isHosts: boolean } | null {
    const found = this.#found(path);
    return found && { kind: kindOf(found.stats), isHosts: found.top === this.root };
  }

  /** Where a path leads inside, links followed; null where it leads out, or nowhere. */
  resolve(path: string): string | null {
    const target = targetInside(this.root, path, this.reader.linkAt)?.path ?? null;
    return target === null || this.at(target) === null ? null : target;
  }

  /** Names in a directory. */
  names(path: string): readonly string[] {
    const directory = this.#directory(path);
    if (!directory) return [];
    const own = this.#layers.names(directory);
    const hosts = directory.showsWorkspace ? this.#layers.files.list(pathIn(this.root, path)) : [];
    return [...new Set([own, hosts].flatMap(names => (typeof names === 'string' ? [] : [...names])))];
  }

  #found(path: string): { readonly stats: Stats; readonly top: string } | null {
    if (path === '') {
      const stats = this.#layers.files.lstat(this.root, '.');
      return stats && { stats, top: this.root };
    }
    const { directory: above, name } = split(path);
    const directory = this.#directory(above);
    if (!directory) return null;
    const entry = this.#layers.entry(directory, name);
    if (entry.is === 'whiteout') return null;
    if (entry.is !== 'nothing') return { stats: entry.stats, top: this.#layers.upper(entry.layer) };
    const stats = directory.showsWorkspace ? this.#layers.host(above, name) : null;
    return stats && { stats, top: this.root };
  }

  #directory(path: string): MergedDirectory | null {
    const known = this.#directories.get(path);
    if (known !== undefined) return known;
    const { directory: above, name } = split(path);
    const parent = this.#directory(above);
    const found = parent && this.#below(parent, path, name);
    this.#directories.set(path, found);
    return found;
  }

  #below(parent: MergedDirectory, path: string, name: string): MergedDirectory | null {
    const entry = this.#layers.entry(parent, name);
    if (entry.is === 'directory') return entry.directory;
    if (entry.is !== 'nothing' || !parent.showsWorkspace) return null;
    return this.#layers.host(parent.path, name)?.isDirectory() ? { path, parts: [], showsWorkspace: true } : null;
  }

  #linkAt(absolute: string): string | null {
    const path = this.#inside(absolute);
    const found = path === null ? null : this.#found(path);
    if (path === null || !found?.stats.isSymbolicLink()) return null;
    const { directory, name } = split(path);
    return this.#layers.files.readlink(pathIn(found.top, directory), name);
  }

  #read(absolute: string, most: number, encoding: 'utf8' | 'latin1'): string | null {
    const path = this.#inside(absolute);
    const found = path === null ? null : this.#found(path);
    if (path !== null && !found) return null;
    const { directory, name } = split(found ? `${found.top}/${path}` : absolute);
    const file = this.#layers.files.openFile(directory, name);
    if (file === null) return null;
    try {
      if (!fstatSync(file).isFile()) return null;
      const buffer = Buffer.alloc(most);
      return buffer.toString(encoding, 0, readSync(file, buffer, 0, most, 0));
    } finally {
      closeSync(file);
    }
  }

  #inside(absolute: string): string | null {
    if (absolute === this.root) return '';
    if (!absolute.startsWith(`${this.root}/`)) return null;
    return absolute
      .slice(this.root.length + 1)
      .split('/')
      .filter(step => step !== '' && step !== '.')
      .join('/');
  }
}

function ofKind(kind: ForkDiffEntry['change']['kind'], mode: number | null): Risk | null {
  if (kind === 'file') return ((mode ?? 0) & SETUID_SETGID) === 0 ? null : PRIVILEGED;
  return kind === 'fifo' || kind === 'socket' || kind === 'device' ? specialFile(kind) : null;
}

// Names that may be a link, or a `.git` file, which makes another directory what its own name does not say.
function mayLead(name: string, parent: string): boolean {
  return riskOfDirectory(name, parent) !== null || riskOfHolder(name) !== null || name === 'bin' || name === 'tools';
}

function addAlias({ aliases }: Leads, target: string, as: string): void {
  const known = aliases.get(target) ?? [];
  if (known.length < MAX_ALIASES) aliases.set(target, [...known, as]);
}

// A directory and those around it, without the top.
function ancestors(path: string): string[] {
  const all: string[] = [];
  for (let at = path; at !== ''; at = split(at).directory) all.push(at);
  return all;
}

function byPath(one: RiskyChange, other: RiskyChange): number {
  return one.path === other.path ? (one.kind < other.kind ? -1 : 1) : one.path < other.path ? -1 : 1;
}
