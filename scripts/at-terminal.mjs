// A terminal for scripts that show what a person sees: the built command in a pseudo terminal of a given width, with a home
// of its own, on a real engine.

import { execFileSync, spawn } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const BIN = fileURLToPath(new URL('../packages/cli/bin/acode.js', import.meta.url));
const MAX_MS = 120_000;
// oxlint-disable-next-line no-control-regex
const SEQUENCES = /\u001b\[[0-9;?]*[A-Za-z]/g;

/** The commit of this tree. The long test suite names it: its copy of the tree has no history. */
export function commitHere() {
  const { ACODE_COMMIT } = process.env;
  if (ACODE_COMMIT) return ACODE_COMMIT;
  return execFileSync('git', ['-c', 'safe.directory=*', 'rev-parse', '--short', 'HEAD'], { encoding: 'utf8' }).trim();
}

/** A newcomer’s account: a home, a configuration, a project, and `acode` in the PATH. */
export class Home {
  /** @param {string} socket the socket of the engine */
  constructor(socket) {
    if (!existsSync(BIN)) throw new Error('packages/cli/bin/acode.js is missing: run `npm run build` first');
    this.top = realpathSync(mkdtempSync('/var/tmp/acode-person-'));
    this.socket = socket;
    /** Left out of what is shown; in a table it would spoil the columns. */
    this.imagePrefix = 'acode-test/';
    for (const name of ['bin', '.config/acode', 'project/.git']) mkdirSync(join(this.top, name), { recursive: true });
    writeFileSync(join(this.top, 'bin', 'acode'), `#!/bin/sh\nexec '${process.execPath}' '${BIN}' "$@"\n`);
    chmodSync(join(this.top, 'bin', 'acode'), 0o755);
  }

  /** Writes a file below the home. */
  write(path, text) {
    mkdirSync(join(this.top, path, '..'), { recursive: true });
    writeFileSync(join(this.top, path), text);
  }

  get env() {
    return {
      CI: 'true',
      HOME: this.top,
      USER: 'you',
      SHELL: '/bin/sh',
      TERM: 'xterm',
      LANG: 'C.UTF-8',
      NO_COLOR: '1',
      PATH: `${join(this.top, 'bin')}:${process.env['PATH'] ?? ''}`,
      XDG_RUNTIME_DIR: join(this.top, 'run'),
      DOCKER_HOST: `unix://${this.socket}`,
    };
  }

  /**
   * Types a line into a shell and returns what was printed, as a terminal of that width shows it.
   *
   * @param {string} line
   * @param {{ columns?: number, cwd?: string, env?: Record<string, string>, type?: readonly (readonly [seen: string, keys: string])[] }} given
   * @returns {Promise<{ status: number | null, text: string }>}
   */
  async type(line, { columns = 80, cwd = 'project', env = {}, type = [] } = {}) {
    mkdirSync(join(this.top, 'run'), { recursive: true, mode: 0o700 });
    const child = spawn(
      '/usr/bin/script',
      ['-q', '-e', '-f', '-c', `stty cols ${columns} rows 60; ${line}`, '/dev/null'],
      { cwd: join(this.top, cwd), env: { ...this.env, ...env }, stdio: ['pipe', 'pipe', 'inherit'] },
    );
    let text = '';
    const waiting = [...type];
    let from = 0;
    child.stdout.on('data', chunk => {
      text += chunk;
      const [next] = waiting;
      const at = next === undefined ? -1 : text.indexOf(next[0], from);
      if (next === undefined || at < 0) return;
      from = at + next[0].length;
      waiting.shift();
      // As a person does, not at once.
      setTimeout(() => child.stdin.write(next[1]), 300);
    });
    const late = setTimeout(() => child.kill('SIGKILL'), MAX_MS);
    const status = await new Promise(resolve => child.once('close', resolve));
    clearTimeout(late);
    return { status, text: this.#plain(onScreen(text), columns) };
  }

  // As on the reader’s own machine: no directory of this one’s.
  #plain(text, columns) {
    const shown = text
      .replaceAll(this.top, '/home/you')
      .replaceAll(this.socket, '/var/run/docker.sock')
      .replaceAll(this.imagePrefix || '\0', '');
    return shown
      .split('\n')
      .map(line => asTerminal(line, columns))
      .join('\n')
      .trimEnd();
  }

  /** Removes the account. */
  remove() {
    rmSync(this.top, { recursive: true, force: true });
  }
}

// What is left when lines have been erased and drawn again.
function onScreen(text) {
  return text
    .replaceAll('\r\n', '\n')
    .split('\n')
    .map(line => line.split('\r\u001b[2K').at(-1) ?? '')
    .join('\n')
    .replaceAll(SEQUENCES, '');
}

// A terminal breaks a line that is too long wherever it ends.
function asTerminal(line, columns) {
  const characters = [...line];
  const rows = [];
  for (let at = 0; at < characters.length; at += columns) rows.push(characters.slice(at, at + columns).join(''));
  return rows.join('\n');
}
