// Group C: what a command can leave in the workspace for tools on the host to run or follow.

import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { performance } from 'node:perf_hooks';
import type { RunResult } from '../../../contract/result.ts';
import { TerminalSanitiser } from '../../../run/output/terminal.ts';
import { exists } from '../../../workspace/locate.ts';
import type { Outcome, Trial } from '../trial.ts';

const REPOSITORY = {
  '.git/HEAD': 'ref: refs/heads/main\n',
  '.git/config': '[core]\n\thooksPath = named-hooks\n',
  'named-hooks/sample': '',
  '.git/hooks/sample': '',
  '.git/info/exclude': '',
};
const SETTINGS = ['commondir', 'config.worktree', 'info/attributes', 'modules'];

const TAKE_OVER = `
echo 'touch /tmp/pwned' > .git/hooks/pre-commit
echo 'touch /tmp/pwned' > named-hooks/pre-commit
echo 'fsmonitor = touch /tmp/pwned' >> .git/config
for f in ${SETTINGS.join(' ')}; do echo x > ".git/$f"; done
mv .git .moved && mkdir .git
echo x > ordinary
true`;

/** Taking over the repository’s own .git. */
export const repositoryTakeover: Trial = {
  about: 'the repository’s .git',
  needsShell: true,
  onHost: 'same',
  attacks: [
    { id: 'C1', title: 'git hooks' },
    { id: 'C2', title: 'fsmonitor in .git/config' },
    { id: 'C3', title: 'rename .git and make another' },
    { id: 'C4', title: 'commondir, config.worktree, attributes, modules' },
  ],
  async run(bench) {
    const [whole, open] = await Promise.all([bench.workspace(REPOSITORY), bench.workspace(REPOSITORY)]);
    const [result] = await Promise.all([
      bench.run(TAKE_OVER, { workspace: whole }),
      bench.run(TAKE_OVER, { workspace: open, without: 'protected-paths' }),
    ]);
    const [inside, without] = await Promise.all([taken(whole), taken(open)]);
    const said = reasons(result.stderr);
    const outcome = (name: keyof Planted): Outcome => ({
      stopped: !inside[name],
      observed: inside[name] ? 'changed on the host' : said,
      controlled: without[name] && inside.ordinary,
      control: without[name] ? 'changed without the protected paths' : 'not changed without the protected paths either',
    });
    const [own, named] = [outcome('hook'), outcome('namedHook')];
    return {
      C1: own.stopped && own.controlled ? named : own,
      C2: outcome('config'),
      C3: outcome('moved'),
      C4: outcome('settings'),
    };
  },
};

interface Planted {
  readonly hook: boolean;
  /** Where `core.hooksPath` says. */
  readonly namedHook: boolean;
  readonly config: boolean;
  readonly moved: boolean;
  readonly settings: boolean;
  readonly ordinary: boolean;
}

// Where .git was moved away, what was written before went with it.
async function taken(workspace: string): Promise<Planted> {
  const moved = await exists(join(workspace, '.moved'));
  const git = join(workspace, moved ? '.moved' : '.git');
  const settings = await Promise.all(SETTINGS.map(name => exists(join(git, name))));
  return {
    hook: await exists(join(git, 'hooks', 'pre-commit')),
    namedHook: await exists(join(workspace, 'named-hooks', 'pre-commit')),
    config: (await readFile(join(git, 'config'), 'utf8')).includes('fsmonitor'),
    moved,
    settings: settings.some(Boolean),
    ordinary: await exists(join(workspace, 'ordinary')),
  };
}

function reasons(stderr: string): string {
  const known: readonly (readonly [RegExp, string])[] = [
    [/read-only file system/i, 'EROFS'],
    [/busy/i, 'EBUSY'],
    [/permission denied|not permitted/i, 'EACCES'],
  ];
  const seen = known.filter(([pattern]) => pattern.test(stderr)).map(([, name]) => name);
  return seen.length > 0 ? seen.join(', ') : 'unchanged on the host';
}

const NAMES = ['.gitattributes', '.gitmodules', '.envrc', 'Makefile', '.mcp.json', 'AGENTS.md', '.bashrc'];

const LINKS = ['.claude', '.husky', '.github', '.venv', 'node_modules'];

const LEAVE_BEHIND = `
mkdir -p sub/.git && echo '[core]' > sub/.git/config && echo 'ref: x' > sub/.git/HEAD
mkdir -p bare/objects bare/refs && echo 'ref: x' > bare/HEAD && echo '[core]' > bare/config
mkdir -p split/common/objects split/common/refs && echo 'ref: x' > split/HEAD && echo common > split/commondir
mkdir -p .git && echo '[core]' > .git/config
for f in ${NAMES.join(' ')}; do echo x > "$f"; done
echo '{"scripts":{"postinstall":"id"}}' > package.json
mkdir -p .vscode .github/workflows && echo '{}' > .vscode/tasks.json && echo x > .github/workflows/ci.yml
mkdir -p linked behind/bin && for d in ${LINKS.join(' ')}; do ln -s ../behind "linked/$d"; done
echo x > behind/bin/python
ln -s /etc/passwd outside
echo x > tool && chmod 755 tool && echo 'tool made' && chmod 4755 tool
mkfifo .env
d=deep; i=0; while [ $i -lt 120 ]; do d="$d/dddddddddd"; i=$((i+1)); done; mkdir -p "$d" && echo deep
true`;

const SCAN_MS = 10_000;

/** Things that are reported after a run, since a sandbox must be able to write its workspace. */
export const leftBehind: Trial = {
  about: 'what is left in the workspace',
  needsShell: true,
  onHost: 'same',
  attacks: [
    { id: 'C5', title: 'nested repository' },
    { id: 'C6', title: 'bare repository in a folder' },
    { id: 'C7', title: 'new .git in a workspace without one' },
    { id: 'C8', title: 'settings of editors, agents, builds, CI' },
    { id: 'C11', title: 'symbolic link out of the workspace' },
    { id: 'C12', title: 'setuid file' },
    { id: 'C13', title: 'FIFO named .env' },
    { id: 'C14', title: 'directories 120 deep' },
  ],
  async run(bench) {
    const workspace = await bench.workspace({ 'src/main.txt': 'x' });
    const clean = await bench.run('echo x > src/new.txt', { workspace });
    const began = performance.now();
    const result = await bench.run(LEAVE_BEHIND, { workspace });
    const ms = Math.round(performance.now() - began);
    const quiet = clean.riskyChanges.length === 0;
    const report = (wanted: readonly string[]): Outcome => reported(result, wanted, quiet);
    const setuid = await hasSetuid(join(workspace, 'tool'));
    const fifo = await exists(join(workspace, '.env'));
    const refused = (observed: string): Outcome => ({
      stopped: true,
      observed,
      controlled: result.stdout.includes('tool made'),
      control: 'an ordinary program can be made beside it',
    });
    return {
      C5: report(['sub/.git']),
      C6: report(['bare', 'split']),
      C7: report(['.git']),
      C8: report([...NAMES, ...LINKS.map(name => `linked/${name}`), 'package.json', '.vscode', '.github/workflows']),
      C11: report(['outside']),
      C12: setuid ? report(['tool']) : refused('the bit was refused'),
      C13: fifo ? report(['.env']) : refused('the FIFO was refused'),
      C14: {
        stopped: ms < SCAN_MS,
        observed: `run, scan and removal took ${ms} ms`,
        controlled: result.stdout.includes('deep'),
        control: 'the directories were made',
      },
    };
  },
};

function reported({ riskyChanges }: RunResult, wanted: readonly string[], quiet: boolean): Outcome {
  const covers = (path: string): boolean =>
    riskyChanges.some(change => change.path === path || change.path.startsWith(`${path}/`));
  const missed = wanted.filter(path => !covers(path));
  return {
    stopped: missed.length === 0,
    observed: missed.length === 0 ? 'reported' : `not reported: ${missed.join(', ')}`,
    controlled: quiet,
    control: quiet ? 'a harmless run reports nothing' : 'a harmless run was reported too',
  };
}

const SHADOWS = ['docker', 'git', 'node', 'sh'];
// Whoever calls one without saying who they are is not the probe.
const SHADOW = '#!/bin/sh\necho ran >> "$(dirname "$0")/../../ran-${ACODE_PROBE:-elsewhere}"\n';

/** Programs of the workspace that the host might find by name. */
export const shadowedPrograms: Trial = {
  about: 'programs that shadow others',
  needsShell: true,
  onHost: 'same',
  attacks: [{ id: 'C9', title: 'node_modules/.bin/docker, git, node' }],
  async run(bench) {
    const files = Object.fromEntries(SHADOWS.map(name => [`node_modules/.bin/${name}`, SHADOW]));
    const workspace = await bench.workspace(files);
    await bench.run('ACODE_PROBE=inside PATH="$PWD/node_modules/.bin:$PATH" docker; true', { workspace });
    const [host, inside] = await Promise.all([
      exists(join(workspace, 'ran-elsewhere')),
      exists(join(workspace, 'ran-inside')),
    ]);
    return {
      C9: {
        stopped: !host,
        observed: host ? 'one of them ran on the host' : 'none ran on the host',
        controlled: inside,
        control: 'called by name inside, it runs',
      },
    };
  },
};

const OUTPUT = '\u001b]52;c;ZXZpbA==\u0007\u001b]0;title\u0007\u202eabc\rover';

/** Output that would drive a terminal. */
export const hostileOutput: Trial = {
  about: 'hostile output',
  needsShell: true,
  onHost: 'same',
  attacks: [{ id: 'C16', title: 'OSC 52, title, bidi, CR in output' }],
  async run(bench) {
    const command = `printf '\\033]52;c;ZXZpbA==\\007\\033]0;title\\007\\342\\200\\256abc\\rover'`;
    const result = await bench.run(command);
    const sanitiser = new TerminalSanitiser();
    const shown = sanitiser.push(Buffer.from(result.stdout)) + sanitiser.end();
    const drives = ['\u001b]', '\u202e', '\rover'].filter(part => shown.includes(part));
    return {
      C16: {
        stopped: drives.length === 0,
        observed: drives.length === 0 ? 'neutral on a terminal' : `${drives.length} of them reach the terminal`,
        controlled: result.stdout === OUTPUT,
        control: 'the program’s bytes come through the API as they are',
      },
    };
  },
};

async function hasSetuid(path: string): Promise<boolean> {
  try {
    return ((await stat(path)).mode & 0o4000) !== 0;
  } catch {
    return false;
  }
}
