// An agent’s session from end to end: a failing test in a small repository is found and fixed with the tools alone.

import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { engines, withoutEngines } from '../support/engines.ts';
import { Connection, WAYS } from './connection.ts';

const PROGRAM = '#!/bin/sh\n# Adds its words.\nsum=0\nfor word in "$@"; do sum=$((sum - word)); done\necho "$sum"\n';
const TEST =
  '#!/bin/sh\nfound=$(sh ./add.sh 2 3 5)\nif [ "$found" = 10 ]; then echo ok; else echo "expected 10, found $found" >&2; exit 1; fi\n';

const cases = engines.flatMap(engine => WAYS.map(way => ({ engine, name: engine.name, way })));

describe.skipIf(withoutEngines).each(cases)('an agent on $name over $way', ({ engine, way }) => {
  it('fixes a failing test with nothing but tools', async () => {
    await using to = await Connection.open(way, engine);
    writeFileSync(join(to.bench.workspace, 'add.sh'), PROGRAM);
    writeFileSync(join(to.bench.workspace, 'test.sh'), TEST);

    const first = await to.call('run_in_sandbox', { command: ['sh', 'test.sh'] });
    expect(first.structured).toMatchObject({ exitCode: 1, stderr: 'expected 10, found -10\n' });

    const found = await to.call('search_files', { by: 'content', pattern: 'sum - word' });
    const [{ path, line }] = found.structured['matches'] as [{ path: string; line: number }];
    expect({ path, line }).toEqual({ path: 'add.sh', line: 4 });

    await to.call('edit_file', { path, old_string: 'sum - word', new_string: 'sum + word' });

    const second = await to.call('run_in_sandbox', { command: ['sh', 'test.sh'] });
    expect(second.structured).toMatchObject({ exitCode: 0, stdout: 'ok\n' });
    const fresh = await to.call('run_command', { command: ['sh', 'test.sh'] });
    expect(fresh.structured).toMatchObject({ exitCode: 0, stdout: 'ok\n' });
    expect(readFileSync(join(to.bench.workspace, 'add.sh'), 'utf8')).toContain('sum + word');

    const { structured } = await to.call('list_sandboxes');
    expect(structured['sandboxes']).toEqual([expect.objectContaining({ isDefault: true })]);
  });
});
