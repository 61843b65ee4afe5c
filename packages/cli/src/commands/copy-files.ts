// Copies between this machine and a persistent sandbox. Loaded by `acode sandbox cp` only.

import { stat } from 'node:fs/promises';
import { basename, join, posix, resolve, sep } from 'node:path';
import { AcodeError } from '@acode/sandbox';
import type { Files, RiskyChange, TransferReport } from '@acode/sandbox';
import { quoted } from '../arguments/command-arguments.ts';
import type { Call } from '../call.ts';
import { reportLines } from '../execution/artifacts.ts';
import { riskyNotices } from '../execution/closing-lines.ts';
import { sayNotices } from '../execution/execute.ts';
import { UsageError } from '../failure/usage.ts';
import { oneLine } from '../terminal/text.ts';
import { fileCode, fileReason } from '../failure/file-reasons.ts';

const COPIED =
  'check the copy before you use it: tools on this machine might execute or follow what came out of the sandbox.';

/** Copies, and returns the exit status. */
export async function copy(call: Call, wanted: CopyRequest): Promise<number> {
  const { here } = await call.place();
  const outside = resolve(here, wanted.outside);
  if (wanted.direction === 'in' && !(await exists(outside)))
    throw new UsageError(`There is no ${wanted.outside} here.`, 'Name a file or a directory of this machine.');
  return call.withHost(async acode => {
    const { signal } = call.interruption;
    const sandbox = await call.progress.during('Asking the engine…', acode.connect(wanted.sandbox, { signal }));
    const paths = { ...wanted, outside };
    const work = transfer(sandbox.files, paths, wanted.outside.endsWith('/'), signal).catch((error: unknown) => {
      throw copyFailure(error, paths);
    });
    const { to, ...report } = await call.progress.during('CopyRequest…', work);
    await call.print('acode.cp/1', { sandboxId: sandbox.id, to, ...report }, () => '');
    if (!call.options.json) for (const line of reportLines(report, to)) await call.say(`acode: ${oneLine(line)}\n`);
    await sayNotices(call, riskyNotices(prefixedChanges(report, to), COPIED));
    await sandbox.leave();
    return 0;
  });
}

// Prefixes each path with the name of the copy.
function prefixedChanges({ riskyChanges = [] }: TransferReport, to: string): RiskyChange[] {
  return riskyChanges.map(change => ({ ...change, path: join(basename(to), change.path) }));
}

type Transferred = TransferReport & { readonly to: string };

// Like `cp`: if the target is a directory or ends in a slash, copies into it; otherwise the copy gets the target’s name.
async function transfer(
  files: Files,
  { direction, inside, outside }: CopyRequest,
  slash: boolean,
  signal: AbortSignal,
): Promise<Transferred> {
  if (direction === 'in') {
    const into = inside.endsWith('/') || (await isDirectory(() => files.stat(inside, { signal })));
    const to = into ? posix.join(inside, basename(outside)) : inside;
    return { ...(await files.upload(outside, to, { signal })), to };
  }
  const into = slash || (await isDirectory(() => stat(outside)));
  // Taken from the path that the user typed, never from the sandbox’s answer.
  const name = posix.basename(posix.resolve('/', inside));
  const to = into && name !== '' ? resolve(outside, name) : outside;
  return { ...(await files.download(inside, to, { signal })), to };
}

async function isDirectory(look: () => Promise<{ isDirectory(): boolean }>): Promise<boolean> {
  return look().then(
    found => found.isDirectory(),
    () => false,
  );
}

async function exists(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    () => false,
  );
}

const WHERE = {
  inside: 'Paths in the sandbox are absolute, or relative to the workspace.',
  outside: 'That path is on this machine: absolute, or relative to the current directory.',
} as const;

const INSIDE_REMEDIES: Readonly<Record<string, string>> = {
  EROFS: 'Inside, the workspace, /tmp and the home directory can be written.',
  EACCES: 'Inside, everything is done as the sandbox’s own user: name what it may read, or write to /tmp.',
  EPERM: 'Inside, everything is done as the sandbox’s own user: name what it may read, or write to /tmp.',
  EIO: 'The copy inside the sandbox failed, probably because its memory is full: /tmp and the home directory use memory. Copy to the workspace, or create a sandbox with more (`acode sandbox create --memory 1g`).',
  ENOSPC:
    'Inside, /tmp and the home directory are in memory: copy to the workspace, or create a sandbox with more (`acode sandbox create --tmp 512`).',
};
const OUTSIDE_REMEDIES: Readonly<Record<string, string>> = {
  EROFS: 'That is a path of this machine, on a file system that cannot be written: name another.',
  EACCES: 'That is a path of this machine: name one that you may read, or write to.',
  EPERM: 'That is a path of this machine: name one that you may read, or write to.',
  ENOSPC: 'That is a path of this machine, whose disk is full: make room, or name another.',
};

const REMEDIES = { inside: INSIDE_REMEDIES, outside: OUTSIDE_REMEDIES } as const;

/** Turns an error of a file system into ACODE-FIL-005, with a remedy for the side (inside or outside) where it occurred. */
export function copyFailure(error: unknown, copied: CopyRequest): unknown {
  const code = fileCode(error);
  if (code === null || error instanceof AcodeError) return error;
  const found = error instanceof Error && 'path' in error ? String(error.path) : '';
  const side = happenedOutside(found, copied) ? 'outside' : 'inside';
  // A path below /proc/self/fd means nothing to the user: show the path that was typed.
  const path = found === '' || isHeld(found) ? copied[side] : found;
  const remedy = REMEDIES[side][code] ?? WHERE[side];
  return new AcodeError('ACODE-FIL-005', { path, reason: fileReason(code), remedy }, { cause: error });
}

function happenedOutside(path: string, { direction, inside, outside }: CopyRequest): boolean {
  if (isHeld(path)) return true;
  // A path at or below the source belongs to the source; any other belongs to the target or one of its parents.
  const [source, isSourceOutside] = direction === 'in' ? [outside, true] : [inside, false];
  const isSource = path === source || path.startsWith(source.endsWith(sep) ? source : `${source}${sep}`);
  return isSource === isSourceOutside;
}

function isHeld(path: string): boolean {
  return /^\/(?:proc\/self|dev)\/fd\//.test(path);
}

/** A copy and its direction. */
export interface CopyRequest {
  readonly direction: 'in' | 'out';
  readonly sandbox: string;
  /** The path inside; `.` is the workspace. */
  readonly inside: string;
  /** The path on this machine, as it was written. */
  readonly outside: string;
}

// Names and ids hold no slash, so `./a:b` and `/a:b` are files of this machine.
const SHORT = /^([A-Za-z0-9][\w.-]{0,2}):/;
const INSIDE = /^([A-Za-z0-9][\w.-]{3,127}):(.*)$/s;

/** What is to be copied where; throws unless exactly one side is `sandbox:path`. */
export function parseCopyRequest(source: string, target: string): CopyRequest {
  const from = sideInside(source);
  const to = sideInside(target);
  if (from && !to) return { direction: 'out', ...from, outside: target };
  if (to && !from) return { direction: 'in', ...to, outside: source };
  if (!from) refuseShort(source, target);
  throw new UsageError(
    from ? 'Both sides are in a sandbox.' : `Neither ${oneLine(source)} nor ${oneLine(target)} is in a sandbox.`,
    from
      ? 'Write one side as a path of this machine. A file here that has a colon in its name is written ./name.'
      : `Write one side as <sandbox>:<path>: \`acode sandbox cp ${quoted(source)} <sandbox>:${quoted(target)}\`, or \`acode sandbox cp <sandbox>:${quoted(source)} ${quoted(target)}\`. \`acode sandbox list\` shows the sandboxes.`,
  );
}

function sideInside(text: string): Pick<CopyRequest, 'sandbox' | 'inside'> | null {
  const [, sandbox, path] = INSIDE.exec(text) ?? [];
  return sandbox === undefined ? null : { sandbox, inside: path || '.' };
}

function refuseShort(source: string, target: string): void {
  const found = SHORT.exec(source) ?? SHORT.exec(target);
  if (!found) return;
  throw new UsageError(
    `${found[1] ?? ''} is too short to identify a sandbox.`,
    'Give at least four characters of its id, or its name; `acode sandbox list` shows both.',
  );
}
