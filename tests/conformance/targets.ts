// Where the conformance suite runs: a backend joins by adding one line here, and what it lacks in kinds.ts.

import { existsSync } from 'node:fs';
import type { AcodeOptions, Level, PolicyInput } from '@acode/sandbox';
import { describe, it } from 'vitest';
import { findDelegation } from '../../packages/sandbox/src/isolation/bubblewrap/control-group.ts';
import { everyEngine, podman, withoutEngines } from '../support/engines.ts';
import type { TestEngine } from '../support/engines.ts';
import { OFFLINE_NAMES } from '../support/variables.ts';
import { LACKS } from './kinds.ts';
import type { Kind, Lacks, Trait } from './kinds.ts';

/** One backend, on one engine where it has one. */
export interface Target {
  /** As in the results and the table. */
  readonly name: string;
  /** ` on 28.5.2`: the version of the engine, for people. */
  readonly version: string;
  /** Where there is none, one that is not there: nothing that passes can have run in it. */
  readonly engine: TestEngine;
  readonly level: Level;
  /** What behaviours cannot ask of it, each with the reason. */
  readonly lacks: Lacks;
  /** Whether this machine, or this user, cannot have it. */
  readonly absent: boolean;
  /** The variables that every command has there. */
  readonly variables: readonly string[];
  /** What compilers and runtimes need beyond the built-in limits. */
  readonly workLimits: NonNullable<PolicyInput['limits']>;
  readonly options: AcodeOptions;
}

interface TestMaker {
  (name: string, body: () => Promise<void>): void;
  (name: string, options: { readonly timeout: number }, body: () => Promise<void>): void;
}

/**
 * Defines a behaviour where the target has what it needs. One that cannot hold is not there, so that none is ever seen
 * skipped; the table of docs/levels.md says why it is not.
 */
export function itWhere({ lacks }: Target, needed: Trait): TestMaker {
  return lacks[needed] === undefined ? it : () => undefined;
}

/** The same for a group of behaviours. */
export function describeWhere({ lacks }: Target, needed: Trait): (name: string, body: () => void) => void {
  return lacks[needed] === undefined ? describe : () => undefined;
}

const ofAll = ['ACODE_SANDBOX', 'ACODE_TASK_ID', 'HOME', 'PATH', 'PWD'];
const ofContainers = [...ofAll, 'HOSTNAME', ...OFFLINE_NAMES];
const ofBubblewrap = [...ofAll, ...OFFLINE_NAMES];

function onEngine(engine: TestEngine, kind: Kind, level: Level, options: AcodeOptions = {}): Target {
  const runtime = kind.slice(kind.indexOf('/') + 1);
  return {
    name: `${engine.name}/${runtime}`,
    version: ` on ${engine.version}`,
    engine,
    level,
    lacks: LACKS[kind],
    absent: withoutEngines,
    variables: ofContainers,
    workLimits: {},
    options,
  };
}

function onHost(kind: Kind, level: Level, absent: boolean, sandbox: object = {}): Target {
  return {
    name: kind,
    version: '',
    engine: { name: 'no engine', socket: '/nonexistent/docker.sock', api: '', version: '', pidfile: '' },
    level,
    lacks: LACKS[kind],
    absent: absent || process.getuid?.() === 0,
    variables: level === 'bubblewrap' ? ofBubblewrap : [...ofAll, 'ACODE_SANDBOX_ID', 'TMPDIR'],
    // There memory that a runtime reserves and never uses counts as well.
    workLimits: level === 'ulimit' ? { memoryBytes: 4 * 1024 ** 3 } : {},
    options: { config: { sandbox: { level, ...sandbox } } },
  };
}

// What bubblewrap can hold is decided by where the tests were started: `.ci/engines/as-user --delegate` gives a group.
const inControlGroup = (await findDelegation()) !== null;
const withoutBubblewrap = !existsSync('/usr/bin/bwrap');

/** Every target of this machine. */
export const targets: readonly Target[] = [
  ...everyEngine.map(engine => onEngine(engine, 'docker/runc', 'docker')),
  ...everyEngine
    .filter(({ runtimes }) => runtimes?.includes('runsc'))
    .map(engine => onEngine(engine, 'docker/runsc', 'gvisor', { config: { sandbox: { runtime: 'runsc' } } })),
  ...[podman ?? []].flat().map(engine => onEngine(engine, 'podman/runc', 'docker')),
  inControlGroup
    ? onHost('bubblewrap in a control group', 'bubblewrap', withoutBubblewrap)
    : onHost('bubblewrap', 'bubblewrap', withoutBubblewrap, { bubblewrap: { accept_process_limits: true } }),
  onHost('ulimit', 'ulimit', false),
  onHost('none', 'none', false),
];
