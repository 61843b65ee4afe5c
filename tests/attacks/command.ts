// The built command in surroundings of an attack’s own: a scratch that plays home, configuration and project.

import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { quoted } from '../../packages/cli/src/arguments/command-arguments.ts';
import { trusting } from './arena.ts';
import type { Scratch } from './scratch.ts';
import type { Target } from './targets.ts';

const BIN = fileURLToPath(new URL('../../packages/cli/bin/acode.js', import.meta.url));
const DEADLINE_MS = 90_000;

/** How a call ended. */
export interface CommandResult {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

// The user’s own configuration file. JSON is YAML.
function configure(scratch: Scratch): void {
  scratch.file('config/acode/config.yml', JSON.stringify(trusting(), null, 2), 0o600);
}

/** Calls the command in the scratch’s `project`. */
export function runCommand(
  target: Target,
  scratch: Scratch,
  words: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<CommandResult> {
  return call([process.execPath, BIN, ...words], target, scratch, env);
}

/** Calls the command with a terminal of its own, and gives what a person would see there. */
export async function commandAtTerminal(target: Target, scratch: Scratch, words: readonly string[]): Promise<string> {
  const line = ['exec', process.execPath, BIN, ...words].map(quoted).join(' ');
  const { stdout } = await call(['/usr/bin/script', '-q', '-e', '-f', '-c', line, '/dev/null'], target, scratch, {
    SHELL: '/bin/sh',
    TERM: 'xterm',
  });
  return stdout.replaceAll('\r\n', '\n');
}

function call(
  [program = '', ...words]: readonly string[],
  { engine }: Target,
  scratch: Scratch,
  env: Readonly<Record<string, string>>,
): Promise<CommandResult> {
  if (!existsSync(BIN)) throw new Error('packages/cli/bin/acode.js is missing: run `npm run build` first');
  if (!existsSync(scratch.path('config'))) configure(scratch);
  scratch.directory('home');
  return new Promise((resolve, reject) => {
    const child = spawn(program, words, {
      cwd: scratch.directory('project'),
      env: { ...surroundings(scratch, engine.socket), ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: DEADLINE_MS,
    });
    let stdout = '';
    let stderr = '';
    child.stdout.on('data', chunk => (stdout += String(chunk)));
    child.stderr.on('data', chunk => (stderr += String(chunk)));
    child.once('error', reject);
    child.once('close', status => resolve({ status, stdout, stderr }));
  });
}

function surroundings(scratch: Scratch, socket: string): Record<string, string> {
  return {
    // No background process beside the attack.
    CI: 'true',
    PATH: '/usr/bin:/bin',
    HOME: scratch.path('home'),
    XDG_CONFIG_HOME: scratch.path('config'),
    XDG_STATE_HOME: scratch.path('state'),
    XDG_RUNTIME_DIR: scratch.path('runtime'),
    DOCKER_HOST: `unix://${socket}`,
  };
}
