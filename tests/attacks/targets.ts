// Where attacks are tried: an engine and a runtime. The full corpus runs on one target, what depends on the engine on all.

import { everyEngine, images, mainEngine } from '../support/engines.ts';
import type { TestEngine } from '../support/engines.ts';
import { everything } from '../support/targets.ts';
import type { Row } from './rows.ts';

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

/** Whether a row is tried on a target: everything on the main one, on the others what can turn out differently there. */
export function facesRow({ showing }: Row, target: Target): boolean {
  if (showing.by !== 'test') return false;
  if (target.runtime === 'runsc' && showing.gvisor !== true) return false;
  return target.name === MAIN.name || everything || showing.engineSensitive;
}

/** The image with python and a compiler, in which raw system calls can be made. */
export const TOOLS = images.debian;
