// `acode sandbox build-image`: builds an image of this project if anything has changed since the last build.

import { Command, Option } from '@commander-js/extra-typings';
import { network } from '../arguments/sandbox-values.ts';
import { seconds } from '../arguments/values.ts';
import type { Perform } from '../call.ts';

/** The command. */
export function buildImageCommand(perform: Perform) {
  return new Command('build-image')
    .description('Build an image of this project: a base image, its files, and what an install command adds')
    .option('--force', 'build even if nothing has changed')
    .option('--base <reference>', 'base image (default: the image that commands here get)')
    .option('--install <line>', 'shell line that installs dependencies; runs in a sandbox on a copy of the project')
    .addOption(
      new Option(
        '--network <network>',
        'with --install: none (default), allow=<hosts>, bridge, or the name of a network',
      ).argParser(network),
    )
    .addOption(
      new Option('--timeout <time>', 'time limit for the whole build: seconds, or 20m (default: 600)').argParser(
        seconds,
      ),
    )
    .action((options, command) =>
      perform(command, async call => {
        const { buildImage } = await import('../project/build-image.ts');
        return buildImage(call, options);
      }),
    );
}
