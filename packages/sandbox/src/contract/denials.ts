// Denials as data: the rule that stopped a command, its value, the layer that set it, and the remedies. Sentences are made
// of them at the edge (denial-text.ts); an agent, a script and another host branch on the ids.

import type { Sourced } from './sourced.ts';

/** Every rule that can deny something to a command. The ids are final, because programs branch on them. */
export const DENIAL_RULES = [
  'limit.time',
  'limit.memory',
  'limit.pids',
  'limit.output',
  'limit.tmp',
  'limit.open-files',
  'limit.network-time',
  'limit.network-bytes',
  'limit.requests',
  'limit.tokens',
  'limit.disk',
  'limit.free-space',
  'network.none',
  'network.air-gapped',
  'network.not-listed',
  'network.denied-host',
  'network.private-address',
  'network.request',
  'root.none',
  'read-only.root',
  'read-only.workspace',
  'read-only.protected',
  'read-only.mount',
  'read-only.ca-bundle',
  'read-only.masked',
] as const;

/** The id of a rule, such as `limit.memory`. */
export type RuleId = (typeof DENIAL_RULES)[number];

/** A value that a rule or a setting can have. */
export type RuleValue = string | number | boolean | null;

/**
 * Something the sandbox would not let the command do. It is data that survives JSON: branch on `rule`, and make a sentence
 * of it with {@link denialText}.
 *
 * @example
 * const { denials } = await acode.run('npm test', { policy: { limits: { memoryBytes: 64 * 1024 ** 2 } } });
 * for (const denial of denials) {
 *   console.error(denialText(denial));
 *   for (const remedy of denial.remedies)
 *     if (remedy.kind === 'raise-limit') console.error(`try ${remedy.field}: ${remedy.suggested}`);
 * }
 */
export interface Denial {
  /** The rule, by its id. */
  readonly rule: RuleId;
  /** What the rule is about: a limit in bytes, milliseconds or pieces, or the path that is read-only. */
  readonly value?: RuleValue;
  /** The setting behind the rule, and the layer that set it. */
  readonly setBy: Sourced<RuleValue>;
  /** What the denial did to the command; absent where an attempt was only refused. */
  readonly effect?: DenialEffect;
  /**
   * The sign of it: a line that the command printed, the path it tried to write, or the part of the command that fetches.
   * In one line and cut. Absent where acode knows the denial for certain.
   */
  readonly suspected?: string;
  /** How often the run showed it, at least 1. */
  readonly count: number;
  /** What to do next, the best first. Never empty. */
  readonly remedies: readonly Remedy[];
}

/** What a denial did to the command, or to what was asked for. */
export type DenialEffect =
  | {
      /** The command was stopped. */
      readonly kind: 'command-ended';
    }
  | {
      /** A process of the command was killed. */
      readonly kind: 'process-killed';
    }
  | {
      /** A process of the command could start no other. */
      readonly kind: 'process-refused';
    }
  | {
      /** Output was read and not kept. */
      readonly kind: 'output-dropped';
      /** How much, in bytes of both streams. */
      readonly bytes: number;
    }
  | {
      /** The network was disconnected, and the command went on. */
      readonly kind: 'network-disconnected';
    }
  | {
      /** A field of the request or a key of a file was not followed. */
      readonly kind: 'request-ignored';
      /** What was asked for, as a phrase, and who asked. */
      readonly asked: Sourced<RuleValue>;
    };

/** A place inside every sandbox that can be written to. */
export type WritablePlace = 'workspace' | 'tmp' | 'home';

/** One thing to do about a denial. */
export type Remedy =
  | {
      /** Needs less of what is limited. */
      readonly kind: 'use-less';
    }
  | {
      /** Gives a field of the request a larger value; ceilings still apply. */
      readonly kind: 'raise-limit';
      /** The field of the request, the key of a file or the variable to change. */
      readonly field: string;
      /** The value to try. */
      readonly suggested: number;
    }
  | {
      /** Gives a field of the request another value. */
      readonly kind: 'change-request';
      /** The field of the request. */
      readonly field: string;
      /** The value to try. */
      readonly suggested: string;
      /** A key that must be true in the user’s own configuration first. */
      readonly consent?: string;
    }
  | {
      /** Changes a key of a configuration file. */
      readonly kind: 'change-setting';
      /** The key. */
      readonly field: string;
      /** What to do with it, as a verb: `raise`. */
      readonly suggested?: string;
      /** The file, line and column it is set at, where it is to be taken out. */
      readonly where?: string;
    }
  | {
      /** Adds entries to a list in the user’s own configuration file. */
      readonly kind: 'add-setting';
      /** The key. */
      readonly field: string;
      /** The entries, with spaces between. */
      readonly suggested: string;
    }
  | {
      /** Unsets a variable of acode’s own environment. */
      readonly kind: 'unset-variable';
      /** The variable. */
      readonly field: string;
    }
  | {
      /** Runs in an image that has what is missing. */
      readonly kind: 'choose-image';
      /** The field of the request. */
      readonly field: 'policy.image';
      /** The image that the command had, to build another on; absent where there was none. */
      readonly image?: string;
    }
  | {
      /** Leaves a part of the command out. */
      readonly kind: 'leave-out';
      /** The part, such as `sudo`. */
      readonly suggested: string;
    }
  | {
      /** Writes to a place that can be written to. */
      readonly kind: 'write-elsewhere';
      /** The places. */
      readonly suggested: readonly WritablePlace[];
    }
  | {
      /** Brings what the command would fetch. */
      readonly kind: 'provide-offline';
    }
  | {
      /** Does the task without a network. */
      readonly kind: 'work-offline';
    }
  | {
      /** Works on a copy of a file. */
      readonly kind: 'copy-file';
      /** A variable that can name the copy, such as `SSL_CERT_FILE`. */
      readonly suggested: string;
    }
  | {
      /** Leaves the change to the user, on the host. */
      readonly kind: 'change-on-host';
    }
  | {
      /** Frees space on the disk of the host. */
      readonly kind: 'free-space';
    }
  | {
      /** Asks the administrator, who alone can change the machine’s policy. */
      readonly kind: 'ask-administrator';
    };
