// Builds the command and installs the packed package for the current user: `npm install -g` into ~/.local, without root.
// Usage: see below, or --help.

import { spawnSync } from 'node:child_process';
import { accessSync, constants, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, statSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { delimiter, dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const USAGE = `Usage: node scripts/install.mjs [--prefix <directory>] [--fleet] [--packed <tarball>]

Builds the command and installs it for you, without root.

  --prefix <directory>   where npm installs it: <directory>/bin/acode (default: ~/.local)
  --fleet                also install what \`acode fleet\` and \`acode worker\` need
  --packed <tarball>     install this package, and build nothing; repeatable
`;
const values = asked();
const prefix = resolve(values.prefix);
// The package of the fleet, and what it needs that no registry has yet.
const FLEET = ['sandbox', 'fleet'];
const QUIET = ['--no-audit', '--no-fund', '--loglevel', 'error'];

assertFit();
assertWritable(prefix);
const stage = mkdtempSync(join(tmpdir(), 'acode-install-'));
try {
  install(values.packed === undefined ? packed(stage) : values.packed.map(path => resolve(path)));
} finally {
  rmSync(stage, { recursive: true, force: true });
}
sayNext();

function asked() {
  try {
    const { values: given } = parseArgs({
      options: {
        prefix: { type: 'string', default: join(homedir(), '.local') },
        fleet: { type: 'boolean', default: false },
        packed: { type: 'string', multiple: true },
        help: { type: 'boolean', short: 'h', default: false },
      },
    });
    if (given.help) {
      process.stdout.write(USAGE);
      process.exit(0);
    }
    return given;
  } catch (error) {
    return fail(`${error instanceof Error ? error.message : String(error)}\n\n${USAGE}`);
  }
}

// Before the build, which takes a minute.
/** @param {string} directory */
function assertWritable(directory) {
  for (const path of [join(directory, 'bin'), join(directory, 'lib', 'node_modules')]) {
    try {
      mkdirSync(path, { recursive: true });
      accessSync(path, constants.W_OK);
    } catch {
      fail(
        `You may not write to ${path}. Name a directory of your own: --prefix <directory>. Without it, acode goes to ~/.local.`,
      );
    }
  }
}

function assertFit() {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
  if (major < 20 || (major === 20 && minor < 19))
    fail(`Node.js ${process.versions.node} is too old: acode needs 20.19 or newer (https://nodejs.org).`);
  if (process.getuid?.() === 0)
    fail('acode does not run as root. Install it as the user who will use it: that needs no root.');
}

/** @param {string} directory */
function packed(directory) {
  if (!isFetched()) {
    const from = performance.now();
    process.stdout.write('fetch the packages of the build … ');
    // No package needs its install script for the build.
    run('npm', ['ci', '--ignore-scripts', ...QUIET], root);
    process.stdout.write(`${((performance.now() - from) / 1000).toFixed(1)} s\n`);
  }
  run(process.execPath, ['scripts/build.mjs'], root, 'inherit');
  for (const name of values.fleet ? ['cli', ...FLEET] : ['cli'])
    run('npm', ['pack', '--silent', '--pack-destination', directory], join(root, 'packages', name));
  return readdirSync(directory).map(name => join(directory, name));
}

// npm writes its own copy of the lockfile last.
function isFetched() {
  const [wanted, have] = ['package-lock.json', 'node_modules/.package-lock.json'].map(name =>
    statSync(join(root, name), { throwIfNoEntry: false }),
  );
  return wanted !== undefined && have !== undefined && have.mtimeMs >= wanted.mtimeMs;
}

/** @param {readonly string[]} tarballs */
function install(tarballs) {
  run('npm', ['install', '--global', '--prefix', prefix, ...QUIET, ...tarballs], root);
}

function sayNext() {
  const bin = join(prefix, 'bin');
  const { version } = JSON.parse(readFileSync(join(prefix, 'lib', 'node_modules', 'acode', 'package.json'), 'utf8'));
  const isFound = (process.env['PATH'] ?? '').split(delimiter).some(entry => resolve(entry) === bin);
  const path = `\nIt is not in your PATH yet. Add this line to ~/.profile or ~/.bashrc, and start a new shell:\n  export PATH="${bin}:$PATH"\n`;
  process.stdout.write(`Installed acode ${version}: ${join(bin, 'acode')}
${isFound ? '' : path}
Next, in a project of yours:
  acode init                  # what this machine can do and what to fix, a first configuration, what to try
  acode completion install    # completes commands and options in your shell
`);
}

/**
 * @param {string} program
 * @param {readonly string[]} argv
 * @param {string} cwd
 * @param {'pipe' | 'inherit'} output
 */
function run(program, argv, cwd, output = 'pipe') {
  const { status, stdout, stderr, error } = spawnSync(program, argv, {
    cwd,
    encoding: 'utf8',
    stdio: ['ignore', output, output],
  });
  if (status !== 0) fail(`${program} ${argv[0]} failed.\n${stdout ?? ''}${stderr ?? ''}${error ? error.message : ''}`);
}

/** @param {string} why */
function fail(why) {
  process.stderr.write(`${why}\n`);
  process.exit(1);
}
