// Obstacles: the reasons not to start a background process, for the starter and for `acode serve status`.

import { readFileSync } from 'node:fs';
import type { ServeSetting } from '@acode/sandbox';
import type { Io } from '../io.ts';
import type { OwnProgram } from '../own-program.ts';
import { diskOf } from './file-system.ts';
import type { Disk } from './file-system.ts';

/** What the rules look at. */
export interface Surroundings {
  readonly platform: NodeJS.Platform;
  readonly uid: number | undefined;
  /** The environment variables; of these, those of CI systems. */
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly setting: ServeSetting;
  /** The memory available without swapping; null where it is unknown. */
  readonly availableBytes: number | null;
  readonly disk: Disk;
  /** Whether acode itself, or Node, is a part of the workspace. */
  readonly installedInside: boolean;
}

const GIB = 1024 ** 3;
const LEAST_AVAILABLE = 2 * GIB;

// What CI systems set; not all of them set `CI`.
const CI_VARIABLES = [
  'CI',
  'TF_BUILD', // Azure Pipelines
  'JENKINS_URL',
  'BUILD_ID', // Jenkins, Cloud Build
  'TEAMCITY_VERSION',
  'CODEBUILD_BUILD_ID', // AWS CodeBuild
  'GITHUB_ACTIONS',
  'GITLAB_CI',
  'CIRCLECI',
  'BUILDKITE',
  'BITBUCKET_BUILD_NUMBER',
  'DRONE',
];

const DISKS: Readonly<Record<Disk, string | null>> = {
  local: null,
  network: 'the workspace is on a network file system',
  removable: 'the workspace is on a removable disk',
  unknown: 'acode cannot tell what kind of disk the workspace is on',
};

/** Each gives the reason not to start, or null. The first one counts. */
const RULES: readonly ((of: Surroundings) => string | null)[] = [
  ({ platform }) =>
    platform === 'linux' ? null : `acode starts it on Linux only, not on ${platform}; run \`acode serve\` yourself`,
  ({ uid }) => (uid === 0 ? 'you are root' : null),
  ({ setting: { value, setBy } }) => (value === 'never' ? `sandbox.serve is never (${setBy ?? 'unknown'})` : null),
  ({ setting }) => needsVariables(setting),
  ({ env }) => {
    const name = CI_VARIABLES.find(variable => !['', 'false'].includes(env[variable] ?? ''));
    return name === undefined ? null : `${name} is set (${env[name]})`;
  },
  ({ installedInside }) =>
    installedInside
      ? 'acode is installed inside the workspace, where a command may have changed the program that would start'
      : null,
  ({ disk }) => DISKS[disk],
  ({ availableBytes: bytes }) => {
    if (bytes === null) return 'acode cannot tell how much memory is available';
    return bytes < LEAST_AVAILABLE ? `${(bytes / GIB).toFixed(1)} GiB of memory are available; it needs 2 GiB` : null;
  },
];

/** Why a process with another environment than the caller’s runs no command; null where it does. */
export function needsVariables({ variables = [] }: ServeSetting): string | null {
  const [first] = variables;
  return first === undefined ? null : `a credential is read from ${first} of your environment, which it does not have`;
}

/** Why no background process is started here; null where nothing is against it. */
export function obstacleOf(of: Surroundings): string | null {
  for (const rule of RULES) {
    const reason = rule(of);
    if (reason !== null) return reason;
  }
  return null;
}

/**
 * The surroundings of a call in a workspace.
 *
 * @param written directories besides the workspace that the command could write
 * @param program what would be started
 */
export function surroundingsOf(
  { env }: Pick<Io, 'env'>,
  about: {
    readonly root: string;
    readonly written: readonly string[];
    readonly program: OwnProgram | undefined;
    readonly setting: ServeSetting;
  },
): Surroundings {
  return {
    platform: process.platform,
    uid: process.getuid?.(),
    env,
    setting: about.setting,
    availableBytes: availableBytes(),
    disk: diskOf(about.root),
    installedInside: about.program?.isBelow([about.root, ...about.written]) ?? false,
  };
}

function availableBytes(): number | null {
  try {
    const [, kib] = /^MemAvailable:\s+(\d+) kB$/m.exec(readFileSync('/proc/meminfo', 'utf8')) ?? [];
    return kib === undefined ? null : Number(kib) * 1024;
  } catch {
    return null;
  }
}
