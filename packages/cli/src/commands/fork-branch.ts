// `acode fork apply --branch`: what is shown, asked and reported when commits of a fork become a branch. Loaded by that command only.

import { setImmediate } from 'node:timers/promises';
import type { AcceptedRisk, ForkBranchFound, ForkBranched, ForkConsent } from '@acode/sandbox';
import type { Call } from '../call.ts';
import { consentBy, consentFor } from '../consent.ts';
import { riskyLines } from '../execution/risky-lines.ts';
import type { Look } from '../terminal/look.ts';
import { oneLine, plural } from '../terminal/text.ts';
import { fitted } from '../terminal/wrap.ts';
import { RISKY_HEAD, acceptedAt, acceptedRisk, listed, pathsInside, refuseUnasked, withRisks } from './fork-apply.ts';

/** The options of the command. */
export interface BranchForm {
  readonly image?: string | undefined;
  readonly message?: string | undefined;
  readonly protected?: string[] | undefined;
  readonly acceptRisk?: string | undefined;
  readonly yes?: true | undefined;
}

const NOT_MADE = 1;
const SHORT_ID = 12;

/** Makes the branch, and returns the exit status. */
export async function branch(call: Call, fork: string | undefined, name: string, form: BranchForm): Promise<number> {
  const acceptRisk = acceptedRisk(form.acceptRisk);
  if (!form.yes) refuseUnasked(call);
  const protectedPaths = form.protected && (await pathsInside(call, form.protected));
  const request = {
    name,
    ...(fork === undefined ? {} : { fork }),
    ...(form.image === undefined ? {} : { image: form.image }),
    ...(form.message === undefined ? {} : { message: form.message }),
    ...(protectedPaths ? { protectedPaths } : {}),
  };
  const report = await call.withHost(({ forks }) =>
    withRisks(call, async () => {
      if (form.yes) {
        const terms = { acceptRisk, consent: consentBy('option') };
        return call.progress.during('Checking the commits…', forks.branch({ ...request, ...terms }));
      }
      // The progress ends where the question begins.
      let begin = (): void => undefined;
      const asked = new Promise<void>(resolve => (begin = resolve));
      const confirm = async (found: ForkBranchFound): Promise<ForkConsent | null> => {
        begin();
        await setImmediate();
        return consentIn(call, found, acceptRisk);
      };
      const work = forks.branch({ ...request, confirm });
      await call.progress.during('Checking the commits…', Promise.race([asked, work]));
      return work;
    }),
  );
  await call.print('acode.fork-branch/1', report, look => render(report, look));
  return report.created ? 0 : NOT_MADE;
}

async function consentIn(call: Call, found: ForkBranchFound, acceptRisk: AcceptedRisk): Promise<ForkConsent | null> {
  const lines = [
    summary(found),
    ...listed(found.paths.map(path => oneLine(path))),
    ...riskyLines(found.riskyChanges, '--json lists all.', RISKY_HEAD, call.errorLook),
  ];
  const question = `acode: Add branch ${oneLine(found.branch)} to the repository of this workspace?`;
  const consent = await consentFor(call, { shown: () => `${lines.join('\n')}\n`, question });
  if (!consent) return null;
  const accepted = await acceptedAt(call, found.riskyChanges, acceptRisk);
  return accepted === null ? null : { acceptRisk: accepted, consent };
}

function summary({ forkId, commits, counts: { added, changed, deleted } }: ForkBranchFound): string {
  return `Fork ${forkId}: ${plural(commits, 'commit')}; ${added} added, ${changed} changed, ${deleted} deleted.`;
}

function render(report: ForkBranched, look: Look): string {
  const { branch: name, commit, commits, created, made, uncommitted, forkId } = report;
  if (!created) return 'No branch was made.\n';
  const lines = [
    `Branch ${oneLine(name)} is at ${commit.slice(0, SHORT_ID)}: ${plural(commits, 'commit')}${made ? ', made of the changes of the fork' : ''}.`,
    ...(uncommitted ? ['The fork has changes besides its commits; they are not in the branch.'] : []),
    `Your files are as they were: \`git switch ${oneLine(name)}\` checks it out, \`acode fork discard ${forkId}\` removes the fork.`,
  ];
  return lines.map(line => fitted(`${line}\n`, look)).join('');
}
