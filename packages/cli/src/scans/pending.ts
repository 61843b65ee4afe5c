// What scans found after their commands had ended: the first thing that the next command in the workspace says, once.

import { setTimeout as delay } from 'node:timers/promises';
import type { ScanReport } from '@acode/sandbox';
import type { Call } from '../call.ts';
import { riskyLines } from '../execution/risky-lines.ts';
import { oneLine } from '../terminal/text.ts';
import { ScanStore } from './store.ts';
import type { Finding, StoredJob } from './store.ts';
import { sayOn } from './terminal.ts';

// By then a process that was started has begun, on however busy a machine.
const BEGINS_MS = 30_000;
// How long a shell may take to be at its prompt again. After that, the next command says it.
const PROMPT_MS = 30_000;
const PROMPT_EVERY_MS = 500;

/** Says what scans of this workspace found. Nothing that goes wrong here keeps a command from being run. */
export async function sayPending(call: Call): Promise<void> {
  const uid = process.getuid?.();
  if (uid === undefined) return;
  const { root } = await call.place();
  const store = ScanStore.of(root, uid);
  if (!store) return;
  const now = Date.now();
  for (const { name, content } of store.take(now)) {
    await say(call, findingLines(content));
    store.remove(name);
  }
  await sayUnfinished(call, store, now);
}

// A scanner that was killed, or a machine that was switched off, must not look like a scan that found nothing.
async function sayUnfinished(call: Call, store: ScanStore, now: number): Promise<void> {
  const { scanner } = store;
  if (scanner === 'works') return;
  const dead = store.jobs().filter(({ content }) => scanner === 'was killed' || now - content.askedMs > BEGINS_MS);
  if (dead.length === 0) return;
  const askedMs = dead.map(({ content }) => content.askedMs);
  await say(call, [
    `${aboutThose(askedMs)} did not finish: its process was ended. Some of what the command left was not scanned; \`git status --ignored\` lists new files.`,
  ]);
  for (const { name } of dead) store.remove(name);
  if (scanner === 'was killed') store.unlock();
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

function findingLines({ askedMs, riskyChanges }: Finding): string[] {
  const isFound = riskyChanges.some(({ kind }) => kind !== 'scan-incomplete');
  return [
    `${aboutThose(askedMs)} ${isFound ? 'found more:' : 'could not see everything:'}`,
    ...riskyLines(riskyChanges, '`acode changes` lists them.'),
  ];
}

function aboutThose(askedMs: readonly number[]): string {
  const times = [...new Set(askedMs.map(ms => new Date(ms).toTimeString().slice(0, 8)))];
  return times.length > 1
    ? `the background scan after the commands of ${times.join(', ')}`
    : `the background scan after the command of ${times.join('')}`;
}

async function say(call: Call, lines: readonly string[]): Promise<void> {
  const { yellow } = call.errorLook.colours;
  for (const line of lines) await call.say(`${yellow('acode:')} ${oneLine(line)}\n`);
}
