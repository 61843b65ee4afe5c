// `acode fork apply`: what is shown, asked and reported when changes of a fork are applied. Loaded by that command only.

import { relative, resolve, sep } from 'node:path';
import { AcodeError, RISKY_KINDS, isRiskyKind } from '@acode/sandbox';
import type {
  AcceptedRisk,
  Acode,
  ApplyReport,
  Consent,
  ForkApplied,
  ForkChange,
  ForkConflict,
  ForkRefusal,
  RiskyChange,
  WorkspaceDiff,
} from '@acode/sandbox';
import { quoted } from '../arguments/command-arguments.ts';
import type { Call } from '../call.ts';
import { NOBODY_TO_ASK, consentBy, consentFor } from '../consent.ts';
import { riskyLines } from '../execution/risky-lines.ts';
import { UsageError } from '../failure/usage.ts';
import { homeDirectory } from '../serve/identity.ts';
import { askLine, canAsk } from '../terminal/ask.ts';
import type { Look } from '../terminal/look.ts';
import { oneLine, plural, shortPath } from '../terminal/text.ts';
import { fitted } from '../terminal/wrap.ts';

/** The options of the command. */
export interface ApplyForm {
  readonly only?: readonly string[] | undefined;
  readonly interactive?: true | undefined;
  readonly check?: true | undefined;
  readonly diff?: string | undefined;
  readonly acceptRisk?: string | undefined;
  readonly yes?: true | undefined;
  readonly resume?: true | undefined;
  readonly rollback?: true | undefined;
}

const REFUSED = 1;
const NOT_APPLIED = 1;
const MAX_LISTED = 20;
const MAX_SUGGESTED = 6;

// What an apply is about: which fork, and which of its changes.
interface Wanted {
  readonly fork?: string;
  readonly only?: readonly string[];
  readonly diffId?: string;
}

/** A fork as the user named it: by itself, or by the persistent sandbox that writes it; neither for the current one. */
export interface NamedFork {
  readonly fork?: string | undefined;
  readonly sandbox?: string | undefined;
}

/** The fork that is meant, as the library takes it. */
export async function forkMeant(acode: Acode, { fork, sandbox }: NamedFork): Promise<{ readonly fork?: string }> {
  if (sandbox === undefined) return fork === undefined ? {} : { fork };
  const { sandboxId } = await acode.inspect(sandbox);
  const found = (await acode.forks.list({ all: true })).find(one => one.sandbox === sandboxId);
  if (!found) throw new AcodeError('ACODE-FRK-021', { sandbox });
  return { fork: sandboxId };
}

/** Applies the changes, and returns the exit status. */
export async function apply(call: Call, named: NamedFork, form: ApplyForm): Promise<number> {
  if (form.resume) return endInterrupted(call, 'resume');
  if (form.rollback) return endInterrupted(call, 'rollback');
  const acceptRisk = acceptedRisk(form.acceptRisk);
  if (!form.check && !form.yes) refuseUnasked(call);
  const part = await wantedBy(call, form);
  const outcome = await call.withHost(async acode => {
    const wanted = { ...(await forkMeant(acode, named)), ...part };
    return outcomeOf(call, acode, { wanted, form, acceptRisk });
  });
  if (outcome === null) {
    await call.say('acode: Nothing was applied.\n');
    return NOT_APPLIED;
  }
  const { report } = outcome;
  await call.print('acode.fork-apply/1', report, look => renderApplied(outcome, look, named));
  return report.outcome === 'refused' ? REFUSED : 0;
}

async function wantedBy(call: Call, { only, diff }: ApplyForm): Promise<Omit<Wanted, 'fork'>> {
  return {
    ...(only === undefined ? {} : { only: await pathsInside(call, only) }),
    ...(diff === undefined ? {} : { diffId: diff }),
  };
}

/** Before anything is compared: without a terminal there is nobody to ask. */
export function refuseUnasked(call: Call): void {
  if (canAsk(call.io) && !call.options.json) return;
  throw new UsageError(
    'Applying a fork needs a person to confirm it, and there is no terminal to ask at.',
    NOBODY_TO_ASK,
  );
}

function comparing<Value>(call: Call, work: Promise<Value>): Promise<Value> {
  return call.progress.during('Comparing…', work);
}

interface Terms {
  readonly wanted: Wanted;
  readonly form: ApplyForm;
  readonly acceptRisk: AcceptedRisk;
}

interface Outcome {
  readonly report: ForkApplied;
  readonly workspace?: string;
  /** The changes that were shown. */
  readonly diff?: WorkspaceDiff;
}

// Null where the person said no.
async function outcomeOf(call: Call, { forks }: Acode, terms: Terms): Promise<Outcome | null> {
  const { form, acceptRisk, wanted } = terms;
  if (form.check) return { report: await comparing(call, forks.apply({ ...wanted, check: true })) };
  if (!form.yes) return askedFor(call, forks, terms);
  const request = { ...wanted, acceptRisk, consent: consentBy('option') };
  return { report: await withRisks(call, () => comparing(call, forks.apply(request))) };
}

// What is shown is what is applied.
async function askedFor(call: Call, forks: Acode['forks'], terms: Terms): Promise<Outcome | null> {
  const { form, acceptRisk, wanted } = terms;
  const diff = await comparing(call, forks.diff(wanted.fork === undefined ? {} : { fork: wanted.fork }));
  const only = form.interactive ? await chosen(call, diff) : wanted.only;
  if (only === null) return null;
  const request = { diffId: diff.id, ...wanted, ...(only === undefined ? {} : { only }) };
  const checked = await comparing(call, forks.apply({ ...request, check: true }));
  if (checked.outcome === 'refused' || checked.applied === 0) return { report: checked, diff };
  const { workspace } = await placeIn(call);
  const consent = await askAbout(call, { diff, checked, only, workspace });
  const accepted = consent && (await acceptedAt(call, checked.riskyChanges, acceptRisk));
  if (!consent || !accepted) return null;
  return { report: await comparing(call, forks.apply({ ...request, acceptRisk: accepted, consent })), workspace };
}

async function placeIn(call: Call): Promise<{ readonly workspace: string }> {
  return { workspace: shortPath((await call.place()).root, homeDirectory(call.io.env)) };
}

// The first question: what would be applied, with every deletion and risk in view.
function askAbout(
  call: Call,
  about: {
    readonly diff: WorkspaceDiff;
    readonly checked: ForkApplied;
    readonly only: readonly string[] | undefined;
    readonly workspace: string;
  },
): Promise<Consent | null> {
  const { diff, checked, only, workspace } = about;
  const { added, changed, deleted } = diff.counts;
  const part = only === undefined ? '' : `, of which ${plural(checked.applied, 'change is', 'changes are')} chosen`;
  const isMeant = (path: string): boolean => only === undefined || only.some(name => isAtOrBelow(path, name));
  const gone = diff.changes.filter(({ change, path }) => change === 'deleted' && isMeant(path));
  const lines = [
    `Fork ${diff.forkId}: ${added} added, ${changed} changed, ${deleted} deleted${part}.`,
    ...listed(gone.map(({ path }) => `D ${oneLine(path)}`)),
    ...riskyLines(checked.riskyChanges, '`acode fork diff` lists all.', RISKY_HEAD, call.errorLook),
    ...gitLines(checked.gitChanges),
  ];
  return consentFor(call, {
    shown: () => `${lines.join('\n')}\n`,
    question: `acode: Apply ${plural(checked.applied, 'change')} to ${oneLine(workspace)}?`,
  });
}

/** What stands above risky changes. */
export const RISKY_HEAD = 'risky: programs on this machine might execute or follow these changes.';

/** The second question, where something is risky and not accepted yet. Null for no. */
export async function acceptedAt(
  call: Call,
  risky: readonly RiskyChange[],
  acceptRisk: AcceptedRisk,
): Promise<AcceptedRisk | null> {
  const rules = [...new Set(risky.map(({ kind }) => kind))].sort();
  const open = acceptRisk === 'all' ? [] : rules.filter(rule => !acceptRisk.includes(rule));
  if (open.length === 0) return acceptRisk;
  const consent = await consentFor(call, {
    shown: () => '',
    question: `acode: Accept the risky changes (${open.join(', ')})?`,
  });
  return consent && rules;
}

/** Does work, and shows the risky changes of a refusal above it. */
export async function withRisks<Value>(call: Call, work: () => Promise<Value>): Promise<Value> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof AcodeError && error.is('ACODE-FRK-016') && !call.options.json)
      await call.say(
        `${riskyLines(error.context.changes, '`acode fork diff` lists all.', RISKY_HEAD, call.errorLook).join('\n')}\n`,
      );
    throw error;
  }
}

// Each file in turn: apply, skip, apply all the rest, or quit. Null where nothing is to be applied.
async function chosen(call: Call, diff: WorkspaceDiff): Promise<readonly string[] | null> {
  const riskOf = risksIn(diff);
  const files = diff.changes.filter(({ kind, change }) => kind !== 'directory' || change === 'deleted');
  const paths: string[] = [];
  for (const [at, change] of files.entries()) {
    const answer = await askLine(
      call.io,
      questionOf(change, riskOf(change.path), { at, of: files.length }),
      call.interruption.signal,
    );
    if (answer === null || answer.startsWith('q')) return null;
    if (answer.startsWith('d')) break;
    if (answer.startsWith('a')) paths.push(change.path);
  }
  return paths.length === 0 ? null : paths;
}

function questionOf(
  { change, path, kind }: ForkChange,
  rule: string | null,
  { at, of }: { readonly at: number; readonly of: number },
): string {
  const mark = rule === null ? '' : ` (risky: ${rule})`;
  const what = kind === 'file' ? '' : ` (${kind})`;
  return `(${at + 1}/${of}) ${LETTERS[change]} ${oneLine(path)}${what}${mark}\nacode: [a]pply, [s]kip, [d]one, [q]uit? `;
}

const LETTERS = { added: 'A', changed: 'M', deleted: 'D' } as const;

async function endInterrupted(call: Call, how: 'resume' | 'rollback'): Promise<number> {
  const report = await call.withHost(({ forks }) => (how === 'resume' ? forks.resume() : forks.rollback()));
  await call.print('acode.fork-apply/1', report, look => {
    const done = report.outcome === 'applied' ? `Finished: ${plural(report.applied, 'change')} applied.` : null;
    const undone = 'The interrupted apply was undone: the workspace is as it was before.';
    const lines = [done ?? undone, ...obstacleLines(report), ...keptLines(report)];
    return lines.map(line => fitted(`${line}\n`, look)).join('');
  });
  return report.outcome === 'refused' ? REFUSED : 0;
}

/** The rule of a change, or that of the directory around it which is risky as a whole; null for none. */
export function risksIn({ riskyChanges }: WorkspaceDiff): (path: string) => string | null {
  const rules = new Map<string, string>();
  for (const { path, kind } of riskyChanges) rules.set(path, [rules.get(path), kind].filter(Boolean).join(', '));
  return path => {
    for (let at = path; ; at = at.slice(0, Math.max(0, at.lastIndexOf('/')))) {
      const rule = rules.get(at === '' ? '.' : at);
      if (rule !== undefined || at === '') return rule ?? null;
    }
  };
}

/** Rules as they are written on the command line. */
export function acceptedRisk(text: string | undefined): AcceptedRisk {
  if (text === undefined) return [];
  if (text === 'all') return 'all';
  const rules = text.split(',').map(rule => rule.trim());
  const strange = rules.find(rule => !isRiskyKind(rule));
  if (strange === undefined) return rules.filter(isRiskyKind);
  throw new UsageError(
    `--accept-risk: ${strange === '' ? 'a rule is missing' : `there is no rule ${oneLine(strange)}`}.`,
    `Name rules with commas between them, or all: ${RISKY_KINDS.join(', ')}.`,
  );
}

/** Paths are typed from where the user stands; the library takes them from the workspace. */
export async function pathsInside(call: Call, paths: readonly string[]): Promise<readonly string[]> {
  const { root, here, inside } = await call.place();
  const from = inside === '.' ? root : here;
  return paths.map(path => {
    const way = relative(root, resolve(from, path));
    if (way !== '..' && !way.startsWith(`..${sep}`)) return way === '' ? '.' : way;
    throw new UsageError(
      `--only ${oneLine(path)} is outside the workspace ${oneLine(root)}.`,
      'Name paths as `acode fork diff` shows them, from the workspace or from the directory you are in.',
    );
  });
}

function renderApplied({ report, workspace = 'the workspace', diff }: Outcome, look: Look, named: NamedFork): string {
  const { outcome, applied, already, removed, merged } = report;
  const had = already === 0 ? '' : ` ${plural(already, 'change was', 'changes were')} there already.`;
  const first = {
    applied: `Applied ${plural(applied, 'change')} to ${oneLine(workspace)}.${had} ${restText(removed, named)}`,
    checked: `${plural(applied, 'change')} can be applied.${had}`,
    refused: 'Nothing was applied.',
    'rolled-back': 'Nothing was applied.',
  }[outcome];
  const lines = [
    first,
    ...(merged.length === 0 ? [] : ['Merged with what changed here:', ...listed(merged.map(oneLine))]),
    ...gitLines(report.gitChanges),
    ...keptLines(report),
    ...obstacleLines(report),
    ...(outcome === 'checked' ? riskyLines(report.riskyChanges, '`acode fork diff` lists all.', RISKY_HEAD, look) : []),
    ...nextLines(report, named, diff),
  ];
  return lines.map(line => fitted(`${line}\n`, look)).join('');
}

function restText(removed: boolean, named: NamedFork): string {
  return removed
    ? 'The fork has no other changes and is removed.'
    : `\`${typed('diff', named)}\` shows what is left in the fork.`;
}

// The command line that means the same fork.
function typed(what: 'diff' | 'apply', { fork, sandbox }: NamedFork): string {
  if (sandbox !== undefined) return `acode sandbox ${what} ${quoted(sandbox)}`;
  return `acode fork ${what}${fork === undefined ? '' : ` ${quoted(fork)}`}`;
}

/** What git’s own changes are for: said before and after. */
export function gitLines(gitChanges: number): string[] {
  if (gitChanges === 0) return [];
  return [
    `${plural(gitChanges, 'change in .git stays', 'changes in .git stay')} in the fork. Commits come home with \`acode fork apply --branch <name>\`.`,
  ];
}

function keptLines({ kept }: Pick<ApplyReport, 'kept'>): string[] {
  const lines = kept.map(({ path, reason, earlier }) => {
    if (reason === 'not-empty') return `${oneLine(path)} (holds files that the fork does not have)`;
    return `${oneLine(path)} (saved meanwhile${earlier === undefined ? '' : `; the version before is ${oneLine(earlier)}`})`;
  });
  return lines.length === 0 ? [] : ['Left as it is:', ...listed(lines)];
}

function obstacleLines({ conflicts, refused }: Pick<ApplyReport, 'conflicts' | 'refused'>): string[] {
  return [
    ...(conflicts.length === 0 ? [] : ['Conflicts:', ...listed(conflicts.map(conflictText))]),
    ...(refused.length === 0 ? [] : ['Not applied:', ...listed(refused.map(refusalText))]),
  ];
}

const CONFLICTS: Readonly<Record<ForkConflict['reason'], string>> = {
  'changed-here': 'changed here too',
  'deleted-here': 'deleted here, changed in the fork',
  'added-here': 'added here too, with other content',
  kind: 'is of another kind here',
  'base-unknown': 'changed here, and acode has no copy of what the fork began with',
  overlap: 'the same lines changed here and in the fork',
  binary: 'changed here too, and it is binary',
  'too-large': 'changed here too, and it is too large to merge',
  parent: 'its directory is missing, or is a link',
  'not-empty': 'the directory holds files that the fork does not have',
  open: 'a process has it open for writing',
  meanwhile: 'changed here while it was applied',
};

const REFUSALS: Readonly<Record<ForkRefusal['reason'], string>> = {
  protected: 'protected',
  special: 'a FIFO, socket or device',
  name: 'its name is not valid UTF-8',
  content: 'its content could not be read',
  sparse: 'most of the file is a hole',
  owner: 'belongs to another user',
  mount: 'is on another mount than the workspace',
  'no-such-change': 'the fork has no change there',
  'not-permitted': 'the system refused it',
};

function conflictText({ path, reason, pid }: ForkConflict): string {
  return `${oneLine(path)} (${CONFLICTS[reason]}${pid === undefined ? '' : `: process ${pid}`})`;
}

function refusalText({ path, reason, detail }: ForkRefusal): string {
  return `${oneLine(path)} (${REFUSALS[reason]}${detail === undefined ? '' : `: ${oneLine(detail)}`})`;
}

// What to type next, by what was in the way.
function nextLines({ outcome, conflicts, refused }: ForkApplied, named: NamedFork, diff?: WorkspaceDiff): string[] {
  if (outcome !== 'refused') return [];
  const again = typed('apply', named);
  const reasons = new Set(refused.map(({ reason }) => reason));
  const first = refused.find(({ reason }) => reason === 'protected');
  const others = first && diff ? othersIn(diff, refused) : [];
  const rest = others.length === 0 ? '--only <path>…' : others.map(path => `--only ${quoted(path)}`).join(' ');
  if (first)
    return [
      `hint: Programs on this machine trust protected paths, so they are applied only if you name them: \`${again} --only ${quoted(topOf(first.path))}\`. To leave them out: \`${again} ${rest}\`.`,
    ];
  if (conflicts.length > 0)
    return [
      `hint: Make these files the same here or in the fork, and repeat the command. To leave them out: \`${again} ${rest}\`.`,
    ];
  if (reasons.has('no-such-change')) return [`hint: List the changes: \`${typed('diff', named)}\`.`];
  return [`hint: To leave them out: \`${again} ${rest}\`.`];
}

// The names at the top whose changes could be applied; none where a person would not type all of them.
function othersIn({ changes }: WorkspaceDiff, refused: readonly ForkRefusal[]): string[] {
  const blocked = new Set(refused.map(({ path }) => topOf(path)));
  const tops = [...new Set(changes.map(({ path }) => topOf(path)))].filter(top => !blocked.has(top));
  return tops.length > MAX_SUGGESTED ? [] : tops;
}

function topOf(path: string): string {
  return path.split('/')[0] ?? path;
}

/** The first of many lines. */
export function listed(lines: readonly string[]): string[] {
  const more = lines.length > MAX_LISTED ? [`  and ${lines.length - MAX_LISTED} more`] : [];
  return [...lines.slice(0, MAX_LISTED).map(line => `  ${line}`), ...more];
}

function isAtOrBelow(path: string, name: string): boolean {
  return name === '.' || path === name || path.startsWith(`${name}/`);
}
