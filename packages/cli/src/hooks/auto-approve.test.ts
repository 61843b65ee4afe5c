// Approval without a question: what is approved, word for word, and a corpus of evasions that are not.

import { chmodSync, mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { Readable } from 'node:stream';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { runCli } from '../cli.ts';
import { Recorder, testIo } from '../test-process.ts';
import { APPROVED, approvalOf } from './auto-approve.ts';
import type { Approving } from './auto-approve.ts';

const ODD = ['$(id)', 'a;id', 'a&id', '`id`', 'a\nid', '*', '~'];

describe('a command that an agent asks for', () => {
  let top: string;
  let root: string;
  let entry: string;
  let link: string;

  beforeAll(() => {
    top = realpathSync(mkdtempSync(join(tmpdir(), 'acode-approve-')));
    root = join(top, 'project');
    for (const name of [
      'project/.git',
      'project/sub/deep',
      'project/node_modules/acode/bin',
      'lib/acode/bin',
      'bin',
      'other',
    ])
      mkdirSync(join(top, name), { recursive: true });
    entry = join(top, 'lib/acode/bin/acode.js');
    link = join(top, 'bin/acode');
    writeFileSync(entry, '');
    // Names that a shell would run.
    for (const name of ODD) mkdirSync(join(root, name));
    symlinkSync(entry, link);
    symlinkSync(entry, join(top, 'bin/else'));
    symlinkSync(entry, join(root, 'acode'));
    symlinkSync(top, join(root, 'up'));
    writeFileSync(join(root, 'node_modules/acode/bin/acode.js'), '');
  });
  afterAll(() => rmSync(top, { recursive: true, force: true }));

  const about = (given: Partial<Approving> = {}): Approving => ({ entry, calledAs: link, env: {}, ...given });
  const asked = (command: unknown, given: object = {}): object => ({
    session_id: 's',
    hook_event_name: 'PreToolUse',
    tool_name: 'Bash',
    cwd: root,
    permission_mode: 'default',
    tool_input: { command, description: 'Shows the tasks' },
    ...given,
  });
  const approved = (command: unknown, given?: object, who?: Approving): boolean =>
    approvalOf(asked(command, given), who ?? about()).words !== null;
  const EXAMPLES: Readonly<Record<string, string>> = {
    '<sandbox>': 'acode-1f0c2d3e-task-1',
    '<task>': 'login',
    '<swarm>': '1f0c2d3e',
    '<directory>': 'sub/deep',
  };
  const filled = (pattern: string): string =>
    pattern
      .split(' ')
      .map(part => EXAMPLES[part] ?? part)
      .join(' ');

  it('is approved where it is a call of the list, by the path of this installation', () => {
    for (const pattern of APPROVED)
      for (const program of [entry, link])
        for (const more of ['', ' --json']) {
          const line = `${program} ${filled(pattern)}${more}`;
          expect(approvalOf(asked(line), about())).toEqual({ words: line.split(' '), cwd: root, reason: null });
        }
    expect(approved(`${entry} sandbox build-image --workspace ${root}/sub`)).toBe(true);
    expect(approved(`${entry} swarm list`, { cwd: join(root, 'sub') })).toBe(true);
  });

  it('is not where the program is another one, or named otherwise', () => {
    const names = [
      'acode',
      './acode',
      '../lib/acode/bin/acode.js',
      '~/acode',
      '$ACODE',
      'docker',
      'sudo acode',
      'npx acode',
    ];
    const paths = [
      join(top, 'bin/else'),
      join(root, 'acode'),
      join(root, 'node_modules/acode/bin/acode.js'),
      `${dirname(entry)}/../bin/acode.js`,
      `${dirname(entry)}//acode.js`,
      `${dirname(entry)}/./acode.js`,
      `${entry}x`,
      `${entry}/`,
      `/${entry}`,
      '/usr/bin/env',
    ];
    for (const program of [...names, ...paths]) expect(approved(`${program} swarm list`), program).toBe(false);
    for (const before of [
      'env',
      'command',
      'exec',
      'node',
      'nohup',
      'time',
      'sh',
      'X=1',
      'NODE_OPTIONS=--require=/x',
      'PATH=/x',
    ])
      expect(approved(`${before} ${entry} swarm list`), before).toBe(false);
  });

  it('is never a command of Docker', () => {
    const calls = [
      'exec -i acode-x node adapter.mjs',
      'exec -i acode-1f0c2d3e-login node /opt/acode-swarm/adapter.mjs task',
      'ps',
    ];
    for (const call of calls)
      for (const program of ['docker', '/usr/bin/docker', `${entry} docker`, `${entry} sandbox exec --in x`])
        expect(approved(`${program} ${call}`), `${program} ${call}`).toBe(false);
  });

  it('is not with anything that a shell reads in another way', () => {
    const tails = [
      ';id',
      '; id',
      ' ; id',
      '&& id',
      '|| id',
      '| sh',
      '& id',
      ' &',
      '\nid',
      '\r\nid',
      ' \nid',
      '\tid',
      '\u2028id',
      '\0id',
      ' #',
      ' `id`',
      ' $(id)',
      ' ${IFS}x',
      ' $IFS',
      ' <(id)',
      ' >(id)',
      ' > /tmp/x',
      ' >>x',
      ' 2>&1',
      ' < /etc/passwd',
      ' <<< x',
      ' {a,b}',
      ' *',
      ' ?',
      ' [a]',
      ' ~',
      ' ~root',
      " 'x'",
      ' "x"',
      ' \\',
      ' \\\nid',
      ' !!',
      ' !$',
      ' ^a^b',
      ' (id)',
      ' =id',
      ' a=b',
      ' %1',
      ' @x',
      ' \u00a0id',
      '\u00a0',
      ' \u037e id',
      ' ｜ id',
      ' é',
    ];
    for (const tail of tails) expect(approved(`${entry} swarm list${tail}`), JSON.stringify(tail)).toBe(false);
    for (const line of [
      ` ${entry} swarm list`,
      `${entry}  swarm list`,
      `${entry} swarm list `,
      `\n${entry} swarm list`,
      `(${entry} swarm list)`,
      `"${entry}" swarm list`,
    ])
      expect(approved(line), line).toBe(false);
    // The control: without the tail it is.
    expect(approved(`${entry} swarm list`)).toBe(true);
  });

  it('is not with another verb, option, or argument', () => {
    const calls = [
      '',
      'swarm',
      'swarm-evil',
      'swarm evil',
      'swarm list x',
      'swarm statusx',
      'swarm status --follow',
      'swarm status login extra',
      'swarm run',
      'swarm run --yes',
      'swarm resume',
      'swarm retry login',
      'swarm merge',
      'swarm discard --yes',
      'swarm add x',
      'swarm attach login',
      'swarm review login --accept-risk all',
      'swarm review --accept-risk all',
      'swarm review login --comment x',
      'swarm review login --yes',
      'swarm logs',
      'swarm logs ../x',
      'swarm logs -x',
      'swarm logs --swarm',
      'swarm logs /etc/passwd',
      'swarm orchestrate 1f0c2d3e',
      'sandbox',
      'sandbox create --mount /:/host',
      'sandbox create --network bridge',
      'sandbox create x',
      'sandbox kill',
      'sandbox kill a b',
      'sandbox kill --all',
      'sandbox cleanup --force',
      'sandbox cleanup --all-sessions',
      'sandbox exec id',
      'sandbox list -a',
      'sandbox apply x',
      'sandbox build-image --install x',
      'sandbox build-image --force',
      'sandbox build-image --base x',
      'sandbox build-image --workspace',
      'run id',
      'trust --yes',
      'config set x y --yes',
      'egress allow x --yes',
      'login x',
      'hook auto-approve',
      'uninstall --purge',
      'doctor --attack',
      'doctor --agent claude',
      'swarm list --json --json',
      '--json swarm list',
      'swarm --json list',
      'swarm list --config x',
      'swarm list --workspace sub',
      'swarm list --socket x',
      'SWARM list',
      'swarm LIST',
      '-- swarm list',
      'swarm -- list',
    ];
    for (const call of calls) expect(approved(`${entry} ${call}`.trimEnd()), call).toBe(false);
  });

  it('is not for a directory outside of the workspace, by whatever path', () => {
    const paths = [
      ...ODD,
      '..',
      '../other',
      'sub/..',
      'sub/../../other',
      '/',
      '/etc',
      join(top, 'other'),
      'up/other',
      'up',
      'absent',
      '-x',
      '--force',
      'acode',
      join(root, '..', 'other'),
    ];
    for (const path of paths) expect(approved(`${entry} sandbox build-image --workspace ${path}`), path).toBe(false);
    expect(approved(`${entry} sandbox build-image --workspace .`)).toBe(true);
  });

  it('is not where it comes in another form, or from another tool', () => {
    const line = `${entry} swarm list`;
    for (const given of [
      { tool_name: 'bash' },
      { tool_name: 'Write' },
      { tool_name: 'mcp__x__Bash' },
      { hook_event_name: 'PostToolUse' },
      { hook_event_name: undefined },
      { cwd: 'sub' },
      { cwd: undefined },
      { permission_mode: 'plan' },
      { tool_input: { command: line, dangerouslyDisableSandbox: true } },
      { tool_input: { command: [line] } },
      { tool_input: { command: line, timeout: '1' } },
      { tool_input: line },
      { tool_input: {} },
    ])
      expect(approved(line, given), JSON.stringify(given)).toBe(false);
    for (const other of [null, undefined, [], 'x', 1, {}]) expect(approvalOf(other, about()).words).toBeNull();
    expect(approved(`${line} ${'x'.repeat(2000)}`)).toBe(false);
  });

  it('is not where variables change what it does', () => {
    const line = `${entry} swarm list`;
    for (const name of [
      'NODE_OPTIONS',
      'LD_PRELOAD',
      'DYLD_INSERT_LIBRARIES',
      'BASH_ENV',
      'ENV',
      'PROMPT_COMMAND',
      'BASH_FUNC_/usr/bin/acode%%',
      'CLAUDE_CODE_SHELL_PREFIX',
      'CLAUDE_ENV_FILE',
    ])
      expect(approved(line, {}, about({ env: { [name]: 'x' } })), name).toBe(false);
    expect(approved(line, {}, about({ env: { PATH: '/bin', GIT_EDITOR: 'true', NODE_OPTIONS: undefined } }))).toBe(
      true,
    );
  });

  it('is not where acode can be replaced: in the workspace, or by another user', () => {
    const own = join(root, 'node_modules/acode/bin/acode.js');
    expect(approved(`${own} swarm list`, {}, about({ entry: own, calledAs: own }))).toBe(false);
    // The control: the same installation, for another workspace.
    expect(approved(`${own} swarm list`, { cwd: join(top, 'other') }, about({ entry: own, calledAs: own }))).toBe(true);
    chmodSync(join(top, 'lib'), 0o777);
    expect(approved(`${entry} swarm list`)).toBe(false);
    chmodSync(join(top, 'lib'), 0o755);
    expect(approved(`${entry} swarm list`)).toBe(true);
  });

  it('is not where it cannot be recorded', async () => {
    const ask = async (state: string): Promise<readonly [status: number, stdout: string]> => {
      vi.stubEnv('XDG_STATE_HOME', state);
      const event = {
        hook_event_name: 'PreToolUse',
        tool_name: 'Bash',
        cwd: root,
        tool_input: { command: `${entry} swarm list` },
      };
      const stdout = new Recorder();
      const io = testIo({ stdin: Readable.from([Buffer.from(JSON.stringify(event))]), stdout });
      const status = await runCli(['hook', 'auto-approve'], io, { entry });
      vi.unstubAllEnvs();
      return [status, stdout.text];
    };
    expect(await ask(entry)).toEqual([125, '']);
    // The control: where the audit log can be written.
    expect(await ask(join(top, 'state'))).toEqual([0, expect.stringContaining('"permissionDecision":"allow"')]);
  });
});
