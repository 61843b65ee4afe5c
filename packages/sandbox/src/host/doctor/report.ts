// What the doctor reports: the state of this host, and what a live attack on it came to.

import type { Level } from '../../contract/levels.ts';

/** How one check of the host came out. */
export type CheckStatus = 'ok' | 'warn' | 'fail';

/** One thing the doctor looked at. */
export interface Check {
  /** The name of the check, for programs. */
  readonly id: string;
  /** The name of the check, for people. */
  readonly title: string;
  /** How it came out. */
  readonly status: CheckStatus;
  /** What was found. */
  readonly seen: string;
  /** What to do about it, where something is to be done. */
  readonly remedy?: string;
}

/** What `Observer.doctor` found. */
export interface DoctorReport {
  /** Every check, in order. */
  readonly checks: readonly Check[];
  /** Whether no check failed. */
  readonly ok: boolean;
  /** How long it took, in milliseconds. */
  readonly durationMs: number;
}

/**
 * How one attack ended. `pass`: the sandbox stopped it, and the control showed that the attempt works where the protection
 * is missing. `fail`: it was not stopped, or that could not be shown. `not-applicable`: it cannot be tried here.
 * `not-tried`: it applies here, and the engine gave no sandbox for it in time, so nothing is known.
 */
export type ProbeVerdict = 'pass' | 'fail' | 'not-applicable' | 'not-tried';

/** One attack of the corpus, and what came of it. */
export interface Probe {
  /** The row of the corpus: its first letter is the group. */
  readonly id: string;
  /** The attack in a few words. */
  readonly title: string;
  /** How it ended. */
  readonly verdict: ProbeVerdict;
  /** What happened in the sandbox: the errno or the effect that was seen, or why it could not be tried. */
  readonly observed: string;
  /** What showed that the attempt itself works; empty where it was not tried because nothing would have stopped it. */
  readonly control: string;
}

/** From best to worst. */
export type Grade = 'A+' | 'A' | 'B' | 'C' | 'D' | 'F';

/** What `Acode.attack` found. */
export interface AttackReport {
  /** What was attacked. */
  readonly backend: {
    /** What makes the sandboxes: `docker`, or the name of a level that needs no engine. */
    readonly engine: string;
    /** The engine’s version; empty without one. */
    readonly version: string;
    /** The engine’s runtime; empty without one. */
    readonly runtime: string;
    /** The isolation level. */
    readonly level: Level;
    /** Whether the level is a security boundary at all. */
    readonly boundary: boolean;
    /** The kernel that sandboxes run on. */
    readonly kernel: string;
  };
  /** The image the attacks started from; `host` where a level has none. */
  readonly image: string;
  /** Why it is another than the default one, where none was asked for. */
  readonly imageReason?: string;
  /** The grade, from `A+` to `F`. */
  readonly grade: Grade;
  /** Every attack, in the order of the corpus. */
  readonly probes: readonly Probe[];
  /** How long it took, in milliseconds. */
  readonly durationMs: number;
}

/** What to attack, and with what. Every field is optional. */
export interface AttackOptions {
  /**
   * The level to attack; else the one that commands get. One without an engine may be weaker than the configuration allows
   * for commands, since only programs of acode’s own are run.
   */
  readonly level?: Level;
  /** The engine’s runtime by name; else the configured one. Only at levels of an engine, like the image. */
  readonly runtime?: string;
  /** The image the attacks start from; else the configured one. */
  readonly image?: string;
  /** Cancels the attack. */
  readonly signal?: AbortSignal;
  /** Called as groups of attacks end. */
  readonly onProgress?: (progress: {
    /** How many attacks have ended. */
    readonly done: number;
    /** How many there are. */
    readonly total: number;
    /** The group that runs now. */
    readonly about: string;
  }) => void;
}

/**
 * The grade of a report. A way out of the sandbox (groups A and B) is an F whatever else holds; code that runs on the host
 * afterwards or a leaked secret (C, F) is a D; an open network or an unlimited resource (D, E) a C. Where
 * an attack applies and could not be tried, the grade is at most B. A+ needs every probe that
 * could be tried to pass and a kernel of the sandbox’s own or no more than a few probes that could not be tried.
 */
export function gradeOf(probes: readonly Probe[]): Grade {
  const failed = new Set(probes.filter(({ verdict }) => verdict === 'fail').map(({ id }) => id.charAt(0)));
  if (failed.has('A') || failed.has('B')) return 'F';
  if (failed.has('C') || failed.has('F')) return 'D';
  if (failed.size > 0) return 'C';
  if (probes.some(({ verdict }) => verdict === 'not-tried')) return 'B';
  const tried = probes.filter(({ verdict }) => verdict === 'pass').length;
  // A card on which little could be tried says little.
  if (tried < LEAST_TRIED) return 'B';
  return tried / probes.length >= NEARLY_ALL ? 'A+' : 'A';
}

const LEAST_TRIED = 45;
const NEARLY_ALL = 0.9;
