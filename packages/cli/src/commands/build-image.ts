// `acode sandbox build-image`: builds an image of this project if anything has changed since the last build.

import { TerminalSanitiser, formatBytes } from '@acode/sandbox';
import type { BuildProjectOptions, ProjectImage } from '@acode/sandbox';
import { Command, Option } from '@commander-js/extra-typings';
import { seconds } from '../arguments/values.ts';
import type { Call, Perform } from '../call.ts';
import { UsageError } from '../failure/usage.ts';
import { shortId } from '../terminal/text.ts';
import type { Look } from '../terminal/look.ts';
import { fields } from '../terminal/table.ts';
import { network } from '../arguments/sandbox-values.ts';

type Network = ReturnType<typeof network>;

const STEPS = { install: 'Running the install command', build: 'Building the image' };

interface BuildFlags {
  readonly force?: true | undefined;
  readonly base?: string | undefined;
  readonly install?: string | undefined;
  readonly network?: Network | undefined;
  readonly timeout?: number | undefined;
}

/** The command. */
export function buildImageCommand(perform: Perform) {
  return new Command('build-image')
    .description('Build an image of this project: a base image, its files, and what an install command adds')
    .option('--force', 'build even if nothing has changed')
    .option('--base <reference>', 'base image (default: the image that commands here get)')
    .option('--install <line>', 'shell line that installs dependencies; runs in a sandbox on a copy of the project')
    .addOption(
      new Option('--network <network>', 'with --install: none (default), bridge, or the name of a network').argParser(
        network,
      ),
    )
    .addOption(
      new Option('--timeout <time>', 'time limit for the whole build: seconds, or 20m (default: 600)').argParser(
        seconds,
      ),
    )
    .action((options, command) => perform(command, call => buildImage(call, options)));
}

async function buildImage(call: Call, flags: BuildFlags): Promise<number> {
  const options = optionsOf(flags);
  const { signal } = call.interruption;
  const output = new BuildOutput(call);
  const image = await call.withHost(acode =>
    call.progress.during(
      () => output.doing,
      acode.images.buildProject({
        ...options,
        signal,
        onOutput: text => output.add(text),
        onStep: step => output.begin(STEPS[step]),
      }),
    ),
  );
  await call.print('acode.build-image/1', image, look => renderProjectImage(image, look));
  return 0;
}

function optionsOf({ force, base, install, network: on, timeout }: BuildFlags): BuildProjectOptions {
  if (on !== undefined && install === undefined)
    throw new UsageError('--network needs --install.', 'Add --install, or leave it out.');
  return {
    ...(force ? { force } : {}),
    ...(base === undefined ? {} : { base }),
    ...(install === undefined
      ? {}
      : { install: { command: install, policy: on === undefined ? {} : { network: on } } }),
    ...(timeout === undefined ? {} : { timeoutMs: timeout }),
  };
}

/**
 * Output during a build. A stream gets the text as it arrives; a terminal gets one line with the current step and the
 * last line of output.
 */
export class BuildOutput {
  readonly #call: Pick<Call, 'stderr' | 'interruption'>;
  readonly #sanitiser = new TerminalSanitiser();
  #step = 'Reading the project';
  #line = '';

  constructor(call: Pick<Call, 'stderr' | 'interruption'>) {
    this.#call = call;
  }

  /** The current step, in one line. */
  get doing(): string {
    return this.#line === '' ? `${this.#step}…` : `${this.#step}: ${this.#line}`;
  }

  /** Begins another step and discards the last line of the previous one. */
  begin(step: string): void {
    this.#step = step;
    this.#line = '';
  }

  add(text: string): void {
    const harmless = this.#sanitiser.push(Buffer.from(text, 'utf8'));
    this.#line = harmless.trimEnd().split('\n').at(-1) ?? '';
    // On a terminal, the progress line already shows this text. Writing it as well would garble that line.
    if (!this.#call.stderr.isTerminal) void this.#call.stderr.write(harmless, this.#call.interruption.signal);
  }
}

/** The built image and how to use it, as text for a terminal. */
export function renderProjectImage(image: ProjectImage, look: Look): string {
  const { bold, green } = look.colours;
  const headline = image.built ? green(bold(`Built ${image.reference}`)) : bold(`Unchanged: ${image.reference}`);
  const { count, paths } = image.withheld;
  const more = count > paths.length ? `, and ${count - paths.length} more` : '';
  const about = fields(
    [
      ['Image', shortId(image.id)],
      ['Base', `${image.base.reference} (${shortId(image.base.id)})`],
      ['Project', `${image.files} files, ${formatBytes(image.bytes)}`],
      ...(image.built ? [['Changed', image.changed.join(', ') || 'nothing'] as const] : []),
      ...(count > 0 ? [['Left out', `${paths.join(', ')}${more} (never part of an image)`] as const] : []),
      ['Time', `${(image.durationMs / 1000).toFixed(1)} s`],
      ['Use it', `acode run --image ${image.reference} "cd /project && …"`],
    ],
    look,
  );
  return `${headline}\n${about}`;
}
