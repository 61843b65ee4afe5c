// Every tool, called by a client of the protocol on a real engine, over one transport, and in the long test suite over both.

import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { engines, withoutEngines } from '../support/engines.ts';
import { Connection, textIn, until, ways } from './connection.ts';

const cases = engines.flatMap(engine => ways.map(way => ({ engine, name: engine.name, way })));

describe.skipIf(withoutEngines).each(cases)('the tools on $name over $way', ({ engine, way }) => {
  let to: Connection;

  beforeAll(async () => {
    to = await Connection.open(way, engine);
  });

  afterAll(async () => {
    await to[Symbol.asyncDispose]();
  });

  it('are listed with schemas, titles, descriptions and annotations', async () => {
    const { tools } = await to.client.listTools();
    expect(tools.map(({ name }) => name)).toEqual([
      ...['run_command', 'open_sandbox', 'list_sandboxes', 'run_in_sandbox', 'read_output', 'write_input'],
      ...['stop_command', 'read_file', 'write_file', 'list_directory', 'search_files', 'close_sandbox', 'status'],
    ]);
    for (const { title, description, annotations, inputSchema, outputSchema } of tools) {
      expect(title && description && annotations && outputSchema).toBeTruthy();
      expect(inputSchema).toMatchObject({ type: 'object', additionalProperties: false });
    }
  });

  it('status says that commands can be run, and within which limits', async () => {
    const { structured, isError } = await to.call('status');
    expect(isError).toBe(false);
    expect(structured).toMatchObject({ available: true, level: 'docker', limits: { network: 'none' } });
  });

  it('run_command runs in a sandbox of its own that leaves only the workspace', async () => {
    const { structured, text } = await to.call('run_command', {
      command: 'echo out; echo err >&2; echo kept > made.txt; echo lost > /tmp/lost; exit 3',
    });
    expect(structured).toMatchObject({ exitCode: 3, stdout: 'out\n', stderr: 'err\n', timedOut: false, denials: [] });
    expect(text).toContain('Exit code 3');
    expect(readFileSync(join(to.bench.workspace, 'made.txt'), 'utf8')).toBe('kept\n');
    const again = await to.call('run_command', { command: ['cat', '/tmp/lost'] });
    expect(again.structured).toMatchObject({ exitCode: 1, stdout: '' });
  });

  it('run_command passes input, environment and directory on', async () => {
    const { structured } = await to.call('run_command', {
      command: 'cat; echo $WORD; pwd',
      stdin: 'in\n',
      env: { WORD: 'w' },
      cwd: 'sub',
    });
    expect(structured).toMatchObject({ stdout: 'in\nw\n/workspace/sub\n' });
  });

  it('a command that takes too long, or uses too much, is told so in words', async () => {
    const late = await to.call('run_command', { command: ['sleep', '30'], timeout_seconds: 1 });
    expect(late.structured).toMatchObject({ exitCode: null, timedOut: true });
    expect(late.text).toContain('time limit');
    const large = await to.call('run_command', { command: 'x=$(yes | head -c 200000000); echo $x', memory_mb: 32 });
    expect(large.structured).toMatchObject({ outOfMemory: true });
  });

  it('a denial comes with its rule and what to do next', async () => {
    const { structured, text } = await to.call('run_command', { command: 'wget http://acode.test/' });
    expect(structured['denials']).toEqual([
      expect.objectContaining({ rule: expect.any(String), remedy: expect.any(String) }),
    ]);
    expect(text).toContain('Denied:');
  });

  it('long output is cut for a model, and the whole of it can be read', async () => {
    const { structured, text } = await to.call('run_command', { command: 'seq 1 20000' });
    expect(text.length).toBeLessThan(31_000);
    const shown = textIn(structured, 'stdout');
    expect(shown.startsWith('1\n2\n') && shown.endsWith('20000\n')).toBe(true);
    const [uri = ''] = structured['outputs'] as string[];
    const whole = Array.from({ length: 20_000 }, (_, at) => `${at + 1}\n`).join('');
    const { contents } = await to.client.readResource({ uri });
    expect(contents).toEqual([{ uri, mimeType: 'text/plain', text: whole }]);
    expect((await to.client.listResources()).resources.map(one => one.uri)).toContain(uri);
    let read = '';
    for (let more = true; more;) {
      const part = await to.call('read_output', { output: uri, offset: read.length });
      read += textIn(part.structured, 'text');
      more = part.structured['more'] === true;
    }
    expect(read).toBe(whole);
  });

  it('a command that prints is heard of while it runs', async () => {
    const heard: { progress: number; message?: string | undefined }[] = [];
    await to.call(
      'run_command',
      { command: 'for i in 1 2 3 4; do echo line $i; sleep 0.4; done' },
      { onprogress: one => heard.push(one) },
    );
    expect(heard.length).toBeGreaterThanOrEqual(3);
    expect(heard.map(({ progress }) => progress)).toEqual(heard.map(({ progress }) => progress).sort((a, b) => a - b));
    expect(heard[0]?.message).toMatch(/^The command printed: line 1/);
  });

  it('open_sandbox, run_in_sandbox, list_sandboxes and close_sandbox: a persistent one', async () => {
    const opened = await to.call('open_sandbox', { expires_in_minutes: 5 });
    const id = textIn(opened.structured, 'sandbox_id');
    await to.call('run_in_sandbox', { sandbox_id: id, command: 'echo stays > /tmp/state' });
    const found = await to.call('run_in_sandbox', { sandbox_id: id, command: ['cat', '/tmp/state'] });
    expect(found.structured).toMatchObject({ exitCode: 0, stdout: 'stays\n', sandboxId: id, background: false });
    const listed = await to.call('list_sandboxes');
    expect(listed.structured['sandboxes']).toContainEqual(
      expect.objectContaining({ sandbox_id: id, isDefault: false }),
    );
    expect((await to.call('close_sandbox', { sandbox_id: id })).structured).toEqual({
      closed: id,
      riskyChanges: [],
      riskyChangesOmitted: 0,
    });
    const gone = await to.call('run_in_sandbox', { sandbox_id: id, command: 'true' });
    expect(gone).toMatchObject({ isError: true, structured: { code: 'ACODE-MCP-004' } });
  });

  it('background commands are read, written to and stopped', async () => {
    const begun = await to.call('run_in_sandbox', {
      command: 'while read word; do echo got $word; done; sleep 60',
      background: true,
    });
    const id = textIn(begun.structured, 'command_id');
    await to.call('write_input', { command_id: id, text: 'one\n' });
    const read = await to.call('read_output', { command_id: id, wait_seconds: 10 });
    expect(read.structured).toMatchObject({ text: 'got one\n', running: true, next: 8 });
    await to.call('write_input', { command_id: id, text: 'two\n', end: true });
    const more = await to.call('read_output', { command_id: id, wait_seconds: 10 });
    expect(more.structured).toMatchObject({ text: 'got two\n', from: 8 });
    const stopped = await to.call('stop_command', { command_id: id });
    expect(stopped.structured).toMatchObject({ stopped: true });
    expect((await to.call('read_output', { command_id: id })).structured).toMatchObject({ running: false });
    expect(await to.call('read_output', { command_id: 'command-999' })).toMatchObject({
      structured: { code: 'ACODE-MCP-005' },
    });
  });

  it('a server in the background answers other commands of its sandbox', async () => {
    const serve = 'mkdir -p /tmp/www; echo served > /tmp/www/index.html; httpd -f -p 127.0.0.1:8080 -h /tmp/www';
    const begun = await to.call('run_in_sandbox', { command: serve, background: true });
    expect(begun.isError).toBe(false);
    await until(async () => {
      const { structured } = await to.call('run_in_sandbox', { command: 'wget -q -O - http://127.0.0.1:8080/' });
      return structured['stdout'] === 'served\n';
    });
    await to.call('stop_command', { command_id: textIn(begun.structured, 'command_id') });
  });

  it('write_file, read_file, list_directory and search_files work on the workspace', async () => {
    const written = await to.call('write_file', { path: 'deep/er/notes.txt', content: 'alpha\nbeta needle\ngamma\n' });
    expect(written).toMatchObject({ isError: false, structured: { bytes: 24 } });
    expect(readFileSync(join(to.bench.workspace, 'deep/er/notes.txt'), 'utf8')).toBe('alpha\nbeta needle\ngamma\n');
    await to.call('write_file', { path: 'deep/er/notes.txt', content: 'delta\n', append: true });
    const part = await to.call('read_file', { path: 'deep/er/notes.txt', first_line: 2, lines: 1 });
    expect(part.structured).toMatchObject({ content: 'beta needle', encoding: 'utf8', bytes: 30, omitted: 0 });
    const listed = await to.call('list_directory', { path: 'deep' });
    expect(listed.structured).toMatchObject({ entries: [{ path: 'er', kind: 'directory' }], omitted: 0 });
    const all = await to.call('list_directory', { path: 'deep', recursive: true });
    expect(all.text).toContain('er/notes.txt');
    const byContent = await to.call('search_files', { by: 'content', pattern: 'needle' });
    expect(byContent.structured).toMatchObject({
      matches: [{ path: 'deep/er/notes.txt', line: 2, text: 'beta needle' }],
      complete: true,
    });
    const byName = await to.call('search_files', { by: 'name', pattern: 'notes.*' });
    expect(byName.structured).toMatchObject({ matches: [{ path: 'deep/er/notes.txt' }] });
    const nothing = await to.call('search_files', { by: 'content', pattern: 'no-such-text-anywhere' });
    expect(nothing).toMatchObject({ isError: false, structured: { matches: [] } });
  });

  it('what is not text comes and goes as base64', async () => {
    const bytes = Buffer.from([0, 255, 254, 10, 0]);
    await to.call('write_file', { path: 'blob', content: bytes.toString('base64'), encoding: 'base64' });
    expect(readFileSync(join(to.bench.workspace, 'blob'))).toEqual(bytes);
    const { structured } = await to.call('read_file', { path: 'blob' });
    expect(structured).toMatchObject({ content: bytes.toString('base64'), encoding: 'base64', bytes: 5 });
  });

  it('a file that is not there, or may not be changed, is told with what to do next', async () => {
    const missing = await to.call('read_file', { path: 'no/such/file' });
    expect(missing).toMatchObject({ isError: true, structured: { code: 'ACODE-MCP-009', denials: [] } });
    writeFileSync(join(to.bench.workspace, '.git', 'config'), 'mine\n');
    const kept = await to.call('write_file', { path: '.git/config', content: 'theirs\n' });
    expect(kept).toMatchObject({ isError: true, structured: { code: 'ACODE-MCP-009' } });
    expect(textIn(kept.structured, 'hint')).toContain('Ask the user');
    expect(readFileSync(join(to.bench.workspace, '.git', 'config'), 'utf8')).toBe('mine\n');
    expect(existsSync(join(to.bench.workspace, 'made.txt'))).toBe(true);
  });
});
