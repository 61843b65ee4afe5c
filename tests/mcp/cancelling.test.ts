// A call that is cancelled ends its command inside; what else is open goes on.

import { describe, expect, it } from 'vitest';
import { engines, withoutEngines } from '../support/engines.ts';
import { figure, until } from '../support/waiting.ts';
import { Connection, WAYS, isRunning, textIn } from './connection.ts';

const cases = engines.flatMap(engine => WAYS.map(way => ({ engine, name: engine.name, way })));

describe.skipIf(withoutEngines).each(cases)('a cancelled call on $name over $way', ({ engine, way }) => {
  // A word that no other process of this machine has.
  const words = (): string[] => ['sleep', String(1_000_000 + Math.floor(Math.random() * 1_000_000))];

  it.each(['run_command', 'run_in_sandbox'])('%s ends the command', async tool => {
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
    const ms = await until(() => !isRunning(command));
    await expect(call).rejects.toThrow('enough');
    figure(`cancelled ${tool} to gone, over ${way} on ${engine.name}`, ms, 1000);
    // Only that one: the sandbox and what runs in it stay.
    expect(isRunning(other)).toBe(true);
    expect((await to.call('run_in_sandbox', { command: 'cat /tmp/state' })).structured).toMatchObject({
      stdout: 'stays\n',
    });
    await to.call('stop_command', { command_id: textIn(kept.structured, 'command_id') });
    await until(() => !isRunning(other));
  });
});
