// read_file, write_file, list_directory: the files of a persistent sandbox.

import { dirname } from 'node:path/posix';
import { AcodeError } from '@acode/sandbox';
import * as z from 'zod';
import { fileCode, fileReason } from '../../failure/file-reasons.ts';
import { MAX_SHOWN } from '../command-answer.ts';
import { excerptOf } from '../excerpt.ts';
import type { InsideEntry, InsideFiles } from '../host.ts';
import { tool } from '../tool.ts';
import { inside, nameText, path, sandboxId } from './arguments.ts';

const MAX_READ = 8 * 1024 ** 2;
const MAX_ENTRIES = 1000;
// What is read to give those: a directory may be as large as a command makes it.
const MAX_LISTED = 8 * 1024 ** 2;
const DEADLINE_MS = 30_000;

const encoding = z.enum(['utf8', 'base64']);

/** Reads one. */
export const readFile = tool({
  name: 'read_file',
  title: 'Read a file',
  description:
    'Reads a file inside the sandbox: of the workspace (relative paths, or /workspace/…) or of the sandbox itself. Text comes as text, anything else as base64. Long files come with their middle left out; ask for a part with first_line and lines.',
  annotations: { readOnlyHint: true, destructiveHint: false, idempotentHint: true, openWorldHint: false },
  lane: 'short',
  input: z.strictObject({
    path,
    sandbox_id: sandboxId,
    first_line: z.int().min(1).optional().describe('The first line to read, counted from 1.'),
    lines: z.int().min(1).optional().describe('How many lines to read.'),
  }),
  output: z.object({
    path: z.string(),
    content: z.string(),
    encoding,
    bytes: z.int().describe('The size of what was read of the file.'),
    omitted: z.int().describe('Characters left out of the content.'),
    outputs: z.array(z.string()).describe('Resources with the whole of it; read_output reads them too.'),
  }),
  perform: ({ path: name, sandbox_id: id, first_line: first, lines }, { session, signal }) =>
    inside(session, id, async ({ files }) => {
      const data = await withFile('read_file', name, () => wholeFile(files, name, within(signal)));
      const { text, encoding: used } = decoded(data);
      const part = used === 'utf8' ? linesOf(text, first, lines) : text;
      const { text: content, omitted } = excerptOf(part, MAX_SHOWN);
      const outputs = omitted > 0 ? [session.outputs.keep(part)] : [];
      const structured = { path: name, content, encoding: used, bytes: data.length, omitted, outputs };
      // Before the content: what follows it could be of the file.
      const whole = omitted > 0 ? `[Full content: ${outputs.join('')}; read_output reads it.]\n` : '';
      return { text: `${whole}${content}`, structured, outputs };
    }),
});

/** Writes one. */
export const writeFile = tool({
  name: 'write_file',
  title: 'Write a file',
  description:
    'Writes a file inside the sandbox, in place of what was there; with append: true, at its end. Missing directories are made. Files of the workspace are the user’s own files. What the user’s tools execute or follow (.git, .agent, editor settings) is read-only.',
  annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: false, openWorldHint: false },
  lane: 'short',
  input: z.strictObject({
    path,
    content: z.string(),
    encoding: encoding.optional().describe('base64 for what is not text; default utf8.'),
    append: z.boolean().optional(),
    sandbox_id: sandboxId,
  }),
  output: z.object({ path: z.string(), bytes: z.int() }),
  perform: ({ path: name, content, encoding: as = 'utf8', append = false, sandbox_id: id }, { session, signal }) =>
    inside(session, id, async ({ files }) => {
      const data = as === 'utf8' ? Buffer.from(content) : fromBase64(content);
      const options = { signal: within(signal) };
      await withFile('write_file', name, async () => {
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
    'Lists a directory inside the sandbox; the workspace itself unless path says otherwise. At most 1,000 entries.',
  annotations: { readOnlyHint: true, destructiveHint: false, idempotentHint: true, openWorldHint: false },
  lane: 'short',
  input: z.strictObject({
    path: path.optional(),
    recursive: z.boolean().optional().describe('true: everything below it as well.'),
    sandbox_id: sandboxId,
  }),
  output: z.object({
    path: z.string(),
    entries: z.array(z.object({ path: z.string(), kind: z.enum(['file', 'directory', 'link', 'other']) })),
    omitted: z.int().describe('Entries that are not listed.'),
  }),
  perform: ({ path: name = '.', recursive = false, sandbox_id: id }, { session, signal }) =>
    inside(session, id, async ({ files }) => {
      const found = await withFile('list_directory', name, () =>
        files.readdir(name, { withFileTypes: true, recursive, maxBytes: MAX_LISTED, signal: within(signal) }),
      );
      const entries = found
        .slice(0, MAX_ENTRIES)
        .map(entry => ({ path: pathOf(entry, recursive), kind: kindOf(entry) }))
        .sort((one, other) => (one.path < other.path ? -1 : 1));
      const omitted = found.length - entries.length;
      const lines = entries.map(({ path: shown, kind }) => `${nameText(shown)}${kind === 'directory' ? '/' : ''}`);
      const text = [...(omitted > 0 ? [`[${omitted} more not shown]`] : []), ...lines].join('\n');
      return { text: text === '' ? 'The directory is empty.' : text, structured: { path: name, entries, omitted } };
    }),
});

function pathOf({ parentPath, name }: InsideEntry, recursive: boolean): string {
  return recursive ? `${parentPath.replace(/\/$/, '')}/${name}` : name;
}

function kindOf(entry: InsideEntry): 'file' | 'directory' | 'link' | 'other' {
  if (entry.isSymbolicLink()) return 'link';
  if (entry.isDirectory()) return 'directory';
  return entry.isFile() ? 'file' : 'other';
}

function within(signal: AbortSignal): AbortSignal {
  return AbortSignal.any([signal, AbortSignal.timeout(DEADLINE_MS)]);
}

// Read as a stream and not by its size: a command inside can make a file that never ends.
async function wholeFile(files: InsideFiles, name: string, signal: AbortSignal): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  const stream: AsyncIterable<unknown> = files.createReadStream(name, { signal });
  for await (const bytes of stream) {
    if (!(bytes instanceof Uint8Array)) continue;
    size += bytes.length;
    if (size > MAX_READ)
      throw new AcodeError('ACODE-MCP-009', {
        operation: 'read_file',
        path: name.slice(0, 300),
        reason: 'is larger than 8 MiB',
        remedy: 'Take a part of it with run_in_sandbox: head, tail, sed or grep.',
      });
    chunks.push(bytes);
  }
  return Buffer.concat(chunks);
}

function decoded(data: Buffer): { readonly text: string; readonly encoding: z.output<typeof encoding> } {
  try {
    const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(data);
    if (!text.includes('\0')) return { text, encoding: 'utf8' };
  } catch {
    // Not text.
  }
  return { text: data.toString('base64'), encoding: 'base64' };
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
  throw new AcodeError('ACODE-MCP-001', { tool: 'write_file', field: 'content', reason: 'is not base64' });
}

const REMEDIES: Readonly<Record<string, string>> = {
  EROFS:
    'What the user’s tools execute or follow (.git, .agent, editor and agent settings) and everything outside the workspace, /tmp and the home directory cannot be changed from a sandbox. Ask the user to make that change, or write elsewhere.',
  EACCES: 'The sandbox runs as an ordinary user and cannot change that. Work in the workspace or in /tmp.',
  EPERM: 'The sandbox runs as an ordinary user and cannot change that. Work in the workspace or in /tmp.',
  EISDIR: 'Use list_directory for a directory.',
};

/** Does something with a file; what the file system refuses becomes ACODE-MCP-009. */
async function withFile<Value>(operation: string, at: string, work: () => Promise<Value>): Promise<Value> {
  try {
    return await work();
  } catch (error) {
    const code = fileCode(error);
    if (error instanceof AcodeError || code === null) throw error;
    const remedy = REMEDIES[code];
    const context = { operation, path: at.slice(0, 300), reason: fileReason(code) };
    throw new AcodeError('ACODE-MCP-009', remedy === undefined ? context : { ...context, remedy }, { cause: error });
  }
}
