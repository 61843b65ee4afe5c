// Forks of a workspace for a person: lists, changes, history. Loaded by `acode fork` only.

import { formatBytes } from '@acode/sandbox';
import type { ForkExport, ForkChange, ForkCommand, ForkInfo, PatchOmission, WorkspaceDiff } from '@acode/sandbox';
import { link as linkFile, open, rm } from 'node:fs/promises';
import type { Call } from '../call.ts';
import { UsageError } from '../failure/usage.ts';
import { homeDirectory } from '../serve/identity.ts';
import { age, until } from '../terminal/age.ts';
import type { Look } from '../terminal/look.ts';
import { table } from '../terminal/table.ts';
import { oneLine, shortPath } from '../terminal/text.ts';
import { fitted } from '../terminal/wrap.ts';
import { acceptedRisk, forkMeant, gitLines, risksIn, withRisks } from './fork-apply.ts';
import type { NamedFork } from './fork-apply.ts';

/** Shows it, and returns the exit status. */
export async function listForks(call: Call, all: boolean): Promise<number> {
  const { items, pending } = await call.withHost(async ({ forks }) => ({
    items: await forks.list({ all }),
    pending: await forks.pending(),
  }));
  await call.print('acode.forks/1', { items, ...(pending ? { pending } : {}) }, look =>
    renderForks(items, look, homeDirectory(call.io.env), all),
  );
  if (pending)
    await call.say(
      `acode: an apply of fork ${pending.forkId} was interrupted: the workspace may have some of its changes. Finish it with \`acode fork apply --resume\`, or undo it with \`acode fork apply --rollback\`.\n`,
    );
  return 0;
}

// The forks for a person.
function renderForks(items: readonly ForkInfo[], look: Look, home: string, all: boolean): string {
  if (items.length === 0)
    return all ? 'There are no forks.\n' : 'This workspace has no forks. `acode run --fork "<command>"` makes one.\n';
  const rows = items.map(item => [
    item.id,
    item.name ?? (item.isCurrent ? '(current)' : ''),
    String(item.commands),
    stateOf(item),
    ...(all ? [shortPath(item.workspace, home)] : []),
    age(item.usedAt, look.now),
    until(item.expiresAt, look.now, 'letters'),
  ]);
  const titles = ['ID', 'NAME', 'COMMANDS', 'STATE', ...(all ? ['WORKSPACE'] : []), 'USED', 'EXPIRES'];
  return `${table(titles, rows, look, ['STATE', 'EXPIRES', 'USED'])}${expiryText(items, look)}`;
}

const EXPIRES_SOON_MS = 24 * 3600 * 1000;

// Work that would be lost within a day is said in a line of its own.
function expiryText(items: readonly ForkInfo[], look: Look): string {
  const soon = items.filter(
    ({ commands, expiresAt }) => commands > 0 && Date.parse(expiresAt) - look.now <= EXPIRES_SOON_MS,
  );
  const lines = soon.map(({ id, name, expiresAt }) => {
    const which = name ?? id;
    return `Fork ${which} has changes and expires ${until(expiresAt, look.now)}. \`acode fork diff ${which}\` shows them and keeps the fork for 7 more days.\n`;
  });
  return fitted(lines.join(''), look);
}

function stateOf({ sandbox, interrupted }: ForkInfo): string {
  if (sandbox !== null) return 'in use';
  return interrupted ? 'interrupted' : '';
}

// How changes are shown.
interface DiffForm {
  readonly stat?: true | undefined;
  readonly patch?: true | undefined;
  readonly nameOnly?: true | undefined;
  readonly acceptRisk?: string | undefined;
}

/** Shows it, and returns the exit status. */
export async function showDiff(call: Call, named: NamedFork, form: DiffForm): Promise<number> {
  const { fork } = named;
  if (form.patch && !call.options.json) return writePatch(call, fork === undefined ? {} : { fork }, form.acceptRisk);
  const diff = await call.withHost(async acode =>
    call.progress.during('Comparing…', acode.forks.diff(await forkMeant(acode, named))),
  );
  await call.print('acode.fork-diff/1', diff, look => renderDiff(diff, look, form));
  return 0;
}

async function writePatch(
  call: Call,
  which: { readonly fork?: string },
  accepted: string | undefined,
): Promise<number> {
  const { consentBy } = await import('../consent.ts');
  const request = { ...which, acceptRisk: acceptedRisk(accepted), consent: consentBy('option') };
  const write = async (piece: Uint8Array): Promise<void> => {
    await call.stdout.write(piece, call.interruption.signal);
  };
  const { omitted } = await call.withHost(({ forks }) => withRisks(call, () => forks.patch({ ...request, write })));
  if (omitted.length === 0) return 0;
  const paths = omitted.slice(0, MAX_OMITTED).map(({ path, reason }) => `  ${oneLine(path)} (${OMISSIONS[reason]})\n`);
  const more = omitted.length > MAX_OMITTED ? `  and ${omitted.length - MAX_OMITTED} more\n` : '';
  await call.say(`acode: the patch lacks, because git does not keep it:\n${paths.join('')}${more}`);
  return 0;
}

const MAX_OMITTED = 20;
const OMISSIONS: Readonly<Record<PatchOmission['reason'], string>> = {
  directory: 'an empty directory',
  'not-empty': 'a directory that became a file',
  mode: 'its mode',
  special: 'a FIFO, socket or device',
  name: 'its name is not valid UTF-8',
  content: 'its content could not be read',
  base: 'what the fork began with is not known',
  git: 'git’s own directory',
};
const LETTERS = { added: 'A', changed: 'M', deleted: 'D' } as const;

function renderDiff(diff: WorkspaceDiff, look: Look, { stat, nameOnly }: DiffForm): string {
  const { changes, counts, masked, riskyChanges } = diff;
  if (nameOnly) return changes.map(({ path }) => `${oneLine(path)}\n`).join('');
  if (changes.length === 0) return 'Commands changed nothing in this fork.\n';
  const { green, red, yellow } = look.colours;
  const colour = { added: green, changed: yellow, deleted: red };
  const riskOf = risksIn(diff);
  const lines = changes.map(change => {
    const rule = riskOf(change.path);
    const mark = rule === null ? '' : `  ${yellow(`(risky: ${rule})`)}`;
    const about = stat ? statOf(change) : kindOf(change);
    return fitted(`${colour[change.change](LETTERS[change.change])} ${oneLine(change.path)}${about}${mark}\n`, look);
  });
  const all = counts.added + counts.changed + counts.deleted;
  const more = all > changes.length ? `and ${all - changes.length} more\n` : '';
  const sum = `${counts.added} added, ${counts.changed} changed, ${counts.deleted} deleted, in the fork only.\n`;
  const hidden =
    masked.length === 0
      ? ''
      : `masked: commands wrote ${masked.map(oneLine).join(', ')}; those changes never leave the fork.\n`;
  const own = gitLines(changes.filter(({ path }) => GIT.test(path)).length);
  const git = own.map(line => `${line}\n`).join('');
  const risky = riskyChanges.length === 0 ? '' : `${yellow('risky:')} ${RISKY}\n`;
  return `${lines.join('')}${more}${fitted(sum, look)}${fitted(hidden, look)}${fitted(git, look)}${fitted(risky, look)}`;
}

const GIT = /(?:^|\/)\.git(?:\/|$)/;
const RISKY =
  'programs on this machine might execute or follow the marked changes; they leave the fork only if you accept them.';

function kindOf({ kind, before, link }: ForkChange): string {
  if (link?.after !== undefined) return ` → ${oneLine(link.after)}`;
  const was = before === undefined ? '' : ` (was a ${before})`;
  return kind === 'file' ? was : kind === 'directory' ? `/${was}` : ` (${kind})${was}`;
}

function statOf(change: ForkChange): string {
  const { bytes, mode, binary } = change;
  const size = [bytes?.before, bytes?.after].map(one => (one === undefined ? '' : formatBytes(one))).filter(Boolean);
  const modes = [mode?.before, mode?.after].map(one => (one === undefined ? '' : one.toString(8))).filter(Boolean);
  const parts = [size.join(' → '), modes.length > 0 ? `mode ${modes.join(' → ')}` : '', binary ? 'binary' : ''];
  const text = parts.filter(part => part !== '').join(', ');
  return `${kindOf(change)}${text === '' ? '' : `  (${text})`}`;
}

/** Shows it, and returns the exit status. */
export async function showHistory(call: Call, fork: string | undefined): Promise<number> {
  const items = await call.withHost(({ forks }) => forks.history(fork));
  await call.print('acode.fork-history/1', { items }, look => renderCommands(items, look));
  return 0;
}

function renderCommands(items: readonly ForkCommand[], look: Look): string {
  if (items.length === 0) return 'No command has changed anything in this fork.\n';
  const rows = items.map(({ number, at, command, interrupted }) => [
    String(number),
    age(at, look.now),
    interrupted ? `${command} (interrupted)` : command,
  ]);
  return table(['#', 'AGE', 'COMMAND'], rows, look);
}

/** Shows it, and returns the exit status. */
export async function undo(
  call: Call,
  fork: string | undefined,
  { commands, to }: { readonly commands: number; readonly to?: string | undefined },
): Promise<number> {
  const options = { commands, ...(to === undefined ? {} : { to }), ...(fork === undefined ? {} : { fork }) };
  const items = await call.withHost(({ forks }) => forks.undo(options));
  await call.print('acode.fork-undo/1', { items }, look =>
    items.length === 0 ? 'There was nothing to take back.\n' : `Taken back:\n${renderCommands(items, look)}`,
  );
  return 0;
}

/** Shows it, and returns the exit status. */
export async function snapshot(call: Call, name: string, fork: string | undefined): Promise<number> {
  const made = await call.withHost(({ forks }) => forks.snapshot(name, fork));
  await call.print('acode.fork/1', made, look => fitted(`Snapshot ${name} of fork ${made.name ?? made.id}.\n`, look));
  return 0;
}

/** Shows it, and returns the exit status. */
export async function create(call: Call, from: string, name: string | undefined): Promise<number> {
  const made = await call.withHost(({ forks }) => forks.create({ from, ...(name === undefined ? {} : { name }) }));
  const which = made.name ?? made.id;
  await call.print('acode.fork/1', made, look =>
    fitted(`Fork ${which}, made of snapshot ${from}. Run commands in it with --fork=${which}.\n`, look),
  );
  return 0;
}

/** Shows it, and returns the exit status. */
export async function snapshotSandbox(call: Call, sandbox: string, name: string | undefined): Promise<number> {
  const made = await call.withHost(async acode => {
    const fork = await forkMeant(acode, { sandbox });
    const request = {
      ...(fork.fork === undefined ? {} : { fork: fork.fork }),
      ...(name === undefined ? {} : { name }),
    };
    return call.progress.during('Copying…', acode.forks.copy(request));
  });
  const which = made.name ?? made.id;
  await call.print('acode.fork/1', made, look =>
    fitted(
      `Fork ${which} has what the commands of ${oneLine(sandbox)} have changed so far. To go back to it, remove the sandbox and make another: \`acode sandbox create --fork=${which}\`.\n`,
      look,
    ),
  );
  return 0;
}

/** Shows it, and returns the exit status. */
export async function discard(call: Call, fork: string | undefined): Promise<number> {
  const gone = await call.withHost(({ forks }) => forks.discard(fork));
  await call.print('acode.fork/1', gone, look =>
    fitted(`Removed fork ${gone.name ?? gone.id} with the changes of ${commandsText(gone.commands)}.\n`, look),
  );
  return 0;
}

/** Writes it, and returns the exit status. */
export async function exportFork(call: Call, fork: string | undefined, output: string | undefined): Promise<number> {
  const which = fork === undefined ? {} : { fork };
  if (output !== undefined) return exportTo(call, which, output);
  if (call.options.json || call.io.stdout.isTTY)
    throw new UsageError(
      'An archive is not text.',
      'Name a file: `acode fork export -o fork.tar`, or send it to another program.',
    );
  const write = async (piece: Uint8Array): Promise<void> => {
    await call.stdout.write(piece, call.interruption.signal);
  };
  const { omitted } = await call.withHost(({ forks }) => forks.export({ ...which, write }));
  await call.say(omissionText(omitted));
  return 0;
}

// Under another name until it is complete, and never in the place of another file.
async function exportTo(call: Call, which: { readonly fork?: string }, output: string): Promise<number> {
  const draft = `${output}.${process.pid}.part`;
  const file = await open(draft, 'wx', 0o600).catch((error: unknown) => {
    throw new UsageError(`${oneLine(output)} cannot be made: ${reasonOf(error)}.`, 'Name another file.');
  });
  try {
    const write = async (piece: Uint8Array): Promise<void> => {
      await file.writeFile(piece);
    };
    const done = await call.withHost(({ forks }) =>
      call.progress.during('Writing…', forks.export({ ...which, write })),
    );
    await file.sync();
    await linkFile(draft, output).catch((error: unknown) => {
      throw new UsageError(`${oneLine(output)} cannot be made: ${reasonOf(error)}.`, 'Name another file.');
    });
    await call.print('acode.fork-export/1', { ...done, file: output }, look =>
      fitted(
        `${oneLine(output)}: ${formatBytes(done.bytes)}, the changes of fork ${done.forkId}.\n${omissionText(done.omitted)}`,
        look,
      ),
    );
    return 0;
  } finally {
    await file.close();
    await rm(draft, { force: true });
  }
}

const UNARCHIVED = {
  special: 'a socket or device',
  name: 'its name would be taken for a deletion',
  unreadable: 'it could not be read',
  sparse: 'most of it is a hole',
} as const;

function omissionText(omitted: ForkExport['omitted']): string {
  if (omitted.length === 0) return '';
  const paths = omitted.slice(0, MAX_OMITTED).map(({ path, reason }) => `  ${oneLine(path)} (${UNARCHIVED[reason]})\n`);
  const more = omitted.length > MAX_OMITTED ? `  and ${omitted.length - MAX_OMITTED} more\n` : '';
  return `The archive lacks:\n${paths.join('')}${more}`;
}

/** Shows it, and returns the exit status. */
export async function importFork(call: Call, file: string, name: string | undefined): Promise<number> {
  const source = await open(file).catch((error: unknown) => {
    throw new UsageError(
      `${oneLine(file)} cannot be read: ${reasonOf(error)}.`,
      'Name a file that `acode fork export` wrote.',
    );
  });
  const read = source.createReadStream({ highWaterMark: 256 * 1024 });
  const made = await call.withHost(({ forks }) =>
    call.progress.during('Reading…', forks.import({ source: read, ...(name === undefined ? {} : { name }) })),
  );
  const which = made.name ?? made.id;
  await call.print('acode.fork/1', made, look =>
    fitted(
      `Fork ${which} has the changes of ${oneLine(file)}. \`acode fork diff ${which}\` shows them; the workspace is as it was.\n`,
      look,
    ),
  );
  return 0;
}

function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return 'code' in error && error.code === 'EEXIST' ? 'there is a file of this name' : error.message;
}

function commandsText(commands: number): string {
  return commands === 1 ? '1 command' : `${commands} commands`;
}
