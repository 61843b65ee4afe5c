// Commits of a fork for the host’s repository: names of branches, headers of bundles, changes of commits, and what is refused. Pure.
//
// Everything here was written by untrusted code. Paths are byte strings (latin1).

/** Why acode does not take the commits of a fork to the repository of the host. */
export class BranchRefusal extends Error {
  override name = 'BranchRefusal';
  /** `hostile`: no git writes this by itself; `unsuitable`: the repository, the fork or the request is not one that acode can do this for. */
  readonly kind: 'hostile' | 'unsuitable';
  /** What to do about it. */
  readonly remedy: string | undefined;
  /** The protected paths that were not named, where that is why. */
  readonly protectedPaths: readonly string[] | undefined;

  constructor(
    kind: 'hostile' | 'unsuitable',
    reason: string,
    options: { remedy?: string; protectedPaths?: readonly string[]; cause?: unknown } = {},
  ) {
    super(reason, options);
    this.kind = kind;
    this.remedy = options.remedy;
    this.protectedPaths = options.protectedPaths;
  }
}

/** Limits of what is taken out of a fork as commits. */
export const BRANCH_LIMITS = {
  /** Bytes of the bundle. */
  bundleBytes: 512 * 1024 ** 2,
  /** Objects in it. */
  objects: 500_000,
  /** Bytes of one object, unpacked. */
  objectBytes: 256 * 1024 ** 2,
  /** Bytes of all objects, unpacked. */
  unpackedBytes: 4 * 1024 ** 3,
  commits: 10_000,
  /** Bytes of the list of changes of all commits. */
  changeBytes: 64 * 1024 ** 2,
};

const MAX_NAME_BYTES = 200;
const OBJECT = /^[0-9a-f]{40}$/;
// oxlint-disable-next-line no-control-regex -- control characters are what it looks for
const FORBIDDEN = /[\x00-\x20\x7f~^:?*[\\]|\.\.|@\{|\/\/|\p{C}/u;

/** The one ref that a bundle of acode’s has. */
export const BUNDLE_REF = 'refs/heads/acode';

/** Why git, or a person, would not take this for the name of a branch; null where it is one. */
export function branchNameProblem(name: string): string | null {
  if (name === '') return 'it is empty';
  if (Buffer.byteLength(name) > MAX_NAME_BYTES) return `it is longer than ${MAX_NAME_BYTES} bytes`;
  if (FORBIDDEN.test(name)) return 'git does not allow one of its characters';
  if (name.startsWith('-')) return 'it begins with a dash';
  // `git checkout HEAD` and `git checkout refs/heads/main` would mean something else than before.
  if (/^(?:@|(?:.*\/)?(?:FETCH_|ORIG_|MERGE_)?HEAD)$/i.test(name)) return 'git uses it for itself';
  if (/^(?:refs|heads|tags|remotes)\//i.test(name)) return 'it begins like the full name of a ref';
  // Of another commit than the branch, to whoever types it.
  if (/^[0-9a-f]{7,64}$/i.test(name)) return 'it looks like the id of a commit';
  const parts = name.split('/');
  if (parts.some(part => part === '' || part.startsWith('.') || part.endsWith('.') || /\.lock$/i.test(part)))
    return 'git does not allow a part that is empty, begins or ends with a dot, or ends with .lock';
  return null;
}

/** The name of another ref that excludes one of this name, since one would be a directory where the other is a file; or the ref itself. */
export function conflictingRef(ref: string, names: Iterable<string>): string | null {
  for (const name of names) if (name === ref || name.startsWith(`${ref}/`) || ref.startsWith(`${name}/`)) return name;
  return null;
}

/** The refs that a `packed-refs` file lists, by name. */
export function parsePackedRefs(text: string): Map<string, string> {
  const refs = new Map<string, string>();
  for (const line of text.split('\n')) {
    // `#` begins the header, `^` what the tag before it leads to.
    if (line === '' || line.startsWith('#') || line.startsWith('^')) continue;
    const id = line.slice(0, 40);
    const name = line.slice(41);
    if (!OBJECT.test(id) || line[40] !== ' ' || name === '')
      throw new BranchRefusal('unsuitable', 'its packed-refs file has a line that is not a ref');
    refs.set(name, id);
  }
  return refs;
}

/** What a ref file says: a commit, or another ref. */
export function parseRef(text: string): { readonly id: string } | { readonly ref: string } | null {
  const line = text.replace(/\s+$/, '');
  if (OBJECT.test(line)) return { id: line };
  const ref = /^ref:\s*(refs\/[^\0\n]+)$/.exec(line)?.[1];
  return ref === undefined || ref.split('/').some(part => part === '' || part.startsWith('.')) ? null : { ref };
}

/** The beginning of a bundle. */
export interface BundleHeader {
  /** The commit that the bundle brings. */
  readonly tip: string;
  /** Number of bytes before the pack. */
  readonly length: number;
}

const SIGNATURES = ['# v2 git bundle', '# v3 git bundle'];

/**
 * Reads the header of a bundle: at most one line for each commit that it builds on, and exactly the ref that acode asked for.
 *
 * @param start the first bytes of the file.
 */
export function parseBundleHeader(start: Buffer): BundleHeader {
  const end = start.indexOf('\n\n');
  if (end === -1) throw hostile('its header does not end');
  const [signature = '', ...lines] = start.toString('latin1', 0, end).split('\n');
  if (!SIGNATURES.includes(signature)) throw hostile('it does not begin like a bundle of git');
  const tip = tipOf(lines);
  const length = end + 2;
  checkPackHeader(start.subarray(length, length + 12));
  return { tip, length };
}

function tipOf(lines: readonly string[]): string {
  const tips: string[] = [];
  for (const line of lines) {
    if (line === '@object-format=sha1' || /^-[0-9a-f]{40}(?: |$)/.test(line)) continue;
    const tip = line.slice(0, 40);
    if (!OBJECT.test(tip) || line !== `${tip} ${BUNDLE_REF}`)
      throw hostile('its header has a line that acode did not ask for');
    tips.push(tip);
  }
  const [tip] = tips;
  if (tip === undefined || tips.length > 1) throw hostile('it does not have exactly one ref');
  return tip;
}

function checkPackHeader(header: Buffer): void {
  if (header.length < 12 || header.toString('latin1', 0, 4) !== 'PACK' || header.readUInt32BE(4) !== 2)
    throw hostile('it has no pack of version 2');
  const objects = header.readUInt32BE(8);
  if (objects > BRANCH_LIMITS.objects)
    throw hostile(`it has ${objects} objects, and the limit is ${BRANCH_LIMITS.objects}`);
}

/** A commit with its parents. */
export interface CommitLine {
  readonly id: string;
  readonly parents: readonly string[];
}

/** Reads what `git rev-list --parents` prints. */
export function parseCommits(output: Buffer): CommitLine[] {
  return output
    .toString('latin1')
    .split('\n')
    .filter(line => line !== '')
    .map(line => {
      const [id = '', ...parents] = line.split(' ');
      return { id, parents };
    });
}

/** One path that new commits change. */
export interface CommittedChange {
  /** Relative to the top of the repository, a byte string. */
  readonly path: string;
  readonly change: 'added' | 'changed' | 'deleted';
  readonly kind: 'file' | 'link' | 'submodule';
  /** Of the blob, link or submodule’s commit; zeros for `deleted`. */
  readonly id: string;
}

const KINDS: Readonly<Record<string, CommittedChange['kind']>> = {
  '100644': 'file',
  '100664': 'file',
  '100755': 'file',
  '120000': 'link',
  '160000': 'submodule',
};
const NONE = '000000';

/**
 * What commits change, from `git diff-tree --stdin -m --root -r -z --raw`: a path counts if it differs from every parent, because what
 * one of them has is not new. Each distinct change is listed once, whichever of the commits has it: also one that a later commit takes
 * back can be checked out.
 */
export function parseChanges(output: Buffer, commits: readonly CommitLine[]): CommittedChange[] {
  const parents = new Map(commits.map(commit => [commit.id, Math.max(1, commit.parents.length)]));
  const found = new Map<string, CommittedChange>();
  const seen = new Map<string, number>();
  const tokens = output.toString('latin1').split('\0');
  let needed = 1;
  let current = '';
  for (let at = 0; at < tokens.length; at += 1) {
    const token = tokens[at] ?? '';
    if (token === '') continue;
    if (!token.startsWith(':')) {
      needed = parents.get(token) ?? 1;
      if (token !== current) seen.clear();
      current = token;
      continue;
    }
    at += 1;
    const change = changeOf(token, tokens[at] ?? '');
    const key = `${change.change === 'deleted'} ${change.kind} ${change.id} ${change.path}`;
    const times = (seen.get(key) ?? 0) + 1;
    seen.set(key, times);
    if (times === needed) found.set(key, change);
  }
  return [...found.values()];
}

// `:100644 100755 <id> <id> M`
function changeOf(token: string, path: string): CommittedChange {
  const [before = '', after = '', , id = ''] = token.slice(1).split(' ');
  const problem = treePathProblem(path);
  if (problem !== null) throw hostile(`a commit has the path ${JSON.stringify(path)}: ${problem}`);
  const kind = KINDS[after === NONE ? before : after];
  if (kind === undefined) throw hostile(`a commit has ${JSON.stringify(path)} with the mode ${JSON.stringify(after)}`);
  return { path, kind, id, change: after === NONE ? 'deleted' : before === NONE ? 'added' : 'changed' };
}

// What file systems leave out of names when they compare them: `.g‌it` is `.git` on some. In UTF-8, as byte strings.
const IGNORED = /\xe2\x80[\x8c-\x8f\xaa-\xae]|\xe2\x81[\xaa-\xaf]|\xef\xbb\xbf/g;

// Why a path of a commit would be written elsewhere than below the top of a work tree; null where it is an ordinary one.
function treePathProblem(path: string): string | null {
  for (const part of path.split('/')) {
    if (part === '') return 'a part of it is empty';
    if (part === '.' || part === '..') return 'it leaves its directory';
    const plain = part
      .replaceAll(IGNORED, '')
      .toLowerCase()
      .replace(/[. ]+$/, '');
    // git~1 is what Windows calls the first name that begins so.
    if (plain === '.git' || plain === 'git~1' || plain.startsWith('.git:')) return 'it leads into a git directory';
  }
  return null;
}

/** Refuses objects that are too large unpacked: `git cat-file --batch-check` lines of `size id`. */
export function checkSizes(output: Buffer): void {
  let total = 0;
  for (const line of output.toString('latin1').split('\n')) {
    if (line === '') continue;
    const size = Number(line.split(' ')[0]);
    if (!Number.isSafeInteger(size)) throw hostile('git could not read one of its objects');
    if (size > BRANCH_LIMITS.objectBytes)
      throw hostile(`it has an object of ${size} bytes, and the limit is ${BRANCH_LIMITS.objectBytes}`);
    total += size;
  }
  if (total > BRANCH_LIMITS.unpackedBytes)
    throw hostile(`it has ${total} bytes unpacked, and the limit is ${BRANCH_LIMITS.unpackedBytes}`);
}

function hostile(reason: string): BranchRefusal {
  return new BranchRefusal('hostile', reason);
}
