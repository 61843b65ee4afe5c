// Examples of the help texts: data, so that tests run every one of them.

import { hanging } from './terminal/wrap.ts';

/** One example: what to type, and what it is for. */
export interface Example {
  readonly type: string;
  readonly for: string;
  /** Set where it needs a persistent sandbox `a1b2c3d4`: a test creates it first and ends it. */
  readonly stays?: true;
  /** Set where it needs a project and an image with its tools: tests/cli/project.test.ts has both. */
  readonly project?: true;
  /** Set where it writes into the user’s home directory. */
  readonly home?: true;
  /** Set where it needs a person at a terminal. */
  readonly terminal?: true;
  /** Set where it needs a fork with changes: tests/forks/apply.test.ts has one. */
  readonly fork?: true;
  /** Set where it needs a login, a package from a registry, or a fleet. */
  readonly outside?: true;
}

/** The examples of each command that has some, by what the user calls. */
export const EXAMPLES: Readonly<Record<string, readonly Example[]>> = {
  acode: [
    { type: 'acode agent claude', for: 'the whole agent, on a fork', terminal: true },
    { type: 'acode run "ls | wc -l"', for: 'a line for the shell' },
    { type: 'acode run --memory 256 --timeout 30 -- sh ./build.sh', for: 'a program, with limits' },
    { type: 'acode run --network allow=npm:install -- npm ci', for: 'with the hosts that it needs', project: true },
    { type: 'acode --json sandbox list', for: 'any command can print JSON' },
  ],
  'acode sandbox exec': [
    { type: 'acode sandbox exec "ls | wc -l"', for: 'a line for the shell of the image' },
    { type: 'acode sandbox exec -- echo hi', for: 'a program and its arguments, no shell' },
    { type: 'acode sandbox exec --timeout 30 -- sh ./build.sh', for: 'options before the command' },
    { type: 'acode sandbox exec --readonly --env CI=1 -- env', for: 'read-only workspace, one variable' },
    { type: 'acode sandbox exec --json -- echo hi', for: 'the result as one JSON object' },
    { type: 'acode sandbox exec --in a1b2c3d4 -- ls', for: 'in a persistent sandbox', stays: true },
  ],
  'acode sandbox create': [
    { type: 'acode sandbox create', for: 'for an hour; prints its id', stays: true },
    { type: 'acode sandbox create --for 8h --memory 1g', for: 'with its own expiry and memory limit', stays: true },
    { type: 'acode sandbox create --json', for: 'id and expiry as JSON', stays: true },
  ],
  'acode sandbox shell': [
    { type: 'acode sandbox shell a1b2c3d4', for: 'in a persistent sandbox', stays: true, terminal: true },
    { type: 'acode sandbox shell --image busybox', for: 'in a fresh sandbox, removed at the end', terminal: true },
    {
      type: 'acode sandbox shell a1b2c3d4 -- vi notes',
      for: 'a program in place of the shell',
      stays: true,
      terminal: true,
    },
  ],
  'acode sandbox cp': [
    { type: 'acode sandbox cp ./build.sh a1b2c3d4:/tmp/', for: 'copy in, into a directory', stays: true },
    { type: 'acode sandbox cp a1b2c3d4:/tmp/build.sh ./copy', for: 'copy out, under another name', stays: true },
  ],
  'acode sandbox forward': [
    {
      type: 'acode sandbox forward a1b2c3d4 3000',
      for: 'any free port here; Ctrl-C ends it',
      stays: true,
      terminal: true,
    },
    { type: 'acode sandbox forward a1b2c3d4 8080:3000', for: 'port 8080 here', stays: true, terminal: true },
  ],
  'acode sandbox keep': [{ type: 'acode sandbox keep a1b2c3d4 --for 2h', for: 'two hours from now', stays: true }],
  'acode sandbox kill': [{ type: 'acode sandbox kill a1b2c3d4', for: 'with everything that runs in it', stays: true }],
  'acode run': [
    { type: 'acode run "ls | wc -l"', for: 'a line for the shell of the image' },
    { type: 'acode run --risk high -- sh ./build.sh', for: 'a program you do not trust' },
    { type: 'acode run --tmp 256 --open-files 4096 "ls /tmp"', for: 'limits, one by one' },
    { type: 'acode run --learn -- npm test', for: 'asks which hosts it needs', project: true, terminal: true },
  ],
  'acode fleet': [
    {
      type: 'acode fleet up --image node:20-alpine',
      for: 'a fleet of this machine alone, until Ctrl-C',
      outside: true,
    },
    { type: 'acode fleet run -- npm test', for: 'as if it ran here', outside: true },
    { type: 'acode fleet submit --id build-7 "npm ci && npm test"', for: 'and go on', outside: true },
    { type: 'acode fleet logs build-7', for: 'from its first byte on', outside: true },
  ],
  'acode fleet up': [
    { type: 'acode fleet up --image node:20-alpine --slots 2', for: 'a server that this machine has', outside: true },
    {
      type: 'acode fleet up --image busybox --postgres postgres://acode@10.0.0.1/fleet',
      for: 'on a database',
      outside: true,
    },
  ],
  'acode fleet serve': [
    { type: 'acode fleet serve --e2b --image node:20-alpine', for: 'for programs of this machine', outside: true },
    {
      type: 'acode fleet serve --e2b --image node:20-alpine --image python=python:3.12-alpine --keys keys.yml',
      for: 'two templates, several keys',
      outside: true,
    },
  ],
  'acode fleet join': [{ type: 'acode fleet join join.yml', for: 'with the file of the first host', outside: true }],
  'acode fleet run': [
    { type: 'acode fleet run -- npm test', for: 'with this workspace', outside: true },
    { type: 'acode fleet run --id build-7 --files after.tar -- make', for: 'and what it left', outside: true },
  ],
  'acode fleet submit': [
    {
      type: 'acode fleet submit --priority low --attempts 1 -- ./nightly.sh',
      for: 'begun at most once',
      outside: true,
    },
  ],
  'acode fleet logs': [{ type: 'acode fleet logs build-7', for: 'until it has ended', outside: true }],
  'acode fleet cancel': [{ type: 'acode fleet cancel build-7', for: 'queued or running', outside: true }],
  'acode fleet create': [
    { type: 'acode fleet create --for 2h', for: 'with this workspace; prints its id', outside: true },
    { type: 'acode fleet create --id web-1 --empty', for: 'with an id of your own', outside: true },
  ],
  'acode fleet exec': [
    { type: 'acode fleet exec web-1 -- npm test', for: 'what it leaves, the next one finds', outside: true },
    { type: 'acode fleet exec web-1 "ls | wc -l"', for: 'a line for its shell', outside: true },
  ],
  'acode fleet list': [{ type: 'acode fleet list --json', for: 'for a program', outside: true }],
  'acode fleet kill': [{ type: 'acode fleet kill web-1', for: 'with everything that runs in it', outside: true }],
  'acode fleet status': [{ type: 'acode fleet status --json build-7', for: 'for a program', outside: true }],
  'acode fleet hosts': [{ type: 'acode fleet hosts', for: 'with the key of each', outside: true }],
  'acode fleet drain': [{ type: 'acode fleet drain builder-3 --wait', for: 'before maintenance', outside: true }],
  'acode fleet doctor': [{ type: 'acode fleet doctor', for: 'what is wrong, and what to do', outside: true }],
  'acode agent': [
    { type: 'acode agent claude', for: 'on a fork; at the end you apply, keep or discard', terminal: true },
    { type: 'acode agent codex -p "Fix the failing test"', for: 'one task, without a screen', outside: true },
    { type: 'acode agent claude --resume', for: 'go on with the last session', terminal: true },
    { type: 'acode agent list', for: 'the agents that acode knows' },
  ],
  'acode swarm': [
    { type: 'acode swarm run --dry-run', for: 'plan, sizes and policies of the task files', outside: true },
    { type: 'acode swarm run', for: 'run them; each becomes a branch', outside: true },
    { type: 'acode swarm review', for: 'what each task changed', outside: true },
  ],
  'acode hook': [
    { type: 'acode hook status', for: 'which agents run their commands in sandboxes' },
    { type: 'acode hook install claude', for: 'from now on, those of Claude Code', home: true },
  ],
  'acode build': [
    { type: 'acode build', for: 'npm run build, cargo build, go build ./…, make', project: true },
    { type: 'acode build --with make -- -j2', for: 'choose the tool; arguments for it after --', project: true },
  ],
  'acode test': [
    { type: 'acode test', for: 'npm test, pytest, cargo test, go test ./…', project: true },
    { type: 'acode test --parallel', for: 'one sandbox for each package of a monorepo', project: true },
  ],
  'acode fork': [
    { type: 'acode run --fork "touch new.txt"', for: 'a command that writes a fork, not your files', fork: true },
    { type: 'acode fork diff', for: 'what it changed', fork: true },
    { type: 'acode fork apply', for: 'apply it to your files; asks first', terminal: true },
    { type: 'acode fork discard', for: 'or remove it', fork: true },
  ],
  'acode fork list': [{ type: 'acode fork list', for: 'what commands wrote in place of the workspace' }],
  'acode login': [
    { type: 'acode login corp', for: 'a server of your configuration', terminal: true },
    { type: 'acode login', for: 'the logins that there are' },
  ],
  'acode logout': [{ type: 'acode logout corp', for: 'at its server, and here', outside: true }],
  'acode masks': [{ type: 'acode masks list', for: 'files that commands see empty, and why' }],
  'acode fork apply': [
    { type: 'acode fork apply', for: 'all changes; asks first', terminal: true },
    { type: 'acode fork apply --check', for: 'what would be applied, and what conflicts', fork: true },
    { type: 'acode fork apply --yes --only src', for: 'from a script, only what is below src', fork: true },
    { type: 'acode fork apply --branch fix/parser', for: 'as a branch of the repository', terminal: true },
    { type: 'acode fork apply --yes --accept-risk package-scripts', for: 'risky changes, by rule', fork: true },
  ],
  'acode mcp': [
    { type: 'acode mcp --print-config claude-code', for: 'what to put into which file' },
    { type: 'acode mcp --print-config codex', for: 'for another client' },
    {
      type: 'acode mcp wrap --network allow=npm:install -- npx -y some-server',
      for: 'another server, in a sandbox',
      outside: true,
    },
  ],
  'acode egress': [
    { type: 'acode egress presets', for: 'what a list may name, and what each does not prevent' },
    { type: 'acode egress test https://pypi.org/simple/ --network allow=pypi', for: 'by which rule; sends nothing' },
    { type: 'acode egress log', for: 'what commands connected to, and were refused' },
    { type: 'acode egress pending', for: 'refused hosts that you can allow' },
    { type: 'acode egress allow 3fa9c1d2', for: 'one of them, once; asks first', terminal: true },
  ],
  'acode egress allow': [
    { type: 'acode egress allow 3fa9c1d2', for: 'for the command that asked, or the next one', terminal: true },
    { type: 'acode egress allow 3fa9c1d2 --task', for: 'for its task or workspace, for eight hours', terminal: true },
    { type: 'acode egress allow 3fa9c1d2 --save', for: 'for good, in your own file', terminal: true },
  ],
  'acode explain': [
    { type: 'acode explain -- sh ./build.sh', for: 'which limits, and who set them' },
    { type: 'acode explain --json --memory 1g "make"', for: 'with the exact request to the engine' },
  ],
  'acode doctor': [
    { type: 'acode doctor', for: 'is this host fit for sandboxes?' },
    { type: 'acode doctor --json', for: 'the same for a program' },
  ],
  'acode config': [
    { type: 'acode config get', for: 'what is set, and by which file and line' },
    { type: 'acode config set sandbox.defaults.memory_mb 2g', for: 'in your own file' },
    { type: 'acode config set --add sandbox.security.trusted_images ghcr.io/me/app --yes', for: 'one more in a list' },
    { type: 'acode config check', for: 'every file; exit 1 if one has a problem' },
    { type: 'acode config path', for: 'where the files are' },
  ],
  'acode trust': [
    { type: 'acode trust --show', for: 'what does the repository’s file ask for?' },
    { type: 'acode trust', for: 'trust exactly this content; asks first', terminal: true },
    { type: 'acode trust --revoke', for: 'withdraw the trust' },
  ],
  'acode changes': [
    { type: 'acode changes', for: 'what did runs leave in this workspace?' },
    { type: 'acode changes --since 2h', for: 'in the last two hours' },
    { type: 'acode changes --since 2026-05-31 --all', for: 'since that day, in every workspace' },
  ],
  'acode stats': [
    { type: 'acode stats', for: 'all commands in the log' },
    { type: 'acode stats --since 7d', for: 'those of the last week' },
  ],
  'acode audit tail': [
    { type: 'acode audit tail', for: 'the newest records' },
    { type: 'acode audit tail --lines 5', for: 'a few of them' },
  ],
  'acode audit verify': [
    { type: 'acode audit verify', for: 'was anything changed? prints the head to keep elsewhere' },
  ],
  'acode audit export': [{ type: 'acode audit export --from 100 --to 200', for: 'the raw lines' }],
  'acode sandbox cleanup': [
    { type: 'acode sandbox cleanup --dry-run', for: 'only show, remove nothing' },
    { type: 'acode sandbox cleanup --force', for: 'running ones too' },
    { type: 'acode sandbox cleanup --volumes', for: 'and the caches' },
  ],
  'acode sandbox images': [{ type: 'acode sandbox images', for: 'tag, digest, size, and which acode pulled' }],
  'acode sandbox prune-images': [
    { type: 'acode sandbox prune-images --dry-run', for: 'only show, remove nothing' },
    { type: 'acode sandbox prune-images --older-than 7', for: 'what was not used for a week' },
  ],
  'acode uninstall': [{ type: 'acode uninstall', for: 'only show; --purge removes it' }],
  'acode sandbox logs': [{ type: 'acode sandbox logs', for: 'the runs whose output was saved' }],
  'acode completion': [
    { type: 'acode completion install', for: 'for the shell of $SHELL; prints what to do next', home: true },
    { type: 'acode completion bash', for: 'print the script for bash' },
  ],
};

/** The examples of a command as its help shows them: a comment beside each, or above where that is too wide. */
export function exampleText(called: string, columns: number): string {
  const list = EXAMPLES[called] ?? [];
  if (list.length === 0) return '';
  const width = Math.max(...list.map(({ type }) => type.length));
  const beside = list.map(({ type, for: purpose }) => `  ${type.padEnd(width)}  # ${purpose}`);
  const lines = beside.some(line => line.length > columns)
    ? list.map(({ type, for: purpose }) => `${hanging('  # ', purpose, columns, '  # ')}\n  ${type}`)
    : beside;
  return `\nExamples:\n${lines.join('\n')}`;
}
