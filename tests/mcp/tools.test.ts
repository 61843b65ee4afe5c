// Every tool, called by a client of the protocol on a real engine, over one transport, and in the long test suite over both.

import { chmodSync, existsSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { engines, mainEngine, withoutEngines } from '../support/engines.ts';
import { until } from '../support/waiting.ts';
import { Connection, textIn, ways } from './connection.ts';

const cases = engines.flatMap(engine => ways.map(way => ({ engine, name: engine.name, way })));

describe.skipIf(withoutEngines).each(cases)('the tools on $name over $way', ({ engine, way }) => {
  let to: Connection;

  beforeAll(async () => {
    to = await Connection.open(way, engine);
  });

  afterAll(async () => {
    await to[Symbol.asyncDispose]();
  });

  it('are listed with titles, descriptions and annotations, in 10,000 bytes', async () => {
    const { tools } = await to.client.listTools();
    expect(tools.map(({ name }) => name)).toEqual([
      ...['run_command', 'open_sandbox', 'list_sandboxes', 'run_in_sandbox', 'read_output', 'write_input'],
      ...['stop_command', 'read_file', 'edit_file', 'write_file', 'list_directory', 'search_files', 'close_sandbox'],
      'request_access',
      'status',
    ]);
    expect(Buffer.byteLength(JSON.stringify({ tools }))).toBeLessThan(10_000);
    for (const { title, description, annotations, inputSchema } of tools) {
      expect(title && description && annotations).toBeTruthy();
      expect(inputSchema).toMatchObject({ type: 'object', additionalProperties: false });
    }
  });

  it('status says that commands can be run, and within which limits', async () => {
    const { structured, isError } = await to.call('status');
    expect(isError).toBe(false);
    expect(structured).toMatchObject({
      available: true,
      level: 'docker',
      limits: { network: 'none' },
      workspace: { host: to.bench.workspace, sandbox: '/workspace' },
    });
    expect(to.client.getInstructions()).toContain(`The user’s workspace, ${to.bench.workspace}, is /workspace inside`);
  });

  it('run_command runs in a sandbox of its own that leaves only the workspace', async () => {
    const { structured, text } = await to.call('run_command', {
      command: 'echo out; echo err >&2; echo kept > made.txt; echo lost > /tmp/lost; exit 3',
    });
    // For some clients this is all that the model reads.
    expect(structured).toEqual({ exitCode: 3, durationMs: expect.any(Number), stdout: 'out\n', stderr: 'err\n' });
    expect(text).toContain('Exit code 3');
    expect(readFileSync(join(to.bench.workspace, 'made.txt'), 'utf8')).toBe('kept\n');
    const again = await to.call('run_command', { command: ['cat', '/tmp/lost'] });
    expect(again.structured).toMatchObject({ exitCode: 1 });
    expect(again.structured).not.toHaveProperty('stdout');
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
    expect(found.structured).toEqual({ exitCode: 0, durationMs: expect.any(Number), stdout: 'stays\n' });
    const listed = await to.call('list_sandboxes');
    expect(listed.structured['sandboxes']).toContainEqual({ sandbox_id: id, expiresAt: expect.any(String) });
    expect((await to.call('close_sandbox', { sandbox_id: id })).structured).toEqual({ closed: id });
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
    expect(more.structured).toMatchObject({ text: 'got two\n', next: 16 });
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
    expect(part.structured).toEqual({ content: 'beta needle', bytes: 30 });
    const listed = await to.call('list_directory', { path: 'deep' });
    expect(listed.structured).toEqual({ entries: [{ path: 'er', kind: 'directory' }] });
    const all = await to.call('list_directory', { path: 'deep', recursive: true });
    expect(all.text).toContain('er/notes.txt');
    const byContent = await to.call('search_files', { by: 'content', pattern: 'needle' });
    expect(byContent.structured).toEqual({
      matches: [{ path: 'deep/er/notes.txt', line: 2, text: 'beta needle' }],
    });
    const byName = await to.call('search_files', { by: 'name', pattern: 'notes.*' });
    expect(byName.structured).toMatchObject({ matches: [{ path: 'deep/er/notes.txt' }] });
    const nothing = await to.call('search_files', { by: 'content', pattern: 'no-such-text-anywhere' });
    expect(nothing).toMatchObject({ isError: false, structured: { notes: ['Nothing was found.'] } });
  });

  it('edit_file changes one text in place: mode and line ends stay, and what is protected too', async () => {
    const file = join(to.bench.workspace, 'edited.sh');
    writeFileSync(file, 'one\r\ntwo\r\ntwo\r\n');
    chmodSync(file, 0o751);
    const { ino } = statSync(file);
    const twice = await to.call('edit_file', { path: 'edited.sh', old_string: 'two', new_string: '2' });
    expect(twice).toMatchObject({ isError: true, structured: { code: 'ACODE-MCP-016' } });
    expect(textIn(twice.structured, 'message')).toContain('was found 2 times, at lines 2, 3; nothing was changed.');
    const done = await to.call('edit_file', { path: 'edited.sh', old_string: 'one\ntwo', new_string: '1\n2' });
    expect(done).toMatchObject({ isError: false, structured: { replaced: 1, lines: [1] } });
    expect(readFileSync(file, 'utf8')).toBe('1\r\n2\r\ntwo\r\n');
    const { mode, ino: after, uid } = statSync(file);
    expect({ mode: mode & 0o7777, after, uid }).toEqual({ mode: 0o751, after: ino, uid: process.getuid?.() });
    writeFileSync(join(to.bench.workspace, '.git', 'config'), 'mine\n');
    const refused = await to.call('edit_file', { path: '.git/config', old_string: 'mine', new_string: 'theirs' });
    expect(refused).toMatchObject({ isError: true, structured: { code: 'ACODE-MCP-009' } });
    expect(readFileSync(join(to.bench.workspace, '.git', 'config'), 'utf8')).toBe('mine\n');
  });

  it('host paths of the workspace mean its files, in every tool; others are told so', async () => {
    const { workspace } = to.bench;
    writeFileSync(join(workspace, 'sub', 'named.txt'), 'by its host path\n');
    const path = join(workspace, 'sub', 'named.txt');
    expect((await to.call('read_file', { path })).structured).toMatchObject({ content: 'by its host path\n' });
    await to.call('edit_file', { path, old_string: 'by its', new_string: 'by the' });
    expect(readFileSync(path, 'utf8')).toBe('by the host path\n');
    const made = await to.call('write_file', { path: join(workspace, 'sub/made.txt'), content: 'x' });
    expect(made.structured).toEqual({ path: '/workspace/sub/made.txt', bytes: 1 });
    expect(existsSync(join(workspace, 'sub/made.txt'))).toBe(true);
    expect((await to.call('list_directory', { path: join(workspace, 'sub') })).text).toContain('named.txt');
    const found = await to.call('search_files', { by: 'content', pattern: 'host path', path: workspace });
    expect(found.structured).toMatchObject({ matches: [{ path: '/workspace/sub/named.txt' }] });
    for (const tool of ['run_command', 'run_in_sandbox']) {
      const there = await to.call(tool, { command: 'pwd', cwd: join(workspace, 'sub') });
      expect(there.structured).toMatchObject({ stdout: '/workspace/sub\n' });
      const gone = await to.call(tool, { command: 'pwd', cwd: `${workspace}2` });
      expect(gone).toMatchObject({ isError: true, structured: { code: 'ACODE-MCP-009' } });
      expect(textIn(gone.structured, 'hint')).toContain('it cannot be reached');
      const inside = await to.call(tool, { command: `cat ${path}` });
      expect(inside.structured['notes']).toEqual([expect.stringContaining('is /workspace in the sandbox')]);
    }
    for (const outside of [`${workspace}2/x`, join(workspace, '..', 'config'), '/home/somebody/project/x'])
      for (const [tool, given] of [
        ['read_file', {}],
        ['list_directory', {}],
        ['edit_file', { old_string: 'a', new_string: 'b' }],
        ['search_files', { by: 'name', pattern: '*' }],
      ] as const) {
        const refused = await to.call(tool, { ...given, path: outside });
        expect(refused).toMatchObject({ isError: true, structured: { code: 'ACODE-MCP-009' } });
        expect(textIn(refused.structured, 'hint')).toContain(`only the workspace ${workspace}, as /workspace.`);
      }
  });

  it('a program that is not found comes with the hints of the command line', async () => {
    const missing = await to.call('run_command', { command: 'no-such-program-here' });
    expect(missing.structured).toMatchObject({ exitCode: 127 });
    expect(missing.structured['notes']).toEqual([
      expect.stringMatching(/busybox.* may not have it\. The argument image/),
    ]);
    writeFileSync(join(to.bench.workspace, 'sub', 'package.json'), '{"devDependencies":{"vitest":"4"}}');
    const project = await to.call('run_in_sandbox', { command: 'vitest', cwd: 'sub' });
    expect(project.structured['notes']).toEqual([
      expect.stringMatching(/there is no node_modules beside package\.json.* ask the user to run `acode run /),
    ]);
    const root = await to.call('run_command', { command: 'sudo ls' });
    expect(root.structured['denials']).toEqual([expect.objectContaining({ rule: 'root.none' })]);
    expect(root.structured).not.toHaveProperty('notes');
    expect((await to.call('run_command', { command: 'exit 3' })).structured).not.toHaveProperty('notes');
  });

  it('a limit beyond the policy is lowered with a note', async () => {
    for (const tool of ['run_command', 'run_in_sandbox']) {
      const { structured, isError } = await to.call(tool, { command: 'true', timeout_seconds: 100_000 });
      expect(isError).toBe(false);
      expect(structured).toMatchObject({ exitCode: 0, notes: [expect.stringContaining('timeout_seconds was')] });
    }
  });

  it('what is not text comes and goes as base64', async () => {
    const bytes = Buffer.from([0, 255, 254, 10, 0]);
    await to.call('write_file', { path: 'blob', content: bytes.toString('base64'), encoding: 'base64' });
    expect(readFileSync(join(to.bench.workspace, 'blob'))).toEqual(bytes);
    const { structured } = await to.call('read_file', { path: 'blob' });
    expect(structured).toEqual({ content: bytes.toString('base64'), encoding: 'base64', bytes: 5 });
  });

  it('a file that is not there, or may not be changed, is told with what to do next', async () => {
    const missing = await to.call('read_file', { path: 'no/such/file' });
    expect(missing).toMatchObject({ isError: true, structured: { code: 'ACODE-MCP-009' } });
    writeFileSync(join(to.bench.workspace, '.git', 'config'), 'mine\n');
    const kept = await to.call('write_file', { path: '.git/config', content: 'theirs\n' });
    expect(kept).toMatchObject({ isError: true, structured: { code: 'ACODE-MCP-009' } });
    expect(textIn(kept.structured, 'hint')).toContain('Ask the user');
    expect(readFileSync(join(to.bench.workspace, '.git', 'config'), 'utf8')).toBe('mine\n');
    expect(existsSync(join(to.bench.workspace, 'made.txt'))).toBe(true);
  });
});

describe.skipIf(withoutEngines)('a server with --fork', () => {
  it('leaves the workspace as it is, and says what the fork has', async () => {
    await using to = await Connection.open('stdio', mainEngine, {}, ['--fork']);
    const host = join(to.bench.workspace, 'made.txt');
    const [first, second] = await Promise.all([
      to.call('run_command', { command: 'echo made > made.txt' }),
      to.call('run_command', { command: 'cat made.txt; echo x > .git/HEAD; cat .git/HEAD' }),
    ]);
    expect(first.text).toMatch(/fork \w{8} \(1 added, 0 changed, 0 deleted so far\).*`acode fork diff \w{8}`/);
    expect(second.structured).toMatchObject({ exitCode: 0, stdout: 'made\nx\n' });
    expect([existsSync(host), existsSync(join(to.bench.workspace, '.git', 'HEAD'))]).toEqual([false, false]);
    expect(to.client.getInstructions()).toContain('only the user applies them');
    expect(to.client.getInstructions()).not.toContain('are the user’s own files');
  });
});
