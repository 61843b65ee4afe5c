// Artifacts of one command (--artifact): where they go, and what came of them. Loaded only where some are asked for.

import { lstat } from 'node:fs/promises';
import { posix, relative, resolve, sep } from 'node:path';
import { formatBytes } from '@acode/sandbox';
import type { ArtifactReport, ArtifactRequest, RunResult, TransferReport } from '@acode/sandbox';
import { fileReason } from '../failure/file-reasons.ts';
import { UsageError } from '../failure/usage.ts';
import type { Notice } from '../terminal/notice.ts';
import type { Place } from '../workspace.ts';
import { plural } from '../terminal/text.ts';

const MAX_NAMED = 10;
const ELSEWHERE =
  'Name a path below the workspace. To copy anywhere else, use a persistent sandbox: `acode sandbox create`, then `acode sandbox cp <sandbox>:<path> <target>`.';

/** The artifacts of a request; throws where one has no place, before the command runs. */
export async function artifactsFor(wanted: readonly string[], place: Place): Promise<ArtifactRequest[]> {
  const artifacts: ArtifactRequest[] = [];
  for (const text of wanted) {
    const [, from, to] = /^([^:]+):(.+)$/s.exec(text) ?? [];
    if (from === undefined || to === undefined)
      throw new UsageError(
        `--artifact ${text} is not understood.`,
        'Expected a path inside the sandbox and a path in the workspace, such as /out/report:./report.',
      );
    const target = await targetOf(from, to, place);
    if (artifacts.some(other => other.to === target))
      throw new UsageError(`Two artifacts go to ${to}.`, 'Give each --artifact a target of its own.');
    artifacts.push({ from, to: target });
  }
  return artifacts;
}

// As `cp` does: into a directory that exists, or that the target says it is by its last slash. Nothing is replaced.
async function targetOf(from: string, to: string, { here, root }: Place): Promise<string> {
  const named = resolve(here, to);
  const there = await lstat(named).catch(() => null);
  const into = there?.isDirectory() === true || to.endsWith('/');
  const path = into ? resolve(named, posix.basename(posix.resolve('/', from))) : named;
  const target = relative(root, path);
  if (target === '' || target === '..' || target.startsWith(`..${sep}`))
    throw new UsageError(`The artifact ${to} is not below the workspace ${root}.`, ELSEWHERE);
  if (await lstat(path).catch(() => null))
    throw new UsageError(
      `${relative(here, path) || path} exists already, and an artifact replaces nothing.`,
      'Remove it, or name another target.',
    );
  return target;
}

/** What came of the artifacts, for a person. */
export function artifactNotices({ artifacts = [] }: Pick<RunResult, 'artifacts'>): Notice[] {
  return artifacts.flatMap((artifact): Notice[] => {
    if (artifact.error) return [failureOf(artifact, artifact.error)];
    return reportLines(artifact, artifact.to).map(text => ({ text }));
  });
}

function failureOf({ from, to }: ArtifactReport, { code, message }: NonNullable<ArtifactReport['error']>): Notice {
  const reason = /^E[A-Z]+$/.test(code) ? fileReason(code) : message;
  const hint =
    code === 'ENOENT'
      ? 'The command did not make it there. A relative path begins in /out inside, which is there for artifacts.'
      : undefined;
  return { text: `the artifact ${from} was not copied to ${to}: ${reason}`, ...(hint === undefined ? {} : { hint }) };
}

/** What was copied, for a person, without line ends. */
export function reportLines({ files, directories, bytes, skipped }: TransferReport, to: string): string[] {
  const counts = [
    plural(files, 'file'),
    ...(directories > 0 ? [plural(directories, 'directory', 'directories')] : []),
  ].join(' and ');
  const named = skipped.slice(0, MAX_NAMED).map(({ path, reason }) => `left out ${path}: ${reason}`);
  const more = skipped.length > MAX_NAMED ? [`left out ${skipped.length - MAX_NAMED} more; --json names them all`] : [];
  return [`copied ${counts}, ${formatBytes(bytes)}, to ${to}`, ...named, ...more];
}

/** Whether an artifact that was asked for did not come. */
export function lacksArtifact({ artifacts = [] }: Pick<RunResult, 'artifacts'>): boolean {
  return artifacts.some(({ error }) => error !== undefined);
}

/** Throws where artifacts are asked for in a sandbox that takes none. */
export function refuseArtifacts(given: readonly string[] | undefined, sandbox: string | undefined): void {
  if (!given) return;
  throw sandbox === undefined
    ? new UsageError(
        'A command with a terminal (-t) has no artifacts.',
        'Leave -t out, or write into the workspace, which is /workspace inside.',
      )
    : new UsageError(
        `--artifact is for a command with a fresh sandbox, and ${sandbox} exists already.`,
        `Copy it when the command has ended: \`acode sandbox cp ${sandbox}:<path> <target>\`.`,
      );
}
