// edit_file: replaces one exact text of a file by another.

import type { AcodeError } from '@acode/sandbox';
import * as z from 'zod';
import { CHANGES, tool } from '../tool.ts';
import { MAX_FILE, inside, nameText, path, sandboxId, textOf, wholeFile, within, withFile } from './arguments.ts';
import { mcpError } from '../errors.ts';

const MAX_LINES = 20;

/** The tool. */
export const editFile = tool({
  name: 'edit_file',
  title: 'Edit a file',
  description:
    'Replaces old_string by new_string in a text file; use it instead of write_file for changes. old_string must match exactly, spaces and line breaks too, and be unique in the file: include lines around it, or set replace_all.',
  annotations: CHANGES,
  lane: 'short',
  input: z.strictObject({
    path,
    old_string: z.string().min(1),
    new_string: z.string(),
    replace_all: z.boolean().optional(),
    sandbox_id: sandboxId,
  }),
  perform: ({ path: asked, old_string: before, new_string: after, replace_all: all, sandbox_id: id }, call) => {
    const { session } = call;
    const name = session.workspace.inside(asked);
    return inside(session, id, ({ files }) =>
      session.editing(async () => {
        const signal = within(call.signal);
        const data = await withFile('edit_file', session, name, () => wholeFile('edit_file', files, name, signal));
        const text = textOf(data);
        if (text === null) throw notText(name);
        const edit = edited(text, before, after, all === true);
        if ('found' in edit) throw notUnique(name, edit, text, before);
        if (edit.text === null) throw tooLarge(name);
        const { text: result } = edit;
        // In place: mode and owner stay.
        await withFile('edit_file', session, name, () => files.writeFile(name, result, { signal }));
        const { lines } = edit;
        const many = lines.length === 1 ? '1 occurrence' : `${lines.length} occurrences`;
        return {
          text: `Replaced ${many} in ${nameText(name)}, ${lineText(lines)}.`,
          structured: { replaced: lines.length, lines: lines.slice(0, MAX_LINES) },
        };
      }),
    );
  },
});

/** An edit, whose text is null where it would be too large; or the lines where the text was found, not as often as it must be. */
export type Edit =
  { readonly text: string | null; readonly lines: readonly number[] } | { readonly found: readonly number[] };

/** Edits a text. */
export function edited(text: string, before: string, after: string, all: boolean): Edit {
  const [old, fresh] = asIn(text, before, after);
  const lines = linesOf(text, old);
  if (lines.length === 0 || (lines.length > 1 && !all)) return { found: lines };
  // Before it is made: a long text in place of each of many letters would fill the memory.
  if (text.length + lines.length * (fresh.length - old.length) > MAX_FILE) return { text: null, lines };
  // With a function: a replacement text would have signs of its own, such as $&.
  return { text: text.replaceAll(old, () => fresh), lines };
}

// A model that read lines writes them with \n, whatever the file ends them with.
function asIn(text: string, before: string, after: string): readonly [string, string] {
  const isOther = text.includes('\r\n') && !/(?:^|[^\r])\n/.test(text);
  if (!isOther || before.includes('\r') || after.includes('\r')) return [before, after];
  return [before.replaceAll('\n', '\r\n'), after.replaceAll('\n', '\r\n')];
}

function linesOf(text: string, part: string): number[] {
  const lines: number[] = [];
  let line = 1;
  // Each end of a line is looked for once, however many matches a line has.
  let end = text.indexOf('\n');
  for (let at = text.indexOf(part); at >= 0; at = text.indexOf(part, at + part.length)) {
    while (end >= 0 && end < at) {
      line += 1;
      end = text.indexOf('\n', end + 1);
    }
    lines.push(line);
  }
  return lines;
}

function notText(name: string): AcodeError {
  return mcpError('ACODE-MCP-009', {
    operation: 'edit_file',
    path: name.slice(0, 300),
    reason: 'is not UTF-8 text',
    remedy: 'Change it with a program, such as sed with run_in_sandbox, or write all of it with write_file and base64.',
  });
}

function tooLarge(name: string): AcodeError {
  return mcpError('ACODE-MCP-009', {
    operation: 'edit_file',
    path: name.slice(0, 300),
    reason: 'would become larger than 8 MiB',
    remedy: 'Make it with a program instead, with run_in_sandbox.',
  });
}

function notUnique(
  name: string,
  { found }: { readonly found: readonly number[] },
  text: string,
  before: string,
): AcodeError {
  const like = found.length > 0 ? [] : similar(text, before);
  const lines = [...new Set(found)];
  return mcpError('ACODE-MCP-016', {
    path: name.slice(0, 300),
    found: found.length,
    lines: lines.slice(0, MAX_LINES),
    ...(lines.length > MAX_LINES ? { more: true } : {}),
    ...(like.length > 0 ? { similar: like.slice(0, MAX_LINES) } : {}),
  });
}

// Where the first line of it stands with other spaces around it.
function similar(text: string, before: string): number[] {
  const first =
    before
      .split('\n')
      .find(line => line.trim() !== '')
      ?.trim() ?? '';
  return first === '' ? [] : text.split('\n').flatMap((line, at) => (line.trim() === first ? [at + 1] : []));
}

function lineText(lines: readonly number[]): string {
  const more = lines.length - MAX_LINES;
  const shown = lines.slice(0, MAX_LINES).join(', ');
  return `${lines.length === 1 ? 'line' : 'lines'} ${shown}${more > 0 ? ` and ${more} more` : ''}`;
}
