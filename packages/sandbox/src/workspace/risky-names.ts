// Risky names: files that programs on the host execute or obey merely because they are there. Pure.

import type { Stats } from 'node:fs';
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

/** What is said of the programs of a virtual environment. */
export const ENVIRONMENT: RiskyDirectory = {
  kind: 'shadowed-program',
  reason: 'its programs come first in the search path wherever the environment is active',
  whole: true,
};
const PACKAGES: Risk = { kind: 'package-scripts', reason: 'package managers execute or obey it' };
const BUILD: Risk = { kind: 'build-file', reason: 'build tools and test runners execute it' };
const EDITOR: Risk = { kind: 'editor-config', reason: 'editors execute or obey it' };

// Spelled as the tools look for them, so that they can be asked for where a directory cannot be listed.
const FILES: readonly (readonly [risk: Risk, names: string])[] = [
  [
    { kind: 'git-settings', reason: 'git takes filters, submodules or settings from it' },
    '.gitattributes .gitmodules .gitconfig',
  ],
  [
    { kind: 'git-settings', reason: 'git hooks execute the commands it names' },
    '.pre-commit-config.yaml .pre-commit-config.yml .pre-commit-hooks.yaml lefthook.yml lefthook.yaml lefthook.toml lefthook.json .lefthook.yml .lefthook.yaml .lefthook.toml .lefthook.json lefthook-local.yml lefthook-local.yaml lefthook-local.toml lefthook-local.json captainhook.json grumphp.yml .overcommit.yml .huskyrc .simple-git-hooks.json',
  ],
  [{ kind: 'git-settings', reason: 'Mercurial executes the hooks and extensions it names' }, 'hgrc .hgrc'],
  [
    PACKAGES,
    'package.json package.json5 package.yaml .npmrc .yarnrc .yarnrc.yml .pnpmfile.cjs .pnpmfile.mjs pnpmfile.js .pnp.cjs .pnp.js .pnp.loader.mjs pnpm-workspace.yaml bunfig.toml deno.json deno.jsonc composer.json .pypirc pip.conf Gemfile gems.rb Podfile Brewfile binding.gyp requirements.txt Pipfile go.mod',
  ],
  // Where the code comes from that is installed and executed: an address in it is enough.
  [
    { kind: 'package-scripts', reason: 'package managers fetch and execute the code it names' },
    'package-lock.json npm-shrinkwrap.json yarn.lock pnpm-lock.yaml bun.lock bun.lockb deno.lock Pipfile.lock poetry.lock uv.lock pdm.lock Gemfile.lock composer.lock Podfile.lock Package.resolved',
  ],
  [
    BUILD,
    'Makefile GNUmakefile justfile .justfile Rakefile rakefile.rb Taskfile.yml Taskfile.yaml CMakeLists.txt CMakePresets.json CMakeUserPresets.json meson.build SConstruct wscript build.gradle build.gradle.kts settings.gradle settings.gradle.kts init.gradle gradle.properties gradlew mvnw pom.xml build.xml build.sbt build.sc build.mill build.rs build.zig dune-project setup.py setup.cfg conftest.py pytest.ini noxfile.py tox.ini pyproject.toml sitecustomize.py usercustomize.py Snakefile Directory.Build.props Directory.Build.targets Directory.Packages.props nuget.config Gruntfile.js Gulpfile.js gulpfile.mjs gulpfile.ts karma.conf.js Dockerfile Containerfile docker-compose.yml docker-compose.yaml docker-compose.override.yml compose.yml compose.yaml compose.override.yml docker-bake.hcl Vagrantfile Tiltfile Earthfile Procfile Guardfile Fastfile .rspec flake.nix shell.nix default.nix devenv.nix Cargo.toml rust-toolchain rust-toolchain.toml go.work Package.swift mix.exs rebar.config project.clj deps.edn MODULE.bazel WORKSPACE.bazel BUILD.bazel .bazelrc gatsby-config.js gatsby-node.js turbo.json nx.json gradle-wrapper.jar gradle-wrapper.properties gradlew.bat mvnw.cmd maven-wrapper.jar maven-wrapper.properties .jvmopts .sbtopts WORKSPACE BUILD .pylintrc pylintrc mypy.ini .mypy.ini .flake8 .rubocop.yml ansible.cfg nodemon.json wrangler.toml wrangler.json wrangler.jsonc firebase.json netlify.toml vercel.json serverless.yml mkdocs.yml fabfile.py dodo.py .replit skaffold.yaml',
  ],
  [
    { kind: 'ci-file', reason: 'continuous integration executes it with its secrets' },
    '.gitlab-ci.yml .gitlab-ci.yaml Jenkinsfile azure-pipelines.yml azure-pipelines.yaml bitbucket-pipelines.yml .travis.yml .drone.yml .woodpecker.yml appveyor.yml .appveyor.yml cloudbuild.yaml buildspec.yml .cirrus.yml .woodpecker.yaml .build.yml bitrise.yml codemagic.yaml codefresh.yml',
  ],
  [
    EDITOR,
    '.exrc .vimrc .nvimrc .nvim.lua .dir-locals.el .ycm_extra_conf.py .lldbinit .gdbinit .devcontainer.json .luarc.json .clangd coc-settings.json',
  ],
  [
    { kind: 'agent-config', reason: 'coding agents obey it or start what it names' },
    '.mcp.json mcp.json AGENTS.md AGENT.md CLAUDE.md CLAUDE.local.md GEMINI.md QWEN.md copilot-instructions.md .cursorrules .windsurfrules .clinerules .roorules .roomodes .goosehints opencode.json opencode.jsonc crush.json .crush.json .aider.conf.yml agent-config.yml .rules WARP.md .augment-guidelines',
  ],
  [
    { kind: 'shell-startup', reason: 'shells execute it when they start or enter the directory' },
    '.envrc .bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv .zprofile .zlogin .zlogout .kshrc .cshrc .tcshrc .inputrc .pythonrc .pythonstartup .irbrc .pryrc .tool-versions mise.toml .mise.toml mise.local.toml .mise.local.toml devbox.json .Rprofile .ghci .ocamlinit .iex.exs .pdbrc .perldb .psqlrc .sqliterc',
  ],
];

// Configuration that is a program, or names programs and plugins: `<tool>.config.<extension>` and `.<tool>rc`.
const CONFIGURED =
  'eslint vite vitest jest webpack rollup rolldown rspack rsbuild babel postcss tailwind next nuxt svelte astro playwright prettier stylelint commitlint cypress tsup tsdown vue metro drizzle lint-staged release uno knip remix react-router'.split(
    ' ',
  );
const CONFIG_EXTENSIONS = ['js', 'mjs', 'cjs', 'ts', 'mts', 'cts'];
const RC_FILES = 'eslint babel prettier stylelint postcss commitlint lintstaged mocha nyc release'
  .split(' ')
  .map(tool => `.${tool}rc`);
const RC_ENDINGS = ['', '.js', '.cjs', '.mjs', '.json', '.yml', '.yaml'];

const PATTERNS: readonly (readonly [risk: Risk, pattern: RegExp])[] = [
  [BUILD, new RegExp(`^(?:${CONFIGURED.join('|')})\\.(?:config|workspace)\\.[cm]?[jt]sx?$`)],
  [BUILD, new RegExp(`^(?:${RC_FILES.join('|').replaceAll('.', '\\.')})(?:\\.|$)`)],
  [BUILD, /^(?:docker-)?compose(?:[._-].*)?\.ya?ml$/],
  [BUILD, /^(?:docker|container)file\.|\.dockerfile$/],
  [BUILD, /\.(?:csproj|fsproj|vbproj|vcxproj|proj|sln|slnx|gemspec|cabal|sbt|bzl)$/],
  [PACKAGES, /^requirements[-_.].*\.txt$/],
  [EDITOR, /\.(?:code-workspace|sublime-project)$/],
];

const CI = within('ci-file', 'continuous integration executes it with its secrets');

const DIRECTORIES: ReadonlyMap<string, RiskyDirectory> = new Map(
  Object.entries({
    '.git': { ...GIT, whole: true },
    '.vscode': within('editor-config', 'editors execute its tasks and obey its settings'),
    '.idea': within('editor-config', 'editors execute its run configurations'),
    '.zed': within('editor-config', 'editors execute its tasks and obey its settings'),
    '.fleet': within('editor-config', 'editors execute its run configurations'),
    '.helix': within('editor-config', 'the editor starts the servers and formatters it names'),
    '.vim': within('editor-config', 'the editor executes it or starts what it names'),
    '.nvim': within('editor-config', 'the editor executes it or starts what it names'),
    '.bsp': within('editor-config', 'editors start the build servers it names'),
    '.run': within('editor-config', 'editors execute its run configurations'),
    '.devcontainer': within('editor-config', 'editors execute its commands on the host'),
    '.agent': within('agent-config', 'acode and agents obey it'),
    '.claude': within('agent-config', 'the agent executes its hooks and obeys its settings'),
    '.cursor': within('agent-config', 'the agent obeys its rules and starts its servers'),
    '.codex': within('agent-config', 'the agent obeys its settings and starts its servers'),
    '.gemini': within('agent-config', 'the agent obeys its settings and starts its servers'),
    '.windsurf': within('agent-config', 'the agent obeys its rules and starts its servers'),
    '.opencode': within('agent-config', 'the agent obeys its settings and starts its servers'),
    '.kiro': within('agent-config', 'the agent executes its hooks and starts its servers'),
    '.continue': within('agent-config', 'the agent obeys its rules and starts its servers'),
    '.roo': within('agent-config', 'the agent obeys its rules and starts its servers'),
    '.clinerules': within('agent-config', 'the agent obeys its rules and executes its hooks'),
    '.amazonq': within('agent-config', 'the agent obeys its rules and starts its servers'),
    '.junie': within('agent-config', 'the agent obeys its rules and starts its servers'),
    '.qwen': within('agent-config', 'the agent obeys its settings and starts its servers'),
    '.agents': within('agent-config', 'coding agents obey it or execute its skills'),
    '.openhands': within('agent-config', 'the agent executes its setup and hooks'),
    '.factory': within('agent-config', 'the agent obeys its settings and executes its hooks'),
    '.augment': within('agent-config', 'the agent obeys its rules'),
    '.trae': within('agent-config', 'the agent obeys its rules and starts its servers'),
    '.goose': within('agent-config', 'the agent obeys its rules and starts its servers'),
    '.crush': within('agent-config', 'the agent obeys its settings and starts its servers'),
    '.github/hooks': within('agent-config', 'coding agents execute its hooks'),
    '.github/skills': within('agent-config', 'coding agents obey it or execute its skills'),
    '.github/agents': within('agent-config', 'coding agents obey it or start what it names'),
    '.github/instructions': within('agent-config', 'coding agents obey it'),
    '.github/prompts': within('agent-config', 'coding agents obey it'),
    '.husky': within('git-settings', 'git executes its hooks'),
    '.githooks': within('git-settings', 'git may be set to execute its hooks'),
    '.git-hooks': within('git-settings', 'git may be set to execute its hooks'),
    '.hooks': within('git-settings', 'git may be set to execute its hooks'),
    githooks: within('git-settings', 'git may be set to execute its hooks'),
    'git-hooks': within('git-settings', 'git may be set to execute its hooks'),
    '.lefthook': within('git-settings', 'git hooks execute its scripts'),
    '.forgejo/workflows': CI,
    '.gitea/workflows': CI,
    '.woodpecker': CI,
    '.semaphore': CI,
    '.teamcity': CI,
    '.circleci': CI,
    '.buildkite': CI,
    '.github/workflows': CI,
    '.github/actions': CI,
    '.gitlab/ci': CI,
    '.cargo': within('build-file', 'cargo executes the programs its config names'),
    '.mvn': within('build-file', 'the build tool obeys it'),
    '.yarn/releases': within('package-scripts', 'the package manager is executed from it'),
    '.yarn/plugins': within('package-scripts', 'the package manager executes it'),
    '.venv/bin': ENVIRONMENT,
    'venv/bin': ENVIRONMENT,
    '.mise': within('shell-startup', 'shells that enter the directory obey it'),
    mise: within('shell-startup', 'shells that enter the directory obey it'),
    '.config/mise': within('shell-startup', 'shells that enter the directory obey it'),
  }),
);

// Programs that a person or a tool starts by name; a folder of the workspace may come first in the search path.
const PROGRAMS = new Set(
  'acode bash bun bunx cargo cat cc clang cmake code cp curl deno docker docker-compose dotnet env find gcc gh git go gpg gradle grep java kubectl ln login ls make mv mvn node nodejs npm npx open perl php pip pip3 pnpm podman python python3 rm rsync ruby rustc scp sed sh ssh ssh-add su sudo tar tsh vi vim wget which yarn zsh'.split(
    ' ',
  ),
);

const BY_NAME: ReadonlyMap<string, Risk> = new Map(
  FILES.flatMap(([risk, names]) => names.split(' ').map(name => [name.toLowerCase(), risk] as const)),
);

/**
 * Names of which at least two, HEAD among them, make git take a directory for a repository: objects and references may lie where
 * `commondir` says.
 */
const BARE_PARTS: ReadonlySet<string> = new Set(['HEAD', 'config', 'config.worktree', 'commondir', 'objects', 'refs']);

const BARE_LENGTHS: ReadonlySet<number> = new Set([...BARE_PARTS].map(name => name.length));
const BARE_SPELLING: ReadonlyMap<string, string> = new Map([...BARE_PARTS].map(name => [name.toLowerCase(), name]));

/** The part of a repository that a name may stand for, in the spelling that git asks for: some file systems answer to any. */
export function barePartOf(name: string): string | undefined {
  return BARE_LENGTHS.has(name.length) ? BARE_SPELLING.get(name.toLowerCase()) : undefined;
}

/** What is said of what the configuration of a repository names. */
export const NAMED_BY_GIT = {
  hooks: (key: string): RiskyDirectory => within('git-settings', `git executes its hooks: ${key} names it`),
  include: (key: string): Risk => ({ kind: 'git-settings', reason: `git takes settings from it: ${key} names it` }),
  attributes: (key: string): Risk => ({ kind: 'git-settings', reason: `git takes filters from it: ${key} names it` }),
  command: (key: string): Risk => ({ kind: 'git-settings', reason: `git executes it: ${key} names it` }),
} as const;

/** Directories in which only some parts are risky: what is put beside those must not keep them from being seen. */
export const WITH_KNOWN_PARTS: ReadonlySet<string> = new Set([
  '.hg',
  ...[...DIRECTORIES.keys()].filter(key => key.includes('/')).map(key => key.slice(0, key.indexOf('/'))),
]);

/** What is said of a link in place of a directory into which a package manager installs programs. */
export const PROGRAMS_OF_PACKAGES: RiskyDirectory = within(
  'shadowed-program',
  'scripts of the package manager start the programs it leads to',
);
/** What is said of a link in place of a directory into which Python packages are installed. */
export const PYTHON_PACKAGES: RiskyDirectory = within('build-file', 'Python executes what it leads to when it starts');
/** What is said of a link in place of a directory with a program that Bazel starts instead of itself. */
export const BAZEL: RiskyDirectory = within('build-file', 'Bazel executes the program it leads to');
const MERCURIAL: RiskyDirectory = within('git-settings', 'Mercurial executes the hooks and extensions its hgrc names');

/** What is said of a link with the name of a directory that holds risky parts, or that package managers install into. */
export function riskOfHolder(name: string): RiskyDirectory | null {
  const key = name.toLowerCase();
  if (key === 'node_modules') return PROGRAMS_OF_PACKAGES;
  if (key === '.hg') return MERCURIAL;
  const part = WITH_KNOWN_PARTS.has(key) ? [...DIRECTORIES].find(([path]) => path.startsWith(`${key}/`)) : undefined;
  return part ? { ...part[1], whole: false } : null;
}

/** Names to ask for where a directory cannot be listed, or is too full to be: those that can be foretold. */
export const FORETOLD: readonly string[] = [
  ...new Set([
    ...[...DIRECTORIES.keys()].flatMap(key => key.split('/')),
    ...FILES.flatMap(([, names]) => names.split(' ')).flatMap(name => [name, name.toLowerCase()]),
    ...WITH_KNOWN_PARTS,
    '.bin',
    'node_modules',
    'pyvenv.cfg',
    ...BARE_PARTS,
    ...CONFIGURED.flatMap(tool => CONFIG_EXTENSIONS.map(extension => `${tool}.config.${extension}`)),
    ...RC_FILES.flatMap(name => RC_ENDINGS.map(ending => `${name}${ending}`)),
  ]),
];

/** The risk of a file by its name. Letter case does not matter to file systems of some hosts, so it does not here. */
export function riskOfFile(name: string, parent = ''): Risk | null {
  const key = name.toLowerCase();
  if (key === '.git') return GIT;
  // The one name that means something only in one directory.
  if (key === 'bazel' && parent.toLowerCase() === 'tools') return BUILD;
  return BY_NAME.get(key) ?? PATTERNS.find(([, pattern]) => pattern.test(key))?.[0] ?? null;
}

/** The risk of everything in a directory by its name, or by that of the directory it is in as well. */
export function riskOfDirectory(name: string, parent: string): RiskyDirectory | null {
  const key = name.toLowerCase();
  return DIRECTORIES.get(key) ?? DIRECTORIES.get(`${parent.toLowerCase()}/${key}`) ?? null;
}

/** Whether a person or a tool starts a program of this name. */
export function isProgram(name: string): boolean {
  return PROGRAMS.has(name.toLowerCase());
}

/** The risk of a file among what a package manager installed: names mean nothing there but to git and to Python itself. */
export function riskOfInstalled(name: string, parent: string): Risk | null {
  if (name.toLowerCase() === '.git') return GIT;
  const starts = /^(?:site|dist)-packages$/.test(parent) && /\.pth$|^(?:site|user)customize\.py$/.test(name);
  return starts ? { kind: 'build-file', reason: 'Python executes it whenever it starts' } : null;
}

/** The risk of a program in a folder that package managers put first in the search path. */
export function riskOfProgram(name: string): Risk | null {
  if (!isProgram(name)) return null;
  return { kind: 'shadowed-program', reason: `scripts of the package manager would start it in place of ${name}` };
}

function within(kind: RiskyKind, reason: string): RiskyDirectory {
  return { kind, reason, whole: false };
}

/** What is said of a symbolic link that leads out of the workspace. */
export const LINK_OUT: Risk = {
  kind: 'symlink-out',
  reason: 'it leads out of the workspace: reading or writing it affects a file elsewhere',
};

/** What is said of a changed file that has a second name. */
export const HARD_LINK: Risk = {
  kind: 'hard-link',
  reason: 'it has another name that changed with it, which may be what programs on the host trust',
};

/** What is said of a file with the rights of its owner or group. */
export const PRIVILEGED: Risk = {
  kind: 'privileged-file',
  reason: 'a program that executes it gets the rights of its owner or group',
};

const SPECIAL = { fifo: 'a FIFO', socket: 'a socket', device: 'a device' } as const;

/** What is said of what is neither an ordinary file, a directory nor a link. */
export function specialFile(what: keyof typeof SPECIAL): Risk {
  return {
    kind: 'special-file',
    reason: `it is ${SPECIAL[what]}: programs that open it block, or talk to another process`,
  };
}

/** The risk of what is neither an ordinary file, a directory nor a link, and of a file with the rights of its owner. */
export function riskOfKind(stats: Stats): Risk | null {
  if (stats.isFile() && (stats.mode & 0o6000) !== 0) return PRIVILEGED;
  if (stats.isFile() || stats.isDirectory() || stats.isSymbolicLink()) return null;
  return specialFile(stats.isFIFO() ? 'fifo' : stats.isSocket() ? 'socket' : 'device');
}
