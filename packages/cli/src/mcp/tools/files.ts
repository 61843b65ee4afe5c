// read_file, write_file, list_directory: the files of a persistent sandbox.

import { dirname } from 'node:path/posix';
import * as z from 'zod';
import { MAX_SHOWN } from '../command-answer.ts';
import { excerptOf } from '../excerpt.ts';
import type { InsideEntry } from '../host.ts';
import { CHANGES, READS, tool } from '../tool.ts';
import { inside, nameText, path, sandboxId, textOf, wholeFile, within, withFile } from './arguments.ts';
import { mcpError } from '../errors.ts';

const MAX_ENTRIES = 1000;
// What is read to give those: a directory may be as large as a command makes it.
const MAX_LISTED = 8 * 1024 ** 2;

/** Reads one. */
export const readFile = tool({
  name: 'read_file',
  title: 'Read a file',
  description:
    'Reads a file of the workspace or of the sandbox; what is not text comes as base64. The middle of a long file is left out: ask for parts with first_line (from 1) and lines.',
  annotations: READS,
  lane: 'short',
  input: z.strictObject({
    path,
    first_line: z.int().min(1).optional(),
    lines: z.int().min(1).optional(),
    sandbox_id: sandboxId,
  }),
  perform: ({ path: asked, sandbox_id: id, first_line: first, lines }, { session, signal }) =>
    inside(session, id, async ({ files }) => {
      const name = session.workspace.inside(asked);
      const data = await withFile('read_file', session, name, () =>
        wholeFile('read_file', files, name, within(signal)),
      );
      const text = textOf(data);
      const part = text === null ? data.toString('base64') : linesOf(text, first, lines);
      const { text: content, omitted } = excerptOf(part, MAX_SHOWN);
      const outputs = omitted > 0 ? [session.outputs.keep(part)] : [];
      const structured = {
        bytes: data.length,
        encoding: text === null ? 'base64' : undefined,
        omitted: omitted || undefined,
        outputs,
        content,
      };
      // Before the content: what follows it could be of the file.
      const whole = omitted > 0 ? `[Full content: ${outputs.join('')}; read_output reads it.]\n` : '';
      return { text: data.length === 0 ? 'The file is empty.' : `${whole}${content}`, structured, outputs };
    }),
});

/** Writes one. */
export const writeFile = tool({
  name: 'write_file',
  title: 'Write a file',
  description:
    'Creates a file, or replaces all of it; append: true adds to its end. Missing directories are made. Use edit_file to change a part.',
  annotations: CHANGES,
  lane: 'short',
  input: z.strictObject({
    path,
    content: z.string(),
    encoding: z.enum(['utf8', 'base64']).optional(),
    append: z.boolean().optional(),
    sandbox_id: sandboxId,
  }),
  perform: ({ path: asked, content, encoding: as = 'utf8', append = false, sandbox_id: id }, { session, signal }) =>
    inside(session, id, async ({ files }) => {
      const name = session.workspace.inside(asked);
      const data = as === 'utf8' ? Buffer.from(content) : fromBase64(content);
      const options = { signal: within(signal) };
      await withFile('write_file', session, name, async () => {
        await files.mkdir(dirname(name), { recursive: true, ...options });
        if (append) await files.appendFile(name, data, options);
        else await files.writeFile(name, data, options);
      });
      return {
        text: `${append ? 'Added' : 'Wrote'} ${data.length} bytes to ${nameText(name)}`,
        structured: { path: name, bytes: data.length },
      };
    }),
});

/** Lists one. */
export const listDirectory = tool({
  name: 'list_directory',
  title: 'List a directory',
  description:
    'Lists a directory, by default the workspace; recursive: true everything below it. At most 1,000 entries.',
  annotations: READS,
  lane: 'short',
  input: z.strictObject({
    path: path.optional(),
    recursive: z.boolean().optional(),
    sandbox_id: sandboxId,
  }),
  perform: ({ path: asked = '.', recursive = false, sandbox_id: id }, { session, signal }) =>
    inside(session, id, async ({ files }) => {
      const name = session.workspace.inside(asked);
      const found = await withFile('list_directory', session, name, () =>
        files.readdir(name, { withFileTypes: true, recursive, maxBytes: MAX_LISTED, signal: within(signal) }),
      );
      const entries = found
        .slice(0, MAX_ENTRIES)
        .map(entry => ({ path: pathOf(entry, recursive), kind: kindOf(entry) }))
        .sort((one, other) => (one.path < other.path ? -1 : 1));
      const omitted = found.length - entries.length;
      const lines = entries.map(({ path: shown, kind }) => `${nameText(shown)}${kind === 'directory' ? '/' : ''}`);
      if (lines.length === 0) return { text: EMPTY, structured: { notes: [EMPTY] } };
      const text = [...(omitted > 0 ? [`[${omitted} more not shown]`] : []), ...lines].join('\n');
      return { text, structured: { omitted: omitted || undefined, entries } };
    }),
});

const EMPTY = 'The directory is empty.';

function pathOf({ parentPath, name }: InsideEntry, recursive: boolean): string {
  return recursive ? `${parentPath.replace(/\/$/, '')}/${name}` : name;
}

function kindOf(entry: InsideEntry): 'file' | 'directory' | 'link' | 'other' {
  if (entry.isSymbolicLink()) return 'link';
  if (entry.isDirectory()) return 'directory';
  return entry.isFile() ? 'file' : 'other';
}

function linesOf(text: string, first: number | undefined, count: number | undefined): string {
  if (first === undefined && count === undefined) return text;
  const from = (first ?? 1) - 1;
  return text
    .split('\n')
    .slice(from, count === undefined ? undefined : from + count)
    .join('\n');
}

function fromBase64(text: string): Buffer {
  // First without its spaces: two of them in one pattern would be tried in every combination.
  const packed = text.replaceAll(/\s+/g, '');
  if (/^[A-Za-z0-9+/]*={0,2}$/.test(packed)) return Buffer.from(packed, 'base64');
  throw mcpError('ACODE-MCP-001', { tool: 'write_file', field: 'content', reason: 'is not base64' });
}
