// What the command prints for a client is what the page says.

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { INSTALLED, ownStarter, setupOf, setupText } from './client-setup.ts';
import { CLIENTS } from './clients.ts';

const page = readFileSync(new URL('../../../../docs/mcp.md', import.meta.url), 'utf8');

describe('the setup of a client', () => {
  it.each(CLIENTS)('of %s stands in docs/mcp.md as it is printed', client => {
    const setup = setupOf(client);
    const after = page.split(`acode mcp --print-config ${client}`)[1] ?? '';
    const section = after.slice(0, after.indexOf('\n### '));
    const { command = '', file, text, withoutShell } = setup;
    for (const part of [command, file, text, withoutShell?.file ?? '', withoutShell?.text ?? '']) {
      expect(section.replaceAll('`', '')).toContain(part);
      expect(setupText(setup)).toContain(part);
    }
  });

  it('begins with the command of the client, and ends with its own shell', () => {
    expect(setupText(setupOf('claude-code'))).toMatch(/^Run:\n\nclaude mcp add acode -- acode mcp\n/);
    for (const client of CLIENTS) expect(setupText(setupOf(client))).toContain('switch the agent’s own shell off');
  });

  it.each(CLIENTS)('of %s starts the command and nothing else', client => {
    expect(setupOf(client).text).toMatch(/"?command"?(?: =|:) \[?"acode"/);
  });

  it.each(CLIENTS)('of %s names the file where there is no program of that name', client => {
    const starter = ownStarter('/nowhere:/nowhere/else', '/opt/acode/bin/acode.js', '/usr/bin/node');
    expect(starter).toEqual({ command: '/usr/bin/node', args: ['/opt/acode/bin/acode.js'] });
    expect(setupOf(client, starter).text).toMatch(/"?command"?(?: =|:) \[?"\/usr\/bin\/node"/);
    expect(setupOf(client, starter).text).toContain('"/opt/acode/bin/acode.js", "mcp"');
  });

  it.each(CLIENTS)('of %s names the workspace that was given, and no other', client => {
    const { text, command } = setupOf(client, INSTALLED, '/srv/my project');
    expect(text).toContain('"mcp", "--workspace", "/srv/my project"]');
    expect(text).not.toContain('workspaceFolder');
    if (client === 'claude-code') expect(command).toMatch(/-- acode mcp --workspace '\/srv\/my project'$/);
  });

  it('has the name alone where every client finds it', () => {
    const directory = mkdtempSync(join(tmpdir(), 'acode-path-'));
    writeFileSync(join(directory, 'acode'), '', { mode: 0o755 });
    expect(ownStarter(`/nowhere:${directory}`, '/opt/acode.js', '/usr/bin/node')).toEqual(INSTALLED);
    rmSync(directory, { recursive: true });
  });
});
