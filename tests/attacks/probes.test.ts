// The rows that `acode doctor --attack` tries itself: the probe that users run, on every target, with its control.

import { readdirSync } from 'node:fs';
import { beforeAll, describe, expect, it } from 'vitest';
import type { AttackReport } from '@acode/sandbox';
import { openFurther } from '../../packages/sandbox/src/host/open.ts';
import { attackHost } from '../../packages/sandbox/src/host/attack.ts';
import { warmth, withEngine, withoutEngines } from '../support/engines.ts';
import { trusting } from './arena.ts';
import { attack } from './attack.ts';
import { ROWS } from './rows.ts';
import { MAIN, TARGETS, facesRow } from './targets.ts';
import type { Target } from './targets.ts';

const MAX_MS = 180_000;
// What a probe reports where its control was not made or did not work.
const NO_CONTROL = /^$|^none was made|^not made|did not behave/;

/** Attacks sandboxes of a target: every probe on the main one, elsewhere those whose rows the target faces. */
async function attacked({ name, engine, runtime }: Target, ids: readonly string[]): Promise<AttackReport> {
  const options = { engine: { socket: engine.socket }, config: trusting() };
  const open: Parameters<typeof attackHost>[1] = asked => openFurther(options, asked.workspace, asked.socket);
  const host = await openFurther(options, '/var/tmp', engine.socket);
  try {
    const rehearsal = name === MAIN.name ? undefined : { against: [], only: ids };
    return await attackHost(host, open, { runtime }, rehearsal);
  } finally {
    await host.close();
  }
}

const targets = TARGETS.map(target => ({
  target,
  name: target.name,
  ids: ROWS.filter(row => row.probe && facesRow(row, target)).map(({ id }) => id),
})).filter(({ ids }) => ids.length > 0);

// A probe opens a host for itself, which has no pool: with ACODE_TEST_WARM the rows are skipped by name, and not run cold.
describe.skipIf(withoutEngines || warmth.pool !== undefined).each(targets)(
  'the doctor’s probes, on $name',
  ({ target, ids }) => {
    let report: AttackReport;
    beforeAll(async () => {
      report = await attacked(target, ids);
    }, MAX_MS);

    for (const id of ids)
      attack(target, id, 'the probe is stopped, and its control is not', async () => {
        const probe = report.probes.find(one => one.id === id);
        expect(probe).toMatchObject({ verdict: 'pass' });
        expect(probe?.control).not.toMatch(NO_CONTROL);
        return { observed: probe?.observed ?? '', control: probe?.control ?? '' };
      });

    it('finds nothing open, with every control seen to work, and leaves nothing', async () => {
      const open = report.probes.filter(({ verdict }) => verdict === 'fail');
      expect(open.map(({ id, observed, control }) => `${id}: ${observed} | ${control}`)).toEqual([]);
      const tried = report.probes.filter(({ verdict }) => verdict === 'pass');
      // Elsewhere only some probes run, and the grade counts them.
      if (target.name === MAIN.name)
        expect([tried.length >= 45, report.grade]).toEqual([true, expect.stringMatching(/^A/)]);
      expect(tried.filter(({ control }) => NO_CONTROL.test(control))).toEqual([]);
      expect(report.backend).toMatchObject({ engine: 'docker', runtime: target.runtime });
      expect(report.backend.version).toContain(target.engine.version);
      for (const probe of report.probes)
        expect(Object.keys(probe).sort()).toEqual(['control', 'id', 'observed', 'title', 'verdict']);
      expect(readdirSync('/var/tmp').filter(name => name.startsWith(`acode-doctor-${process.pid}-`))).toEqual([]);
      const networks = await withEngine(target.engine, engine =>
        engine.networks.list({ labels: ['acode.managed=true'], signal: AbortSignal.timeout(60_000) }),
      );
      expect(networks.filter(({ Name }) => Name.startsWith('acode-doctor-'))).toEqual([]);
    });
  },
);
