// docs/configuration.md is held to the schema: every key, every old name and every example is real.

import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { ALIASES, holdTo } from './check.ts';
import { parseConfig, rawConfig } from './parse.ts';
import { isPlanned, keysOf, repositoryRule } from './keys.ts';
import { configSchema, machineSchema, teamSchema } from './schema.ts';

const page = readFileSync(new URL('../../../../../docs/configuration.md', import.meta.url), 'utf8');
const published = JSON.parse(
  readFileSync(new URL('../../../schema/config.schema.json', import.meta.url), 'utf8'),
) as Readonly<Record<string, unknown>>;

describe('docs/configuration.md', () => {
  const rows = [...page.matchAll(/^\| `([a-z_.]+)`( †)?( ‡)?\s+\|.*\| (\w+)\s+\|$/gm)];

  it('lists every key once, with the rule for repositories', () => {
    const words: Readonly<Record<string, string>> = { trusted: 'trust' };
    const expected = keysOf(configSchema).map(key => `${key}: ${words[repositoryRule(key)] ?? repositoryRule(key)}`);
    expect(rows.map(([, key, , , rule]) => `${key}: ${rule}`).sort()).toEqual(expected.sort());
  });

  it('marks the keys of the machine’s file', () => {
    const marked = rows.flatMap(([, key, mark]) => (mark && key ? [key] : []));
    expect(marked.sort()).toEqual(keysOf(machineSchema).sort());
  });

  it('marks the keys of the team’s file', () => {
    const marked = rows.flatMap(([, key, , mark]) => (mark && key ? [key] : []));
    expect(marked.sort()).toEqual(keysOf(teamSchema).sort());
  });

  it('names every old name', () => {
    for (const { old, key } of ALIASES) expect(page).toMatch(new RegExp(`\\| \`${old}\`\\s+\\| \`${key}\``));
  });

  it('names no planned key as one that works', () => {
    expect(rows.filter(([, key]) => isPlanned(key ?? ''))).toEqual([]);
  });

  const examples = [...page.matchAll(/^```yaml(?: (machine|team))?\n([\s\S]*?)^```$/gm)];

  it.each(examples.map(([, kind, text], index) => ({ number: index + 1, kind, text: text ?? '' })))(
    'has an example $number that is accepted',
    ({ kind, text }) => {
      if (kind === 'machine') expect(holdTo(machineSchema, rawConfig(text, 'example')).config).not.toEqual({});
      else if (kind === 'team') expect(holdTo(teamSchema, rawConfig(text, 'example')).config).not.toEqual({});
      else expect(parseConfig(text, 'example').config).not.toEqual({});
    },
  );

  it('has examples', () => {
    expect(examples.length).toBeGreaterThanOrEqual(3);
  });
});

describe('the published schema', () => {
  const described = (schema: unknown, path: string): string[] => {
    if (typeof schema !== 'object' || schema === null || !('properties' in schema)) return [path];
    return Object.entries(schema.properties as Record<string, unknown>).flatMap(([name, child]) =>
      described(child, path === '' ? name : `${path}.${name}`),
    );
  };

  it('has exactly the keys that count', () => {
    expect(described(published, '').sort()).toEqual(keysOf(configSchema).sort());
  });
});
