// Failing loggers and metrics: an error in the caller’s own code affects no operation.

import { expect, it } from 'vitest';
import { systemClock } from '../lifecycle/clock.ts';
import { Telemetry } from './telemetry.ts';

const fails = (): never => {
  throw new Error('disk full');
};

it('continues when the caller’s logger and metrics throw', () => {
  const logger = { debug: fails, info: fails, warn: fails, error: fails };
  const metrics = { increment: fails, observe: fails, gauge: fails };
  const telemetry = new Telemetry({ clock: systemClock, logger, metrics, session: 's' });
  expect(() => {
    const operation = telemetry.begin('run');
    operation.step('info', 'on the way');
    telemetry.gauge('g', 1);
    telemetry.observe('o', 1);
    operation.succeed();
    telemetry.begin('run').fail(new Error('x'));
  }).not.toThrow();
});

it('continues when they reject, and reports nothing twice', async () => {
  const unhandled: unknown[] = [];
  const listener = (error: unknown): void => void unhandled.push(error);
  process.on('unhandledRejection', listener);
  const rejects = async (): Promise<never> => fails();
  const logger = { debug: rejects, info: rejects, warn: rejects, error: rejects };
  new Telemetry({ clock: systemClock, logger, session: 's' }).log('info', 'x', {});
  await new Promise(resolve => setTimeout(resolve, 20));
  process.off('unhandledRejection', listener);
  expect(unhandled).toEqual([]);
});
