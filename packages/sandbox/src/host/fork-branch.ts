// Commits of a fork as a branch of the host’s repository: bundled by git in a sandbox, checked in quarantine, judged, and written by acode.
//
// git on the host opens neither the fork’s git directory nor that of the workspace: both may name programs that git would run.

import { randomBytes } from 'node:crypto';
import { closeSync, constants, fstatSync, openSync } from 'node:fs';
import { join } from 'node:path';
import { AcodeError } from '../contract/errors.ts';
import type { ForkBranchFound, ForkBranchRequest, ForkBranched } from '../contract/forks.ts';
import type { ForkDiffCounts } from '../contract/fork.ts';
import { policyFrom } from '../contract/policy.ts';
import { codeOf } from '../contract/system-error.ts';
import { underLock } from '../run/forking.ts';
import type { Host } from '../run/host.ts';
import { start } from '../run/run.ts';
import { BranchRefusal, branchNameProblem } from '../workspace/fork/branch.ts';
import type { CommittedChange } from '../workspace/fork/branch.ts';
import { HostRepository } from '../workspace/fork/branch-host.ts';
import { Quarantine, gitProgram } from '../workspace/fork/branch-quarantine.ts';
import type { CheckedCommits, HostHistory } from '../workspace/fork/branch-quarantine.ts';
import { risksOfCommits } from '../workspace/fork/branch-risk.ts';
import { shown } from '../workspace/fork/layers.ts';
import type { ForkRecord } from '../workspace/fork/record.ts';
import type { ForkStore } from '../workspace/fork/store.ts';
import { OpenDirectory } from '../workspace/fork/tree.ts';
import { protectionsIn } from '../workspace/protected-paths.ts';
import { WayOut, refuseReplaced } from './fork-apply.ts';

/** A fork whose commits leave it. Nothing had its layers mounted a moment ago. */
export interface Branching {
  readonly host: Host;
  readonly store: ForkStore;
  readonly record: ForkRecord;
  /** The workspace of this host. */
  readonly workspace: string;
}

const LOCK_MS = 10_000;
// A few refs are enough: commits made in a fork build on what the host has checked out.
const MAX_EXCLUDED = 400;
const MAX_NAMED = 5;

// The exit status of the script in the sandbox, by what it found.
const NO_GIT = 64;
const NO_REPOSITORY = 65;
const NOTHING = 66;
const NO_LFS = 67;

// Runs in a sandbox, on the fork: git may do there what the fork’s configuration says. It writes below one directory, of a layer that is
// taken back. The commits that the host has come on standard input.
//
// Arguments: message and date of a commit, then pathspecs that it leaves out.
const SCRIPT = `set -u
umask 077
command -v git >/dev/null 2>&1 || exit ${NO_GIT}
message=$1 date=$2; shift 2
s=$PWD/$n
mkdir "$s" || exit 70
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_TERMINAL_PROMPT=0 GIT_NO_REPLACE_OBJECTS=1 GIT_OPTIONAL_LOCKS=0
export GIT_AUTHOR_NAME=acode GIT_AUTHOR_EMAIL=acode@localhost GIT_COMMITTER_NAME=acode GIT_COMMITTER_EMAIL=acode@localhost
export GIT_AUTHOR_DATE="$date" GIT_COMMITTER_DATE="$date"
f() { git -c core.hooksPath=/dev/null -c core.fsmonitor=false -c core.checkStat=minimal -c safe.directory="$PWD" "$@"; }
q() { git --git-dir="$s/git" "$@"; }
objects=$(f rev-parse --git-path objects) || exit ${NO_REPOSITORY}
case $objects in /*) ;; *) objects=$PWD/$objects ;; esac
git init -q --bare "$s/git" || exit 70
printf '%s\\n' "$objects" > "$s/git/objects/info/alternates" || exit 70
shallow=$(f rev-parse --git-path shallow)
if [ -f "$shallow" ]; then cat "$shallow" > "$s/git/shallow" || exit 70; fi
q cat-file --batch-check='%(objectname) %(objecttype)' > "$s/have" || exit 70
not=
while read -r id type; do if [ "$type" = commit ]; then not="$not ^$id"; fi; done < "$s/have"
head=$(f rev-parse -q --verify 'HEAD^{commit}') || head=
new=0
if [ -n "$head" ]; then new=$(q rev-list --count "$head" $not) || exit 70; fi
if [ "$new" = 0 ]; then
  index=$(f rev-parse --git-path index)
  if [ -f "$index" ]; then cat "$index" > "$s/index" || exit 70; fi
  export GIT_INDEX_FILE="$s/index" GIT_OBJECT_DIRECTORY="$s/git/objects"
  f add -A -- . ":(top,exclude,literal)$n" "$@" || exit 70
  base=$head
  [ -n "$base" ] || base=$(git hash-object -t tree /dev/null)
  if f diff-index --cached --quiet "$base"; then exit ${NOTHING}; fi
  case $(f diff-index --cached --name-only -z "$base" | f check-attr -z --stdin filter | tr '\\000' ' ') in
    *' filter lfs '*) exit ${NO_LFS} ;;
  esac
  tree=$(f write-tree) || exit 70
  head=$(f commit-tree "$tree" \${head:+-p "$head"} -m "$message") || exit 70
  unset GIT_INDEX_FILE GIT_OBJECT_DIRECTORY
  echo made
elif [ -n "$(f status --porcelain --untracked-files=normal -- . ":(top,exclude,literal)$n" "$@" | head -c 1)" ]; then
  echo uncommitted
fi
q update-ref refs/heads/acode "$head" || exit 70
q bundle create -q "$s/bundle" refs/heads/acode $not || exit 70
`;

/** Brings the commits of a fork to the host’s repository as a new branch. */
export async function branchFork(branching: Branching, request: ForkBranchRequest): Promise<ForkBranched> {
  const { host, record } = branching;
  try {
    return await branched(branching, request);
  } catch (error) {
    if (!(error instanceof BranchRefusal)) throw error;
    const { kind, message: reason, remedy, protectedPaths } = error;
    const about = { fork: record.name ?? record.id, branch: request.name, reason };
    host.telemetry.log('info', 'commits of a fork refused', { fork: record.id, kind, reason });
    if (kind === 'hostile') throw new AcodeError('ACODE-FRK-019', about, { cause: error });
    const more = { ...(remedy === undefined ? {} : { remedy }), ...(protectedPaths ? { protectedPaths } : {}) };
    throw new AcodeError('ACODE-FRK-018', { ...about, ...more }, { cause: error });
  }
}

async function branched(branching: Branching, request: ForkBranchRequest): Promise<ForkBranched> {
  const { host, store, record, workspace } = branching;
  const problem = branchNameProblem(request.name);
  if (problem !== null)
    throw new BranchRefusal('unsuitable', `the name is not one of a branch: ${problem}`, {
      remedy: 'Choose another name.',
    });
  if (record.workspace !== workspace) throw new AcodeError('ACODE-FRK-002', { fork: record.id, workspace });
  refuseReplaced(record);
  gitProgram();
  const ref = `refs/heads/${request.name}`;
  using repository = HostRepository.open(workspace, host.uid);
  const { expected } = request;
  repository.removeDeadLock(ref);
  if (expected === undefined) repository.refuseTaken(ref);
  else repository.refuseMoved(ref, expected);
  const history = repository.history();
  const waiting = { deadlineMs: LOCK_MS, signal: host.closing };
  return await host.locks.during(`branch of fork ${record.id}`, waiting, async () => {
    await using quarantine = await Quarantine.make(join(store.pathOf(record.id), 'q'), history, host.closing);
    const { checked, ...inside } = await bundled(branching, request, history, quarantine);
    if (expected !== undefined && checked.commits.every(({ parents }) => !parents.includes(expected)))
      throw new BranchRefusal('unsuitable', `the commits do not build on ${expected}, where the branch is`);
    const counts = countsOf(checked.changes);
    const riskyChanges = risksOfCommits(checked, workspace);
    refuseProtected(branching, request, checked.changes);
    const found: ForkBranchFound = {
      forkId: record.id,
      branch: request.name,
      base: history.head,
      commit: checked.tip,
      commits: checked.commits.length,
      ...inside,
      counts,
      paths: [...new Set(checked.changes.map(({ path }) => shown(path).text))].sort(),
      riskyChanges,
    };
    const detail = { branch: request.name, range: `${history.head ?? ''}..${checked.tip}`, commits: found.commits };
    const consent = request.confirm ? await request.confirm(found) : request;
    if (consent === null) return { ...found, created: false };
    const way = new WayOut(branching, 'branch', { id: checked.tip, counts, riskyChanges, detail });
    await way.pass(consent);
    await way.during(async () => {
      const pack = await quarantine.pack(checked);
      if (expected === undefined) repository.addBranch(ref, checked.tip, pack);
      else repository.moveBranch(ref, { from: expected, to: checked.tip }, pack);
    });
    await way.added();
    return { ...found, created: true };
  });
}

interface Bundled {
  readonly checked: CheckedCommits;
  readonly made: boolean;
  readonly uncommitted: boolean;
}

// Has git write a bundle in a sandbox, and takes it into quarantine. The layer that this needed is taken back in any case.
async function bundled(
  branching: Branching,
  { image, message }: ForkBranchRequest,
  { ids }: HostHistory,
  quarantine: Quarantine,
): Promise<Bundled> {
  const { host, store, record } = branching;
  const name = `.acode-branch-${randomBytes(6).toString('hex')}`;
  const text = message ?? `Changes of fork ${record.name ?? record.id}`;
  // The same commit from the same changes: its time is that of the last command.
  const date = `${Math.floor(record.usedAt / 1000)} +0000`;
  const masked = store.layersOf(record).masked.map(path => `:(top,exclude,literal)${path}`);
  const policy = policyFrom({
    fork: record.id,
    network: 'none',
    deps: false,
    caches: false,
    ...(image === undefined ? {} : { image }),
  });
  const stdin = ids
    .slice(0, MAX_EXCLUDED)
    .map(id => `${id}\n`)
    .join('');
  try {
    const argv = ['sh', '-c', `n=${name}; ${SCRIPT}`, 'sh', text, date, ...masked];
    const running = await start(host, argv, { policy, stdin, signal: host.closing }, false);
    const { exitCode, stdout, stderr, image: used } = await running.result;
    refuseStatus(exitCode, stderr, used?.reference);
    const checked = await underLock(host, record.workspace, host.closing, async () => {
      const bundle = openBundle(branching, name);
      try {
        return await quarantine.take(bundle);
      } finally {
        closeSync(bundle);
      }
    });
    // Those of this sandbox too.
    refuseMasked(store.layersOf(store.read(record.id) ?? record).masked, checked.changes);
    return { checked, made: stdout === 'made\n', uncommitted: stdout === 'uncommitted\n' };
  } finally {
    await takeBack(branching, name);
  }
}

function refuseStatus(exitCode: number | null, stderr: string, image: string | undefined): void {
  if (exitCode === 0) return;
  const files = 'Apply the files instead: `acode fork apply`.';
  if (exitCode === NO_GIT)
    throw new BranchRefusal(
      'unsuitable',
      `the image ${image ?? ''} has no git, which bundles the commits in a sandbox`,
      {
        remedy: 'Name an image that has it: `acode fork apply --branch <name> --image <image>`.',
      },
    );
  if (exitCode === NO_REPOSITORY)
    throw new BranchRefusal('unsuitable', `git does not find a repository in the fork: ${lastLine(stderr)}`, {
      remedy: files,
    });
  if (exitCode === NOTHING)
    throw new BranchRefusal('unsuitable', 'the fork has no commits and no changes that git would commit', {
      remedy: '`acode fork diff` lists its changes; those that .gitignore names are not committed.',
    });
  if (exitCode === NO_LFS)
    throw new BranchRefusal(
      'unsuitable',
      'it changes files that Git LFS stores, and their content is not a part of a branch',
      {
        remedy: files,
      },
    );
  throw new BranchRefusal(
    'unsuitable',
    `git could not bundle its commits in a sandbox: ${lastLine(stderr) || `status ${exitCode}`}`,
    {
      remedy: files,
    },
  );
}

// Untrusted code wrote it.
function lastLine(stderr: string): string {
  const lines = stderr
    .replaceAll(/[^\x20-\x7e\n]/g, '?')
    .trim()
    .split('\n');
  return (lines.at(-1) ?? '').slice(0, 200);
}

// The file that the sandbox wrote, in the layer of its command. Name by name, so that no link is followed.
function openBundle({ store, record }: Branching, name: string): number {
  const layer = layerOf(store, record.id, name);
  try {
    if (layer === null) throw new BranchRefusal('hostile', 'the sandbox wrote no bundle');
    using upper = OpenDirectory.open(layer);
    using directory = upper.child(name);
    const file = openSync(directory.at('bundle'), constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    if (fstatSync(file).isFile()) return file;
    closeSync(file);
    throw new BranchRefusal('hostile', 'what the sandbox wrote is not a file');
  } catch (error) {
    if (!['ENOENT', 'ENOTDIR', 'ELOOP', 'ENXIO'].includes(codeOf(error))) throw error;
    throw new BranchRefusal('hostile', 'what the sandbox wrote is not a file', { cause: error });
  }
}

// The layer that the command with this name in it wrote, if it is still the last one.
function layerOf(store: ForkStore, id: string, name: string): string | null {
  const record = store.read(id);
  if (record?.active !== null || !record.layers.at(-1)?.command.includes(name)) return null;
  return store.layersOf(record).uppers.at(-1) ?? null;
}

// Only the layer of this command, and only while no other has it mounted.
async function takeBack({ host, store, record }: Branching, name: string): Promise<void> {
  await underLock(host, record.workspace, host.closing, async () => {
    if (layerOf(store, record.id, name) !== null) await store.undo(record.id, 1);
  });
}

function countsOf(changes: readonly CommittedChange[]): ForkDiffCounts {
  const count = (wanted: CommittedChange['change']): number =>
    new Set(changes.filter(({ change }) => change === wanted).map(({ path }) => path)).size;
  return { added: count('added'), changed: count('changed'), deleted: count('deleted') };
}

// What programs on the host trust comes only if it is named, as with an apply.
function refuseProtected(
  { record }: Branching,
  { protectedPaths = [] }: ForkBranchRequest,
  changes: readonly CommittedChange[],
): void {
  const protectedBy = protectionsIn(record.workspace);
  const isNamed = (path: string): boolean => protectedPaths.some(name => path === name || path.startsWith(`${name}/`));
  const paths = changes.filter(({ change }) => change !== 'deleted').map(({ path }) => shown(path).text);
  const found = [...new Set(paths)].filter(path => protectedBy(path) !== null && !isNamed(path));
  if (found.length === 0) return;
  const tops = [...new Set(found.map(path => path.split('/')[0] ?? ''))].slice(0, MAX_NAMED);
  throw new BranchRefusal('unsuitable', `its commits change protected paths: ${listOf(found)}`, {
    remedy: `Programs on this machine trust them. If you want them, name them: \`--protected ${tops.join(' ')}\`.`,
    protectedPaths: found,
  });
}

function refuseMasked(masked: readonly string[], changes: readonly CommittedChange[]): void {
  const names = new Set(masked);
  const found = [...new Set(changes.map(({ path }) => shown(path).text))].filter(path => names.has(path));
  if (found.length > 0) throw new BranchRefusal('unsuitable', `its commits change masked paths: ${listOf(found)}`);
}

function listOf(paths: readonly string[]): string {
  const more = paths.length > MAX_NAMED ? `, and ${paths.length - MAX_NAMED} more` : '';
  return `${paths
    .slice(0, MAX_NAMED)
    .map(path => JSON.stringify(path))
    .join(', ')}${more}`;
}
