// JSON Schema of the configuration, for editors: versioned, and no stricter than acode itself.

import * as z from 'zod';
import { RISKS } from '../../contract/levels.ts';
import { configSchema } from './schema.ts';

/** The version of the schema. It rises when a file that was valid no longer is. */
const VERSION = 1;

/** The name of the schema’s file beside a configuration file. */
export const SCHEMA_FILE = `config.schema.v${VERSION}.json`;

type Node = Readonly<Record<string, unknown>>;

/** The schema of the user’s and of a repository’s file. */
export function configJsonSchema(): Node {
  // Files are checked as they are written, so before sizes become bytes.
  const { $schema, ...schema } = z.toJSONSchema(configSchema, { io: 'input' });
  const about = {
    $schema,
    $id: `urn:acode:config:${VERSION}`,
    title: 'acode configuration',
    description:
      'The user’s config.yml and a repository’s .agent/config.yml; docs/configuration.md says who may set what.',
  };
  return { ...about, ...loosened(schema) };
}

const DOTTED = '^[A-Za-z_]+(\\.[A-Za-z0-9_+.-]+)+$';
const ANY_CASE = `^(${RISKS.map(risk => risk.replaceAll(/./g, letter => `[${letter}${letter.toUpperCase()}]`)).join('|')})$`;

// What acode accepts besides: keys with dots between their parts, and risks in any case.
function loosened(node: Node): Node {
  const copy = Object.fromEntries(Object.entries(node).map(([name, value]) => [name, loosenedValue(value)]));
  if (isRisk(node)) {
    const { enum: risks, type, ...rest } = copy;
    return {
      ...rest,
      anyOf: [
        { type, enum: risks },
        { type: 'string', pattern: ANY_CASE },
      ],
    };
  }
  return 'properties' in node ? { ...copy, patternProperties: { [DOTTED]: {} } } : copy;
}

function loosenedValue(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(loosenedValue);
  return isNode(value) ? loosened(value) : value;
}

function isNode(value: unknown): value is Node {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isRisk({ enum: values }: Node): boolean {
  return Array.isArray(values) && values.length === RISKS.length && RISKS.every(risk => values.includes(risk));
}
