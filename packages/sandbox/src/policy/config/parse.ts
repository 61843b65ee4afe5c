// The text of a configuration file. Loaded only where there is a file: the parser is a large part of a short command’s start.

import { holdTo } from './check.ts';
import type { LoadedConfig, RawConfig } from './check.ts';
import { parseDocument } from './document.ts';
import { configSchema } from './schema.ts';

/** Parses the text of a configuration file. */
export function parseConfig(text: string, source: string): LoadedConfig {
  return holdTo(configSchema, rawConfig(text, source));
}

/** The text of a file as a value with places. */
export function rawConfig(text: string, source: string): RawConfig {
  return { ...parseDocument(text, source), source };
}
