// `acode sandbox`: the group of commands about sandboxes. `acode docker`: some of them under the names Docker users try first.

import { Command } from '@commander-js/extra-typings';
import type { Perform } from '../call.ts';
import { buildImageCommand } from './build-image.ts';
import { cleanupCommand } from './cleanup.ts';
import { copyCommand } from './copy.ts';
import { createCommand } from './create.ts';
import { execCommand } from './exec.ts';
import { sandboxApplyCommand, sandboxDiffCommand, sandboxSnapshotCommand } from './fork.ts';
import { forwardCommand } from './forward.ts';
import { imagesCommand } from './images.ts';
import { inspectCommand } from './inspect.ts';
import { keepCommand } from './keep.ts';
import { killCommand } from './kill.ts';
import { listCommand } from './list.ts';
import { logsCommand } from './logs.ts';
import { pruneImagesCommand } from './prune-images.ts';
import { pullCommand } from './pull.ts';
import { shellCommand } from './shell.ts';
import { statusCommand } from './status.ts';

/** The group. */
export function sandboxCommands(perform: Perform) {
  return new Command('sandbox')
    .description('Run commands in sandboxes, and manage them')
    .enablePositionalOptions()
    .addCommand(statusCommand(perform))
    .addCommand(execCommand(perform))
    .addCommand(createCommand(perform))
    .addCommand(shellCommand(perform))
    .addCommand(copyCommand(perform))
    .addCommand(forwardCommand(perform))
    .addCommand(keepCommand(perform))
    .addCommand(killCommand(perform))
    .addCommand(sandboxDiffCommand(perform))
    .addCommand(sandboxApplyCommand(perform))
    .addCommand(sandboxSnapshotCommand(perform))
    .addCommand(listCommand(perform))
    .addCommand(inspectCommand(perform))
    .addCommand(logsCommand(perform))
    .addCommand(buildImageCommand(perform))
    .addCommand(cleanupCommand(perform))
    .addCommand(pullCommand(perform))
    .addCommand(imagesCommand(perform))
    .addCommand(pruneImagesCommand(perform));
}

/** The group. */
export function dockerCommands(perform: Perform) {
  return new Command('docker')
    .description('`list`, `inspect`, `logs` and `cleanup` of `sandbox`, for Docker users')
    .addCommand(listCommand(perform))
    .addCommand(inspectCommand(perform))
    .addCommand(logsCommand(perform))
    .addCommand(cleanupCommand(perform));
}
