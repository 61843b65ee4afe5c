// Builds an image of this project if anything has changed since the last build, and prints each step.

import { TerminalSanitiser, formatBytes } from '@acode/sandbox';
import type { BuildProjectOptions, ProjectImage } from '@acode/sandbox';
import type { Call } from '../call.ts';
import { UsageError } from '../failure/usage.ts';
import { OutputTail } from '../terminal/output-tail.ts';
import { shortId } from '../terminal/text.ts';
import type { Look } from '../terminal/look.ts';
import { fields } from '../terminal/table.ts';
import type { network } from '../arguments/sandbox-values.ts';

type Network = ReturnType<typeof network>;

type Step = 'read' | 'install' | 'build';
const DOING = { read: 'Reading the project', install: 'Running the install command', build: 'Building the image' };
const DONE = { read: 'read the project', install: 'ran the install command', build: 'built the image' };

type BuildCall = Pick<Call, 'stderr' | 'interruption' | 'options' | 'say' | 'errorLook'> & {
  readonly io: Pick<Call['io'], 'now'>;
};

/** The options of `acode sandbox build-image`. */
export interface BuildFlags {
  readonly force?: true | undefined;
  readonly base?: string | undefined;
  readonly install?: string | undefined;
  readonly network?: Network | undefined;
  readonly timeout?: number | undefined;
}

/** Builds the image, and returns the exit status. */
export async function buildImage(call: Call, flags: BuildFlags): Promise<number> {
  const options = optionsOf(flags);
  const { signal } = call.interruption;
  const output = new BuildOutput(call);
  const image = await call.withHost(async acode => {
    const building = acode.images.buildProject({
      ...options,
      signal,
      onOutput: text => output.add(text),
      onStep: step => output.begin(step),
    });
    try {
      return await call.progress.during(() => output.doing, building);
    } catch (error) {
      await output.failed();
      throw error;
    }
  });
  if (output.builds) await output.done();
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

const MAX_OUTPUT = 64 * 1024;

/**
 * Output during a build: each step with its seconds. What the install command and the engine print is shown if the step fails; with
 * --verbose, as it arrives. A terminal also gets one line with the current step and the last line of output.
 */
export class BuildOutput {
  readonly #call: BuildCall;
  readonly #sanitiser = new TerminalSanitiser();
  #step: Step = 'read';
  #line = '';
  #tail = new OutputTail(MAX_OUTPUT);
  #began: number;

  constructor(call: BuildCall) {
    this.#call = call;
    this.#began = call.io.now();
  }

  /** The current step, in one line. */
  get doing(): string {
    return this.#line === '' ? `${DOING[this.#step]}…` : `${DOING[this.#step]}: ${this.#line}`;
  }

  /** Ends the current step and begins another one. */
  begin(step: Step): void {
    void this.done();
    this.#step = step;
    this.#line = '';
    this.#tail = new OutputTail(MAX_OUTPUT);
    this.#began = this.#call.io.now();
  }

  add(text: string): void {
    const harmless = this.#sanitiser.push(Buffer.from(text, 'utf8'));
    this.#line = harmless.trimEnd().split('\n').at(-1) ?? '';
    this.#tail.push(Buffer.from(harmless, 'utf8'));
    const { stderr, options, interruption } = this.#call;
    if (options.verbose) void stderr.write(harmless, interruption.signal);
  }

  /** Prints the step that has ended. */
  async done(): Promise<void> {
    const took = ((this.#call.io.now() - this.#began) / 1000).toFixed(1);
    await this.#call.say(`${this.#call.errorLook.colours.cyan('acode:')} ${DONE[this.#step]}, ${took} s\n`);
  }

  /** Prints what the step that failed has printed. */
  async failed(): Promise<void> {
    const { output, omittedBytes } = this.#tail.end();
    if (output === '' || this.#call.options.verbose) return;
    const omitted = omittedBytes > 0 ? `… ${omittedBytes} bytes before this are left out\n` : '';
    await this.#call.say(`${omitted}${output}${output.endsWith('\n') ? '' : '\n'}`);
  }

  /** Whether a step other than reading the project has begun. */
  get builds(): boolean {
    return this.#step !== 'read';
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
      ...(image.dependencies.length > 0
        ? [
            ['Dependencies', image.dependencies.join(', ')] as const,
            ['Use it', 'acode run --deps "…": your current files with these dependencies'] as const,
          ]
        : [['Use it', `acode run --image ${image.reference} "cd /project && …"`] as const]),
    ],
    look,
  );
  return `${headline}\n${about}`;
}
