// Error table of the MCP server: a message, a hint and a code of its own for each, and all survive JSON.

import { AcodeError } from '@acode/sandbox';
import { describe, expect, it } from 'vitest';
import { MCP_ERRORS, mcpError } from './errors.ts';

describe('an error of the MCP server', () => {
  it.each(Object.entries(MCP_ERRORS.rows))('%s has a message and a hint for its example', (code, row) => {
    // The examples are typed row by row; a loop over all of them loses which belongs to which.
    const error = mcpError(code as 'ACODE-MCP-001', row.example as { tool: string; field: string; reason: string });
    expect(code).toMatch(/^ACODE-MCP-\d{3}$/);
    expect(error).toBeInstanceOf(AcodeError);
    expect(error.message).toMatch(/[^\s].*\.$/);
    expect(error.hint.length).toBeGreaterThan(10);
    expect(error.message + error.hint).not.toContain('undefined');
    const sent: unknown = JSON.parse(JSON.stringify(error));
    expect(sent).toMatchObject({
      code,
      message: error.message,
      hint: error.hint,
      exitStatus: 125,
      context: row.example,
    });
  });

  it('keeps its cause', () => {
    const cause = new Error('why');
    expect(mcpError('ACODE-MCP-002', { tool: 'x', known: 'y' }, { cause }).cause).toBe(cause);
  });
});
