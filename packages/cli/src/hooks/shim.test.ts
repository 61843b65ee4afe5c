// The shell texts of hooks, run by a real shell: only one whole answer lets a command through, and acode gets no variable of the agent.

import { spawnSync } from 'node:child_process';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { environmentOfShim, gate, rewriteShim, runShim, variablesIn } from './shim.ts';
import { COMPLETE } from './step.ts';

const WHOLE = JSON.stringify({
  hookSpecificOutput: { hookEventName: 'PreToolUse', updatedInput: { command: String.raw`x '\''y` } },
});

describe('the hook as a shell runs it', () => {
  let top: string;
  let program: string;

  beforeAll(() => {
    top = mkdtempSync(join(tmpdir(), "acode-hook it's-"));
    program = join(top, 'program');
  });
  afterAll(() => rmSync(top, { recursive: true, force: true }));

  const answered = (script: string | null, mode = 0o700) => {
    rmSync(program, { force: true });
    if (script !== null) writeFileSync(program, `#!/bin/sh\n${script}\n`);
    if (script !== null) chmodSync(program, mode);
    // Without any directory to find programs in: the hook names all of them.
    const env = { PATH: '/nonexistent' };
    const { status, stdout, stderr } = spawnSync('/bin/sh', ['-c', gate(program)], { encoding: 'utf8', env });
    return { status, stdout, isExplained: /^acode: blocked/m.test(stderr) };
  };
  const printing = (text: string): string => `/bin/cat <<'END'\n${text}\nEND`;

  it('passes one whole answer on as it is', () => {
    expect(answered(printing(`${WHOLE}\n${COMPLETE}`))).toEqual({
      status: 0,
      stdout: `${WHOLE}\n`,
      isExplained: false,
    });
  });

  it.each<[string, string | null]>([
    ['is missing', null],
    ['ends with 1', 'exit 1'],
    ['ends with 1 after a whole answer', `${printing(`${WHOLE}\n${COMPLETE}`)}\nexit 1`],
    ['is killed', 'kill -9 $$'],
    ['prints nothing', 'exit 0'],
    ['prints broken JSON', printing('{"hookSpecificOutput":{"hook')],
    ['prints JSON without the end of an answer', printing(WHOLE)],
    ['prints only the end', printing(COMPLETE)],
    ['prints something before', printing(`warning\n${WHOLE}\n${COMPLETE}`)],
    ['prints something after', printing(`${WHOLE}\n${COMPLETE}\nwarning`)],
    ['prints another object', printing(`{"decision":"allow"}\n${COMPLETE}`)],
  ])('blocks the command with status 2 and a reason where its program %s', (_, script) => {
    expect(answered(script)).toEqual({ status: 2, stdout: '', isExplained: true });
  });

  it('blocks it where its program hangs', () => {
    // The same text with a shorter deadline: nobody waits for the real one here.
    const short = gate(program).replace(/-k 1 \d+ /, '-k 1 1 ');
    expect(short).not.toBe(gate(program));
    writeFileSync(program, '#!/bin/sh\nexec /bin/sleep 100\n');
    chmodSync(program, 0o700);
    const { status, stdout } = spawnSync('/bin/sh', ['-c', short], { encoding: 'utf8' });
    expect({ status, stdout }).toEqual({ status: 2, stdout: '' });
  });

  it('starts acode with variables of its own, and passes every argument on as it is', () => {
    const reporter = join(top, 'entry.cjs');
    writeFileSync(reporter, 'console.log(JSON.stringify([process.argv.slice(2), process.env]))');
    const env = { HOME: "/home/it's me", PATH: '/usr/bin', XDG_STATE_HOME: '/s' };
    const parts = { agent: 'claude' as const, node: process.execPath, entry: reporter, env };
    writeFileSync(program, runShim(parts, '/work/a b'));
    chmodSync(program, 0o700);
    const hostile = { NODE_OPTIONS: '--require /nonexistent.cjs', BASH_ENV: '/x', PATH: '/evil', ACODE_X: 'y' };
    const words = ["it's", '--env-file=/nonexistent', ''];
    const { stdout, stderr } = spawnSync(program, words, { encoding: 'utf8', env: hostile });
    const [argv, seen] = JSON.parse(stdout || '[]') as [string[], Record<string, string>];
    expect(argv, stderr).toEqual(['hook', 'run', 'claude', '/work/a b', ...words]);
    expect(seen).toMatchObject(env);
    for (const name of Object.keys(hostile)) if (name !== 'PATH') expect(seen).not.toHaveProperty(name);
  });

  it('names what a rewritten command calls, and where a rewritten command takes its workspace from', () => {
    const parts = { agent: 'codex' as const, node: '/n', entry: '/e', env: {} };
    expect(rewriteShim(parts, '/a b/codex')).toContain(`hook rewrite codex '/a b/codex' "$@"`);
    expect(runShim(parts)).toContain('hook run codex "$@"');
    expect(runShim({ ...parts, agent: 'opencode' })).toContain(`hook run opencode '' "$@"`);
  });

  it('keeps of an environment what acode reads, and finds it again in a program', () => {
    const env = environmentOfShim({
      HOME: '/h',
      PATH: '.:relative:/usr/bin::/bin',
      NODE_OPTIONS: 'x',
      LD_PRELOAD: 'x',
      ACODE_SERVE_IDLE_SECONDS: '5',
      CI: "it's",
      TOKEN: 'x',
    });
    expect(env).toEqual({ HOME: '/h', PATH: '/usr/bin:/bin', ACODE_SERVE_IDLE_SECONDS: '5', CI: "it's" });
    expect(variablesIn(runShim({ agent: 'claude', node: '/n', entry: '/e', env }))).toEqual(env);
  });
});
