// Pending scan reports: the next command in the workspace prints them first, once to a program and once to a terminal.

import { dirname } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { ScanJob, ScanReport } from '@acode/sandbox';
import type { Caller } from '../caller.ts';
import { riskyLines, shownPath } from '../execution/risky-lines.ts';
import { oneLine } from '../terminal/text.ts';
import { ScanStore } from './store.ts';
import type { Finding, StoredJob, Untold } from './store.ts';
import { sayOn } from './terminal.ts';

// By then a process that was started is noted, or has begun: one that is noted and lives may take longer.
const BEGINS_MS = 30_000;
// How long the library lets one scan take, and how many of them a scanner does before and with the one of a new job.
const SCAN_MS = 60_000;
const SCANS_BEFORE = 8;
const UNFINISHED = {
  ended: 'its process was ended',
  stuck: 'its process is stuck',
  damaged: 'what was written down of it cannot be read',
} as const;
// How long a shell may take to be at its prompt again. After that, the next command says it.
const PROMPT_MS = 30_000;
const PROMPT_EVERY_MS = 500;

/** Reports what scans of this workspace and those around it found. A failure here does not stop a command from running. */
export async function sayPending(call: Caller): Promise<void> {
  const uid = process.getuid?.();
  if (uid === undefined) return;
  const { root, here } = await call.place();
  const now = Date.now();
  // A repository that a command made below the workspace moves the root; what was found is of the one around it.
  for (const directory of new Set([root, ...around(root), ...around(here)])) {
    const store = ScanStore.of(directory, uid);
    if (store) await sayStored(call, store, { now, of: directory === root ? '' : ` of ${shownPath(directory)}` });
  }
}

async function sayStored(
  call: Caller,
  store: ScanStore,
  { now, of }: { readonly now: number; readonly of: string },
): Promise<void> {
  giveUpUnfinished(store, now);
  const isTerminal = call.stderr.isTerminal;
  const untold = store.take(now, isTerminal ? 'terminal' : 'program');
  const done = async (told: readonly Untold[], lines: readonly string[]): Promise<void> => {
    if (told.length === 0) return;
    await say(call, lines);
    // A program may or may not show findings to a person: the next terminal shows them again.
    if (isTerminal || told.every(({ kind }) => kind === 'ended' || kind === 'stuck'))
      for (const { name } of told) store.remove(name);
  };
  for (const one of untold) if (one.finding) await done([one], findingLines(one.finding, of));
  for (const kind of ['ended', 'stuck', 'damaged'] as const) {
    const told = untold.filter(one => one.kind === kind);
    const about = aboutThose(
      told.flatMap(({ askedMs }) => askedMs),
      of,
    );
    await recordUnfinished(
      told.flatMap(({ job }) => job ?? []),
      UNFINISHED[kind],
    );
    await done(told, [
      `${about} did not finish: ${UNFINISHED[kind]}. Some of what the command left was not scanned; \`git status --ignored\` lists new files.`,
    ]);
  }
  await done(
    untold.filter(({ kind }) => kind === 'more'),
    ['earlier background scans found more than acode keeps for this message: `acode changes` lists all of it.'],
  );
}

// `acode changes` would otherwise say for ever that the scan continues. The notice comes even if the log cannot be written.
async function recordUnfinished(jobs: readonly ScanJob[], reason: string): Promise<void> {
  if (jobs.length === 0) return;
  const { Acode } = await import('@acode/sandbox');
  await Acode.recordUnfinishedScan(jobs, reason).catch(() => undefined);
}

// A scanner that was killed or is stuck, or a machine that was switched off, must not look like a scan that found nothing.
function giveUpUnfinished(store: ScanStore, now: number): void {
  store.giveUp(store.damagedJobs(), 'damaged');
  const { scanner } = store;
  const jobs = store.jobs();
  const overdueMs = (jobs.length + SCANS_BEFORE) * SCAN_MS + BEGINS_MS;
  const maxMs = { works: overdueMs, 'has not begun': BEGINS_MS, 'was killed': -Infinity }[scanner];
  const dead = jobs.filter(({ content }) => now - content.askedMs > maxMs).map(({ name }) => name);
  store.giveUp(dead, scanner === 'works' ? 'stuck' : 'ended');
  store.forgetStarted();
  if (scanner === 'was killed') store.removeDeadLock();
}

// The directory and all those that it is in.
function around(directory: string): string[] {
  const above = dirname(directory);
  return above === directory ? [directory] : [directory, ...around(above)];
}

/** Says on the terminals of the callers what a scan found, where those are still there. */
export async function tellCallers(
  { riskyChanges, complete }: ScanReport,
  jobs: readonly StoredJob[],
  uid: number,
  signal: AbortSignal,
): Promise<void> {
  const finding = { askedMs: jobs.map(({ askedMs }) => askedMs), riskyChanges: [...riskyChanges], complete };
  const lines = findingLines(finding).map(line => `acode: ${oneLine(line)}`);
  const terminals = new Map(jobs.flatMap(({ terminal }) => (terminal ? [[terminal.path, terminal] as const] : [])));
  for (const terminal of terminals.values())
    for (let waited = 0; waited < PROMPT_MS && !signal.aborted; waited += PROMPT_EVERY_MS) {
      if (sayOn(terminal, uid, lines) !== 'busy') break;
      await delay(PROMPT_EVERY_MS, undefined, { signal }).catch(() => undefined);
    }
}

function findingLines({ askedMs, riskyChanges, image }: Finding, of = ''): string[] {
  if (image !== undefined)
    return riskyLines(
      riskyChanges,
      '`acode changes` lists them.',
      `while a warm sandbox of ${shownPath(image)} waited for a command, files appeared in the workspace${of} that tools on this machine might execute or follow. They may be yours or another command’s: check who made them before you use it.`,
    );
  const isFound = riskyChanges.some(({ kind }) => kind !== 'scan-incomplete');
  return [
    `${aboutThose(askedMs, of)} ${isFound ? 'found more:' : 'could not see everything:'}`,
    ...riskyLines(riskyChanges, '`acode changes` lists them.'),
  ];
}

function aboutThose(askedMs: readonly number[], of: string): string {
  const times = [...new Set(askedMs.map(ms => new Date(ms).toTimeString().slice(0, 8)))];
  return times.length > 1
    ? `the background scan${of} after the commands of ${times.join(', ')}`
    : `the background scan${of} after the command of ${times.join('')}`;
}

async function say(call: Caller, lines: readonly string[]): Promise<void> {
  const { yellow } = call.errorLook.colours;
  for (const line of lines) await call.say(`${yellow('acode:')} ${oneLine(line)}\n`);
}
