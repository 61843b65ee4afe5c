// When the client is gone, or the server is told to end, every sandbox goes and the server ends within seconds.

import { once } from 'node:events';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { describe, expect, it } from 'vitest';
import { Bench } from '../cli/bench.ts';
import { engines, withoutEngines } from '../support/engines.ts';
import { figure, until } from '../support/waiting.ts';
import { Connection, anotherClient, callOf, isRunning, startHttp } from './connection.ts';

const words = (): string[] => ['sleep', String(2_000_000 + Math.floor(Math.random() * 1_000_000))];

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

describe.skipIf(withoutEngines).each(engines)('the end of a server on $name', engine => {
  const ends = ['end of input', 'SIGTERM', 'SIGINT'] as const;
  it.each(ends)('by %s leaves nothing', async how => {
    await using to = await Connection.open('stdio', engine);
    const command = words();
    await to.call('run_in_sandbox', { command, background: true });
    await to.call('open_sandbox');
    // And those of the pool.
    expect((await to.bench.left()).length).toBeGreaterThanOrEqual(2);
    if (how === 'end of input') void to.client.close();
    else process.kill(to.pid, how);
    const ms = await until(() => !isAlive(to.pid));
    figure(`MCP server, ${how} to its end, ${engine.name}`, ms, 20_000);
    expect(isRunning(command)).toBe(false);
    expect(await to.bench.left()).toEqual([]);
  });

  it('over HTTP leaves nothing, and the end of one session leaves the others', async () => {
    await using bench = await Bench.at(engine);
    const server = await startHttp(bench);
    const [one, other] = [await anotherClient(server), await anotherClient(server)];
    await Promise.all([one, other].map(client => callOf(client, 'open_sandbox')));
    expect((await bench.left()).length).toBeGreaterThanOrEqual(2);
    const listed = await callOf(one, 'list_sandboxes');
    const [{ sandbox_id: id }] = listed.structured['sandboxes'] as [{ sandbox_id: string }];
    // Nobody else’s: a session that knows the id of another’s sandbox has nothing of it.
    const stolen = await callOf(other, 'run_in_sandbox', { sandbox_id: id, command: 'true' });
    expect(stolen.structured).toMatchObject({ code: 'ACODE-MCP-004' });
    const before = await bench.left();
    const { transport } = one;
    if (transport instanceof StreamableHTTPClientTransport) await transport.terminateSession();
    const gone = async (): Promise<string[]> => {
      const there = await bench.left();
      return before.filter(name => !there.includes(name));
    };
    await until(async () => (await gone()).length === 1);
    expect((await callOf(other, 'list_sandboxes')).structured['sandboxes']).toHaveLength(1);
    const exit = once(server.child, 'exit');
    server.child.kill('SIGTERM');
    await exit;
    expect(await bench.left()).toEqual([]);
  });
});
