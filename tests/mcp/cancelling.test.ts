// A call that is cancelled ends its command inside within a second; what else is open goes on.

import { describe, expect, it } from 'vitest';
import { engines, withoutEngines } from '../support/engines.ts';
import { Connection, WAYS, isRunning, textIn, until } from './connection.ts';

const cases = engines.flatMap(engine => WAYS.map(way => ({ engine, name: engine.name, way })));

describe.skipIf(withoutEngines).each(cases)('a cancelled call on $name over $way', ({ engine, way }) => {
  // A word that no other process of this machine has.
  const words = (): string[] => ['sleep', String(1_000_000 + Math.floor(Math.random() * 1_000_000))];

  it.each(['run_command', 'run_in_sandbox'])('%s ends the command within a second', async tool => {
    await using to = await Connection.open(way, engine);
    await to.call('run_in_sandbox', { command: 'echo stays > /tmp/state' });
    const other = words();
    const kept = await to.call('run_in_sandbox', { command: other, background: true });
    const command = words();
    const cancel = new AbortController();
    const call = to.call(tool, { command }, { signal: cancel.signal });
    call.catch(() => undefined);
    await until(() => isRunning(command));
    cancel.abort('enough');
    const ms = await until(() => !isRunning(command), 5000);
    await expect(call).rejects.toThrow('enough');
    process.stderr.write(`${tool} over ${way} on ${engine.name}: gone ${Math.round(ms)} ms after the cancellation\n`);
    expect(ms).toBeLessThan(1000);
    // Only that one: the sandbox and what runs in it stay.
    expect(isRunning(other)).toBe(true);
    expect((await to.call('run_in_sandbox', { command: 'cat /tmp/state' })).structured).toMatchObject({
      stdout: 'stays\n',
    });
    await to.call('stop_command', { command_id: textIn(kept.structured, 'command_id') });
    await until(() => !isRunning(other), 5000);
  });
});
