// An edit replaces exactly what it names, and nothing where that is not unique.

import { Readable } from 'node:stream';
import { describe, expect, it } from 'vitest';
import type { InsideSandbox, ToolHost } from '../host.ts';
import { WorkspacePaths } from '../paths.ts';
import { Progress } from '../progress.ts';
import { Session } from '../session.ts';
import { edited, editFile } from './edit-file.ts';

describe('an edit of a text', () => {
  it.each([
    ['a b c', 'b', 'x', false, { text: 'a x c', lines: [1] }],
    ['a\nb\nc b\n', 'b', 'x', true, { text: 'a\nx\nc x\n', lines: [2, 3] }],
    ['a\nb\nc b\nb', 'b', 'x', false, { found: [2, 3, 4] }],
    ['a', 'b', 'x', true, { found: [] }],
    ['price: 1', '1', '$& $1 $$', false, { text: 'price: $& $1 $$', lines: [1] }],
    ['a\nb\n', 'a\nb', 'c', false, { text: 'c\n', lines: [1] }],
    ['\ufeffa', 'a', 'b', false, { text: '\ufeffb', lines: [1] }],
    // Line ends stay what they are: all CRLF, and mixed ones only as they are named.
    ['a\r\nb\r\nc\r\n', 'a\nb', 'x\ny\nz', false, { text: 'x\r\ny\r\nz\r\nc\r\n', lines: [1] }],
    ['a\r\nb\nc\n', 'b\nc', 'x\ny', false, { text: 'a\r\nx\ny\n', lines: [2] }],
    ['a\r\nb\nc\n', 'a\nb', 'x', false, { found: [] }],
    ['aaaa', 'a', 'x'.repeat(4 * 1024 ** 2), true, { text: null, lines: [1, 1, 1, 1] }],
  ])('%j: %j', (text, before, after, all, expected) => {
    expect(edited(text, before, after, all)).toEqual(expected);
  });

  it('of one long line with millions of matches ends', () => {
    expect(edited('a'.repeat(8 * 1024 ** 2), 'a', 'b', false)).toMatchObject({ found: { length: 8 * 1024 ** 2 } });
  });
});

// A sandbox with one file in it, that answers when it is its turn.
function withFile(content: Buffer) {
  const written: string[] = [];
  let at = content;
  const files: Pick<InsideSandbox['files'], 'createReadStream' | 'writeFile'> = {
    createReadStream: () => Readable.from([at]),
    writeFile: async (path, data) => {
      await new Promise(setImmediate);
      at = Buffer.from(data);
      written.push(path);
    },
  };
  const sandbox = { id: 'one', files, riskyChanges: [], kill: async () => undefined } as unknown as InsideSandbox;
  const host = { create: async () => sandbox } as unknown as ToolHost;
  const session = new Session(host, new WorkspacePaths('/home/me/proj'));
  const call = { session, signal: AbortSignal.timeout(5000), progress: new Progress(null) };
  const edit = (before: string, after: string, more = {}) =>
    editFile.call({ path: '/home/me/proj/src/a', old_string: before, new_string: after, ...more }, call);
  return { edit, written, text: () => at.toString() };
}

describe('edit_file', () => {
  it('writes the edited text to the path inside', async () => {
    const file = withFile(Buffer.from('one\ntwo\n'));
    expect(await file.edit('two', '2')).toEqual({
      text: 'Replaced 1 occurrence in /workspace/src/a, line 2.',
      structured: { replaced: 1, lines: [2] },
    });
    expect({ text: file.text(), written: file.written }).toEqual({ text: 'one\n2\n', written: ['/workspace/src/a'] });
  });

  it('says how often and where the text is that is not unique, and changes nothing', async () => {
    const file = withFile(Buffer.from('a\nb\na\n'));
    await expect(file.edit('a', 'x')).rejects.toMatchObject({
      code: 'ACODE-MCP-016',
      message: expect.stringContaining('`old_string` was found 2 times, at lines 1, 3; nothing was changed.'),
      hint: expect.stringContaining('replace_all'),
    });
    const often = withFile(Buffer.from('b b\n'.repeat(30)));
    await expect(often.edit('b', 'x')).rejects.toMatchObject({
      message: expect.stringMatching(/60 times, at lines 1, 2, .*, 20 and more;/),
    });
    expect(file.written).toEqual([]);
    await file.edit('a', 'x', { replace_all: true });
    expect(file.text()).toBe('x\nb\nx\n');
  });

  it('says that a text was not found, and where it stands with other spaces', async () => {
    const file = withFile(Buffer.from('if (a) {\n\treturn 1;\n}\n'));
    await expect(file.edit('    return 1;', 'return 2;')).rejects.toMatchObject({
      code: 'ACODE-MCP-016',
      message: expect.stringContaining('`old_string` was not found; nothing was changed.'),
      hint: expect.stringContaining('at line 2 with other spaces'),
    });
    expect(file.written).toEqual([]);
  });

  it.each([
    ['is not UTF-8 text', Buffer.from([0x61, 0xff, 0x61])],
    ['is not UTF-8 text', Buffer.from('a\0a')],
    ['is larger than 8 MiB', Buffer.alloc(9 * 1024 ** 2, 'b')],
  ])('refuses a file that %s', async (reason, content) => {
    const file = withFile(content);
    await expect(file.edit('a', 'x', { replace_all: true })).rejects.toMatchObject({
      code: 'ACODE-MCP-009',
      message: expect.stringContaining(reason),
    });
    expect(file.written).toEqual([]);
  });

  it('loses none of several edits at once', async () => {
    const file = withFile(Buffer.from('one two three\n'));
    await Promise.all([file.edit('one', '1'), file.edit('two', '2'), file.edit('three', '3')]);
    expect(file.text()).toBe('1 2 3\n');
    await Promise.allSettled([file.edit('nothing', ''), file.edit('1', 'i')]);
    expect(file.text()).toBe('i 2 3\n');
  });
});
