// Another MCP server in a sandbox: its client talks to it as before, and what it could read on this machine is out of its reach.

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { describe, expect, it } from 'vitest';
import { BIN, Bench } from '../cli/bench.ts';
import { mainEngine, withoutEngines } from '../support/engines.ts';
import { callOf } from './connection.ts';

// Its one tool tells what it finds at a path of this machine, and in its own workspace.
const SERVER = String.raw`while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9][0-9]*\).*/\1/p')
  case $line in
    *'"method":"initialize"'*) result='"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"t","version":"1"}' ;;
    *'"method":"tools/list"'*) result='"tools":[{"name":"look","inputSchema":{"type":"object"}}]' ;;
    *'"method":"tools/call"'*) result='"content":[{"type":"text","text":"'"$(cat "$1" 2>/dev/null || echo nothing) $(cat own.txt) $TOKEN"'"}]' ;;
    *) continue ;;
  esac
  printf '{"jsonrpc":"2.0","id":%s,"result":{%s}}\n' "$id" "$result"
done
`;

describe.skipIf(withoutEngines)('an MCP server that acode mcp wrap runs', () => {
  it('serves its client, and reads the workspace and no other file of this machine', async () => {
    await using bench = await Bench.at(mainEngine);
    const secret = join(bench.workspace, '..', 'secret.txt');
    writeFileSync(secret, 'of-the-user');
    writeFileSync(join(bench.workspace, 'own.txt'), 'of-the-workspace');
    writeFileSync(join(bench.workspace, 'server.sh'), SERVER);
    const looked = async (command: string, args: readonly string[]): Promise<string> => {
      const client = new Client({ name: 'acode-tests', version: '1.0.0' });
      const env = { ...bench.env, TOKEN: 'given' };
      const transport = new StdioClientTransport({
        command,
        args: [...args],
        env,
        cwd: bench.workspace,
        stderr: 'ignore',
      });
      await client.connect(transport, { timeout: 60_000 });
      try {
        const { tools } = await client.listTools();
        return `${tools.map(({ name }) => name).join()}: ${(await callOf(client, 'look')).text}`;
      } finally {
        await client.close();
      }
    };
    const words = ['sh', 'server.sh', secret];
    // Without acode it can.
    expect(await looked('/usr/bin/env', words)).toBe('look: of-the-user of-the-workspace given');
    const wrapped = [BIN, 'mcp', 'wrap', '--readonly', '--env', 'TOKEN', '--', ...words];
    expect(await looked(process.execPath, wrapped)).toBe('look: nothing of-the-workspace given');
  });
});
