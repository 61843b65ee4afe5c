// A host that keeps sandboxes waiting, on any target, and what tests look at of it.

import type { Explanation, PoolOptions, RunRequest } from '@acode/sandbox';
import { openHost } from '../conformance/host.ts';
import type { ConformanceHost } from '../conformance/host.ts';
import type { Target } from '../conformance/targets.ts';

const READY_MS = 60_000;
const LOOK_MS = 20;

/** Opens one; the images of engines need time, and nothing else does. */
export function openWarm(target: Target, pool: false | PoolOptions = { min: 2, max: 4 }): Promise<ConformanceHost> {
  return openHost({ ...target, options: { ...target.options, pool } });
}

/** Waits until a sandbox waits for such a request. */
export async function untilWarm(host: ConformanceHost, request: RunRequest = {}): Promise<Explanation> {
  const end = performance.now() + READY_MS;
  for (;;) {
    const explanation = await host.acode.explain(['true'], request);
    if (explanation.warm) return explanation;
    if (performance.now() > end) throw new Error(`nothing waits: ${explanation.warmReason}`);
    await new Promise(resolve => void setTimeout(resolve, LOOK_MS));
  }
}
