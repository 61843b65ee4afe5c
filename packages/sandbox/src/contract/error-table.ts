// The one table of everything that can go wrong: code, context, message, hint, exit status.

import { capitalised, remedyOf, summaryOf } from './denial-text.ts';
import type { Denial } from './denials.ts';
import type { RiskyChange, RiskyKind, RunResult, WebRunResult } from './result.ts';
import type { Shortage } from './system-error.ts';
import { formatBytes } from './units.ts';
import { text } from './wording.ts';
import type { Text } from './wording.ts';

function wayOut(way: 'apply' | 'patch' | 'branch'): { readonly done: string; readonly command: string } {
  if (way === 'patch') return { done: 'printed', command: 'diff --patch' };
  if (way === 'branch') return { done: 'added to the repository', command: 'apply --branch <name>' };
  return { done: 'applied', command: 'apply' };
}

// A path as a shell takes it.
function typed(path = ''): string {
  return /^[\w@%+=:,./-]+$/.test(path) ? path : `'${path.replaceAll("'", String.raw`'\''`)}'`;
}

// What helps where the machine itself has run out of something: nothing is wrong with the command or its policy.
const LESS = 'Let other commands (`acode sandbox list`) or programs end first';
const SHORTAGE_HINTS: Readonly<Partial<Record<string, string>>> = {
  disk: 'Free space on the engine’s disk: `acode sandbox cleanup`, `acode sandbox prune-images`.',
  memory: `${LESS}.`,
  processes: `${LESS}; or raise \`ulimit -u\`, and TasksMax of the engine’s service.`,
  files: `${LESS}; or raise \`ulimit -n\`, and LimitNOFILE of the engine’s service.`,
} satisfies Record<Shortage, string>;

// An error that comes from another process may name a shortage that this version does not know.
function shortageHint({ shortage = '' }: { readonly shortage?: string }, otherwise: string): string {
  return (Object.hasOwn(SHORTAGE_HINTS, shortage) && SHORTAGE_HINTS[shortage]) || otherwise;
}

// As much of a diff’s id as a person compares.
const DIFF_ID = 12;

/** One row of the error table. */
export interface ErrorEntry<Context> {
  /** A few words for the catalogue. */
  readonly title: string;
  /** One sentence that says what happened, for this context. */
  readonly message: (context: Context) => Text;
  /** What a person or an agent should do next. */
  readonly hint: (context: Context) => Text;
  /** The exit status of the command line. */
  readonly exit: number;
  /** The exit status, where it depends on the context. */
  readonly exitFor?: (context: Context) => number;
  /** A context as it really occurs; docs/errors.md is generated from it. */
  readonly example: Context;
}

/** A row, whatever its context. */
export type AnyEntry = Omit<ErrorEntry<never>, 'example'> & {
  /** A context as it really occurs. */
  readonly example: unknown;
};

/** One row of a table, with the type of its context. */
export function entry<Context>(row: ErrorEntry<Context>): ErrorEntry<Context> {
  return row;
}

/** Which rule of the security policy was broken. */
export type SecurityViolation =
  | 'PrivilegedUser'
  | 'DangerousEnvironment'
  | 'DangerousImage'
  | 'UnverifiedImage'
  | 'UnknownRuntime'
  | 'ReadOnlyNotHeld'
  | 'SpecMismatch'
  | 'MountMismatch'
  | 'KernelMismatch'
  | 'NestedWritableMount';

/** Which rule about mounts was broken. */
export type MountViolation =
  | 'Missing'
  | 'NotADirectory'
  | 'ForbiddenPath'
  | 'HostPathEscape'
  | 'SensitivePathAccess'
  | 'DockerSocketMounted'
  | 'OutsideAllowedRoots'
  | 'ProtectedPath'
  | 'ForbiddenTarget'
  | 'DuplicateTarget';

/** What is wrong with the socket of an engine, or with the choice of it. */
export type EngineFault = 'no-permission' | 'no-socket' | 'not-a-socket' | 'unusable';

/** Why there is no engine at a socket, as a clause. */
export function engineFaultText({
  socket,
  reason,
  fault,
}: {
  readonly socket: string;
  readonly reason: string;
  readonly fault?: EngineFault;
}): string {
  if (fault === 'no-permission') return `no permission to use the engine socket ${socket}`;
  if (fault === 'no-socket') return `there is no engine socket at ${socket}`;
  if (fault === 'not-a-socket') return `${socket} is not a socket`;
  if (fault === 'unusable') return `the engine ${socket} cannot be used: ${reason}`;
  return `no Docker Engine answered at ${socket} (${reason})`;
}

function limitMessage(denial: Denial): Text {
  return text`${capitalised(summaryOf(denial))}.`;
}

// An image chosen by language was not named by the caller, so the message has to say why acode chose it.
function chosenFor({ chosen }: { readonly chosen?: string }): string {
  return chosen === undefined ? '' : ` (because ${chosen})`;
}

// The two ways in which words that were quoted behind `--` were meant.
function lineForms(command: string): string {
  const isSafe = /^[\w@%+=:,./ -]*$/.test(command);
  return `For a shell line, leave out \`--\`: \`acode run "${isSafe ? command : 'a | b'}"\`. For a program and its arguments, leave out the quotes: \`acode run -- ${isSafe ? command : 'program argument'}\`.`;
}

// How far a log can still be trusted that is not what it was.
function standing(fault: string): string {
  if (fault === 'truncated' || fault === 'rewritten')
    return 'This log does not match the head that you saved, so its records up to that head cannot be trusted.';
  if (fault === 'incomplete')
    return 'A killed writer or a power cut can leave half a line. The next record replaces it; all earlier records are still valid.';
  if (fault === 'lost')
    return 'The earlier records are missing: compare with an export or a head that you stored elsewhere, and find out who could write to the directory.';
  return 'All records before it are still valid.';
}

// Why a search does not prove that something is not there.
const UNFOUND = {
  time: 'it is not at its path, and the search timed out',
  unreadable: 'it is not at its path, and acode cannot list some directories',
  changing: 'it is not at its path, and the directories changed during the search',
};

const ROWS = {
  'ACODE-SBX-001': entry<{ name: string; reason: string; remedy?: string; shortage?: Shortage }>({
    title: 'sandbox could not be created',
    message: c => `The sandbox ${c.name} could not be created: ${c.reason}.`,
    hint: c =>
      c.remedy ?? shortageHint(c, 'Run `acode sandbox status` to see whether the engine is healthy, then try again.'),
    exit: 125,
    example: { name: 'acode-a1b2c3d4-run-001', reason: 'no space left on device', shortage: 'disk' },
  }),
  'ACODE-SBX-002': entry<{
    image: string;
    reason: string;
    remedy?: string;
    /** What kind of failure it was: only `unreachable` may be gone at the next try. */
    kind?: 'unreachable' | 'unauthorised' | 'absent' | 'damaged' | 'other';
    /** Why acode chose the image, if the caller did not name it. */
    chosen?: string;
    /** The registry that could not be connected to, why not, and how often that was tried. */
    unreached?: { registry: string; fault: string; attempts: number };
  }>({
    title: 'image pull failed',
    message: c => `${c.image}${chosenFor(c)} could not be pulled: ${c.reason}.`,
    hint: c =>
      c.remedy ?? 'Check the name and the connection to the registry, then try again with `acode sandbox pull`.',
    exit: 125,
    example: {
      image: 'node:20-alpine',
      reason: 'this machine cannot reach docker.io (network is unreachable; tried 4 times)',
      kind: 'unreachable',
      unreached: { registry: 'docker.io', fault: 'network is unreachable', attempts: 4 },
    },
  }),
  'ACODE-SBX-003': entry<{ path: string; violation: MountViolation; reason: string; workdir?: true; remedy?: Text }>({
    title: 'mount refused',
    message: c =>
      c.workdir === true
        ? text`${{ field: 'cwd' }}: ${c.path} ${c.reason}.`
        : `${c.path} cannot be mounted into a sandbox: ${c.reason} (${c.violation}).`,
    hint: c =>
      c.remedy ??
      'acode mounts the directory that you are in. Go into a project directory first (`cd ~/project`), or name one: `--workspace ~/project`.',
    exit: 125,
    example: { path: '/', violation: 'ForbiddenPath', reason: 'it is the root of the file system' },
  }),
  'ACODE-SBX-004': entry<{ denial: Denial }>({
    title: 'resource limit exceeded',
    message: c => limitMessage(c.denial),
    hint: c => remedyOf(c.denial),
    exit: 125,
    example: {
      denial: {
        rule: 'limit.memory',
        value: 64 * 1024 ** 2,
        setBy: { value: 64 * 1024 ** 2, layer: 'request', where: 'policy.limits.memoryBytes' },
        effect: { kind: 'process-killed' },
        count: 1,
        remedies: [
          { kind: 'use-less' },
          { kind: 'raise-limit', field: 'policy.limits.memoryBytes', suggested: 128 * 1024 ** 2 },
        ],
      },
    },
  }),
  'ACODE-SBX-005': entry<{
    network: string;
    rule: string;
    /** The layer that denied it; absent for what no setting allows. */
    setBy?: Text;
    remedy: Text;
  }>({
    title: 'network denied by policy',
    message: c =>
      c.setBy === undefined
        ? text`The network ${c.network} is not available: ${c.rule}.`
        : text`The network ${c.network} is denied: ${c.rule} (set by ${c.setBy}).`,
    hint: c => c.remedy,
    exit: 125,
    example: {
      network: 'bridge',
      rule: 'a bridge reaches services of this host, so it needs your consent',
      setBy: 'the built-in default',
      remedy: [
        'If you accept that: ',
        {
          setting: { key: 'sandbox.network.allow_bridge', value: true, file: '~/.config/acode/config.yml' },
        },
        '.',
      ],
    },
  }),
  'ACODE-SBX-006': entry<{ name: string; reason: string; shortage?: Shortage }>({
    title: 'sandbox did not start',
    message: c => `The sandbox ${c.name} did not start: ${c.reason}.`,
    hint: c => shortageHint(c, 'Check that the image fits this machine and has a shell at /bin/sh, then try again.'),
    exit: 125,
    example: { name: 'acode-a1b2c3d4-run-001', reason: 'exec format error' },
  }),
  'ACODE-SBX-007': entry<{ denial: Denial }>({
    title: 'command timed out',
    message: c => limitMessage(c.denial),
    hint: c => remedyOf(c.denial),
    exit: 124,
    example: {
      denial: {
        rule: 'limit.time',
        value: 2000,
        setBy: { value: 2000, layer: 'request', where: 'policy.timeoutMs' },
        effect: { kind: 'command-ended' },
        count: 1,
        remedies: [{ kind: 'use-less' }, { kind: 'raise-limit', field: 'policy.timeoutMs', suggested: 4000 }],
      },
    },
  }),
  'ACODE-SBX-008': entry<{
    socket: string;
    reason: string;
    remedy?: string;
    /** What is wrong with the socket, where that is known; without it, nothing answered there. */
    fault?: EngineFault;
    /** Whether there is no engine at all, rather than one that does not answer. */
    absent?: boolean;
    /** How long acode waited, in milliseconds, for an engine that is there and did not answer. */
    lateMs?: number;
    required?: Text;
    available?: string;
    /** Whether what is available isolates, and less than is required. */
    tooWeak?: true;
  }>({
    title: 'engine not available',
    message: c => {
      // Only what wants a sandbox has a level that it requires: a list or a status runs nothing anyway.
      const need =
        c.required === undefined
          ? ''
          : c.tooWeak === true
            ? text` Nothing was run (fail-closed); required: ${c.required}, available: ${c.available ?? 'none'}.`
            : ' Nothing was run.';
      const what = c.absent === true ? 'no Docker Engine or Podman was found' : engineFaultText(c);
      return text`${what.charAt(0).toUpperCase()}${what.slice(1)}.${need}`;
    },
    hint: c =>
      c.remedy ??
      (c.absent === true
        ? 'Install Docker or Podman and start it. If it runs elsewhere, name its socket: `export DOCKER_HOST=unix:///path/to/docker.sock`. `acode doctor` checks the rest.'
        : 'Start Docker, or point acode at an engine with `export DOCKER_HOST=unix:///path/to/docker.sock`; check with `acode sandbox status`.'),
    exit: 125,
    example: {
      socket: '/var/run/docker.sock',
      reason: 'nothing listens there',
      required: 'docker (risk low, the built-in default)',
      available: 'no isolation',
    },
  }),
  'ACODE-SBX-009': entry<{ image: string; rule?: Text; remedy?: Text; chosen?: string }>({
    title: 'image not present',
    message: c =>
      text`The image ${c.image}${chosenFor(c)} is not on this engine${c.rule === undefined ? '' : text`, and it may not be pulled: ${c.rule}`}.`,
    hint: c =>
      c.remedy ??
      text`Pull it once with \`acode sandbox pull ${c.image}\`, or choose another one with ${{ field: 'policy.image' }}.`,
    exit: 125,
    example: {
      image: 'node:20-alpine',
      rule: 'the pull policy is never (the request, policy.pull)',
      remedy: 'Pull it once with `acode sandbox pull node:20-alpine`.',
    },
  }),
  'ACODE-SBX-010': entry<{
    violation: SecurityViolation;
    detail: Text;
    remedy?: Text;
    rule?: string;
    setBy?: Text;
    /** The ids of the sandboxes that have to end first. */
    sandboxes?: readonly string[];
  }>({
    title: 'security policy violation',
    message: c => text`Refused for safety (${c.violation}): ${c.detail}.`,
    hint: c =>
      c.remedy ??
      (c.violation === 'PrivilegedUser' || c.violation === 'DangerousEnvironment'
        ? 'Do not request root: by default the command runs with your uid. Software that needs root to install belongs in the image.'
        : c.violation === 'DangerousImage'
          ? 'Use another image, or rebuild this one without that volume.'
          : c.violation === 'UnknownRuntime'
            ? 'Choose a runtime that `acode sandbox status` lists, or install it and register it with the engine.'
            : c.violation === 'NestedWritableMount'
              ? 'Nothing of the command ran. Wait until the other sandbox has ended, or end it (`acode sandbox list` shows it, `acode sandbox kill` ends one that was kept).'
              : 'Nothing of the command ran. If you did not change the engine or the directory yourself, treat this as an attack and look at what else writes there.'),
    exit: 125,
    example: { violation: 'MountMismatch', detail: '/workspace is not the directory that was checked' },
  }),
  'ACODE-SBX-011': entry<{ uid: number }>({
    title: 'refused as root',
    message: () => 'acode must not run as root/Administrator.',
    hint: () =>
      'Run it as an ordinary user in the engine’s group (`usermod -aG docker <user>`). To run as root anyway: `acode config set allow_root true`.',
    exit: 125,
    example: { uid: 0 },
  }),
  'ACODE-SBX-012': entry<{
    required: Text;
    available: Text;
    remedy?: string;
    /** What has the weaker level, as the start of a clause: `--level asks for bubblewrap`. */
    weaker?: Text;
  }>({
    title: 'isolation level too low',
    message: c => {
      const but = c.weaker === undefined ? text`only ${c.available} is available` : text`${c.weaker}, which is weaker`;
      return text`fail-closed: task requires ${c.required} isolation but ${but}.`;
    },
    hint: c => c.remedy ?? 'Ask for a level that `acode sandbox status` lists, or install what the stronger one needs.',
    exit: 125,
    example: { required: 'gvisor', available: 'docker' },
  }),
  'ACODE-SBX-013': entry<{ source: string; key: string; reason: string; remedy?: Text }>({
    title: 'invalid configuration',
    message: c => `${c.source}: ${c.key === '' ? '' : `\`${c.key}\` `}${c.reason}.`,
    hint: c => c.remedy ?? `Correct ${c.source} and try again; docs/configuration.md lists every key.`,
    exit: 125,
    example: {
      source: '~/.config/acode/config.yml:3:5',
      key: 'sandbox.defaults.memory_mb',
      reason: 'expected a number',
    },
  }),
  'ACODE-SBX-014': entry<{ result?: RunResult | WebRunResult }>({
    title: 'cancelled',
    message: () => 'The command was cancelled.',
    hint: () => 'What it printed before is in the result; run it again when you are ready.',
    exit: 130,
    example: {},
  }),
  'ACODE-SBX-015': entry<{
    command: string;
    /** The image, or what stands for one at a level without images. */
    image: string;
    reason: 'not found' | 'not executable';
    /** Whether the level has no images, so that another one is no way out. */
    imageless?: boolean;
  }>({
    title: 'command cannot be run',
    message: c => `${c.command}: ${c.reason} in ${c.image}.`,
    hint: c => {
      if (c.reason === 'not executable')
        return 'Make the file executable (chmod +x), or name its interpreter: acode sandbox exec -- sh ./script.';
      // Without the arguments of the command: a user who pastes them would have their own shell interpret them.
      if (/\s/.test(c.command)) return `It was taken as the name of one program. ${lineForms(c.command)}`;
      if (/^(?:\S*\/)?(?:sudo|su|doas)$/.test(c.command) && c.imageless !== true)
        return 'A sandbox has no root user: run the command without sudo, su or doas. Software that needs root to install belongs in the image: choose one that has it with --image.';
      const line = 'To run a shell command line, quote it: acode run "a | b".';
      if (c.imageless === true)
        return `Check the spelling, install the command where this level shows it (docs/levels.md), or use a level with images: --level docker. ${line}`;
      return c.command === '/bin/sh'
        ? `${c.image} has no shell, so it cannot run a quoted command line. Name a program of the image by its full path: acode sandbox exec -- /path/to/program arguments; or choose another image with --image.`
        : `Check the spelling, or choose an image that has the command with --image. ${line}`;
    },
    exit: 127,
    // Shells tell the two apart: 127 is “not found”, 126 “found but not executable”.
    exitFor: c => (c.reason === 'not executable' ? 126 : 127),
    example: { command: 'gti', image: 'node:20-alpine', reason: 'not found' },
  }),
  'ACODE-SBX-016': entry<{ what: Text; instead: Text; persistent?: true; outlives?: true }>({
    title: 'not available in this version',
    message: c =>
      text`${c.what} is not available in this version. acode refuses the request instead of ignoring that part of it.`,
    hint: c => c.instead,
    exit: 125,
    example: { what: 'policy.network: bridge', instead: 'Leave it out: the sandbox then has no network.' },
  }),
  'ACODE-SBX-017': entry<{
    field: string;
    reason: string;
    remedy?: Text;
    /** Whether the reason is about what nobody set, so that the field is not named before it. */
    sentence?: true;
  }>({
    title: 'invalid request',
    message: c => (c.sentence === true ? `${c.reason}.` : text`${{ field: c.field }}: ${c.reason}.`),
    hint: c =>
      c.remedy ??
      text`Correct ${{ field: c.field }}; \`acode explain\` shows the resulting policy before anything runs.`,
    exit: 125,
    example: { field: 'policy.limits.memoryBytes', reason: 'must be at least 6 MiB' },
  }),
  'ACODE-SBX-018': entry<{ operation: string; reason: string; shortage?: Shortage }>({
    title: 'sandbox failed during the run',
    message: c => `The sandbox failed during ${c.operation}: ${c.reason}.`,
    hint: c =>
      shortageHint(
        c,
        'acode removes the sandbox as soon as it can. If an engine runs it, check the engine’s log. Then run the command again.',
      ),
    exit: 125,
    example: { operation: 'POST /containers/{id}/wait', reason: 'the connection was lost' },
  }),
  'ACODE-SBX-019': entry<{ operation: string }>({
    title: 'host closed',
    message: c => `${c.operation} was called after close().`,
    hint: () => 'Open a new Acode; a closed one cannot be used again.',
    exit: 125,
    example: { operation: 'run' },
  }),
  'ACODE-SBX-020': entry<{ key: string; where: string; rule: string; remedy: string }>({
    title: 'repository setting refused',
    message: c => `The repository’s own configuration may not set \`${c.key}\` (${c.where}): ${c.rule}.`,
    hint: c => c.remedy,
    exit: 125,
    example: {
      key: 'sandbox.network.mode',
      where: '.agent/config.yml:4:5',
      rule: 'it would loosen the policy, and this file is not trusted',
      remedy: 'Read the file; if you agree with all of it, run `acode trust`. Otherwise take the line out.',
    },
  }),
  'ACODE-SBX-021': entry<{ port: number; reason: string }>({
    title: 'port not available',
    message: c => `Port ${c.port} of this host cannot be published: ${c.reason}.`,
    hint: c => `Choose another host port than ${c.port}, or leave it out to use a free one.`,
    exit: 125,
    example: { port: 8080, reason: 'something else listens on it' },
  }),
  'ACODE-SBX-022': entry<{ sessions: number }>({
    title: 'sessions still running',
    message: c =>
      c.sessions === 1 ? 'One of your sessions is still running.' : `${c.sessions} of your sessions are still running.`,
    hint: () => 'Let them end, or add --force: their sandboxes are then removed while they are in use.',
    exit: 125,
    example: { sessions: 2 },
  }),
  'ACODE-SBX-023': entry<{ workspace: string }>({
    title: 'workspace already served',
    message: c => `\`acode serve\` already runs for ${c.workspace}.`,
    hint: () =>
      'Each workspace has one server, and `acode run` uses it. `acode serve status` shows it; `acode serve stop` ends it.',
    exit: 125,
    example: { workspace: '/home/me/project' },
  }),
  'ACODE-SBX-024': entry<Record<string, never>>({
    title: 'server lost',
    message: () => 'The background process (`acode serve`) that ran the command ended before the command did.',
    hint: () =>
      'The sandbox is removed. acode cannot tell how much of the command ran: check its effects before running it again.',
    exit: 125,
    example: {},
  }),
  'ACODE-SBX-025': entry<{ sandbox: string; reason: string; remedy?: string; result?: RunResult }>({
    title: 'sandbox no longer exists',
    message: c => `The sandbox ${c.sandbox} no longer exists: ${c.reason}.`,
    hint: c =>
      c.remedy ?? 'Create another one. Files inside the sandbox are lost; files in the workspace are still there.',
    exit: 125,
    example: { sandbox: 'a1b2c3d4-0000-4000-8000-000000000000', reason: 'its lease expired' },
  }),
  'ACODE-SBX-026': entry<{ sandbox: string; reason: string; remedy?: string }>({
    title: 'sandbox cannot be used from here',
    message: c => `The sandbox ${c.sandbox} cannot be used from here: ${c.reason}.`,
    hint: c =>
      c.remedy ?? 'Run `acode sandbox list` to see which there are, or create one with `acode sandbox create`.',
    exit: 125,
    example: {
      sandbox: 'a1b2c3d4-0000-4000-8000-000000000000',
      reason: 'it was not kept, and belongs to the process that made it',
    },
  }),
  'ACODE-SBX-027': entry<
    | { state: string; problem: 'in-use'; sandbox?: string }
    | { state: string; problem: 'full'; bytes: number; limitBytes: number }
  >({
    title: 'state directory cannot be used',
    message: c =>
      c.problem === 'full'
        ? `The state directory ${c.state} of this project takes ${formatBytes(c.bytes)}; its limit is ${formatBytes(c.limitBytes)}.`
        : `The state directory ${c.state} of this project is in use ${c.sandbox === undefined ? 'by another command that is starting' : `by sandbox ${c.sandbox}`}. One sandbox at a time can have it.`,
    hint: c =>
      c.problem === 'full'
        ? text`Begin with an empty one: ${{ field: 'policy.state.fresh', value: 'true' }}.`
        : text`Wait until that sandbox has ended, or use another name: ${{ field: 'policy.state.name' }}.`,
    exit: 125,
    example: { state: 'notes', problem: 'in-use', sandbox: '3f0c1e9a-8f57-4d0b-9a52-6f3f4f1f2f11' },
  }),
  'ACODE-SBX-028': entry<{ service: string; image: string; reason: string; waitedMs: number; output: string }>({
    title: 'service not ready',
    message: c => `The service ${c.service} (${c.image}) did not become ready: ${c.reason}.`,
    hint: c =>
      c.output === ''
        ? text`The command did not run, and the service printed nothing. \`docs/services.md\` says how a service is configured: ${{ field: 'policy.services' }}.`
        : text`The command did not run. What the service printed last says why. \`docs/services.md\` says how a service is configured: ${{ field: 'policy.services' }}.`,
    exit: 125,
    example: {
      service: 'db',
      image: 'postgres:16',
      reason: 'it ended with status 1',
      waitedMs: 840,
      output: 'Error: Database is uninitialized and superuser password is not specified.',
    },
  }),
  'ACODE-SBX-029': entry<{ credential: string; reason: string; remedy?: string }>({
    title: 'credential not available',
    message: c => `acode cannot read the credential ${c.credential}: ${c.reason}. Nothing ran.`,
    hint: c => c.remedy ?? `Check \`sandbox.network.credentials.${c.credential}\` in your configuration.`,
    exit: 125,
    example: {
      credential: 'npm',
      reason: 'the variable NPM_TOKEN is not set',
      remedy: 'Set it where acode is started, such as `export NPM_TOKEN=…`, or name another source.',
    },
  }),
  'ACODE-SBX-030': entry<{ login: string; reason: string; remedy?: string }>({
    title: 'login failed',
    message: c => `The login ${c.login} failed: ${c.reason}.`,
    hint: c => c.remedy ?? `Check \`sandbox.network.logins.${c.login}\`, and type \`acode login ${c.login}\` again.`,
    exit: 1,
    example: { login: 'corp', reason: 'the server answered 400 (invalid_grant)' },
  }),
  'ACODE-FIL-001': entry<{ program: string; operation: string }>({
    title: 'image lacks a program',
    message: c => `The image has no ${c.program}, which ${c.operation} needs.`,
    hint: () =>
      'Use an image with the usual small programs (coreutils and tar, or busybox), such as the ones acode ships.',
    exit: 125,
    example: { program: 'tar', operation: 'upload' },
  }),
  'ACODE-FIL-002': entry<{ path: string; reason: string }>({
    title: 'archive or listing refused',
    message: c => `What the sandbox sent for ${c.path} was refused: ${c.reason}.`,
    hint: () =>
      'Nothing was written outside the target. Look at what the command made, and at what still runs in the sandbox, before you try again.',
    exit: 125,
    example: { path: '/workspace/dist', reason: 'an entry is called ../../.bashrc' },
  }),
  'ACODE-FIL-003': entry<{ path: string; limit: string }>({
    title: 'too much to transfer',
    message: c => `${c.path} exceeds the transfer limit: ${c.limit}.`,
    hint: () => 'Take a part of it, or raise the limit of the call (maxBytes, maxEntries).',
    exit: 125,
    example: { path: '/workspace/dist', limit: '1 GiB' },
  }),
  'ACODE-FIL-004': entry<{ path: string }>({
    title: 'file changed during a transfer',
    message: c => `${c.path} changed during the transfer.`,
    hint: () => 'The copy is incomplete. Repeat the transfer when nothing writes to the file.',
    exit: 125,
    example: { path: '/home/me/project/data.bin' },
  }),
  'ACODE-FIL-005': entry<{ path: string; reason: string; remedy?: string }>({
    title: 'file that cannot be copied',
    message: c => `${c.path}: ${c.reason}.`,
    hint: c => c.remedy ?? 'Paths in the sandbox are absolute, or relative to the workspace.',
    exit: 125,
    example: { path: '/workspace/dist', reason: 'does not exist' },
  }),
  'ACODE-CTN-001': entry<{ name: string; reason: string }>({
    title: 'container creation failed',
    message: c => `The engine refused to create ${c.name}: ${c.reason}.`,
    hint: () => 'The reason is the engine’s own; its log says more.',
    exit: 125,
    example: { name: 'acode-a1b2c3d4-run-001', reason: 'invalid mount config' },
  }),
  'ACODE-CTN-002': entry<{ name: string; reason: string }>({
    title: 'container start failed',
    message: c => `The engine could not start ${c.name}: ${c.reason}.`,
    hint: () => 'The reason is the runtime’s own; its log says more.',
    exit: 125,
    example: { name: 'acode-a1b2c3d4-run-001', reason: 'OCI runtime create failed' },
  }),
  'ACODE-CTN-004': entry<{ id: string; reason: string }>({
    title: 'container removal failed',
    message: c => `The container ${c.id} could not be removed: ${c.reason}.`,
    hint: () => 'Run `acode sandbox cleanup --force` when the engine has recovered.',
    exit: 125,
    example: { id: '4f1c…', reason: 'device or resource busy' },
  }),
  'ACODE-CTN-005': entry<{ name: string }>({
    title: 'name collision',
    message: c => `A container named ${c.name} exists already.`,
    hint: () => 'Use another session or task id, or remove that container with `acode sandbox cleanup`.',
    exit: 125,
    example: { name: 'acode-a1b2c3d4-build-001' },
  }),
  'ACODE-CTN-006': entry<{ image: string; reason: string }>({
    title: 'image pull failed',
    message: c => `The engine could not pull ${c.image}: ${c.reason}.`,
    hint: () => 'The reason is the registry’s or the engine’s own; its log says more.',
    exit: 125,
    example: { image: 'node:20-alpine', reason: 'manifest unknown' },
  }),
  'ACODE-CTN-008': entry<{ socket: string; reason: string }>({
    title: 'Docker not available',
    message: c => `No Docker Engine at ${c.socket}: ${c.reason}.`,
    hint: () => 'Start Docker and check with `acode sandbox status`.',
    exit: 125,
    example: { socket: '/var/run/docker.sock', reason: 'connection refused' },
  }),
  'ACODE-CTN-007': entry<{ limit: string; reason: string }>({
    title: 'resource limit invalid',
    message: c => text`The limit ${{ field: c.limit }} is invalid: ${c.reason}.`,
    hint: () => 'docs/configuration.md lists what each limit may be.',
    exit: 125,
    example: { limit: 'policy.limits.memoryBytes', reason: 'must be at least 6 MiB' },
  }),
  'ACODE-CTN-009': entry<{ limit: number; waitedMs: number }>({
    title: 'too many sandboxes at once',
    message: c => `All ${c.limit} sandboxes were busy for ${Math.round(c.waitedMs / 100) / 10} s.`,
    hint: () =>
      'Run less at once, wait longer, or raise the number (at most 16): `acode config set sandbox.containers.max_concurrent 8`.',
    exit: 125,
    example: { limit: 4, waitedMs: 60_000 },
  }),
  'ACODE-CTN-011': entry<{ image: string }>({
    title: 'image not found',
    message: c => `The engine has no image ${c.image}.`,
    hint: c => `Pull it with \`acode sandbox pull ${c.image}\`.`,
    exit: 125,
    example: { image: 'node:20-alpine' },
  }),
  'ACODE-CTN-013': entry<{ mostBytes: number; othersBytes: number; waitedMs: number }>({
    title: 'no memory left for another sandbox',
    message: c =>
      `Your sandboxes may use ${gib(c.mostBytes)} of memory together (three quarters of this machine), and others still held ${gib(c.othersBytes)} after ${Math.round(c.waitedMs / 100) / 10} s.`,
    hint: () =>
      text`Wait until others have ended, or ask for less with ${{ field: 'policy.limits.memoryBytes' }}. \`acode sandbox list\` shows your sandboxes.`,
    exit: 125,
    example: { mostBytes: 12 * 1024 ** 3, othersBytes: 12 * 1024 ** 3, waitedMs: 60_000 },
  }),
  'ACODE-CTN-012': entry<{ reference: string; what: 'sandbox' | 'saved log'; remedy?: string }>({
    title: 'no such sandbox',
    message: c =>
      c.what === 'sandbox'
        ? `No sandbox has the id or name ${c.reference}.`
        : `No saved log has the id or name ${c.reference}.`,
    hint: c =>
      c.remedy ??
      (c.what === 'sandbox'
        ? '`acode sandbox list` shows the sandboxes that exist. The sandbox of `acode run` is gone when its command has ended.'
        : '`acode sandbox logs` without a name lists the runs whose output was saved.'),
    exit: 125,
    example: { reference: 'acode-a1b2c3d4-run-001', what: 'sandbox' },
  }),
  'ACODE-FRK-001': entry<{ fork: string; elsewhere?: readonly string[] }>({
    title: 'no such fork',
    message: c =>
      c.elsewhere === undefined ? `This workspace has no fork named ${c.fork}.` : `There is no fork ${c.fork}.`,
    hint: ({ elsewhere }) => {
      const make = '`acode run --fork "<command>"` makes one.';
      if (elsewhere === undefined) return '`acode fork list` shows the forks of this workspace.';
      if (elsewhere.length === 0) return make;
      return `There are forks of ${elsewhere.join(', ')}: go there, or name it with --workspace. Here, ${make}`;
    },
    exit: 125,
    example: { fork: 'k7m2pqrt' },
  }),
  'ACODE-FRK-002': entry<{ fork: string; workspace: string }>({
    title: 'fork of another directory',
    message: c =>
      `The fork ${c.fork} was made of another directory that was at ${c.workspace}: its changes do not belong to this one.`,
    hint: c =>
      `Look at its changes with \`acode fork diff ${c.fork}\`, remove it with \`acode fork discard ${c.fork}\`, or start a fresh one with --fork=new.`,
    exit: 125,
    example: { fork: 'k7m2pqrt', workspace: '/home/user/project' },
  }),
  'ACODE-FRK-003': entry<{ fork: string; sandbox?: string }>({
    title: 'fork in use',
    message: c =>
      `The fork ${c.fork} is in use: ${c.sandbox === undefined ? 'another command is starting in it' : `sandbox ${c.sandbox} writes to it`}.`,
    hint: c =>
      `Wait for that command${c.sandbox === undefined ? '' : `, end it with \`acode sandbox kill ${c.sandbox}\``}, or use another fork: --fork=new.`,
    exit: 125,
    example: { fork: 'k7m2pqrt', sandbox: '3f0c1e9a-8f57-4d0b-9a52-6f3f4f1f2f11' },
  }),
  'ACODE-FRK-004': entry<{ fork: string; reason: string }>({
    title: 'fork cannot be mounted',
    message: c => `The fork ${c.fork} cannot be mounted: ${c.reason}.`,
    hint: c => `Apply its changes with \`acode fork apply ${c.fork}\`, or start a fresh one with --fork=new.`,
    exit: 125,
    example: { fork: 'k7m2pqrt', reason: 'it has 64 layers' },
  }),
  'ACODE-FRK-005': entry<{ fork: string; reason: string }>({
    title: 'fork cannot be read',
    message: c => `The changes of fork ${c.fork} cannot be read: ${c.reason}.`,
    hint: () => 'Install GNU tar (`tar --version` says which one it is), which can read overlay whiteouts.',
    exit: 125,
    example: { fork: 'k7m2pqrt', reason: 'there is no GNU tar' },
  }),
  'ACODE-FRK-006': entry<{ fork: string; from: number; to: number }>({
    title: 'commands are squashed',
    message: c =>
      `The changes of commands ${c.from} to ${c.to} of fork ${c.fork} are one layer: acode merges the oldest layers of a fork with many commands.`,
    hint: c =>
      `\`acode fork history ${c.fork}\` shows the numbers of the commands. Undo all of ${c.from} to ${c.to}, or only commands after ${c.to}. To be able to undo from a certain command on, take a snapshot before it.`,
    exit: 125,
    example: { fork: 'k7m2pqrt', from: 1, to: 33 },
  }),
  'ACODE-FRK-007': entry<{ fork: string }>({
    title: 'name of a fork is taken',
    message: c => `This workspace already has a fork ${c.fork}.`,
    hint: c => `Use it with --fork=${c.fork}, choose another name, or remove it with \`acode fork discard ${c.fork}\`.`,
    exit: 125,
    example: { fork: 'upgrade' },
  }),
  'ACODE-FRK-008': entry<{ fork: string; snapshot: string; known: readonly string[] }>({
    title: 'no such snapshot',
    message: c =>
      `The fork ${c.fork} has no snapshot ${c.snapshot}${c.known.length > 0 ? `; it has ${c.known.join(', ')}` : ''}.`,
    hint: c => `Create a snapshot of the fork’s current state: \`acode fork snapshot ${c.snapshot} ${c.fork}\`.`,
    exit: 125,
    example: { fork: 'k7m2pqrt', snapshot: 'clean', known: ['before-upgrade'] },
  }),
  'ACODE-FRK-015': entry<{ fork: string; shown: string; now: string }>({
    title: 'fork has changed since its diff was shown',
    message: c =>
      `Nothing was applied: the changes of fork ${c.fork} are not those that were shown (diff ${c.shown.slice(0, DIFF_ID)}, now ${c.now.slice(0, DIFF_ID)}).`,
    hint: c => `Look at the changes again with \`acode fork diff ${c.fork}\`, then repeat the command.`,
    exit: 125,
    example: { fork: 'k7m2pqrt', shown: '5d41402abc4b2a76b9719d91', now: '7d793037a0760186574b0282' },
  }),
  'ACODE-FRK-016': entry<{
    fork: string;
    way: 'apply' | 'patch' | 'branch';
    rules: readonly RiskyKind[];
    /** Number of risky changes, of which `changes` are the first. */
    total: number;
    changes: readonly RiskyChange[];
  }>({
    title: 'risky changes not accepted',
    message: c =>
      `Nothing was ${wayOut(c.way).done}: fork ${c.fork} has ${c.total} ${c.total === 1 ? 'change' : 'changes'} that programs on this machine might execute or follow. Rules built into acode: ${c.rules.join(', ')}.`,
    hint: c =>
      `Look at the changes with \`acode fork diff ${c.fork}\`. If you want all of them: \`acode fork ${wayOut(c.way).command} ${c.fork} --accept-risk ${c.rules.join(',')}\`; \`acode fork apply ${c.fork} --only <path>\` leaves them out.`,
    exit: 125,
    example: {
      fork: 'k7m2pqrt',
      way: 'apply',
      rules: ['package-scripts'],
      total: 1,
      changes: [{ path: 'package.json', kind: 'package-scripts', reason: 'package managers execute or obey it' }],
    },
  }),
  'ACODE-FRK-017': entry<{ workspace: string; sandbox: string; kill: boolean }>({
    title: 'workspace in use by a sandbox',
    message: c =>
      `Nothing was applied: sandbox ${c.sandbox} has ${c.workspace} mounted writable, and could change it at the same time.`,
    hint: c =>
      c.kill
        ? `End it with \`acode sandbox kill ${c.sandbox}\`, or wait until it has ended, and repeat the command.`
        : 'Wait until it has ended, and repeat the command. `acode sandbox list` shows it.',
    exit: 125,
    example: { workspace: '/home/me/project', sandbox: '3f0c1e9a-8f57-4d0b-9a52-6f3f4f1f2f11', kill: true },
  }),
  'ACODE-FRK-021': entry<{ sandbox: string }>({
    title: 'sandbox without a fork',
    message: c => `The sandbox ${c.sandbox} has no fork: what its commands changed is in the workspace already.`,
    hint: () =>
      'Look at the changes with `git diff`. `acode sandbox create --fork` makes a sandbox that writes a fork.',
    exit: 125,
    example: { sandbox: 'a1b2c3d4' },
  }),
  'ACODE-FRK-009': entry<{ reason: string; entry?: string }>({
    title: 'archive of a fork refused',
    message: c =>
      `The archive was not imported: ${c.entry === undefined ? c.reason : `${JSON.stringify(c.entry)} in it is refused, because ${c.reason}`}.`,
    hint: () => 'Nothing was imported. Import a file that `acode fork export` wrote.',
    exit: 125,
    example: { reason: 'its path is absolute', entry: '/etc/cron.d/job' },
  }),
  'ACODE-IMG-001': entry<{ image: string; reason: string; remedy?: Text }>({
    title: 'project image not built',
    message: c => `The project image ${c.image} was not built: ${c.reason}.`,
    hint: c =>
      c.remedy ?? 'Nothing was changed: an earlier image of that name is still there. Fix the cause and try again.',
    exit: 125,
    example: { image: 'acode-sandbox-app-4f1c2d3e4a5b:project', reason: 'no space left on device' },
  }),
  'ACODE-IMG-002': entry<{ path: string; reason: string; remedy: string }>({
    title: 'project cannot become an image',
    message: c => `The project cannot be built into an image because of ${c.path}: ${c.reason}.`,
    hint: c => c.remedy,
    exit: 125,
    example: {
      path: 'assets/current',
      reason: 'it is a link that leads out of the project',
      remedy: 'Replace it with its target, or list it in .dockerignore.',
    },
  }),
  'ACODE-MSK-001': entry<{ path: string; others: number; because: 'time' | 'unreadable' | 'changing' }>({
    title: 'masked file moved',
    message: c =>
      `acode masked ${c.path} in this workspace before${c.others > 0 ? `, and ${c.others} more,` : ''} and cannot find it now: ${UNFOUND[c.because]}. A command that runs now could read it.`,
    hint: () =>
      'Run `acode masks rescan`: it searches the whole workspace however long that takes, masks the file where it is now, and forgets it if you deleted it.',
    exit: 125,
    example: { path: 'deploy/keys/server.pem', others: 0, because: 'time' },
  }),
  'ACODE-MSK-002': entry<
    | { problem: 'too-many'; path: string; count: number; limit: number }
    | { problem: 'name'; path: string; rule: string }
  >({
    title: 'file cannot be masked',
    message: c =>
      c.problem === 'too-many'
        ? `${c.count} files of this workspace are to be masked, such as ${c.path}; the limit is ${c.limit}.`
        : `${JSON.stringify(c.path)} is to be masked (${c.rule}), and its name is not valid UTF-8, so it cannot be passed to the engine.`,
    hint: c =>
      c.problem === 'too-many'
        ? 'Mask the directory that holds them with `acode config set sandbox.mask`, or name files that are not secret in `sandbox.unmask` of your own file.'
        : 'Rename the file or the directory it is in. If it is not secret, name it in `sandbox.unmask` of your own file.',
    exit: 125,
    example: { problem: 'too-many', path: 'fixtures/0001.env', count: 4711, limit: 512 },
  }),
  'ACODE-FRK-010': entry<{ workspace: string; fork: string }>({
    title: 'interrupted apply',
    message: c =>
      `An apply of the fork ${c.fork} to ${c.workspace} was interrupted: the workspace may have some of its changes.`,
    hint: () => 'Finish it with `acode fork apply --resume`, or undo it with `acode fork apply --rollback`.',
    exit: 125,
    example: { workspace: '/home/me/project', fork: 'k7m2pqrt' },
  }),
  'ACODE-FRK-011': entry<{ workspace: string; pid?: number }>({
    title: 'another apply is running',
    message: c =>
      `Another process${c.pid === undefined ? '' : ` (${c.pid})`} applies changes to ${c.workspace}. One apply runs at a time in a workspace.`,
    hint: () => 'Repeat the command when the other one has ended.',
    exit: 125,
    example: { workspace: '/home/me/project', pid: 4711 },
  }),
  'ACODE-FRK-012': entry<{ workspace: string }>({
    title: 'no interrupted apply',
    message: c => `No apply to ${c.workspace} was interrupted.`,
    hint: () => 'There is nothing to resume or to roll back. `acode fork list` shows the forks of the workspace.',
    exit: 125,
    example: { workspace: '/home/me/project' },
  }),
  'ACODE-FRK-013': entry<{ workspace: string; reason: string; state: 'unchanged' | 'interrupted' }>({
    title: 'apply failed',
    message: c => `The apply to ${c.workspace} failed: ${c.reason}.`,
    hint: c =>
      c.state === 'unchanged'
        ? 'The workspace is as it was. Remove the cause and repeat the command.'
        : 'The workspace may have some of the changes. Remove the cause, then finish with `acode fork apply --resume` or undo with `acode fork apply --rollback`.',
    exit: 125,
    example: { workspace: '/home/me/project', reason: 'no space left on the disk', state: 'unchanged' },
  }),
  'ACODE-FRK-022': entry<{ workspace: string; directory?: string; earlier?: string }>({
    title: 'leftover of an interrupted apply',
    message: c =>
      c.earlier === undefined
        ? `${c.directory} has files of yours that an interrupted apply had replaced, and no journal says where they belong.`
        : `An apply to this directory was interrupted when its name was ${c.earlier}: it may have some of the changes.`,
    hint: c =>
      c.earlier === undefined
        ? `Move away what you need of ${c.directory}/old, then type \`rm -r ${typed(c.directory)}\`.`
        : `Type \`mv ${typed(c.workspace)} ${typed(c.earlier)}\`, and there \`acode fork apply --resume\` to finish it or \`acode fork apply --rollback\` to undo it.`,
    exit: 125,
    example: { workspace: '/home/me/project', directory: '/home/me/project/.acode-apply' },
  }),
  'ACODE-FRK-014': entry<{ workspace: string; reason: string }>({
    title: 'apply is not possible here',
    message: c => `Changes cannot be applied to ${c.workspace}: ${c.reason}.`,
    hint: () => 'Take the changes out with `acode fork diff --patch`, and apply them with `git apply`.',
    exit: 125,
    example: { workspace: '/home/me/project', reason: 'its file system has no hard links' },
  }),
  'ACODE-FRK-018': entry<{
    fork: string;
    branch: string;
    reason: string;
    remedy?: string;
    /** Protected paths that the commits change and that were not named, where that is why. */
    protectedPaths?: readonly string[];
  }>({
    title: 'branch not made',
    message: c => `Branch ${JSON.stringify(c.branch)} was not created from fork ${c.fork}: ${c.reason}.`,
    hint: c => c.remedy ?? 'Apply the files instead: `acode fork apply`.',
    exit: 125,
    example: { fork: 'k7m2pqrt', branch: 'fix', reason: 'the repository has a branch of this name' },
  }),
  'ACODE-FRK-019': entry<{ fork: string; branch: string; reason: string }>({
    title: 'commits of a fork refused',
    message: c =>
      `Branch ${JSON.stringify(c.branch)} was not created: acode rejected the commits of fork ${c.fork}: ${c.reason}.`,
    hint: c =>
      `Ordinary git commands do not create such commits: a command in the fork may have made them to deceive git on this machine. See what it did with \`acode fork history ${c.fork}\` and \`acode fork diff ${c.fork}\`; \`acode fork discard ${c.fork}\` removes it.`,
    exit: 125,
    example: { fork: 'k7m2pqrt', branch: 'fix', reason: 'git index-pack rejected it: hasDotgit' },
  }),
  'ACODE-FRK-020': entry<{
    fork: string;
    problem: 'limit' | 'free-space';
    /** What the fork takes, or what is free for users on its disk. */
    bytes: number;
    /** The disk limit; 0 where the fork has none. */
    limitBytes: number;
    /** What is always kept free, and what running commands of other forks may still write. */
    keptBytes: number;
  }>({
    title: 'no disk space for the fork',
    message: c =>
      c.problem === 'limit'
        ? `The fork ${c.fork} takes ${formatBytes(c.bytes)}, and its disk limit is ${formatBytes(c.limitBytes)}.`
        : `The disk of the forks has ${formatBytes(c.bytes)} free, of which ${formatBytes(c.keptBytes)} are kept for the machine and other forks: too little for the fork ${c.fork} (disk limit: ${c.limitBytes === 0 ? 'none' : formatBytes(c.limitBytes)}).`,
    hint: c =>
      c.problem === 'limit'
        ? 'Raise --disk, take changes back with `acode fork undo`, or use --fork=new.'
        : 'Lower --disk, or remove forks: `acode fork list`, `acode fork discard <fork>`.',
    exit: 125,
    example: { fork: 'k7m2pqrt', problem: 'limit', bytes: 2_200_000_000, limitBytes: 2 * 1024 ** 3, keptBytes: 0 },
  }),
  'ACODE-AUD-001': entry<{ file: string; reason: string; remedy?: string }>({
    title: 'audit record not written',
    message: c => `fail-closed: the audit record could not be written to ${c.file} (${c.reason}).`,
    hint: c =>
      c.remedy ??
      'Nothing runs without its record. Make sure that you own the directory, that it is writable and that its disk has free space, then try again.',
    exit: 125,
    example: { file: '~/.local/state/acode/audit/000000000001.jsonl', reason: 'no space left on the disk' },
  }),
  'ACODE-AUD-002': entry<{ file: string; line: number; seq: number; fault: string; detail: string }>({
    title: 'audit log changed',
    message: c => `The audit log was changed: record ${c.seq} (${c.file}:${c.line}) is ${c.fault}: ${c.detail}.`,
    hint: c =>
      `${standing(c.fault)} To begin a new log, move the directory away unchanged, so that it can be investigated.`,
    exit: 125,
    example: {
      file: '~/.local/state/acode/audit/000000000001.jsonl',
      line: 42,
      seq: 42,
      fault: 'edited',
      detail: 'its content is not what its hash says',
    },
  }),
  'ACODE-AUD-003': entry<{ reference: string }>({
    title: 'no such audit record',
    message: c => `There is no audit record for ${c.reference}.`,
    hint: () => '`acode audit tail` shows the newest; a record is found by its number or by a correlation id.',
    exit: 125,
    example: { reference: '4711' },
  }),
  'ACODE-AUD-004': entry<{ file: string; reason: string }>({
    title: 'audit log not readable',
    message: c => `The audit log could not be read at ${c.file}: ${c.reason}.`,
    hint: () => 'Each user has a log of their own: read it as the user it belongs to.',
    exit: 125,
    example: { file: '~/.local/state/acode/audit', reason: 'permission denied' },
  }),
  'ACODE-EGR-001': entry<{ id: string }>({
    title: 'nothing pending',
    message: c => `Nothing with the id ${c.id} waits to be allowed.`,
    hint: () => '`acode egress pending` shows what does: what commands were refused in the last hour.',
    exit: 125,
    example: { id: '3fa9c1d2' },
  }),
  'ACODE-EGR-002': entry<{ host: string; reason: string; remedy?: string }>({
    title: 'host cannot be granted',
    message: c => `${c.host} cannot be granted: ${c.reason}.`,
    hint: c => c.remedy ?? 'Name the host in your own configuration if commands may reach it.',
    exit: 125,
    example: { host: '10.0.0.1', reason: 'it is not the full name of a host' },
  }),
} as const;

/** The code of an error of the library. The command and the MCP server have codes of their own. */
export type ErrorCode = keyof typeof ROWS;

/** The context of each code. */
type RowContexts = {
  [Code in ErrorCode]: (typeof ROWS)[Code] extends ErrorEntry<infer Context> ? Context : never;
};

/** Findings that any error may carry: what a scan of the workspace found although there is no result. */
export interface ErrorFindings {
  /** The image’s own shell runs in a sandbox before any command does, and can write wherever the sandbox can. */
  readonly riskyChanges?: readonly RiskyChange[];
}

/** What each error says about its circumstances, by code. */
export type ErrorContexts = { [Code in ErrorCode]: RowContexts[Code] & ErrorFindings };

/** Every error of the library, by code. */
export const ERRORS: { readonly [Code in ErrorCode]: ErrorEntry<RowContexts[Code]> } = ROWS;

function gib(bytes: number): string {
  return `${Math.round((bytes / 1024 ** 3) * 10) / 10} GiB`;
}
