// What the command prints for a client is what the page says.

import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { CLIENTS, setupOf } from './client-setup.ts';

const page = readFileSync(new URL('../../../../docs/mcp.md', import.meta.url), 'utf8');

describe('the setup of a client', () => {
  it.each(CLIENTS)('of %s stands in docs/mcp.md as it is printed', client => {
    const { text } = setupOf(client);
    const fence = text.startsWith('{') ? 'json' : 'toml';
    const [, after = ''] = page.split(`acode mcp --print-config ${client}`);
    expect(after.slice(0, after.indexOf('```', after.indexOf(`\`\`\`${fence}`) + 3))).toContain(text);
  });

  it.each(CLIENTS)('of %s starts the command and nothing else', client => {
    expect(setupOf(client).text).toMatch(/"?command"?(?: =|:) "acode"/);
  });
});
