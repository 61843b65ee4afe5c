// What `acode trust` does and shows: the question, the trust, and the report. Loaded by that command only.

import type { Trust, TrustReport } from '@acode/sandbox';
import type { Call } from '../call.ts';
import { consentTo } from '../consent.ts';
import type { Look } from '../terminal/look.ts';
import { fields } from '../terminal/table.ts';
import { oneLine } from '../terminal/text.ts';
import { fitted } from '../terminal/wrap.ts';

const NO_FILE = 1;
const NOT_TRUSTED = 1;

/** What is done about the file. */
export type Deed = 'granted' | 'revoked' | 'shown';

/** Does it, and returns the exit status. */
export async function trust(call: Call, deed: Deed, yes: boolean): Promise<number> {
  const report = await call.withObserver(observer => done(call, observer.trust, deed, yes));
  if (report === null) {
    await call.say('acode: The file is not trusted. Nothing was changed.\n');
    return NOT_TRUSTED;
  }
  if (report.file === null) return sayNoFile(call, report);
  await call.print('acode.trust/1', report, look => renderTrust(report, deed, look));
  return 0;
}

// Null where the person at the terminal said no.
async function done(call: Call, client: Trust, deed: Deed, yes: boolean): Promise<TrustReport | null> {
  if (deed === 'revoked') return client.revoke();
  const shown = await client.show();
  if (deed === 'shown' || shown.hash === null || shown.trusted) return shown;
  const loosened = shown.needsTrust.map(({ key, value, where }) => ({ what: `${key}: ${value}`, allows: where }));
  const asked = loosened.length > 0 ? loosened : [{ what: shown.file ?? '', allows: NOTHING_YET }];
  const head = loosened.length > 0 ? {} : { head: 'Nothing in this file needs trust' };
  const consent = await consentTo(call, asked, { question: 'acode: Trust this file as it is now?', yes, ...head });
  // The content that is shown is the content that is trusted: one that changed in between is refused.
  return consent && client.grant(shown.hash, consent);
}

const NOTHING_YET = 'It asks for nothing that an untrusted file may not have.';

async function sayNoFile(call: Call, report: TrustReport): Promise<number> {
  const { cyan, dim, red } = call.errorLook.colours;
  if (call.options.json) await call.printJson('acode.trust/1', report);
  else
    await call.say(
      `${red('acode:')} ${oneLine(report.workspace)} has no .agent/config.yml, so there is nothing to trust.\n` +
        `${dim('╰▶')} ${cyan('hint:')} Go into the project, or name it with --workspace <directory>.\n`,
    );
  return NO_FILE;
}

/** The trust in a repository’s file, for a person. */
export function renderTrust(report: TrustReport, deed: Deed, look: Look): string {
  const { bold, green, yellow } = look.colours;
  const { trusted, needsTrust } = report;
  const headline = trusted ? green(bold('Trusted until its content changes')) : yellow(bold(untrusted(report, deed)));
  const about = fields(
    [
      ['File', report.file ?? 'none'],
      ['Content', report.hash ?? 'none'],
      ['Workspace', report.workspace],
    ],
    look,
  );
  const asked =
    needsTrust.length === 0
      ? `${NOTHING_YET}\n`
      : `${bold('It asks for what an untrusted file may not have:')}\n${needsTrust.map(keyText).join('')}`;
  return `${headline}\n${about}\n${asked}${refusedText(report, look)}\n${fitted(wayOn(report, deed), look)}\n`;
}

function untrusted({ changed }: TrustReport, deed: Deed): string {
  return changed && deed !== 'revoked' ? 'Not trusted: changed since you trusted it' : 'Not trusted';
}

function refusedText({ refused }: TrustReport, look: Look): string {
  if (!refused) return '';
  const { bold, red } = look.colours;
  const { key, where, rule } = refused;
  return `${red(bold('It is refused, trusted or not:'))}\n  ${oneLine(key)}: ${oneLine(rule)}\n    ${oneLine(where)}\n`;
}

// Keys stand below each other and are never cut: this is what the user agrees to.
function keyText({ key, where, value }: TrustReport['needsTrust'][number]): string {
  return `  ${oneLine(key)}: ${oneLine(value)}\n    ${oneLine(where)}\n`;
}

function wayOn({ trusted, needsTrust, refused }: TrustReport, deed: Deed): string {
  if (deed === 'revoked') return 'The trust was ended, if there was any. `acode trust` trusts the file as it is now.';
  if (refused) return `Commands here are refused as long as it says this. ${oneLine(refused.remedy)}`;
  if (trusted) return '`acode trust --revoke` ends the trust; so does any change of the file.';
  return needsTrust.length === 0
    ? 'There is no need to trust it; each run judges what it asks for.'
    : 'Commands here are refused as long as it asks for this. Read the file; if you agree with all of it: `acode trust`.';
}
