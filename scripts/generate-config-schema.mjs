// Writes the JSON Schema of the configuration, which editors complete and check files by; with --check, fails where it differs.
// @ts-check

import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { format, resolveConfig } from 'prettier';
import { z } from 'zod';

const TARGET = fileURLToPath(new URL('../packages/sandbox/schema/config.schema.json', import.meta.url));
const SOURCE = new URL('../packages/sandbox/dist/policy/config/schema.js', import.meta.url);

if (!existsSync(SOURCE)) {
  console.error('packages/sandbox is not built: run `npm run build` first.');
  process.exit(1);
}
const { configSchema } = await import(SOURCE.href);
// Files are checked as they are written, so before sizes become bytes.
const { $schema, ...schema } = z.toJSONSchema(configSchema, { io: 'input' });
const document = {
  $schema,
  title: 'acode configuration',
  description:
    'The user’s config.yml and a repository’s .agent/config.yml; docs/configuration.md says who may set what.',
  ...schema,
};
const text = await format(JSON.stringify(document), { ...(await resolveConfig(TARGET)), parser: 'json' });
if (!process.argv.includes('--check')) {
  mkdirSync(dirname(TARGET), { recursive: true });
  writeFileSync(TARGET, text);
  console.log('packages/sandbox/schema/config.schema.json: written');
} else if (!existsSync(TARGET) || readFileSync(TARGET, 'utf8') !== text) {
  console.error('The JSON Schema differs from config/schema.ts: run `npm run docs:schema` and commit it.');
  process.exitCode = 1;
}
