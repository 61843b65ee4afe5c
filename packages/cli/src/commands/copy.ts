// `acode sandbox cp`: files and directories into a persistent sandbox, and out of it.

import { stat } from 'node:fs/promises';
import { basename, join, resolve } from 'node:path';
import { posix } from 'node:path';
import { formatBytes } from '@acode/sandbox';
import type { Files, RiskyChange, TransferReport } from '@acode/sandbox';
import { Command } from '@commander-js/extra-typings';
import { copying } from '../arguments/copying.ts';
import type { Copying } from '../arguments/copying.ts';
import type { Call, Perform } from '../call.ts';
import { sayLines } from '../execution/execute.ts';
import { riskyLines } from '../execution/risky-lines.ts';
import { copyFailure } from '../failure/copy-failure.ts';
import { UsageError } from '../failure/usage.ts';
import { oneLine } from '../terminal/text.ts';

const MAX_NAMED = 10;
const COPIED =
  'check the copy before you use it: tools on this machine might execute or follow what came out of the sandbox.';

/** The command. */
export function copyCommand(perform: Perform) {
  return new Command('cp')
    .description('Copy files and directories into a persistent sandbox, or out of it')
    .argument('<source>', 'a path, or sandbox:path')
    .argument('<target>', 'a path, or sandbox:path; an existing directory is copied into')
    .action((source, target, _options, command) => perform(command, call => copy(call, copying(source, target))));
}

async function copy(call: Call, wanted: Copying): Promise<number> {
  const { here } = await call.place();
  const outside = resolve(here, wanted.outside);
  if (wanted.way === 'in' && !(await exists(outside)))
    throw new UsageError(`There is no ${wanted.outside} here.`, 'Name a file or a directory of this machine.');
  return call.withHost(async acode => {
    const { signal } = call.interruption;
    const sandbox = await call.progress.during('Asking the engine…', acode.connect(wanted.sandbox, { signal }));
    const paths = { ...wanted, outside };
    const work = transfer(sandbox.files, paths, wanted.outside.endsWith('/'), signal).catch((error: unknown) => {
      throw copyFailure(error, paths);
    });
    const { to, ...report } = await call.progress.during('Copying…', work);
    await call.print('acode.cp/1', { sandboxId: sandbox.id, to, ...report }, () => '');
    if (!call.options.json) for (const line of reportLines(report, to)) await call.say(`acode: ${oneLine(line)}\n`);
    await sayLines(call, riskyLines(below(report, to), undefined, COPIED));
    await sandbox.leave();
    return 0;
  });
}

// By the name of the copy, as a person finds it.
function below({ riskyChanges = [] }: TransferReport, to: string): RiskyChange[] {
  return riskyChanges.map(change => ({ ...change, path: join(basename(to), change.path) }));
}

type Transferred = TransferReport & { readonly to: string };

// As `cp` does: into a directory that exists, or that the target says it is by its last slash; under the target’s name otherwise.
async function transfer(
  files: Files,
  { way, inside, outside }: Copying,
  slash: boolean,
  signal: AbortSignal,
): Promise<Transferred> {
  if (way === 'in') {
    const into = inside.endsWith('/') || (await isDirectory(() => files.stat(inside, { signal })));
    const to = into ? posix.join(inside, basename(outside)) : inside;
    return { ...(await files.upload(outside, to, { signal })), to };
  }
  const into = slash || (await isDirectory(() => stat(outside)));
  // The name that the path has, and not one that the sandbox says.
  const name = posix.basename(posix.resolve('/', inside));
  const to = into && name !== '' ? resolve(outside, name) : outside;
  return { ...(await files.download(inside, to, { signal })), to };
}

// What was copied, for a person, without line ends.
function reportLines({ files, directories, bytes, skipped }: TransferReport, to: string): string[] {
  const counts = [plural(files, 'file'), ...(directories > 0 ? [plural(directories, 'directory')] : [])].join(' and ');
  const named = skipped.slice(0, MAX_NAMED).map(({ path, reason }) => `left out ${path}: ${reason}`);
  const more = skipped.length > MAX_NAMED ? [`left out ${skipped.length - MAX_NAMED} more; --json names them all`] : [];
  return [`copied ${counts}, ${formatBytes(bytes)}, to ${to}`, ...named, ...more];
}

function plural(count: number, noun: string): string {
  const many = noun.endsWith('y') ? `${noun.slice(0, -1)}ies` : `${noun}s`;
  return `${count} ${count === 1 ? noun : many}`;
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
