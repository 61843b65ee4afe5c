// JSON Schema and TypeScript type of the configuration, both written from its schema; with --check, fails where one differs.
// @ts-check

import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { format, resolveConfig } from 'prettier';
import { z } from 'zod';

const SOURCE = new URL('../packages/sandbox/dist/policy/config/schema.js', import.meta.url);

if (!existsSync(SOURCE)) {
  console.error('packages/sandbox is not built: run `npm run build` first.');
  process.exit(1);
}
const { configSchema } = await import(SOURCE.href);
const { configJsonSchema } = await import(new URL('json-schema.js', SOURCE).href);
// The type has only what is checked, and the document for editors also what acode understands besides.
const schema = z.toJSONSchema(configSchema, { io: 'input' });
const document = configJsonSchema();
/**
 * @typedef {{ description?: string, type?: string, enum?: unknown[], const?: unknown, anyOf?: Node[], not?: Node,
 *   items?: Node, prefixItems?: Node[],
 *   properties?: Record<string, Node>, required?: string[], additionalProperties?: false | Node }} Node
 *   As much of JSON Schema as the configuration uses.
 */

/** @type {string[]} */
const bare = [];

/**
 * The TypeScript type of a value.
 *
 * @param {Node} node
 * @param {string} path
 * @returns {string}
 */
function typeOf(node, path) {
  if (node.const !== undefined) return JSON.stringify(node.const);
  if (node.enum) return node.enum.map(value => JSON.stringify(value)).join(' | ');
  if (node.anyOf) return unionOf(node.anyOf.map(part => typeOf(part, path)));
  if (node.not) return 'never';
  if (node.prefixItems || node.items) return listOf(node, path);
  if (node.properties) return `{ ${fieldsOf(node, path)} }`;
  if (node.additionalProperties) return `Record<string, ${typeOf(node.additionalProperties, path)}>`;
  return plainType(node);
}

/** @param {Node} node */
function plainType({ type = 'unknown' }) {
  return type === 'integer' ? 'number' : type;
}

// `string` takes every literal beside it.
/** @param {string[]} types */
function unionOf(types) {
  // What has fields has unions of its own.
  const parts = new Set(types.flatMap(type => (type.includes('{') ? [type] : type.split(' | '))));
  return [...parts].filter(part => !(parts.has('string') && part.startsWith('"'))).join(' | ');
}

/**
 * @param {Node} node
 * @param {string} path
 */
function listOf({ items = {}, prefixItems }, path) {
  return prefixItems ? `[${prefixItems.map(part => typeOf(part, path)).join(', ')}]` : `(${typeOf(items, path)})[]`;
}

/**
 * @param {Node} node
 * @param {string} path
 */
function fieldsOf({ properties = {}, required = [] }, path) {
  const fields = Object.entries(properties).map(([name, field]) => {
    if (!field.description) bare.push(`${path}${name}`);
    const type = typeOf(field, `${path}${name}.`);
    const declared = required.includes(name) ? `${name}: ${type}` : `${name}?: ${type} | undefined`;
    return `\n${comment(field.description ?? '')}\n${declared};`;
  });
  return `${fields.join('')}\n`;
}

/** @param {string} text */
function comment(text) {
  const lines = text.match(/.{1,112}(?:\s|$)/g) ?? [];
  return lines.length === 1 ? `/** ${text} */` : `/**\n${lines.map(line => ` * ${line.trim()}`).join('\n')}\n */`;
}

const types = `// Configuration as callers write it. Generated from policy/config/schema.ts by \`npm run docs:schema\`: do not edit.

/**
 * Configuration as it is written, in a file or as \`AcodeOptions.config\`.
 *
 * @example
 * await Acode.open({ config: { sandbox: { defaults: { memory_mb: 1024 } } } });
 */
export interface ConfigInput {${fieldsOf(/** @type {Node} */ (schema), '')}}
`;
if (bare.length > 0) {
  console.error(`These keys have no description in policy/config/schema.ts: ${bare.join(', ')}`);
  process.exit(1);
}

/** @type {readonly (readonly [string, string, 'json' | 'typescript'])[]} */
const files = [
  ['packages/sandbox/schema/config.schema.json', JSON.stringify(document), 'json'],
  ['packages/sandbox/src/contract/config.ts', types, 'typescript'],
];
for (const [name, content, parser] of files) {
  const target = fileURLToPath(new URL(`../${name}`, import.meta.url));
  const text = await format(content, { ...(await resolveConfig(target)), parser });
  if (!process.argv.includes('--check')) {
    mkdirSync(dirname(target), { recursive: true });
    writeFileSync(target, text);
    console.log(`${name}: written`);
  } else if (!existsSync(target) || readFileSync(target, 'utf8') !== text) {
    console.error(`${name} differs from config/schema.ts: run \`npm run docs:schema\` and commit it.`);
    process.exitCode = 1;
  }
}
