// `acode sandbox pull`: pulls images before a command needs them.

import { AcodeError } from '@acode/sandbox';
import type { Acode, PulledImage } from '@acode/sandbox';
import { Command } from '@commander-js/extra-typings';
import type { Call, Perform } from '../call.ts';
import { UsageError } from '../failure/usage.ts';
import type { Look } from '../terminal/look.ts';
import { PullDisplay } from '../terminal/pull-display.ts';
import { sizeText } from '../terminal/pull-lines.ts';
import { oneLine } from '../terminal/text.ts';
import { hanging, proseWidth } from '../terminal/wrap.ts';

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
  if (reference === '')
    throw new UsageError('"" is not an image reference: there is nothing in it.', 'Name one, such as node:20-alpine.');
  const pulled = await call
    .withHost(acode => pullShown(call, acode, reference))
    .catch((error: unknown) => {
      throw asUsage(error);
    });
  await call.print('acode.pull/1', { items: [pulled], failed: [] }, look => renderPulled([pulled], [], look));
  return 0;
}

// What stands where a reference should is a mistake of the call, and here it is an argument and no option.
function asUsage(error: unknown): unknown {
  if (!(error instanceof AcodeError) || !error.is('ACODE-SBX-017') || error.context.field !== 'policy.image')
    return error;
  return new UsageError(`${error.context.reason}.`, error.hint);
}

// An image that cannot be pulled does not stop the others, unless they are in a registry that did not answer.
async function pullDefaults(call: Call): Promise<number> {
  const items: PulledImage[] = [];
  const failed: NotPulled[] = [];
  const silent = new Set<string>();
  await call.withHost(async acode => {
    for (const reference of await acode.images.defaults()) {
      const registry = registryOf(reference);
      if (silent.has(registry)) {
        failed.push(notTried(reference, registry));
        continue;
      }
      const display = new PullDisplay(call);
      try {
        items.push(await pullShown(call, acode, reference, display));
      } catch (error) {
        if (!(error instanceof AcodeError) || call.interruption.signal.aborted || concernsAll(String(error.code)))
          throw error;
        if (isSilent(error, display)) silent.add(registry);
        const { message, hint } = error;
        failed.push({ reference, code: String(error.code), message, hint });
      }
    }
  });
  await call.print('acode.pull/1', { items, failed }, look => renderPulled(items, failed, look));
  return failed.length > 0 ? FAILED : 0;
}

/** The registry of a reference, as engines read it. */
export function registryOf(reference: string): string {
  const [first = '', ...rest] = reference.split('/');
  return rest.length > 0 && /[.:]|^localhost$/.test(first) ? first.toLowerCase() : 'docker.io';
}

// Each of them would be waited for as long as the first one.
function notTried(reference: string, registry: string): NotPulled {
  const message = `It was not tried: ${registry} could not be reached for the image before it.`;
  return { reference, code: 'ACODE-SBX-002', message, hint: 'Pull again when the registry can be reached.' };
}

// Where the layers of an image were named, the registry was reached, and another image may be had.
function isSilent(error: unknown, { reached }: PullDisplay): boolean {
  return error instanceof AcodeError && error.is('ACODE-SBX-002') && error.context.kind === 'unreachable' && !reached;
}

// Without an engine, or without a record, the next one will not be pulled either.
function concernsAll(code: string): boolean {
  return ['ACODE-SBX-008', 'ACODE-SBX-018', 'ACODE-AUD-001'].includes(code);
}

function pullShown(call: Call, acode: Acode, reference: string, display = new PullDisplay(call)): Promise<PulledImage> {
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
    hanging(`${red('✗')} `, `${oneLine(reference)}: ${oneLine(message)} ${dim(code)}`, proseWidth(look)),
    hanging(`  ${dim('╰▶')} `, `hint: ${oneLine(hint)}`, proseWidth(look)),
  ]);
  return [...lines, ...refusals].map(line => `${line}\n`).join('');
}
