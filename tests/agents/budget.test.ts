// A budget ends a whole agent, whatever it is doing, and the summary says which: requests, tokens of the answers, minutes.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { withoutNames } from '../egress/servers.ts';
import { withoutEngines } from '../support/engines.ts';
import { until } from '../support/waiting.ts';
import { AgentPlace, agents } from './place.ts';

const REQUESTS = 3;
const TOKENS = 5;
const MINUTES = 0.15;

describe.skipIf(withoutEngines || withoutNames).each(agents)('the budget of %s', name => {
  let place: AgentPlace;
  beforeAll(async () => {
    place = await AgentPlace.open(name);
    // More than any budget here allows.
    place.script.all = Array.from({ length: 40 }, (_, at) => `echo ${at} >> work.txt`);
  });
  afterAll(() => place[Symbol.asyncDispose]());

  const session = async (...budget: readonly string[]) => {
    const { bench, host } = place;
    host.site.seen.length = 0;
    const { status, stderr, stdout } = await place.call('--fresh', '--json', '-p', 'Do the work.', ...budget);
    await until(async () => (await bench.left()).length === 0);
    const { tokens, result } = JSON.parse(stdout.toString()) as {
      readonly tokens: number;
      readonly result: { readonly limitExceeded?: string; readonly exitCode: number | null };
    };
    return { status, stderr, tokens, asked: host.site.seen.length, ...result };
  };

  it('of requests ends it at the one after, and none of those after reaches its model', async () => {
    const ended = await session('--budget', `requests=${REQUESTS}`);
    expect(ended).toMatchObject({ status: 1, limitExceeded: 'requests', exitCode: null, asked: REQUESTS });
  });

  it('of tokens ends it with the request after them, in words that say so; what it wrote until then is kept', async () => {
    const { bench, host } = place;
    const { status, stderr } = await place.call('--fresh', '-p', 'Do the work.', '--budget', `tokens=${TOKENS}`);
    expect(status, stderr).toBe(1);
    expect(stderr).toMatch(
      new RegExp(`${name} used up its budget of tokens after \\d+ s, \\d+ requests and \\d+ tokens`),
    );
    expect(stderr).toContain(
      `the command was stopped at its budget of ${TOKENS} tokens, set by --budget. Ask for less at a time; or give it more: --budget tokens=${2 * TOKENS}.`,
    );
    // opencode also leaves a file in .git.
    expect(stderr).toMatch(/[12] added, 0 changed, 0 deleted, in the fork/);
    expect([...host.keys]).toHaveLength(1);
    expect(() => readFileSync(join(bench.workspace, 'work.txt'))).toThrow('ENOENT');
    await until(async () => (await bench.left()).length === 0);
  });

  it('of minutes ends it in the middle of a command', async () => {
    place.script.all = ['echo begun > work.txt; sleep 300'];
    const ended = await session('--budget', `minutes=${MINUTES},requests=100`);
    expect(ended).toMatchObject({ status: 124, limitExceeded: 'time', exitCode: null });
    expect(ended.asked).toBeGreaterThan(0);
  });
});
