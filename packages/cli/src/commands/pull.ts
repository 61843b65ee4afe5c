// `acode sandbox pull`: brings images to the engine before somebody waits for them.

import { AcodeError } from '@acode/sandbox';
import type { Acode, PulledImage } from '@acode/sandbox';
import { Command } from '@commander-js/extra-typings';
import type { Call, Perform } from '../call.ts';
import type { Look } from '../terminal/look.ts';
import { PullDisplay } from '../terminal/pull-display.ts';
import { sizeText } from '../terminal/pull-lines.ts';
import { oneLine } from '../terminal/text.ts';

const FAILED = 125;

/** The command. */
export function pullCommand(perform: Perform) {
  return new Command('pull')
    .description('Pull an image from a trusted repository; without a name, the default images')
    .argument('[image]', 'reference of the image, such as node:20-alpine')
    .action((image, _options, command) =>
      perform(command, call => (image === undefined ? pullDefaults(call) : pullOne(call, image))),
    );
}

/** An image that could not be had, and why. */
export interface NotPulled {
  readonly reference: string;
  readonly code: string;
  readonly message: string;
  readonly hint: string;
}

async function pullOne(call: Call, reference: string): Promise<number> {
  const pulled = await call.withHost(acode => pullShown(call, acode, reference));
  await call.print('acode.pull/1', { items: [pulled], failed: [] }, look => renderPulled([pulled], [], look));
  return 0;
}

// One that cannot be had does not keep the others from being pulled.
async function pullDefaults(call: Call): Promise<number> {
  const items: PulledImage[] = [];
  const failed: NotPulled[] = [];
  await call.withHost(async acode => {
    for (const reference of await acode.images.defaults()) {
      try {
        items.push(await pullShown(call, acode, reference));
      } catch (error) {
        if (!(error instanceof AcodeError) || call.interruption.signal.aborted || concernsAll(String(error.code)))
          throw error;
        const { message, hint } = error;
        failed.push({ reference, code: String(error.code), message, hint });
      }
    }
  });
  await call.print('acode.pull/1', { items, failed }, look => renderPulled(items, failed, look));
  return failed.length > 0 ? FAILED : 0;
}

// Without an engine, or without a record, the next one will not be pulled either.
function concernsAll(code: string): boolean {
  return ['ACODE-SBX-008', 'ACODE-SBX-018', 'ACODE-AUD-001'].includes(code);
}

function pullShown(call: Call, acode: Acode, reference: string): Promise<PulledImage> {
  const display = new PullDisplay(call);
  const { signal } = call.interruption;
  const pulling = acode.images.pull(reference, { signal, onProgress: display.hear });
  return call.progress.during(() => display.text(`Pulling ${reference}…`), pulling, 0);
}

/** What was pulled, for a person. */
export function renderPulled(items: readonly PulledImage[], failed: readonly NotPulled[], look: Look): string {
  const { green, red, yellow, dim } = look.colours;
  const lines = items.flatMap(({ reference, digest, changed, previousDigest, sizeBytes, warnings }) => [
    `${green('✓')} ${oneLine(reference)} ${dim(`${digest} (${sizeText(sizeBytes)}${changed ? '' : ', was there'})`)}`,
    ...(previousDigest === undefined ? [] : [`  ${yellow('the tag has moved:')} it was ${previousDigest}`]),
    ...warnings.map(warning => `  ${yellow('note:')} ${oneLine(warning)}`),
  ]);
  const refusals = failed.flatMap(({ reference, code, message, hint }) => [
    `${red('✗')} ${oneLine(reference)}: ${oneLine(message)} ${dim(code)}`,
    `  ${dim('╰▶')} hint: ${oneLine(hint)}`,
  ]);
  return [...lines, ...refusals].map(line => `${line}\n`).join('');
}
