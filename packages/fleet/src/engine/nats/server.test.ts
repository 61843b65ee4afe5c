import { expect, it } from 'vitest';
import { assertVersion, isRecent } from './server.ts';

it('takes servers with the fixes of 2.12.3, and refuses every other', () => {
  const recent = ['2.12.3', 'v2.12.3', '2.12.10', '2.15.1', '3.0.0', '2.12.3-RC.1', '10.0.0'];
  const old = ['2.9.10', '2.12.2', '2.11.30', '1.99.99', '', 'unknown', '2.12', 'x2.12.3'];
  expect(recent.filter(version => !isRecent(version))).toEqual([]);
  expect(old.filter(isRecent)).toEqual([]);
  expect(() => assertVersion('nats://one', '2.9.10')).toThrow(
    'The fleet engine at nats://one is refused: the version is 2.9.10, and acode needs 2.12.3 or newer.',
  );
});
