// Names the calls that went to an engine, so that the same call can be found again in the next run of the same thing.

import type { RequestHook, SeenRequest } from '../support/proxy.ts';

/** One call of a run: what was asked, and the how-manieth of its kind it was. */
export interface EngineCall {
  readonly kind: string;
  readonly occurrence: number;
}

/** How the call is called. */
export function nameOf({ kind, occurrence }: EngineCall): string {
  return occurrence === 1 ? kind : `${kind} #${occurrence}`;
}

/** The calls of a run, in their order. */
export function callsIn(requests: readonly Pick<SeenRequest, 'method' | 'path'>[]): EngineCall[] {
  const seen = new Map<string, number>();
  return requests.map(({ method, path }) => {
    const kind = kindOf(method, path);
    const occurrence = (seen.get(kind) ?? 0) + 1;
    seen.set(kind, occurrence);
    return { kind, occurrence };
  });
}

/** Says when a call of this kind comes by for the `occurrence`-th time; then never again. */
export function watchFor(call: EngineCall): (...request: Parameters<RequestHook>) => boolean {
  let seen = 0;
  return (method, path) => {
    if (kindOf(method, path) !== call.kind) return false;
    seen += 1;
    return seen === call.occurrence;
  };
}

const VERSION = /^\/v\d+\.\d+(?=\/)/;
const IMAGE = /^\/images\/.+\/json$/;
// Ids of things, owners, nonces and hosts.
const IDS = /[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{32,}/g;
// Different in every run.
const PASSING = new Set(['name', 'since']);

function kindOf(method: string, path: string): string {
  const [way = '', query = ''] = path.split('?');
  const place = decodeURIComponent(way)
    .replace(VERSION, '')
    .replace(IMAGE, '/images/{image}/json')
    .replaceAll(IDS, '{id}');
  const asked = [...new URLSearchParams(query)]
    .filter(([key]) => !PASSING.has(key))
    .map(([key, value]) => `${key}=${value.replaceAll(IDS, '{id}')}`);
  return `${method} ${place}${asked.length > 0 ? `?${asked.join('&')}` : ''}`;
}
