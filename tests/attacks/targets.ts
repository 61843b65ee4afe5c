// Where attacks are tried: an engine and a runtime. Every row runs on one target, on the others what can turn out differently.

import { everyEngine, images, mainEngine } from '../support/engines.ts';
import type { TestEngine } from '../support/engines.ts';
import { everything } from '../support/targets.ts';
import { ROWS } from './rows.ts';
import type { Group, Row } from './rows.ts';

/** An engine with one of its runtimes. */
export interface Target {
  /** `docker28/runc`. */
  readonly name: string;
  readonly engine: TestEngine;
  readonly runtime: 'runc' | 'runsc';
}

/** The target that faces every row. */
export const MAIN: Target = { name: `${mainEngine.name}/runc`, engine: mainEngine, runtime: 'runc' };

function runtimesOf(engine: TestEngine): readonly Target['runtime'][] {
  const known = engine['runtimes'];
  return Array.isArray(known) && known.includes('runsc') ? ['runc', 'runsc'] : ['runc'];
}

/** Every target there is, the main one first. */
export const TARGETS: readonly Target[] = [
  MAIN,
  ...everyEngine
    .flatMap(engine => runtimesOf(engine).map(runtime => ({ name: `${engine.name}/${runtime}`, engine, runtime })))
    .filter(({ name }) => name !== MAIN.name),
];

// The rows that a kernel, a runtime or its filter decides, and not what acode asked for.
const DECIDED_INSIDE = /^(?:A\d+|B10|D(?:1|2|12|13)|E[12])$/;

/**
 * Whether a row is tried on a target: everything on the main one. On the others the rows that can turn out differently there,
 * in .ci/run only those that are decided inside.
 */
export function facesRow({ id, showing }: Row, target: Target): boolean {
  if (showing.by !== 'test') return false;
  if (target.runtime === 'runsc' && showing.gvisor !== true) return false;
  return target.name === MAIN.name || everything || (showing.engineSensitive && DECIDED_INSIDE.test(id));
}

/** The targets that face a hand-written row of a group. */
export function targetsOf(group: Group): readonly Target[] {
  const rows = ROWS.filter(row => row.group === group && !row.probe);
  return TARGETS.filter(target => rows.some(row => facesRow(row, target)));
}

/** The image with python and a compiler, in which raw system calls can be made. */
export const TOOLS = images.debian;
