// The attack corpus: each row, and the test that shows it. Nothing may be missing from it, and nothing is waived silently.

/** The groups of the corpus. Each has a file of hand-written rows; the others are the doctor’s own probes, in probes.test.ts. */
export type Group = 'escape' | 'mounts' | 'host-execution' | 'network' | 'resources' | 'secrets-and-policy';

/** Where a row is shown. */
export type Showing =
  | {
      readonly by: 'test';
      /** Whether the outcome can depend on the engine or its runtime: the long test suite tries such rows on every engine. */
      readonly engineSensitive: boolean;
      /** Whether gVisor can face it here; where it cannot, why. */
      readonly gvisor: true | string;
    }
  | { readonly by: 'pending'; readonly subject: string }
  | { readonly by: 'other level'; readonly reason: string };

/** One attack. */
export interface Row {
  readonly id: string;
  readonly title: string;
  readonly group: Group;
  /** Whether the doctor’s own probe shows it. The others are written by hand: no probe tries them, or the test attacks differently. */
  readonly probe: boolean;
  readonly showing: Showing;
}

const GROUPS: Readonly<Record<string, Group>> = {
  A: 'escape',
  B: 'mounts',
  C: 'host-execution',
  D: 'network',
  E: 'resources',
  F: 'secrets-and-policy',
};

const BEFORE_ENGINE = 'decided before an engine is asked: the runtime has no part in it';
const BY_LABELS = 'decided by owners and labels: the runtime has no part in it';
const PROXY = 'decided by the proxy outside of the sandbox: the runtime has no part in it';
const NO_INTERFACE = 'gVisor has no network interface on the test machines';

/** Depends on engine and runtime. */
const everywhere: Showing = { by: 'test', engineSensitive: true, gvisor: true };
/** Depends on the engine; the reason why gVisor does not face it. */
const engines = (gvisor: string): Showing => ({ by: 'test', engineSensitive: true, gvisor });
/** Decided on our side of the engine, or by the kernel of the host alone. */
const once = (gvisor: true | string = BEFORE_ENGINE): Showing => ({ by: 'test', engineSensitive: false, gvisor });
const otherLevel = (reason: string): Showing => ({ by: 'other level', reason });

const TABLE: readonly (readonly [id: string, title: string, showing: Showing])[] = [
  ['A1', 'core_pattern, sysrq', everywhere],
  ['A2', 'cgroup release_agent', everywhere],
  ['A3', 'uevent_helper', everywhere],
  ['A4', 'new user namespace', everywhere],
  ['A5', 'keyctl, add_key', everywhere],
  ['A6', 'userfaultfd', everywhere],
  ['A7', 'io_uring', everywhere],
  ['A8', 'vsock', everywhere],
  ['A9', 'vsock through i386', everywhere],
  ['A10', 'AF_ALG and other rare families', everywhere],
  ['A11', 'bpf, perf_event_open', everywhere],
  ['A12', 'mount, fsopen, pivot_root, setns', everywhere],
  ['A13', 'block device in the workspace', everywhere],
  ['A14', 'open_by_handle_at', everywhere],
  ['A15', 'modules, kexec, reboot', everywhere],
  ['A16', 'ptrace', everywhere],
  ['A17', 'setuid gain', everywhere],
  ['A18', 'leaked descriptors', everywhere],
  ['A19', 'runtime overwritten through exec', engines('runsc has no process of its own inside the sandbox')],
  ['A20', 'mount targets below /dev, /proc, /sys', engines(BEFORE_ENGINE)],
  ['A21', 'kernel log', everywhere],
  ['A22', 'masked paths', everywhere],
  ['A23', 'TIOCSTI', everywhere],
  ['B1', 'the root of the host as workspace', once()],
  ['B2', 'sibling prefix', once()],
  ['B3', 'workspace is a symlink', once()],
  ['B4', 'swap after validation', engines('the kernel of the host shows a gVisor sandbox only in part')],
  ['B5', 'protected path is a symlink', once()],
  ['B6', 'engine socket under another name', once()],
  ['B7', 'directory that holds an engine socket', once()],
  ['B8', 'podman, containerd, ssh-agent, gpg sockets', once()],
  ['B9', 'credential directories and their ancestors', once()],
  ['B10', 'nested mount under a read-only mount', everywhere],
  ['B11', 'colon and comma in a path', once(true)],
  ['B12', 'missing source', engines(BEFORE_ENGINE)],
  ['B13', 'two mounts on one target', once()],
  ['B14', 'gitdir file pointing at a secret', once(true)],
  ['C1', 'git hooks', everywhere],
  ['C2', 'fsmonitor, sshCommand', once(true)],
  ['C3', 'rename the parent', everywhere],
  ['C4', 'commondir, config.worktree, modules, info/attributes', once(true)],
  ['C5', 'nested repository', once(true)],
  ['C6', 'bare repository in a folder', once(true)],
  ['C7', 'workspace without .git', once(true)],
  ['C8', 'files that host tools execute or follow', once(true)],
  ['C9', 'planted programs on the PATH', once()],
  ['C10', '.npmrc node-options', once()],
  ['C11', 'symlink out', once(true)],
  ['C12', 'setuid file left behind', once(true)],
  ['C13', 'FIFO named .env', once('a FIFO made in gVisor is there alone: none reaches the host')],
  ['C14', 'deep directories, long names', once(true)],
  ['C15', 'sparse 1 TB file', everywhere],
  ['C16', 'escape sequences in output', once(true)],
  ['C17', 'log injection', once()],
  ['D1', 'egress, DNS, IPv6 with network none', everywhere],
  ['D2', 'abstract unix sockets of the host', everywhere],
  ['D3', 'host services through the bridge gateway', engines(NO_INTERFACE)],
  ['D4', 'host services through an internal network', once(NO_INTERFACE)],
  ['D5', 'other containers', engines(NO_INTERFACE)],
  ['D6', 'allowed name that resolves to a private address', once(PROXY)],
  ['D7', 'NUL, CR, space in a host name', once(PROXY)],
  ['D8', 'CONNECT to an address in odd forms', once(PROXY)],
  ['D9', 'rebinding', once(PROXY)],
  ['D10', 'SNI, Host and CONNECT differ', once(PROXY)],
  ['D11', 'suffix tricks', once(PROXY)],
  ['D12', 'program that ignores proxy variables', everywhere],
  ['D13', 'DNS tunnel', everywhere],
  ['E1', 'fork bomb', everywhere],
  ['E2', 'memory bomb, also in a child', everywhere],
  ['E3', 'fill tmpfs', everywhere],
  ['E4', 'inodes', engines('gVisor keeps its own files in memory, which the memory limit counts')],
  ['E5', '/dev/shm', engines('gVisor keeps its own files in memory, which the memory limit counts')],
  ['E6', 'fill the workspace disk', everywhere],
  ['E7', '1 GB of output', everywhere],
  ['E8', 'descriptors', everywhere],
  ['E9', 'ignores SIGTERM', once(true)],
  ['E10', 'setsid survivor', otherLevel('a container ends with all its processes; the levels ulimit and none face it')],
  [
    'E11',
    'nproc as root',
    otherLevel(
      'the levels ulimit and none face it, and are refused to root (tests/root, run as root); a container is never root and has a pids cgroup',
    ),
  ],
  ['E12', 'hostile tar as artifact', once(true)],
  ['E13', 'bomb archive', once(true)],
  ['E14', 'VOLUME in the image', everywhere],
  ['F1', 'environment leak', everywhere],
  ['F2', 'proxy credentials of the docker command line', once(true)],
  ['F3', 'secrets in labels, names, inspect', engines(BEFORE_ENGINE)],
  ['F4', 'secrets in argv in the audit log', once()],
  ['F5', 'repository config loosens policy', once()],
  ['F6', '__proto__ in YAML or JSON', once()],
  ['F7', 'YAML alias bomb, 10 MB config', once()],
  ['F8', 'LD_PRELOAD, NODE_OPTIONS, image ENV', everywhere],
  ['F9', 'hostile ENTRYPOINT, HEALTHCHECK, ONBUILD', everywhere],
  ['F10', 'odd image references', once()],
  ['F11', 'shell injection through limits, names, env', once()],
  ['F12', 'tag moved between check and use', engines(BEFORE_ENGINE)],
  ['F13', 'look-alike repository', once()],
  ['F14', 'client killed with -9', engines(BY_LABELS)],
  ['F15', 'reaper against a live peer session', engines(BY_LABELS)],
  ['F16', 'another user’s sandboxes on the same engine', engines(BY_LABELS)],
  ['F17', 'audit edited, cut, reordered, truncated', once()],
  ['F18', '8 processes writing the audit at once', once()],
  ['F19', 'no backend, hung daemon, half-open socket', once()],
  [
    'F20',
    'seccomp={}, misspelt HostConfig key',
    engines('the same request and the same check; runsc applies no filter of ours'),
  ],
];

// Each attacks by the same means as a hand-written test would, and its control shows that the attempt works.
const PROBED = new Set(
  [
    'A16 A18 A20',
    'B1 B2 B3 B5 B6 B7 B8 B11 B12 B13 B14',
    'C2 C3 C4 C5 C7 C11 C12 C13 C14',
    'E1 E3 E4 E5 E8 E9',
    'F1 F2 F5 F7 F10 F11 F20',
  ].flatMap(ids => ids.split(' ')),
);

/** Every row of the corpus, in its order. */
export const ROWS: readonly Row[] = TABLE.map(([id, title, showing]) => ({
  id,
  title,
  group: GROUPS[id.charAt(0)] ?? 'escape',
  probe: PROBED.has(id),
  showing,
}));

/** The row with this id; an unknown one is a mistake in a test. */
export function rowOf(id: string): Row {
  const row = ROWS.find(one => one.id === id);
  if (!row) throw new Error(`${id} is no row of the corpus`);
  return row;
}
