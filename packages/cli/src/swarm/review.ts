// `acode swarm review` and `merge`: what tasks changed, what a person says to it, and one branch of all.

import type { ForkConsent } from '@acode/sandbox';
import type { Brought, MergeReport, SwarmStore, TaskReview } from '@acode/swarm';
import type { Call } from '../call.ts';
import { NOBODY_TO_ASK, consentBy } from '../consent.ts';
import { acceptedRisk, pathsInside } from '../commands/fork-apply.ts';
import { UsageError } from '../failure/usage.ts';
import { ask, canAsk } from '../terminal/ask.ts';
import type { Look } from '../terminal/look.ts';
import { harmless, oneLine, plural } from '../terminal/text.ts';
import { fitted } from '../terminal/wrap.ts';

/** The options of `review`. */
export interface ReviewForm {
  readonly swarm?: string | undefined;
  readonly stat?: true | undefined;
  readonly comment?: string | undefined;
  readonly acceptRisk?: string | undefined;
  readonly protected?: string[] | undefined;
  readonly yes?: true | undefined;
}

/** The options of `merge`. */
export interface MergeForm extends Omit<ReviewForm, 'stat' | 'comment'> {
  readonly check?: true | undefined;
  readonly into?: string | undefined;
}

const NOT_DONE = 1;
const REFUSED = 125;

/** Shows what a task changed, makes its branch, or sends it back. */
export async function review(call: Call, named: string | undefined, form: ReviewForm): Promise<number> {
  const swarms = await import('@acode/swarm');
  const store = await swarms.SwarmStore.open({ ...call.io.env });
  const record = store.find((await call.place()).root, form.swarm);
  const task =
    named ??
    record.tasks.find(({ attention }) => attention === 'needs-review')?.id ??
    record.tasks.find(({ status }) => status === 'completed')?.id;
  if (task === undefined)
    throw swarms.swarmError('ACODE-SWM-007', { what: 'task', name: '', known: record.tasks.map(({ id }) => id) });
  if (form.comment !== undefined) return comment(call, store, { id: record.id, task, text: form.comment });
  const { signal } = call.interruption;
  const consent =
    form.acceptRisk === undefined && form.protected === undefined
      ? null
      : await consentTo(call, form, 'Accepting risky changes', `Make the branch of task ${task}?`);
  if (consent === 'no') return NOT_DONE;
  return call.withHost(async acode => {
    const reviewing = { acode, store, id: record.id, task, signal };
    if (consent) {
      const paths = form.protected ? await pathsInside(call, form.protected) : [];
      const brought = await call.progress.during('Checking the commits…', swarms.acceptTask(reviewing, consent, paths));
      await call.print('acode.swarm-branch/1', { task, ...brought }, look =>
        broughtText(brought, swarms.taskIn(record, task).branch, look),
      );
      return brought.kind === 'made' || brought.kind === 'nothing' ? 0 : REFUSED;
    }
    const found = await call.progress.during('Reading the changes…', swarms.reviewTask(reviewing));
    await call.print('acode.swarm-review/1', found, look => renderReview(found, look, form.stat === true));
    return 0;
  });
}

async function comment(
  call: Call,
  store: SwarmStore,
  { id, task, text }: { readonly id: string; readonly task: string; readonly text: string },
): Promise<number> {
  const swarms = await import('@acode/swarm');
  await swarms.commentOn(store, id, task, text);
  const socket = store.socketPath(id);
  const isLive = await swarms.isListening(socket);
  if (isLive) await swarms.ask(socket, id.slice(0, 8), { op: 'retry', task });
  const next = isLive ? 'it begins again now.' : '`acode swarm resume` begins it.';
  await call.print('acode.swarm-comment/1', { task }, () => `Task ${task} has the comment: ${next}\n`);
  return 0;
}

async function consentTo(
  call: Call,
  { acceptRisk, yes }: Pick<ReviewForm, 'acceptRisk' | 'yes'>,
  what: string,
  question: string,
): Promise<ForkConsent | 'no'> {
  const accepted = acceptedRisk(acceptRisk);
  if (yes) return { acceptRisk: accepted, consent: consentBy('option') };
  if (!canAsk(call.io) || call.options.json)
    throw new UsageError(`${what} needs the consent of a person, and there is no terminal to ask at.`, NOBODY_TO_ASK);
  return (await ask(call.io, `acode: ${question}`, call.interruption.signal))
    ? { acceptRisk: accepted, consent: consentBy('terminal') }
    : 'no';
}

function broughtText(brought: Brought, branch: string, look: Look): string {
  const lines = {
    made: () => [`Branch ${oneLine(branch)} is at ${brought.kind === 'made' ? brought.commit.slice(0, 12) : ''}.`],
    nothing: () => ['The task changed nothing.'],
    risky: () => [
      'No branch was made: changes that programs on this machine might execute or follow are not accepted.',
      ...risks(brought),
    ],
    refused: () => [brought.kind === 'refused' ? oneLine(brought.detail) : ''],
  }[brought.kind]();
  return lines.map(line => fitted(`${line}\n`, look)).join('');
}

function risks(
  brought:
    | Brought
    | { readonly kind: 'risky'; readonly riskyChanges: readonly { path: string; kind: string; reason: string }[] },
): string[] {
  if (brought.kind !== 'risky') return [];
  return brought.riskyChanges.map(
    ({ path, kind, reason }) =>
      `  ${oneLine(path)}: ${reason} (${kind === 'protected-path' ? `--protected ${oneLine(path)}` : `--accept-risk ${kind}`})`,
  );
}

function renderReview(
  { task, commits, stat, patch, cut, uncommitted }: TaskReview,
  look: Look,
  statOnly: boolean,
): string {
  const { bold } = look.colours;
  const head = [
    `${bold(task.id)}  ${oneLine(task.title)}  ${task.attention ?? task.status}${task.reason === null ? '' : ` (${task.reason})`}`,
    ...(task.detail === '' ? [] : [oneLine(task.detail)]),
    ...task.stories.map(
      ({ id, title, status, acceptance }) =>
        `  ${id} ${status}  ${oneLine(title)}${acceptance.length === 0 ? '' : ` (${plural(acceptance.length, 'acceptance command')})`}`,
    ),
    ...(task.requests > 0 ? [`Requests to the network: ${task.requests}.`] : []),
    ...(task.denials.length > 0 ? [`Denied by the sandbox: ${task.denials.join(', ')}.`] : []),
    ...(task.riskyChanges.length > 0
      ? [
          'Changes that programs on this machine might execute or follow:',
          ...risks({ kind: 'risky', riskyChanges: task.riskyChanges }),
        ]
      : []),
    `${plural(commits.length, 'commit')}:`,
    ...commits.map(line => `  ${oneLine(line)}`),
    ...(uncommitted.length > 0 ? [`Not committed: ${plural(uncommitted.length, 'path')}.`] : []),
  ];
  const body = statOnly ? stat : `${stat}\n${patch}${cut ? '\n(the patch goes on)\n' : ''}`;
  return `${head.join('\n')}\n\n${harmless(body)}`;
}

/** Merges the branches of a swarm. */
export async function merge(call: Call, form: MergeForm): Promise<number> {
  const swarms = await import('@acode/swarm');
  const store: SwarmStore = await swarms.SwarmStore.open({ ...call.io.env });
  const record = store.find((await call.place()).root, form.swarm);
  const consent = form.check
    ? null
    : await consentTo(call, form, 'Merging', `Merge the branches of swarm ${record.id.slice(0, 8)}?`);
  if (consent === 'no') return NOT_DONE;
  const protectedPaths = form.protected ? await pathsInside(call, form.protected) : null;
  const report = await call.withHost(acode =>
    call.progress.during(
      'Merging in a sandbox…',
      swarms.mergeSwarm({
        acode,
        store,
        id: record.id,
        signal: call.interruption.signal,
        ...(form.into === undefined ? {} : { into: form.into }),
        ...(form.check ? { check: true } : {}),
        ...(consent ? { consent } : {}),
        ...(protectedPaths ? { protectedPaths } : {}),
        show: bytes => store.log(record.id, 'merge', bytes),
      }),
    ),
  );
  await call.print('acode.swarm-merge/1', report, look => renderMerge(report, look));
  if (report.brought && report.brought.kind !== 'made') return REFUSED;
  return report.outcomes.every(({ merged }) => merged) ? 0 : NOT_DONE;
}

function renderMerge({ branch, outcomes, brought }: MergeReport, look: Look): string {
  const lines = outcomes.map(({ id, merged, commits = 0, conflict, acceptance }) => {
    if (merged) return `${id}  ${plural(commits, 'commit')} merged`;
    return conflict
      ? `${id}  conflicts in ${oneLine(conflict.join(', '))}`
      : `${id}  after the merge, ${oneLine(acceptance ?? '')} fails`;
  });
  const end = brought === null ? ['Nothing was changed.'] : [];
  const opened =
    brought !== null && outcomes.some(({ merged }) => !merged)
      ? ['Tasks that were not merged are open again: `acode swarm resume` has them resolve it.']
      : [];
  return `${[...lines, ...end, ...opened].map(line => fitted(`${line}\n`, look)).join('')}${brought === null ? '' : broughtText(brought, branch, look)}`;
}
