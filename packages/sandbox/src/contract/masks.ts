// Masks: files of a workspace that are present and empty inside a sandbox. The policy, what was found, and its line of text.

import type { Source, Sourced } from './sourced.ts';

/** What to mask besides the built-in rules, and what not to mask. */
export interface MaskPolicy {
  /** Patterns that add masks, each with the layer that set it. The machine’s and the user’s also apply to files that git tracks. */
  readonly add: readonly Sourced<string>[];
  /** Patterns of the user’s own file that remove masks; those of the machine’s policy persist. */
  readonly remove: Sourced<readonly string[]>;
}

/** One file or directory that is present and empty inside. */
export interface MaskedPath {
  /** Path relative to the workspace, with `/` between names and no link in it. */
  readonly path: string;
  /** A file, or a directory as a whole. */
  readonly kind: 'file' | 'directory';
  /** Device of what was found there. */
  readonly device: number;
  /** Inode of what was found there. */
  readonly inode: number;
  /** Id of the built-in rule, such as `env`, or the pattern that matched. */
  readonly rule: string;
  /** The layer that set the rule. */
  readonly setBy: Source;
  /** The symbolic link that matched, where the masked path is what it points to. */
  readonly link?: string;
}

/** Something that a mask cannot hide, or that was not searched. */
export type MaskWarning =
  | {
      /** The content has further names (hard links) that are not masked. */
      readonly kind: 'hard-link';
      /** The masked path. */
      readonly path: string;
      /** Number of names that are not masked. */
      readonly others: number;
    }
  | {
      /** The search ended before it was complete: a limit on entries or on time. */
      readonly kind: 'search-limit';
      /** Which limit. */
      readonly limit: 'entries' | 'time';
      /** Number of entries that were seen. */
      readonly entries: number;
    }
  | {
      /** A directory could not be listed. */
      readonly kind: 'unreadable';
      /** The directory. */
      readonly path: string;
    }
  | {
      /** What git tracks is not known, so files that match are masked even if git tracks them. */
      readonly kind: 'tracking-unknown';
      /**
       * The index cannot be read; sandboxes can write it; or the repository appeared after acode first ran here, so that a command
       * may have made it.
       */
      readonly because: 'index' | 'writable' | 'new-repository';
    };

/** Result of a search for what to mask. */
export interface MaskReport {
  /** What to mask, in byte order of the paths. */
  readonly masked: readonly MaskedPath[];
  /** What masks do not cover. */
  readonly warnings: readonly MaskWarning[];
  /** Remembered paths that are not in the workspace any more, after a search of all of it. */
  readonly forgotten: readonly string[];
}

/** The masks of a workspace. */
export interface Masks {
  /**
   * What a command would see empty in this workspace now. Throws `ACODE-MSK-001` where something that was masked before cannot be found
   * within five seconds.
   */
  list(): Promise<MaskReport>;
  /**
   * Searches the whole workspace, however long it takes, for what was masked before, and forgets what is not there any more. From then
   * on the git repository that is there now is trusted to say which files it tracks.
   */
  rescan(): Promise<MaskReport>;
}

const SHOWN = 5;

/**
 * One line about masks, or null where there are none.
 *
 * @example
 * maskLine([{ path: '.env', kind: 'file' }]); // 'masked: 1 file (.env)'
 */
export function maskLine(masked: readonly Pick<MaskedPath, 'path' | 'kind'>[]): string | null {
  if (masked.length === 0) return null;
  const files = masked.filter(({ kind }) => kind === 'file').length;
  const directories = masked.length - files;
  const counts = [counted(files, 'file', 'files'), counted(directories, 'directory', 'directories')];
  const names = masked.slice(0, SHOWN).map(({ path, kind }) => `${shown(path)}${kind === 'directory' ? '/' : ''}`);
  const more = masked.length > SHOWN ? [`${masked.length - SHOWN} more`] : [];
  return `masked: ${counts.filter(Boolean).join(' and ')} (${[...names, ...more].join(', ')})`;
}

function counted(number: number, one: string, many: string): string {
  return number === 0 ? '' : `${number} ${number === 1 ? one : many}`;
}

// An attacker may have chosen the names: what would act on a terminal, or look like the end of a name, is escaped.
function shown(path: string): string {
  return /[\p{C}\p{Z},()"\\]/u.test(path)
    ? JSON.stringify(path).replaceAll(/[^\P{C}\n]|[\u2028\u2029]/gu, escaped)
    : path;
}

function escaped(character: string): string {
  return `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`;
}

const TRACKING = {
  index: 'git’s index cannot be read',
  writable: 'commands in a sandbox can write git’s index',
  'new-repository': 'the git repository appeared after acode first ran here (`acode masks rescan` accepts it)',
};

/** What a mask does not cover, as a sentence. */
export function maskWarningText(warning: MaskWarning): string {
  if (warning.kind === 'hard-link')
    return `${shown(warning.path)} is masked and has ${counted(warning.others, 'other name', 'other names')} (hard links): a command can read it there.`;
  if (warning.kind === 'search-limit')
    return `The search for files to mask ended at its limit of ${warning.limit} after ${warning.entries} entries: what it did not reach is not masked.`;
  if (warning.kind === 'unreadable') return `${shown(warning.path)} cannot be listed, so nothing in it is masked.`;
  return `Files that look like secrets are masked even if git tracks them, because ${TRACKING[warning.because]}.`;
}
