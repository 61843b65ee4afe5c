// `acode sandbox kill`: ends persistent sandboxes, with everything that runs in them.

import { AcodeError } from '@acode/sandbox';
import type { SandboxInfo } from '@acode/sandbox';
import { Command } from '@commander-js/extra-typings';
import { references } from '../arguments/values.ts';
import type { Call, Perform } from '../call.ts';
import { reportOn } from '../failure/report.ts';
import { renderNotice } from '../terminal/notice.ts';

const FAILED = 125;

/** The command. */
export function killCommand(perform: Perform) {
  return new Command('kill')
    .description('End persistent sandboxes')
    .argument('<sandbox...>', 'ids or names of persistent sandboxes', references)
    .action((named, _options, command) => perform(command, call => kill(call, named)));
}

interface Failed {
  readonly reference: string;
  readonly code: string;
  readonly message: string;
  readonly hint: string;
}

async function kill(call: Call, named: readonly string[]): Promise<number> {
  const removed: SandboxInfo[] = [];
  const failed: Failed[] = [];
  await call.withHost(async acode => {
    const { signal } = call.interruption;
    // One after the other: two arguments may name the same sandbox.
    for (const one of named) {
      try {
        removed.push(await call.progress.during('Ending the sandbox…', acode.kill(one, { signal })));
      } catch (error) {
        // With a single sandbox, or without an engine, report the error. With several, continue with the rest.
        if (named.length === 1 || !(error instanceof AcodeError) || signal.aborted) throw error;
        if (error.is('ACODE-SBX-008')) throw error;
        const { code, message, hint } = reportOn(error);
        failed.push({ reference: one, code, message, hint });
      }
    }
  });
  await call.print('acode.kill/1', { removed, failed }, () =>
    removed.map(({ sandboxId }) => `${sandboxId}\n`).join(''),
  );
  if (!call.options.json)
    for (const { code, message: text, hint } of failed)
      await call.say(
        renderNotice({ text, details: [['code', code]], hint }, call.errorLook, call.errorLook.colours.red),
      );
  return failed.length > 0 ? FAILED : 0;
}
