// The attacks that come home with a workspace, for every way out of a fork.

/** What a command does, and under which rule and path it is reported. */
export const ATTACKS: Readonly<Record<string, readonly [script: string, kind: string, path: string]>> = {
  'C1 git hook': ['echo x > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit', 'git-repository', '.git'],
  'C2 fsmonitor': ['echo "[core] fsmonitor = ./x" >> .git/config', 'git-repository', '.git'],
  'C3 parent renamed': ['mv .git .g && mkdir .git && cp -r .g/. .git', 'git-repository', '.git'],
  'C4 attributes': ['echo "* filter=x" > .git/info/attributes; echo ../x > .git/commondir', 'git-repository', '.git'],
  'C5 nested repository': ['mkdir -p sub/.git; echo "[core]" > sub/.git/config', 'git-repository', 'sub/.git'],
  'C6 bare repository': ['mkdir b; echo r > b/HEAD; echo c > b/config', 'git-repository', 'b'],
  'C8 attributes of git': ['echo "* filter=x" > .gitattributes', 'git-settings', '.gitattributes'],
  'C8 editor': ['mkdir .vscode; echo "{}" > .vscode/tasks.json', 'editor-config', '.vscode/tasks.json'],
  'C8 shell': ['echo "id" > .envrc', 'shell-startup', '.envrc'],
  'C8 make': ['echo "all:" > Makefile', 'build-file', 'Makefile'],
  'C8 scripts': ['echo "{}" > package.json', 'package-scripts', 'package.json'],
  'C8 agent': ['echo "{}" > .mcp.json', 'agent-config', '.mcp.json'],
  'C8 CI': ['mkdir -p .github/workflows; echo x > .github/workflows/ci.yml', 'ci-file', '.github/workflows/ci.yml'],
  'C9 program': [
    'mkdir -p node_modules/.bin; echo x > node_modules/.bin/git',
    'shadowed-program',
    'node_modules/.bin/git',
  ],
  'C10 node-options': ['echo node-options=x > .npmrc', 'package-scripts', '.npmrc'],
  'C11 link out': ['ln -s /etc/passwd x', 'symlink-out', 'x'],
  'C13 FIFO': ['mkfifo .env.pipe', 'special-file', '.env.pipe'],
  'G1 link for a directory': ['mkdir g; echo x > g/pre-push; ln -s g .githooks', 'git-settings', 'g/pre-push'],
};

/** C14, C15, C16 and names that draw on a terminal: nothing may hang or break on them. */
export const NUISANCE = [
  'd=deep; mkdir deep; (for i in $(seq 200); do mkdir d && cd d; done) ',
  'truncate -s 1100M hole',
  'touch "$(printf \'a\\n\\033]0;t\\007b\')"',
].join('; ');
