// Build and test commands by language: one table from the files of a project to the commands that build and test it.

import type { Job, ToolName } from './names.ts';

/** A tool, the files that show that a project uses it, and its commands. */
export interface Tool {
  readonly name: ToolName;
  /** File names, with `*` for any beginning. One of them in a directory is enough. */
  readonly markers: readonly string[];
  /** Lockfiles: of several tools with the same markers, the one whose lockfile is there is meant. */
  readonly lockfiles: readonly string[];
  readonly build: readonly string[];
  readonly test: readonly string[];
  /** Set if both commands are scripts of `package.json`, by these names. */
  readonly scripts?: true;
  /** Directories of a virtual environment whose programs come before those of the image. */
  readonly environments?: readonly string[];
  /** Set if it counts only where no other tool does. */
  readonly last?: true;
}

const PACKAGE = ['package.json'];

/** The table. A Makefile often stands beside another tool and calls it, so it counts last. */
export const TOOLS: readonly Tool[] = [
  {
    name: 'npm',
    markers: PACKAGE,
    lockfiles: ['package-lock.json', 'npm-shrinkwrap.json'],
    build: ['npm', 'run', 'build'],
    test: ['npm', 'test'],
    scripts: true,
  },
  {
    name: 'pnpm',
    markers: PACKAGE,
    lockfiles: ['pnpm-lock.yaml'],
    build: ['pnpm', 'run', 'build'],
    test: ['pnpm', 'test'],
    scripts: true,
  },
  {
    name: 'yarn',
    markers: PACKAGE,
    lockfiles: ['yarn.lock'],
    build: ['yarn', 'run', 'build'],
    test: ['yarn', 'test'],
    scripts: true,
  },
  {
    name: 'pytest',
    markers: ['pyproject.toml', 'pytest.ini', 'setup.py', 'setup.cfg', 'tox.ini', 'requirements.txt'],
    lockfiles: [],
    build: ['python3', '-m', 'build'],
    test: ['python3', '-m', 'pytest'],
    environments: ['.venv', 'venv'],
  },
  { name: 'cargo', markers: ['Cargo.toml'], lockfiles: [], build: ['cargo', 'build'], test: ['cargo', 'test'] },
  {
    name: 'go',
    markers: ['go.mod', 'go.work'],
    lockfiles: [],
    build: ['go', 'build', './...'],
    test: ['go', 'test', './...'],
  },
  {
    name: 'dotnet',
    markers: ['*.sln', '*.slnx', '*.csproj', '*.fsproj', '*.vbproj'],
    lockfiles: [],
    build: ['dotnet', 'build'],
    test: ['dotnet', 'test'],
  },
  {
    name: 'make',
    markers: ['GNUmakefile', 'makefile', 'Makefile'],
    lockfiles: [],
    build: ['make'],
    test: ['make', 'test'],
    last: true,
  },
];

/** The tool of a name. */
export function toolNamed(name: ToolName): Tool {
  const found = TOOLS.find(tool => tool.name === name);
  if (!found) throw new TypeError(`every name is in the table: ${name}`);
  return found;
}

/** The marker among the names of files; null if there is none. */
export function markerIn({ markers }: Tool, files: readonly string[]): string | null {
  for (const marker of markers) {
    const ending = marker.startsWith('*') ? marker.slice(1) : null;
    const found = files.find(name => (ending === null ? name === marker : name.toLowerCase().endsWith(ending)));
    if (found !== undefined) return found;
  }
  return null;
}

/** The arguments of a script of package.json: npm keeps what follows `--` for the script, the others need no such word. */
function passedOn({ name }: Tool, extra: readonly string[]): readonly string[] {
  return name === 'npm' && extra.length > 0 ? ['--', ...extra] : extra;
}

// `$0` is the program. An environment that does not exist, or was made for another system, changes nothing.
const ENVIRONMENT_LINE = (names: readonly string[]): string =>
  `PATH=${names.map(name => `$PWD/${name}/bin:`).join('')}$PATH; export PATH; exec "$0" "$@"`;

/** The command of a tool for a job, and how it is shown. */
export interface ProjectCommand {
  readonly argv: readonly string[];
  readonly shown: readonly string[];
}

/** The command that a tool runs for a job, with arguments of the user behind it. */
export function projectCommand(tool: Tool, job: Job, extra: readonly string[]): ProjectCommand {
  const shown = [...tool[job], ...passedOn(tool, extra)];
  if (!tool.environments) return { argv: shown, shown };
  return { argv: ['sh', '-c', ENVIRONMENT_LINE(tool.environments), ...shown], shown };
}
