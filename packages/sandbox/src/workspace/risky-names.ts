// Names that programs on the host execute or obey merely because they are there. Pure.

import type { RiskyKind } from '../contract/result.ts';

/** Why something is risky. */
export interface Risk {
  readonly kind: RiskyKind;
  readonly reason: string;
}

/** A directory in which everything is risky. */
export interface RiskyDirectory extends Risk {
  /** Whether it is reported as one thing, however much of it changed. */
  readonly whole: boolean;
}

const GIT: Risk = { kind: 'git-repository', reason: 'git run there executes its hooks, filters and monitors' };

/** What is said of a directory that git would take for a repository. */
export const BARE_REPOSITORY: RiskyDirectory = {
  kind: 'git-repository',
  reason: 'git takes it for a bare repository and executes what its config names',
  whole: true,
};

const FILES: readonly (readonly [kind: RiskyKind, reason: string, names: string])[] = [
  ['git-settings', 'git takes filters, submodules or settings from it', '.gitattributes .gitmodules .gitconfig'],
  [
    'package-scripts',
    'package managers execute or obey it',
    'package.json .npmrc .yarnrc .yarnrc.yml .pnpmfile.cjs .pnpmfile.mjs .pnp.cjs .pnp.loader.mjs pnpm-workspace.yaml bunfig.toml composer.json .pypirc pip.conf gemfile',
  ],
  [
    'build-file',
    'build tools and test runners execute it',
    'makefile gnumakefile justfile .justfile rakefile taskfile.yml taskfile.yaml cmakelists.txt cmakepresets.json meson.build sconstruct wscript build.gradle build.gradle.kts settings.gradle settings.gradle.kts init.gradle gradlew mvnw pom.xml build.xml build.sbt build.rs build.zig dune-project setup.py setup.cfg conftest.py noxfile.py tox.ini pyproject.toml sitecustomize.py usercustomize.py directory.build.props directory.build.targets gruntfile.js gulpfile.js dockerfile docker-compose.yml docker-compose.yaml compose.yml compose.yaml vagrantfile tiltfile .pre-commit-config.yaml lefthook.yml .lefthook.yml .tool-versions mise.toml .mise.toml',
  ],
  [
    'ci-file',
    'continuous integration executes it with its secrets',
    '.gitlab-ci.yml .gitlab-ci.yaml jenkinsfile azure-pipelines.yml azure-pipelines.yaml bitbucket-pipelines.yml .travis.yml .drone.yml .woodpecker.yml appveyor.yml .appveyor.yml cloudbuild.yaml buildspec.yml .cirrus.yml',
  ],
  [
    'editor-config',
    'editors execute or obey it',
    '.exrc .vimrc .nvimrc .nvim.lua .dir-locals.el .ycm_extra_conf.py .lldbinit .gdbinit',
  ],
  [
    'agent-config',
    'coding agents obey it or start what it names',
    '.mcp.json mcp.json agents.md claude.md claude.local.md gemini.md copilot-instructions.md .cursorrules .windsurfrules .clinerules .roomodes .aider.conf.yml agent-config.yml',
  ],
  [
    'shell-startup',
    'shells execute it when they start or enter the directory',
    '.envrc .bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv .zprofile .zlogin .zlogout .kshrc .cshrc .tcshrc .inputrc .pythonrc .pythonstartup .irbrc',
  ],
];

const DIRECTORIES: ReadonlyMap<string, RiskyDirectory> = new Map(
  Object.entries({
    '.git': { ...GIT, whole: true },
    '.vscode': within('editor-config', 'editors execute its tasks and obey its settings'),
    '.idea': within('editor-config', 'editors execute its run configurations'),
    '.zed': within('editor-config', 'editors execute its tasks and obey its settings'),
    '.fleet': within('editor-config', 'editors execute its run configurations'),
    '.devcontainer': within('editor-config', 'editors execute its commands on the host'),
    '.agent': within('agent-config', 'acode and agents obey it'),
    '.claude': within('agent-config', 'the agent executes its hooks and obeys its settings'),
    '.cursor': within('agent-config', 'the agent obeys its rules and starts its servers'),
    '.codex': within('agent-config', 'the agent obeys its settings and starts its servers'),
    '.gemini': within('agent-config', 'the agent obeys its settings and starts its servers'),
    '.windsurf': within('agent-config', 'the agent obeys its rules and starts its servers'),
    '.husky': within('git-settings', 'git executes its hooks'),
    '.githooks': within('git-settings', 'git may be set to execute its hooks'),
    '.circleci': within('ci-file', 'continuous integration executes it with its secrets'),
    '.buildkite': within('ci-file', 'continuous integration executes it with its secrets'),
    '.github/workflows': within('ci-file', 'continuous integration executes it with its secrets'),
    '.github/actions': within('ci-file', 'continuous integration executes it with its secrets'),
    '.gitlab/ci': within('ci-file', 'continuous integration executes it with its secrets'),
    '.cargo': within('build-file', 'cargo executes the programs its config names'),
    '.mvn': within('build-file', 'the build tool obeys it'),
  }),
);

// Programs that a person or a tool starts by name; a folder of the workspace may come first in the search path.
const PROGRAMS = new Set(
  'acode bash bun bunx cargo cat cc clang cmake code cp curl deno docker docker-compose dotnet env find gcc gh git go gpg gradle grep java kubectl ln login ls make mv mvn node nodejs npm npx open perl php pip pip3 pnpm podman python python3 rm rsync ruby rustc scp sed sh ssh ssh-add su sudo tar tsh vi vim wget which yarn zsh'.split(
    ' ',
  ),
);

const BY_NAME: ReadonlyMap<string, Risk> = new Map(
  FILES.flatMap(([kind, reason, names]) => names.split(' ').map(name => [name, { kind, reason }] as const)),
);

/** The risk of a file by its name. Letter case does not matter to file systems of some hosts, so it does not here. */
export function riskOfFile(name: string): Risk | null {
  return name === '.git' ? GIT : (BY_NAME.get(name.toLowerCase()) ?? null);
}

/** The risk of everything in a directory by its name, or by that of the directory it is in as well. */
export function riskOfDirectory(name: string, parent: string): RiskyDirectory | null {
  const key = name.toLowerCase();
  return DIRECTORIES.get(key) ?? DIRECTORIES.get(`${parent.toLowerCase()}/${key}`) ?? null;
}

/** The risk of a program in a folder that package managers put first in the search path. */
export function riskOfProgram(name: string): Risk | null {
  if (!PROGRAMS.has(name.toLowerCase())) return null;
  return { kind: 'shadowed-program', reason: `scripts of the package manager would start it in place of ${name}` };
}

function within(kind: RiskyKind, reason: string): RiskyDirectory {
  return { kind, reason, whole: false };
}
