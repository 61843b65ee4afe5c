// An engine call goes wrong, each once and in the long test suite in every way: it ends in time, in a right result or a code, and
// leaves nothing.

import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { mainEngine, engines, withoutEngines } from '../support/engines.ts';
import { everything } from '../support/targets.ts';
import { Campaign } from './campaign.ts';
import { scenarios } from './scenarios.ts';
import { tryOut } from './trial.ts';

const TIMEOUT_MS = everything ? 1_200_000 : 240_000;

describe.skipIf(withoutEngines).each(engines)('with one call to $name going wrong', engine => {
  const campaign = new Campaign(engine, everything);
  const unhandled: unknown[] = [];
  const note = (reason: unknown): void => void unhandled.push(reason);
  let tried = 0;
  beforeAll(() => void process.on('unhandledRejection', note));
  afterAll(() => {
    process.off('unhandledRejection', note);
    process.stdout.write(`FIGURE calls that went wrong, ${engine.name}: ${tried}\n`);
  });

  it.each(scenarios)('$name, with each of its calls', { timeout: TIMEOUT_MS }, async scenario => {
    const { calls, violations } = await campaign.outcome(scenario);
    tried += calls;
    expect(violations).toEqual([]);
    // A scenario without a call of its own would show nothing.
    expect(calls).toBeGreaterThan(0);
  });

  it('no rejection went unheard', () => {
    expect(unhandled).toEqual([]);
  });
});

describe.skipIf(withoutEngines).each(engines)('a run on $name', engine => {
  it.each(scenarios.slice(0, 2))('attaches only to what it starts: $name', async scenario => {
    // Engines keep the connection of an attach to a container that was never started, also when both ends are gone.
    const { requests, violations } = await tryOut(scenario, engine, { boundMs: 20_000 });
    const asked = (what: string): string[] =>
      requests.flatMap(({ path }) => new RegExp(`/containers/([0-9a-f]{64})/${what}\\b`).exec(path)?.[1] ?? []);
    expect(violations).toEqual([]);
    expect(asked('attach')).toHaveLength(1);
    expect(asked('attach')).toEqual(asked('start'));
  });
});

describe.skipIf(withoutEngines)('the one who looks at all this', () => {
  const [plain] = scenarios;
  if (!plain) throw new Error('there is no scenario');

  it('notices a container that is left behind', async () => {
    const { violations } = await tryOut(plain, mainEngine, {
      boundMs: 20_000,
      settleMs: 1500,
      afterwards: (belongings, session) => belongings.leave(session),
    });
    expect(violations).toEqual([expect.stringMatching(/^left behind: container [0-9a-f]{12}$/)]);
  });

  it('notices what does not end in time', async () => {
    const { violations } = await tryOut(plain, mainEngine, {
      boundMs: 1500,
      injection: { call: { kind: 'POST /containers/create', occurrence: 1 }, fault: 'hang' },
    });
    expect(violations).toEqual(['it did not end within 1500 ms']);
  });

  it('notices an error without a code, and a wrong result', async () => {
    const raw = { name: 'raw', act: () => Promise.reject(new Error('bare')) };
    const wrong = { name: 'wrong', act: () => Promise.resolve('it is wrong') };
    const options = { boundMs: 5000 };
    expect((await tryOut(raw, mainEngine, options)).violations).toEqual(['no AcodeError but Error: bare']);
    expect((await tryOut(wrong, mainEngine, options)).violations).toEqual(['it is wrong']);
  });
});
