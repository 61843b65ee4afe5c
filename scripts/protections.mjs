// The protections, each with the smallest edit that takes it out and the attack tests that must then go red.
// @ts-check

/**
 * One textual edit: `find` must occur exactly once in the file.
 *
 * @typedef {{ file: string, find: string, put: string }} Edit
 *
 * A protection. `tests` is a file below tests/attacks (or, with a directory, below tests; or a unit test, from `packages/` on) and a pattern of test names. `layers` says what had to go: where
 * verification would refuse what the request no longer has, both were taken out. `command`: the built command is tested.
 *
 * @typedef {{ name: string, layers: string, edits: Edit[], tests: [file: string, pattern: string][], command?: true, deadlineMs?: number }} Protection
 */

const SRC = 'packages/sandbox/src';
const DOCKER = `${SRC}/isolation/docker`;
const SECCOMP = `${SRC}/isolation/seccomp`;
const REQUEST = `${DOCKER}/request.ts`;
const PROBES = 'probes.test.ts';
const ESCAPE = 'escape.test.ts';
const MOUNTS = 'mounts.test.ts';
const HOST = 'host-execution.test.ts';
const NETWORK = 'network.test.ts';
const RESOURCES = 'resources.test.ts';
const POLICY = 'secrets-and-policy.test.ts';
const REPOSITORY = 'hostile-repository.test.ts';
const ORPHANS = `${SRC}/lifecycle/orphans.ts`;
const REAPER = 'packages/sandbox/reaper/reaper.mjs';
const IMAGES = 'ownership/images.test.ts';
const REAPS = 'ownership/reaper.test.ts';
const STUCK = 'ownership/stuck.test.ts';
const LONG = 'ownership/long-lived.test.ts';
const CACHES = 'caches/caches.test.ts';
const PROJECT_IMAGE = 'project-image/build.test.ts';
const POOL = 'pool/bubblewrap.test.ts';
const FORK = `${SRC}/workspace/fork`;
const APPLY = `${FORK}/apply.test.ts`;
const BRANCH = `${FORK}/branch.test.ts`;
const STORE = `${FORK}/store.test.ts`;
const MASKS = 'masks/masks.test.ts';
const WAYS_OUT = `${SRC}/host/fork-apply.ts`;
const LEAVING = 'forks/apply.test.ts';
const EGRESS = `${SRC}/egress`;
const DECIDE = `${EGRESS}/decide.ts`;
const PROXY = `${EGRESS}/proxy/sandbox-proxy.ts`;
const PROXY_TEST = `${EGRESS}/proxy/sandbox-proxy.test.ts`;
const FUZZ = `${EGRESS}/proxy/fuzz.test.ts`;
const LISTS = 'egress/sandboxes.test.ts';
const HOOKS = 'packages/cli/src/hooks';
const TERMINAL = 'packages/cli/src/terminal';
const FLEET = 'packages/fleet/src';
const FORWARDER = 'egress/forwarder.test.ts';
const GIT_SSH = 'egress/ssh.test.ts';
const GIT_SSH_TEST = `${EGRESS}/proxy/git.test.ts`;
const SERVICES = 'services/services.test.ts';
const ACCESS_TEST = `${SRC}/host/network-access.test.ts`;
const CREDENTIALS = 'egress/credentials.test.ts';
const LOGINS = 'egress/logins.test.ts';
const LOGIN = `${SRC}/run/credentials/logins.ts`;
const LOGIN_TEST = `${SRC}/run/credentials/logins.test.ts`;
const REFRESHER = 'packages/sandbox/reaper/refresher.mjs';

/** @type {Edit[]} */
const VERIFICATION = [
  {
    file: `${DOCKER}/verify/inspection.ts`,
    find: '    ...compareWithEngine(spec, facts, seen.details, firstCommand(expected, seen.details)),\n',
    put: '',
  },
  {
    file: `${DOCKER}/verify/inspection.ts`,
    find: '    ...(seen.view ? compareWithKernel(spec, seen.view) : swappedSources(spec)),\n    ...facts.attachments.verify(spec, facts, seen),\n',
    put: '',
  },
];

/**
 * A protection of one layer.
 *
 * @param {string} name
 * @param {[file: string, find: string, put: string] | [file: string, find: string, put: string][]} edits
 * @param {[file: string, pattern: string][]} tests
 * @returns {Protection}
 */
function one(name, edits, tests) {
  const list = /** @type {[string, string, string][]} */ (Array.isArray(edits[0]) ? edits : [edits]);
  return { name, layers: 'one', edits: list.map(([file, find, put]) => ({ file, find, put })), tests };
}

/**
 * A field of the request, and with it the verification that would notice.
 *
 * @param {string} name
 * @param {[file: string, find: string, put: string]} edit
 * @param {[file: string, pattern: string][]} tests
 * @returns {Protection}
 */
function requested(name, edit, tests) {
  const plain = one(name, edit, tests);
  return { ...plain, layers: 'request + verification', edits: [...plain.edits, ...VERIFICATION] };
}

/** @type {Protection[]} */
export const PROTECTIONS = [
  requested(
    'the system call filter is dropped',
    [REQUEST, '...(seccomp === null ? [] : [`seccomp=${seccomp}`])', "'seccomp=unconfined'"],
    [[ESCAPE, 'A5 |A7 |A8 |A9 |A10 ']],
  ),
  one(
    'a command is believed that it never started',
    [
      `${SRC}/isolation/handover/status.ts`,
      "(claim.kind === 'exit') === this.#begun",
      "(claim.kind !== 'exit' || this.#begun)",
    ],
    [['workspace/risky-changes.test.ts', 'claims never to have started']],
  ),
  one(
    'a warm sandbox is made without a record',
    [`${SRC}/run/warm.ts`, '  await recordMadeAhead(host, { spec, profile, requestHash }, signal);\n', ''],
    [['pool/unused.test.ts', 'on record before']],
  ),
  one(
    'a warm sandbox that goes unused is not scanned',
    [
      `${SRC}/run/warm.ts`,
      '    removed: ({ spec, sinceMs }, rest) => scans.add(spec, sinceMs, rest),',
      '    removed: () => undefined,',
    ],
    [['pool/unused.test.ts', 'on record before']],
  ),
  one(
    'a sandbox that does not start is not scanned',
    [`${SRC}/run/obtaining.ts`, 'if (!usesEngine(level)) return error;', 'if (level !== null) return error;'],
    [['pool/unused.test.ts', 'does not start']],
  ),
  one(
    'the filter allows AF_VSOCK',
    [
      `${SECCOMP}/profile.ts`,
      '      [equal(0, NETLINK), equal(2, ROUTE)],',
      '      [equal(0, NETLINK), equal(2, ROUTE)], [equal(0, 40)],',
    ],
    [[ESCAPE, 'A8 ']],
  ),
  one(
    'the filter allows every socket family',
    [`${SECCOMP}/profile.ts`, '      [equal(0, NETLINK), equal(2, ROUTE)],', '      [],'],
    [[ESCAPE, 'A8 |A10 ']],
  ),
  one(
    'the filter allows io_uring',
    [
      `${SECCOMP}/groups.ts`,
      "...'inotify_init1 inotify_add_watch inotify_rm_watch'.split(' '),",
      "...'inotify_init1 inotify_add_watch inotify_rm_watch io_uring_setup io_uring_enter io_uring_register'.split(' '),",
    ],
    [[ESCAPE, 'A7 ']],
  ),
  one(
    'the filter allows sub-architectures',
    [
      `${SECCOMP}/profile.ts`,
      'architectures: [ENGINE_NAMES[architecture]],',
      "architectures: [ENGINE_NAMES[architecture], 'SCMP_ARCH_X86', 'SCMP_ARCH_X32'],",
    ],
    [[ESCAPE, 'A9 ']],
  ),
  one(
    'the filter allows new namespaces',
    [`${SECCOMP}/profile.ts`, 'alternatives: [[clear(0, NAMESPACES)]],', 'alternatives: [[]],'],
    [[ESCAPE, 'A4 ']],
  ),
  requested('capabilities are not dropped', [REQUEST, "    CapDrop: ['ALL'],\n", ''], [[ESCAPE, 'A17 ']]),
  requested('privileges may be gained', [REQUEST, "return ['no-new-privileges', ", 'return ['], [[ESCAPE, 'A17 ']]),
  requested(
    'the root file system is writable',
    [REQUEST, 'ReadonlyRootfs: true', 'ReadonlyRootfs: false'],
    [[PROBES, 'finds nothing open']],
  ),
  requested('no limit on processes', [REQUEST, 'PidsLimit: limits.pids', 'PidsLimit: 0'], [[PROBES, 'E1 ']]),
  requested('no limit on memory', [REQUEST, '    Memory: limits.memoryBytes,\n', ''], [[RESOURCES, 'E2 ']]),
  requested(
    'no limit on swap',
    [REQUEST, 'MemorySwap: limits.memoryBytes + limits.swapBytes', 'MemorySwap: -1'],
    [[RESOURCES, 'E2 ']],
  ),
  requested('tmpfs without a size', [REQUEST, 'size=${bytes},nr_inodes=${inodes},', ''], [[PROBES, 'E3 |E4 ']]),
  requested('tmpfs without a number of inodes', [REQUEST, 'nr_inodes=${inodes},', 'nr_inodes=0,'], [[PROBES, 'E4 ']]),
  requested(
    '/dev/shm of any size',
    [REQUEST, 'ShmSize: Math.min(SHM_BYTES, limits.memoryBytes)', 'ShmSize: 1024 ** 3'],
    [[PROBES, 'E5 ']],
  ),
  requested(
    'no limit on open files',
    [REQUEST, "      { Name: 'nofile', Soft: limits.openFiles, Hard: limits.openFiles },\n", ''],
    [[PROBES, 'E8 ']],
  ),
  requested(
    'the engine logs on disk',
    [REQUEST, "LogConfig: { Type: 'none', Config: {} }", "LogConfig: { Type: 'json-file', Config: {} }"],
    [[RESOURCES, 'E7 ']],
  ),
  requested(
    'the image’s entrypoint is kept',
    [REQUEST, '    Entrypoint: [...WAITING_COMMAND],\n', ''],
    [[POLICY, 'F9 ']],
  ),
  requested(
    'the image’s health check is kept',
    [REQUEST, "    Healthcheck: { Test: ['NONE'] },\n", ''],
    [[POLICY, 'F9 ']],
  ),
  requested(
    'the image’s volumes are kept',
    [`${SRC}/isolation/plan.ts`, 'const wanted = new Set(volumes.map(', 'const wanted = new Set([].map('],
    [[RESOURCES, 'E14 ']],
  ),
  one(
    'the image’s variables are kept',
    [
      `${SRC}/isolation/plan.ts`,
      "const kept = (variable: string): boolean => name(variable) === 'PATH' || !isDangerous(name(variable));",
      'const kept = (_: string): boolean => true;',
    ],
    [[POLICY, 'F8 ']],
  ),
  one(
    'dangerous variables are accepted',
    [`${SRC}/policy/environment.ts`, '    if (isDangerous(name)) {', '    if (name === "") {'],
    [[POLICY, 'F8 ']],
  ),
  requested(
    'mounts take what is mounted below along',
    [REQUEST, 'NonRecursive: true', 'NonRecursive: false'],
    [[MOUNTS, 'B10 ']],
  ),
  one(
    '.git is writable',
    [
      `${SRC}/workspace/mounts.ts`,
      'const protecting = readOnly ? [] : await protectParts(root, target);',
      'const protecting: MountSpec[] = [];',
    ],
    [
      [HOST, 'C1 '],
      [PROBES, 'C2 |C3 |C4 '],
    ],
  ),
  one(
    'only .git/hooks is protected',
    [`${SRC}/workspace/protected-paths.ts`, "  '.git': '", "  '.git/hooks': '"],
    [[PROBES, 'C2 |C3 |C4 ']],
  ),
  one(
    'a link in a protected place is followed',
    [
      `${SRC}/workspace/protected-paths.ts`,
      'return lstatSync(path, { throwIfNoEntry: false }) ?? null;',
      "return process.getBuiltinModule('node:fs').statSync(path, { throwIfNoEntry: false }) ?? null;",
    ],
    [[PROBES, 'B5 ']],
  ),
  one(
    'mount sources are not checked against the places of the host',
    [
      `${SRC}/workspace/mounts.ts`,
      '  const broken = readOnly && isPublic(path) ? null : trespass(path, rules.places);',
      '  const broken = null as ReturnType<typeof trespass>;',
    ],
    [[MOUNTS, 'B9 ']],
  ),
  one(
    'allowed roots are compared as text',
    [
      `${SRC}/workspace/mounts.ts`,
      '...rules.roots].some(root => isWithin(path, root))',
      '...rules.roots].some(root => path.startsWith(root))',
    ],
    [[PROBES, 'B2 ']],
  ),
  one(
    'links to a workspace are not resolved',
    [`${SRC}/workspace/locate.ts`, 'return realpathSync.native(resolve(path));', 'return resolve(path);'],
    [[PROBES, 'B3 ']],
  ),
  one(
    'sockets are not looked for',
    [
      [
        `${SRC}/workspace/mounts.ts`,
        '      if (!entry.isSocket()) continue;',
        '      if (entry.name !== "") continue;',
      ],
      [
        `${SRC}/workspace/mounts.ts`,
        '  if (found.isFile() || found.isDirectory()) return;',
        '  if (found.isFile() || found.isDirectory() || found.isSocket()) return;',
      ],
    ],
    [[PROBES, 'B6 |B7 |B8 ']],
  ),
  one(
    'mount targets are not checked',
    [
      `${SRC}/workspace/mounts.ts`,
      "  if (reason) throw refusal(target, 'ForbiddenTarget', reason, { remedy: TARGET_REMEDY });\n",
      '',
    ],
    [[PROBES, 'A20 ']],
  ),
  one(
    'the working directory may be anywhere',
    [`${SRC}/workspace/locate.ts`, '  if (!isWithin(inside, target)) {', '  if (inside === "") {'],
    [[PROBES, 'A18 ']],
  ),
  one(
    'verification does not compare which directory was mounted',
    [`${DOCKER}/verify/verify.ts`, '  if (swapped) differences.push(', '  if (found.root === "") differences.push('],
    [[MOUNTS, 'B4 ']],
  ),
  {
    name: 'no verification at all',
    layers: 'verification',
    edits: VERIFICATION,
    tests: [
      [MOUNTS, 'B4 '],
      [POLICY, 'F12 '],
      [PROBES, 'F20 '],
    ],
  },
  one(
    'hooks that the configuration names are writable',
    [
      `${SRC}/workspace/protected-paths.ts`,
      "...(await protectHooks(root, target, join(root, '.git')))",
      '...(root === target ? await protectHooks(root, target, root) : [])',
    ],
    [[HOST, 'C1 ']],
  ),
  one(
    'links are not followed inside the workspace',
    [`${SRC}/workspace/risky.ts`, '    if (named || role) this.#follow(visit, name, named, role);\n', ''],
    [[HOST, 'C1 |C8 ']],
  ),
  one(
    'a repository is known by its own directory alone',
    [`${SRC}/workspace/risky-names.ts`, "'config.worktree', 'commondir', ", ''],
    [[HOST, 'C6 ']],
  ),
  one(
    'settings of git are not read',
    [
      `${SRC}/workspace/risky.ts`,
      '    this.#putNamed(namedInside(this.#root, files, worktree, () => this.#isSpent()));\n',
      '',
    ],
    [[HOST, 'C1 ']],
  ),
  one(
    'nothing is reported after a run',
    [
      `${SRC}/workspace/after-run.ts`,
      '  if (roots.length === 0) return { ...NOTHING_WRITTEN, rest: null };\n  const ended',
      '  if (roots.length >= 0) return { ...NOTHING_WRITTEN, rest: null };\n  const ended',
    ],
    [
      [HOST, 'C6 |C8 '],
      [PROBES, 'C5 |C11 |C13 '],
    ],
  ),
  one(
    'a scan that its run had no time for does not go on',
    [
      `${SRC}/run/scanning.ts`,
      '  const { directories, sinceMs, untilMs, rest: atRest, final } = rest;\n',
      '  const { directories, sinceMs, untilMs, rest: atRest, final } = rest;\n  if (final || !final) return;\n',
    ],
    [['workspace/risky-changes.test.ts', 'finds the hook among 4,000 directories|scans after a cancelled command']],
  ),
  {
    ...one(
      'the next command does not say what a scan found after its own command had ended',
      ['packages/cli/src/cli.ts', '  if (!hasScans()) return;\n', '  if (hasScans() || !hasScans()) return;\n'],
      [['cli/scans.test.ts', 'by the next command']],
    ),
    command: true,
  },
  {
    ...one(
      'a program without a terminal loosens the policy unasked',
      ['packages/cli/src/consent.ts', '  if (yes) return', '  if (yes || !canAsk(call.io)) return'],
      [[REPOSITORY, 'without a terminal']],
    ),
    command: true,
  },
  {
    ...one(
      'a loosened policy is not recorded',
      [`${SRC}/host/configuration.ts`, '  if (loosens.length > 0) await', '  if (loosens.length > 99) await'],
      [[REPOSITORY, 'without a terminal']],
    ),
    command: true,
  },
  one(
    'an untrusted file of the repository may loosen',
    [
      `${SRC}/policy/repository.ts`,
      'const [untrusted, ...others] = repository.trusted ? [] : keysThatNeedTrust(repository);',
      'const [untrusted, ...others] = repository.trusted ? [] : keysThatNeedTrust(repository).slice(99);',
    ],
    [
      [PROBES, 'F5 '],
      [REPOSITORY, 'once it is trusted'],
    ],
  ),
  one(
    'the repository may set what only the user may',
    [
      `${SRC}/policy/config/load.ts`,
      "    if (rule === 'never' || (rule === 'fixed' && !isFixedValue(key, found))) {",
      "    if (key === '') {",
    ],
    [[PROBES, 'F5 ']],
  ),
  {
    ...one(
      'names that reach a prototype are accepted',
      [
        [`${SRC}/policy/config/shape.ts`, '      if (PROTOTYPE_KEYS.has(key)) return', "      if (key === '') return"],
        [
          `${SRC}/contract/policy-schema.ts`,
          'export const policyInputSchema = z.strictObject({',
          'export const policyInputSchema = z.looseObject({',
        ],
      ],
      [[POLICY, 'F6 ']],
    ),
    layers: 'shape + schema',
  },
  {
    ...one(
      'YAML is not bounded',
      [
        [`${SRC}/policy/config/document.ts`, 'const MAX_LEXEMES = 20_000;', 'const MAX_LEXEMES = 1e9;'],
        [`${SRC}/policy/config/document.ts`, 'const MAX_ALIASES = 20;', 'const MAX_ALIASES = Infinity;'],
        [`${SRC}/policy/config/document.ts`, 'const MAX_ITEMS = 500;', 'const MAX_ITEMS = 1e9;'],
        [`${SRC}/policy/config/shape.ts`, 'const MAX_VALUES = 20_000;', 'const MAX_VALUES = 1e15;'],
        [`${SRC}/policy/config/shape.ts`, 'export const MAX_DEPTH = 32;', 'export const MAX_DEPTH = 1e9;'],
      ],
      [[PROBES, 'F7 ']],
    ),
    layers: 'text + shape',
    // An unbounded file keeps the process busy for ever: what never ends is red as well.
    deadlineMs: 60_000,
  },
  one(
    'images from anywhere run',
    [
      `${SRC}/policy/images.ts`,
      'export function decideImage(',
      'export function decideImage(..._: unknown[]): void {}\nexport function formerlyDecideImage(',
    ],
    [[POLICY, 'F13 ']],
  ),
  one(
    'a repository and a model may name any image of this machine',
    [
      [`${SRC}/images/pulling.ts`, '  assertMayName(policy);\n', ''],
      [
        `${SRC}/images/pulling.ts`,
        '  assertOrigin(policy, found, await wasPulled(host, policy, found, signal));\n',
        '',
      ],
    ],
    [['languages/languages.test.ts', 'to name, unless']],
  ),
  one(
    'a model’s call pulls what it names',
    [`${SRC}/policy/pull.ts`, 'return modelForbids(image, imageNaming);', 'return null;'],
    [['languages/languages.test.ts', 'is not pulled']],
  ),
  one(
    'a file with a private key counts as a bundle of CA certificates',
    [`${SRC}/run/user-files.ts`, "label !== 'CERTIFICATE'", "label === ''"],
    [['network/ca.test.ts', 'trust a server']],
  ),
  one(
    'image references are not checked',
    [
      `${SRC}/policy/images.ts`,
      'export function checkReference(image: Sourced<string>): Sourced<string> {',
      'export function checkReference(image: Sourced<string>): Sourced<string> {\n  if (image.where !== "") return image;',
    ],
    [[PROBES, 'F10 ']],
  ),
  one(
    'images run by their tag',
    [REQUEST, 'Image: spec.image.id,', 'Image: spec.image.reference,'],
    [[POLICY, 'F12 ']],
  ),
  requested(
    'ports are published on every address',
    [REQUEST, "HostIp: '127.0.0.1'", "HostIp: '0.0.0.0'"],
    [[NETWORK, 'D5 ']],
  ),
  one(
    'containers on the bridge reach each other',
    [
      [`${DOCKER}/resources/networks.ts`, "Options: { [ICC]: 'false' },", "Options: { [ICC]: 'true' },"],
      [`${DOCKER}/resources/networks.ts`, "[Options?.[ICC] === 'false', ", '[Options !== undefined, '],
    ],
    [[NETWORK, 'D5 ']],
  ),
  one(
    'air-gapped mode is ignored',
    [`${SRC}/policy/network.ts`, "if (mode.value === 'airgapped') return", "if (mode.where === '') return"],
    [[NETWORK, 'D3 ']],
  ),
  one(
    'a host is granted without a terminal and without --yes',
    ['packages/cli/src/consent.ts', 'if (!canAsk(call.io) || call.options.json) {', 'if (call.options.json) {'],
    [['packages/cli/src/commands/egress.test.ts', 'without a terminal']],
  ),
  one(
    'a granted host is not recorded',
    [
      `${SRC}/host/network-access.ts`,
      '  await host.audit.append(grantedEvent(access, until, consent), signal);',
      '  grantedEvent(access, until, consent);',
    ],
    [[ACCESS_TEST, 'is recorded first']],
  ),
  one(
    'a grant undoes what a file denies',
    [`${SRC}/policy/network.ts`, 'if (decision.allowed) return rules.map', 'if (decision !== null) return rules.map'],
    [[ACCESS_TEST, 'never undoes what a file denies']],
  ),
  one(
    'a grant for one command is not used up by it',
    [`${SRC}/policy/trust.ts`, '      unlinkSync(this.#fileOf(grant));', '      this.#fileOf(grant);'],
    [[ACCESS_TEST, 'for once']],
  ),
  one(
    'a grant reaches other workspaces',
    [`${SRC}/policy/trust.ts`, 'grant => grant.workspace === workspace && (', "grant => grant.workspace !== '' && ("],
    [[ACCESS_TEST, 'reaches no other workspace']],
  ),
  one(
    'a model’s request for a host is its own answer',
    [
      `${SRC}/host/network-access.ts`,
      '  await host.audit.append(event);\n',
      '  await host.audit.append(event);\n  host.grants.add({ id, entry, workspace, taskId: null, once: false, expiresAt: new Date(Date.now() + HOUR_MS).toISOString() });\n',
    ],
    [['packages/cli/src/mcp/tools/tools.test.ts', 'only a person answers']],
  ),
  one(
    '--learn=open needs no consent',
    [
      'packages/cli/src/execution/learn.ts',
      '  if (options.isOpen) await',
      '  if (options.isOpen && argv.length > 99) await',
    ],
    [['packages/cli/src/commands/egress.test.ts', 'needs the consent of the user']],
  ),
  one(
    'a bridge needs no consent',
    [`${SRC}/policy/network.ts`, '  if (consent === true) return;', '  if (consent !== false) return;'],
    [[NETWORK, 'D3 ']],
  ),
  {
    ...one(
      'compiled code is read from where a sandbox can write',
      [
        'packages/cli/src/start/code-cache.ts',
        'return [directory, realPath(directory)].some(path => mayBeShared(path, places)) ? null : { directory, uid };',
        'return [directory, realPath(directory)].some(path => mayBeShared(path, places)) ? { directory, uid } : { directory, uid };',
      ],
      [['cli/code-cache.test.ts', 'planted .* never runs']],
    ),
    command: true,
  },
  {
    ...one(
      'output reaches a terminal as it is',
      [
        `${SRC}/run/output/terminal.ts`,
        "out += colour ?? safe(text[at] ?? '', text[at + 1]);",
        "out += colour ?? (text[at] ?? '');",
      ],
      [[HOST, 'C16 ']],
    ),
    command: true,
  },
  {
    ...one(
      'nobody waits for the death of a client',
      [
        `${SRC}/lifecycle/reaper.ts`,
        `const WAIT = 'while IFS= read -r word; do [ "$word" = done ] && exit 0; making=$word; done; exec "$@" "$making"';`,
        "const WAIT = 'exit 0';",
      ],
      [[POLICY, 'F14 ']],
    ),
    command: true,
  },
  {
    ...one(
      'an owner that lives is taken for dead',
      [`${SRC}/lifecycle/orphans.ts`, "if (owner === 'dead') return", "if (owner !== 'unknown') return"],
      [[POLICY, 'F15 ']],
    ),
    command: true,
  },
  {
    ...one(
      'the user of a sandbox is not looked at',
      [`${SRC}/lifecycle/orphans.ts`, "if (found.labels['acode.uid'] !== String(uid)) return 'another user';", ''],
      [[POLICY, 'F16 ']],
    ),
    command: true,
  },
  ...[
    one(
      'uninstall removes whatever is in its directories',
      [`${SRC}/host/uninstall.ts`, 'names.filter(one => own.test(one)', 'names.filter(one => (own.test(one) || true)'],
      [['ownership/uninstall.test.ts', 'removes only what acode put there,']],
    ),
    one(
      'uninstall removes the audit log without being asked',
      [`${SRC}/host/uninstall.ts`, ' && !kept.has(join(directory, one))', ''],
      [['ownership/uninstall.test.ts', 'nothing is left but the audit log']],
    ),
    one(
      'uninstall forgets what other hosts have left',
      [`${SRC}/host/uninstall.ts`, 'images.failed, elsewhere].every(', 'images.failed].every('],
      [['ownership/uninstall.test.ts', 'says what another host']],
    ),
    one(
      'an image may carry labels of acode’s own',
      [`${DOCKER}/images/image-store.ts`, '  if (own.length === 0) return;', '  if (own.length >= 0) return;'],
      [[IMAGES, 'of acode’s own is refused']],
    ),
    one(
      'a container is ours by labels that an image can have',
      [
        [
          ORPHANS,
          '(containerName === undefined || labels[NAME] === containerName)',
          '(containerName === undefined || labels[NAME] !== undefined)',
        ],
        [REAPER, "    (kind !== 'container' || labels['acode.name'] === nameOf(thing)) &&\n", ''],
      ],
      [[IMAGES, 'made of a sandbox does not make an orphan']],
    ),
    one(
      'acode in the workspace is writable',
      [
        `${SRC}/workspace/mounts.ts`,
        'const own = readOnly ? null : await protectInstallation(root, target, installation);',
        'const own = null as MountSpec | null;',
      ],
      [['ownership/installed.test.ts', 'is read-only to the sandbox;']],
    ),
    one(
      'the reaper does not know what is being made',
      [REAPER, 'const isExpecting = () => making.size > 0 &&', 'const isExpecting = () => making.size < 0 &&'],
      [['ownership/slow-create.test.ts', 'leaves nothing of a client']],
    ),
    one(
      'the reaper takes what was kept',
      [REAPER, "    labels['acode.keep'] !== 'true'\n", "    labels['acode.keep'] !== ''\n"],
      [[REAPS, 'spares what was kept,']],
    ),
    one(
      'the reaper does not look at the user',
      [REAPER, "    labels['acode.uid'] === String(task.uid) &&\n", ''],
      [[REAPS, 'spares what was kept,']],
    ),
    one(
      'the reaper does not look at the host',
      [REAPER, "    labels['acode.host'] === task.host &&\n", ''],
      [[REAPS, 'spares what was kept,']],
    ),
    one(
      'the reaper’s round ends at the first thing it cannot remove',
      [
        [
          REAPER,
          'await Promise.allSettled(due.map(removeInTime))',
          "(await Promise.all(due.map(removeInTime))).map(value => ({ status: 'fulfilled', value }))",
        ],
        [REAPER, '      failures.push(error);', '      throw error;'],
      ],
      [[REAPS, 'goes on with everything else']],
    ),
  ].map(protection => ({ ...protection, command: /** @type {const} */ (true) })),
  one(
    'a removal has no deadline of its own',
    [
      `${SRC}/run/removing.ts`,
      'withDeadline({ clock, ms, signal, reason }',
      'withDeadline({ clock, ms: 1e8, signal, reason }',
    ],
    [[STUCK, 'is a failure that cleanup reports']],
  ),
  one(
    'the sweep holds up the end of a session',
    [`${SRC}/host/sweep.ts`, 'cancel = clock.after(CLOSING_MS, tooLong);', 'cancel = clock.after(SWEEP_MS, tooLong);'],
    [[STUCK, 'holds up no command']],
  ),
  one(
    'the sweep does not judge again what it looks at again',
    [`${SRC}/run/removing.ts`, "      if (!(await may(now))) return 'spared';\n", ''],
    [['ownership/second-look.test.ts', 'stays where its owner']],
  ),
  one(
    'a runtime directory that was replaced says who is dead',
    [
      `${SRC}/run/removing.ts`,
      "return state === 'dead' && !(await isStillHost(directories.runtime, identity)) ? 'unknown' : state;",
      'return identity === isStillHost.name ? "unknown" : state;',
    ],
    [['ownership/second-look.test.ts', 'stays where the runtime directory']],
  ),
  one(
    'a caller’s logger may stop a run',
    [
      `${SRC}/records/telemetry.ts`,
      'harmless(() => this.#logger',
      '((tell: () => unknown): void => void tell())(() => this.#logger',
    ],
    [['ownership/callers.test.ts', 'a caller’s']],
  ),
  one(
    'what was given up is not tried again',
    [
      `${SRC}/lifecycle/removal.ts`,
      'if (!busy.has(id)) void this.begin(id, remove);',
      'if (busy.has("")) void this.begin(id, remove);',
    ],
    [[LONG, 'removes what it had given up']],
  ),
  one(
    'nobody looks after the socket of an owner',
    [`${SRC}/lifecycle/reaper.ts`, '    await socket.ensure();\n', '    socket.path.at(0);\n'],
    [[LONG, 'is not taken for dead']],
  ),
  one(
    'bridges are kept for every session there was',
    [
      `${DOCKER}/resources/networks.ts`,
      'if (at >= idle.length - MAX_IDLE && now - shared.idleSince <= MAX_IDLE_MS) continue;',
      'if (at >= 0 && now - shared.idleSince <= MAX_IDLE_MS) continue;',
    ],
    [[LONG, 'keeps no bridge']],
  ),
  {
    name: 'less than what is required may be asked for',
    layers: 'one',
    edits: [
      {
        file: `${SRC}/run/level.ts`,
        find: "  if (asked !== 'auto' && !isAtLeast(asked, policy.required.value)) throw tooWeak(asked, policy);\n",
        put: '  void tooWeak;\n',
      },
    ],
    tests: [['governance/levels.test.ts', 'docker that is required and absent']],
    command: true,
  },
  {
    name: 'critical commands need no more than others',
    layers: 'one',
    edits: [
      {
        file: `${SRC}/policy/risk.ts`,
        find: "  if (risk === 'critical') return { value: 'docker', layer: 'built-in', where: 'critical' };\n",
        put: "  if (risk === 'critical') return null;\n",
      },
      {
        file: `${SRC}/policy/risk.ts`,
        find: "const REQUIRED_FOR: readonly Risk[] = ['high', 'critical'];",
        put: "const REQUIRED_FOR: readonly Risk[] = ['high'];",
      },
    ],
    tests: [['governance/levels.test.ts', 'docker that is required and absent']],
    command: true,
  },
  {
    name: 'a weaker level stands in for an engine that refuses',
    layers: 'one',
    edits: [
      { file: `${SRC}/run/level.ts`, find: ' || error.context.absent !== true) return null;', put: ') return null;' },
    ],
    tests: [['governance/fail-closed.test.ts', 'refuses where nobody listens']],
    command: true,
  },
  {
    name: 'a run without its record',
    layers: 'one',
    edits: [
      {
        file: `${SRC}/run/obtaining.ts`,
        find: 'intent: await writing, provision }',
        put: "intent: await writing.catch(() => ({ seq: 0, hash: '' })), provision }",
      },
    ],
    tests: [['governance/fail-closed.test.ts', 'audit log cannot be written']],
    command: true,
  },
  one(
    'a bubblewrap sandbox may make user namespaces',
    [`${SRC}/isolation/bubblewrap/start.ts`, "    '--disable-userns',\n    '--assert-userns-disabled',\n", ''],
    [['levels/bubblewrap-attacks.test.ts', 'A4: no user namespace']],
  ),
  one(
    'a bubblewrap sandbox has the host’s network',
    [
      `${SRC}/isolation/bubblewrap/start.ts`,
      "...(hostNetwork || network.kind === 'allow' ? [] : ['--unshare-net']),",
      '',
    ],
    [['levels/bubblewrap-attacks.test.ts', 'leaves nothing open but what the documentation names']],
  ),
  {
    ...one(
      'a bubblewrap sandbox has the caller’s environment',
      [
        [`${SRC}/isolation/bubblewrap/start.ts`, "'--clearenv', ", ''],
        [
          `${SRC}/isolation/process/child.ts`,
          'env: { ...environment }, stdio',
          'env: { ...process.env, ...environment }, stdio',
        ],
      ],
      [['levels/bubblewrap-attacks.test.ts', 'F1: the environment']],
    ),
    layers: 'both: bubblewrap clears what it is started with, and is started with nothing',
  },
  one(
    'a base image may execute something while a project image is built on it',
    [
      `${SRC}/images/project/project-base.ts`,
      'if (base.triggers.length === 0) return base;',
      'if (base.id) return base;',
    ],
    [[PROJECT_IMAGE, 'is refused, before anything is sent']],
  ),
  one(
    'Podman builds project images, and executes what it does not tell of',
    [
      `${DOCKER}/images/image-store.ts`,
      'this.impossible = engine.connection.isPodman ?',
      'this.impossible = !engine ?',
    ],
    [[PROJECT_IMAGE, 'Podman, which hides']],
  ),
  one(
    'secrets of a project become part of its image',
    [
      `${SRC}/images/project/context.ts`,
      'this.#rules.ignore !== null && isSecret(entry.path)',
      'isSecret(entry.path) && false',
    ],
    [[PROJECT_IMAGE, 'holds no secret under any name']],
  ),
  one(
    'links of a project lead out of it',
    [
      `${SRC}/images/project/context.ts`,
      'if (!this.#rules.linksOut && leadsOut(path, target))',
      'if (leadsOut(path, target) && false)',
    ],
    [[PROJECT_IMAGE, 'is refused, before anything is sent']],
  ),
  one(
    'a volume that only has the name of a cache is one',
    [
      `${DOCKER}/resources/volume-rules.ts`,
      "return isPlain ? null : 'it leads somewhere else';",
      'return isPlain ? null : null;',
    ],
    [[CACHES, 'only has the name of one']],
  ),
  one(
    'two runs fill a cache at the same time',
    [`${DOCKER}/resources/caches.ts`, 'if (made.Labels?.[NONCE] !== nonce) return null;', ''],
    [[CACHES, 'one run at a time']],
  ),
  one(
    'a cache is read while it is filled',
    [
      `${DOCKER}/resources/caches.ts`,
      'while (await this.#isFilled(cache, signal)) {',
      'while (cache.fill && (await this.#isFilled(cache, signal))) {',
    ],
    [['caches/failures.test.ts', 'planned before the fill began']],
  ),
  one(
    'dependencies of a project image are mounted although they are a link to the host',
    [
      `${DOCKER}/resources/dependencies.ts`,
      "if (kind !== 'directory') throw strangeImage(spec, path, kind);",
      'void strangeImage;',
    ],
    [['project-image/dependencies.test.ts', 'leads elsewhere']],
  ),
  one(
    'a sandbox that could not be removed is forgotten as a neighbour',
    [
      `${DOCKER}/resources/creation.ts`,
      '    await this.#options.removals.begin(id, this.remover);\n  }',
      '    await this.#options.removals.begin(id, this.remover);\n    this.mountConflicts.left(id);\n  }',
    ],
    [['verification/mounts.test.ts', 'could not be removed']],
  ),
  one(
    'who comes to the engine later is not noticed',
    [`${DOCKER}/resources/creation.ts`, 'return this.#stamp.hasLastedSince(mark) ? [', 'return mark !== null ? ['],
    [['verification/mounts.test.ts', 'has run commands before']],
  ),
  one(
    'the mounts of a sandbox that waited are not compared again',
    [`${SRC}/isolation/process/held.ts`, 'if (table !== mounts)', 'if (table === null)'],
    [[POOL, 'though it was there at the last look']],
  ),
  one(
    'nothing is looked at between the last look and the command',
    [`${DOCKER}/execution/waiting.ts`, '    if (!this.#isLost) this.#same?.();\n', ''],
    [['pool/engines.test.ts', 'though it was there at the last look']],
  ),
  one(
    'nothing is looked at between the last look and the command, without an engine',
    [
      `${SRC}/isolation/process/execution.ts`,
      '    if (this.#held && !processes.child.ended) assertHeld(this.#held, spec);\n',
      '',
    ],
    [[POOL, 'though it was there at the last look']],
  ),
  one(
    'a command goes on although its sandbox has lost a mount',
    [`${SRC}/isolation/supervise.ts`, 'if (!execution.assertSame) return;', 'if (execution.ended) return;'],
    [[POOL, 'during which a protected part is made anew']],
  ),
  one(
    'what was started with its command is not looked at',
    [
      `${DOCKER}/execution/waiting.ts`,
      'const { details, held } = await inspectStarted(engine, id, expected, signal);',
      'const { details, held } = { details: await engine.containers.inspect(id, { signal }), held: null };',
    ],
    [['verification/mounts.test.ts', 'somebody came while it was started']],
  ),
  one(
    'a kept sandbox that was changed goes on',
    [`${SRC}/persistent/connect.ts`, 'if (!isChanged(error)) throw error;', 'if (error !== null) throw error;'],
    [['sessions/replaced.test.ts', 'is ended when it is looked for']],
  ),
  one(
    'a sandbox that waits is for any plan',
    [`${SRC}/run/warm.ts`, 'key: `${spec.hash} ${profile}`', 'key: `${profile}`'],
    [[POOL, 'a command with another policy']],
  ),
  one(
    'a sandbox that was given out stays in the pool',
    [
      `${SRC}/isolation/pool/pool.ts`,
      '      kind.waiting.delete(one.sandbox.id);\n      this.#tell();\n      if (await',
      '      this.#tell();\n      if (await',
    ],
    [[POOL, 'given out once']],
  ),
  one(
    'images are remembered whatever the engine says of them',
    [
      `${DOCKER}/resources/creation.ts`,
      'if (counts(event)) this.#events += 1;',
      'if (counts(event)) this.#events += 0;',
    ],
    [['pool/moved-tag.test.ts', 'is noticed by the next']],
  ),
  {
    ...one(
      'a socket that others can use is trusted',
      ['packages/cli/src/serve/socket-path.ts', 'return (mode & OTHERS) === 0 ? null', 'return mode > 0 ? null'],
      [['serve/trust.test.ts', 'whose socket has mode|others can enter']],
    ),
    command: true,
  },
  {
    ...one(
      'a background process keeps what its command was given open',
      ['packages/cli/src/serve/start.ts', '  closeInherited();\n', ''],
      [['serve/background.test.ts', 'in a session of its own']],
    ),
    command: true,
  },
  {
    ...one(
      'a background process lives on when its workspace is another one',
      ['packages/cli/src/serve/serve-calls.ts', 'if (before.workspace !== now.workspace)', 'if (now.workspace === "")'],
      [['serve/background.test.ts', 'when its workspace is removed']],
    ),
    command: true,
  },
  one(
    'a way of an artifact leads through a link',
    [`${SRC}/persistent/files/arrival.ts`, 'DIRECTORY | constants.O_NOFOLLOW)', 'DIRECTORY)'],
    [[RESOURCES, 'E12 ']],
  ),
  one(
    'what an artifact says of its size is not looked at',
    [
      [`${SRC}/persistent/files/download.ts`, '  tally.announce(Number(size));\n', ''],
      [`${SRC}/persistent/files/download.ts`, '  tally.announce(size);\n', ''],
    ],
    [[RESOURCES, 'E13 ']],
  ),
  one(
    'a command goes on that no shell inside could end',
    [
      [`${DOCKER}/execution/exec-execution.ts`, "if (name === 'SIGKILL') gone.tell(", "if (name === '') gone.tell("],
      // The second layer: what is not seen to end goes with the sandbox.
      [`${DOCKER}/execution/exec-execution.ts`, '        gone.tell(COULD_NOT);\n        throw', '        throw'],
    ],
    [['sessions/commands.test.ts', 'lets no command go on beyond its time']],
  ),
  {
    ...one(
      'a kept sandbox is used under other rules than its own',
      [
        `${SRC}/persistent/connect.ts`,
        "if (planned.spec.hash !== info.labels['acode.spec'])",
        "if (planned.spec.hash === '')",
      ],
      [['sessions/command-line.test.ts', 'cannot be used, and can be']],
    ),
    command: true,
  },
  {
    ...one(
      'the MCP server asks nobody for the token',
      [
        'packages/cli/src/mcp/listener.ts',
        'if (!isToken(arrival.authorization, token)) return',
        "if (token === '') return",
      ],
      [['mcp/hostile.test.ts', 'are turned away']],
    ),
    command: true,
  },
  {
    ...one(
      'the MCP server answers pages of others',
      ['packages/cli/src/mcp/listener.ts', 'if (arrival.origin !== undefined && ', 'if (arrival.origin === null && '],
      [['mcp/hostile.test.ts', 'are turned away']],
    ),
    command: true,
  },
  {
    ...one(
      'the MCP server answers to any name',
      ['packages/cli/src/mcp/listener.ts', ' || !names.includes(arrival.host.toLowerCase()))', ')'],
      [['mcp/hostile.test.ts', 'are turned away']],
    ),
    command: true,
  },
  {
    ...one(
      'risky changes of an MCP command are told to the model alone',
      [
        'packages/cli/src/mcp/serve-mcp.ts',
        'await use(reportingHost(host, report, () => late.splice(0)));',
        'await use(reportingHost(host, () => undefined, () => late.splice(0)));',
      ],
      [['mcp/hostile.test.ts', 'reaches the person too']],
    ),
    command: true,
  },
  {
    ...one(
      'a name that a command chose begins a line of acode’s answer',
      [
        ['packages/cli/src/mcp/risks.ts', 'path: cut(oneLine(path), MAX_PATH),', 'path: cut(path, MAX_PATH),'],
        ['packages/cli/src/mcp/risks.ts', '${reason}): ${shownPath(path)}`', '${reason}): ${path}`'],
      ],
      [['mcp/hostile.test.ts', 'cannot speak in acode’s name']],
    ),
    layers: 'both: the answer holds the name in one line, and its text quotes it in one line',
    command: true,
  },
  {
    ...one(
      'a closed pipe silences what is known of the workspace',
      ['packages/cli/src/execution/execute.ts', 'await sayNotices(call, riskyNotices(ended.unread));', ''],
      [['cli/closing-lines.test.ts', 'told though the reader']],
    ),
    command: true,
  },
  {
    ...one(
      'a model has more memory than the user allows',
      [
        'packages/cli/src/mcp/tighten.ts',
        'if (wanted === undefined || wanted <= allowed) return wanted;',
        'if (wanted !== -1) return wanted;',
      ],
      [['mcp/hostile.test.ts', 'cannot loosen the policy']],
    ),
    command: true,
  },
  {
    ...one(
      'a program in a shell does with the terminal what it likes',
      [
        'packages/cli/src/terminal/raw-terminal.ts',
        'const text = this.#filter.push(data);',
        'const text = Buffer.from(data).toString();',
      ],
      [['sessions/shell.test.ts', 'cannot reach the']],
    ),
    command: true,
  },
  one(
    'a program in a shell writes the clipboard without consent',
    [`${TERMINAL}/screen-filter.ts`, "return this.#clipboard ? text : '';", 'return text;'],
    [[`${TERMINAL}/screen-filter.test.ts`, 'is not written without consent']],
  ),
  one(
    'what is written to the clipboard may end the paste and run',
    [`${TERMINAL}/clipboard.ts`, ' || UNSAFE.test(text)', ''],
    [[`${TERMINAL}/screen-filter.test.ts`, 'never takes']],
  ),
  one(
    'pasted text leaves the shell and ends what runs there',
    [`${TERMINAL}/raw-terminal.ts`, 'if (this.#pasted.holds(key)) out.push(key);', 'if (key < 0) out.push(key);'],
    [[`${TERMINAL}/terminal.test.ts`, 'the keys that leave']],
  ),
  one(
    'a program takes the keys with which the user leaves it',
    [`${TERMINAL}/key-modes.ts`, 'const ALLOWED = 0b101;', 'const ALLOWED = 0b11111;'],
    [[`${TERMINAL}/screen-filter.test.ts`, 'without releases of keys']],
  ),
  one(
    'a sandbox that stays goes on without its protected mounts',
    [`${DOCKER}/execution/open.ts`, '      this.#parts.same();\n', ''],
    [['sessions/replaced.test.ts', 'before its next command']],
  ),
  one(
    'whoever says that a command was ended is believed',
    [
      [`${DOCKER}/execution/exec-execution.ts`, 'if (heard.includes(word)) told();', 'if (heard.length > 0) told();'],
      [`${DOCKER}/execution/exec-execution.ts`, '    await this.#exitOf(execId, this.#parts.life, ENDED_MS);\n', ''],
    ],
    [['sessions/hostile.test.ts', 'a command that answers for the shells']],
  ),
  one(
    'a terminal that was given up early goes on',
    [`${DOCKER}/execution/open.ts`, 'if (this.#pid > 0) await this.#around.end(this.#pid, this.#started.execId);', ''],
    [['sessions/hostile.test.ts', 'a terminal that is given up before it begins']],
  ),
  one(
    'what a command left goes on while artifacts are taken',
    [`${SRC}/persistent/artifacts.ts`, 'const quiet = open.quiet(until);', 'const quiet = Promise.resolve();'],
    [['sessions/artifacts.test.ts', 'when the command ended']],
  ),
  one(
    'a command that ends its sandbox is not looked after',
    [
      `${SRC}/run/running.ts`,
      '    this.#addScan(result, await changesOfRun(ended, host.telemetry.clock));\n    recordRisk',
      '    recordRisk',
    ],
    [['sessions/hostile.test.ts', 'hides nothing by that']],
  ),
  one(
    'a killed process has as long as any other to be gone',
    [`${DOCKER}/execution/exec-execution.ts`, '    this.#patience = ENDED_MS;\n', '    this.#patience = 60_000;\n'],
    [['sessions/hostile.test.ts', 'has no longer than its time limit']],
  ),
  one(
    'a command that was killed with its sandbox says no more than that it was killed',
    [`${DOCKER}/execution/exec-execution.ts`, '      if (exitCode === KILLED) await this.#unlessGone();\n', ''],
    [['sessions/host.test.ts', 'however late the engine says so']],
  ),
  one(
    'a kept sandbox is extended when its end has come',
    [`${SRC}/persistent/sandbox.ts`, '.getTime() <= clock.now())', '.getTime() < 0)'],
    [['sessions/kept.test.ts', 'cannot be extended when its time is over']],
  ),
  one(
    'a shell that wakes up while it waits counts as asleep',
    [
      `${DOCKER}/execution/waiting.ts`,
      'if (!now || now.processes !== first.processes) return null;',
      'if (!now) return null;',
    ],
    [['pool/unused.test.ts', 'but not what the user changes while nothing runs in it']],
  ),
  one(
    'an apply follows a directory that became a link',
    [
      `${FORK}/tree.ts`,
      'const OPEN_DIRECTORY = O_RDONLY | O_DIRECTORY | O_NOFOLLOW;',
      'const OPEN_DIRECTORY = O_RDONLY | O_DIRECTORY;',
    ],
    [[APPLY, 'does not lead out of the workspace when a directory becomes a link']],
  ),
  one(
    'what an apply replaced is not compared with what it was to replace',
    [`${FORK}/commit.ts`, 'const conflicts = await this.#unexpected();', 'const conflicts: ForkConflict[] = [];'],
    [[APPLY, 'before its turn, and undoes the rest']],
  ),
  one(
    'an apply does not search for processes that still write to what it replaced',
    [`${FORK}/commit.ts`, 'const writers = writersOf(this.#area.old);', 'const writers = new Map<string, number>();'],
    [[APPLY, 'undoes all where a process still has a replaced file open for writing']],
  ),
  one(
    'an apply takes modes as they are in the fork',
    [`${FORK}/tree.ts`, 'return wanted & ((0o777 & ~umask) | own);', 'return wanted;'],
    [[APPLY, 'copies content alone']],
  ),
  one(
    'a resumed apply takes new files as it finds them',
    [`${FORK}/commit.ts`, 'if (!this.#isFresh && ', 'if (false && !this.#isFresh && '],
    [[APPLY, 'has its files in the workspace where that is another mount']],
  ),
  one(
    'risky changes leave a fork unasked',
    [WAYS_OUT, '    if (missing.length > 0) await this.#refuse(rules);\n', '    void missing;\n'],
    [[LEAVING, 'by either way, as long as the risks are not accepted']],
  ),
  one(
    'an apply takes another diff than the one that was shown',
    [WAYS_OUT, 'diffId !== undefined && !isSameDiff(diffId, id)', 'diffId !== undefined && id === ""'],
    [[LEAVING, 'has changed since its diff was shown']],
  ),
  one(
    'an apply does not look for sandboxes that can write the tree',
    [WAYS_OUT, '  if (!check) await refuseWriters(host, record.workspace);\n', '  void refuseWriters;\n'],
    [[LEAVING, 'until no other sandbox can write the same tree']],
  ),
  one(
    'what links and git settings lead to is not judged in a fork',
    [`${FORK}/risk.ts`, 'for (const path of this.#written) this.#addLed(path, leads);', 'void leads;'],
    [
      [LEAVING, 'is reported for every attack'],
      [`${FORK}/risk.test.ts`, 'leads to|repository names|fork changed names'],
    ],
  ),
  {
    ...one(
      'a program without a terminal applies changes unasked',
      [
        'packages/cli/src/commands/fork-apply.ts',
        '  if (!form.check && !form.yes) refuseUnasked(call);\n',
        '  void refuseUnasked;\n',
      ],
      [[LEAVING, 'needs a person']],
    ),
    command: true,
  },
  one(
    'a persistent sandbox goes on while its fork is read',
    [
      `${SRC}/run/fork-rest.ts`,
      "    if (container.state === 'running') await engine.freeze(container.containerId, 'pause', signal);\n",
      '',
    ],
    [
      ['forks/levels.test.ts', 'is shown and applied while it is written'],
      ['forks/levels.test.ts', 'is copied while it is written'],
    ],
  ),
  one(
    'a fork on an engine is not compared with what was checked',
    [`${DOCKER}/resources/overlays.ts`, '        ...overlayDifferences(planned, view, details.State.Pid),\n', ''],
    [['forks/forks.test.ts', 'is refused where its .+ is exchanged']],
  ),
  one(
    'an engine is given mount options that the kernel cuts',
    [
      [`${FORK}/store.ts`, '    assertOptions(overlayOptions(spec, source), id);\n', ''],
      [`${DOCKER}/resources/overlays.ts`, '    assertOptions(options, overlay.fork);\n', ''],
    ],
    [['forks/forks.test.ts', 'before the engine sees them']],
  ),
  one(
    'a fork takes the layers along that other forks were made of',
    [`${FORK}/store.ts`, '    if (this.#isShared(id)) {', '    if (this.read(id) === undefined) {'],
    [[STORE, 'has what the snapshot has']],
  ),
  one(
    'an undo leaves the layers that it takes back',
    [`${FORK}/store.ts`, 'layers: record.layers.slice(0, kept), snapshots });', 'layers: record.layers, snapshots });'],
    [[STORE, 'has what the snapshot has']],
  ),
  one(
    'two commands write one fork, because a lock is taken for granted',
    [
      [`${SRC}/run/forking.ts`, '  if (mayLive(holder)) return true;\n', ''],
      // The next layer: a sandbox that the engine still has.
      [
        `${SRC}/run/forking.ts`,
        'if (!found.some(sandbox => sandbox.sandboxId === sandboxId)) return false;',
        'return false;',
      ],
      // The last layer: one that is still mounted somewhere is not ended.
      [`${SRC}/run/forking.ts`, '  if (active?.sandboxId !== null) return;\n', '  if (active) return;\n'],
    ],
    [['forks/levels.test.ts', 'is written by one command at a time']],
  ),
  one(
    'an archive of a fork names paths outside of it',
    [`${FORK}/archive.ts`, '    if (fault !== null) refuse(fault);\n', '    void fault;\n'],
    [[STORE, 'and nothing of it is left']],
  ),
  one(
    'an archive of a fork writes through its own links',
    [
      `${FORK}/archive.ts`,
      "    if (this.#kinds.get(directory) !== 'directory') refuse('the directory that it is in is not an entry before it');\n",
      '',
    ],
    [[STORE, 'and nothing of it is left']],
  ),
  one(
    'a change to a copy that left size and inode as they were is lost',
    [`${FORK}/copy.ts`, '`${stats.ino}.${stats.size}.${stats.ctimeNs}`', '`${stats.ino}.${stats.size}`'],
    [[`${FORK}/copy.test.ts`, 'finds a change that left size and time']],
  ),
  one(
    'a workspace of any size is copied for a fork',
    [
      `${FORK}/copy.ts`,
      'this.#paths.length > this.#limits.entries || this.#bytes > this.#limits.bytes',
      'this.#bytes < 0',
    ],
    [[`${FORK}/copy.test.ts`, 'is refused beyond its limits']],
  ),
  one(
    'a fork at level bubblewrap is not compared with what was checked',
    [`${SRC}/isolation/bubblewrap/verify.ts`, '    ...forkDifferences(forks, spec, seen.shell, started.shell),\n', ''],
    [['forks/levels.test.ts', 'is refused where its .+ is exchanged']],
  ),
  one(
    'a fork is given to a second command while a sandbox writes it',
    [
      `${SRC}/run/forking.ts`,
      'if (!found.some(sandbox => sandbox.sandboxId === sandboxId)) return false;',
      'if (found.length >= 0) return false;',
    ],
    [['forks/levels.test.ts', 'is in use while the sandbox exists']],
  ),
  one(
    'bubblewrap is given mount options that the kernel cuts',
    [`${SRC}/isolation/bubblewrap/forks.ts`, '    assertOptions(options, overlay.fork);\n', ''],
    [[`${SRC}/isolation/bubblewrap/forks.test.ts`, 'options that the kernel would cut']],
  ),
  one(
    'a command goes on when its fork has reached the disk limit',
    [`${SRC}/run/running.ts`, 'limitBytes: spec.disk?.bytes ?? null', 'limitBytes: null'],
    [['forks/disk.test.ts', 'ends a command that reaches it']],
  ),
  one(
    'the program of an agent is unpacked whatever its hash is',
    ['packages/agents/src/program.ts', 'if (found !== integrity)', 'if (found === null)'],
    [['packages/agents/src/agents.test.ts', 'with another hash is not kept']],
  ),
  one(
    'settings of an agent are written through what an earlier run left in their place',
    ['packages/agents/src/start.ts', `  case $kind in new*) gone "$path" ;; esac\n`, ''],
    [['packages/agents/src/agents.test.ts', 'writes its files over links']],
  ),
  one(
    'what an earlier run put beside the user’s own texts stays',
    ['packages/agents/src/start.ts', 'each gone "$ACODE_SEED_CLEAR"\n', ''],
    [['packages/agents/src/agents.test.ts', 'writes its files over links']],
  ),
  one(
    'values of variables and headers of MCP servers are copied',
    ['packages/agents/src/copied.ts', '.filter(([field]) => fields.includes(field))', ''],
    [['packages/agents/src/agents.test.ts', 'is copied by key']],
  ),
  one(
    'a server with a secret in its arguments is copied',
    ['packages/agents/src/copied.ts', 'Object.values(kept).some(carriesSecret)', 'false'],
    [['packages/agents/src/agents.test.ts', 'is copied by key']],
  ),
  one(
    'requests beyond the budget of a sandbox are sent',
    [`${SRC}/egress/proxy/budget.ts`, 'if (spent === null)', "if (spent !== 'none')"],
    [[`${SRC}/egress/proxy/budget.test.ts`, 'of requests refuses the one after']],
  ),
  one(
    'a command goes on when its budget is used up',
    [`${SRC}/isolation/supervise.ts`, 'if (!timedOut && !hasEnded) end();', ''],
    [[`${SRC}/isolation/supervise.test.ts`, 'ends one that is stopped']],
  ),
  one(
    'a file of agents that others can write counts',
    ['packages/agents/src/known.ts', ' || (found.mode & OTHERS_WRITE) !== 0', ''],
    [['packages/agents/src/agents.test.ts', 'is refused where a key is unknown']],
  ),
  one(
    'a sandbox can write a program of the store',
    [`${SRC}/run/programs.ts`, 'target, readOnly: true, identity', 'target, readOnly: false, identity'],
    [['workspace/programs.test.ts', 'cannot be changed from inside']],
  ),
  one(
    'two sandboxes have one state directory at the same time',
    [`${SRC}/run/state.ts`, '  if (!use) return null;\n', '  if (use || !use) return null;\n'],
    [['workspace/state.test.ts', 'belongs to one sandbox at a time']],
  ),
  one(
    'a command goes on when its state directory has reached its limit',
    [`${SRC}/run/running.ts`, 'limitBytes: policy.state.value?.bytes ?? STATE_BYTES', 'limitBytes: null'],
    [['workspace/state.test.ts', 'is limited in size']],
  ),
  one(
    'the state of a project is scanned on the host',
    [
      `${SRC}/workspace/after-run.ts`,
      "(purpose === 'additional' && !readOnly)",
      "((purpose === 'additional' || purpose === 'state') && !readOnly)",
    ],
    [['workspace/state.test.ts', 'reported by no scan']],
  ),
  one(
    'fallocate takes blocks in a fork with a disk limit',
    [`${SRC}/isolation/docker/runtime.ts`, 'diskLimited: disk !== undefined', 'diskLimited: false'],
    [['forks/disk.test.ts', 'ends a command that reaches it']],
  ),
  one(
    'a fork may use the disk to the last block',
    [`${SRC}/run/disk.ts`, "if (this.#left < 0) return { kind: 'end', by: 'free-space' };", ''],
    [[`${SRC}/run/disk.test.ts`, 'ends a command below the floor']],
  ),
  one(
    'memory for a fork has no size',
    [`${DOCKER}/resources/volume-rules.ts`, 'return `size=${bytes},nr_inodes', 'return `nr_inodes'],
    [['forks/disk.test.ts', 'gives “no space left”']],
  ),
  one(
    'memory for a fork may take all that its command has',
    [`${SRC}/run/forking.ts`, 'if (diskBytes.value > most)', 'if (diskBytes.value > Infinity * most)'],
    [['forks/disk.test.ts', 'is refused beyond half of the memory']],
  ),
  one(
    'a limit of disk throughput that the engine left out goes unnoticed',
    [`${DOCKER}/verify/verify.ts`, '    ...throughputChecks(spec, details.HostConfig),\n', ''],
    [[`${DOCKER}/verify/verify.test.ts`, 'that the engine left out']],
  ),
  one(
    'a limit of disk throughput is ignored where the kernel would not keep it',
    [`${SRC}/run/throughput.ts`, "if (level !== 'docker') return refuse", "if (level === 'none') return refuse"],
    [[`${SRC}/run/throughput.test.ts`, 'refused where the host']],
  ),
  one(
    'files with secrets are not masked',
    [`${SRC}/run/planning.ts`, '[...written.mounts, ...masks.mounts, ', '[...written.mounts, '],
    [[MASKS, 'are as many|hold in a sandbox that waited|of a persistent sandbox']],
  ),
  one(
    'a masked file is shown by a further mount of its directory, or of itself',
    [
      `${SRC}/run/masking.ts`,
      "purpose === 'additional' || (purpose === 'workspace' && !isFork)",
      "purpose === 'workspace' && !isFork",
    ],
    [[MASKS, 'are also over']],
  ),
  one(
    'a mask that is gone goes unnoticed',
    [`${SRC}/isolation/process/held.ts`, "if (table !== mounts) assertMasked(mounts, table ?? '', spec);", ''],
    [
      [MASKS, 'is replaced on the host while'],
      [`${SRC}/isolation/process/held.test.ts`, 'not where the masked file is replaced'],
    ],
  ),
  one(
    'a mask over something else than was found goes unnoticed',
    [`${SRC}/isolation/kernel.ts`, 'covers && !isCoveredInPlace(covers)', 'covers && false'],
    [[`${SRC}/isolation/process/held.test.ts`, 'once another file is at the path of a masked one']],
  ),
  one(
    'files with secrets are not masked in a fork',
    [`${SRC}/run/forking.ts`, 'if (!record || masked.length === 0) return [];', 'if (masked) return [];'],
    [['masks/forks.test.ts', 'are empty, can be written']],
  ),
  one(
    'what commands wrote to masked files is a part of a diff',
    [
      `${FORK}/store.ts`,
      'return { workspace, uppers, masked };',
      'return { workspace, uppers, masked: masked.slice(0, 0) };',
    ],
    [['masks/forks.test.ts', 'are no part of what changed']],
  ),
  one(
    'masked files become a part of a project image',
    [
      `${SRC}/images/project/building.ts`,
      'ignore: IgnoreRules.parse(ignoreText), masked, linksOut',
      'ignore: IgnoreRules.parse(ignoreText), linksOut',
    ],
    [[PROJECT_IMAGE, 'holds no secret under any name']],
  ),
  one(
    'commits of a fork are taken as they are',
    [`${FORK}/branch-quarantine.ts`, "['index-pack', '--strict', ", "['index-pack', "],
    [[BRANCH, 'are refused where git, or a person, would be tricked']],
  ),
  one(
    'the memory of git that checks commits is not limited',
    [`${FORK}/branch-quarantine.ts`, 'ulimit -v "$1" 2>/dev/null; ', ''],
    [[BRANCH, 'are refused where git, or a person, would be tricked']],
  ),
  one(
    'a branch replaces one that exists',
    [`${FORK}/branch-host.ts`, '      this.refuseTaken(ref);\n', ''],
    [[BRANCH, 'keeps every branch that it has']],
  ),
  one(
    'the lock of a process that lives is taken for a dead one’s',
    [`${FORK}/branch-host.ts`, 'holder !== null && isProvablyGone(holder, me)', 'holder !== null && me !== null'],
    [[BRANCH, 'goes on where a process of acode was killed over a lock']],
  ),
  one(
    'commits of a fork are not judged by the rules for risky changes',
    [
      `${SRC}/host/fork-branch.ts`,
      '= risksOfCommits(checked, workspace);',
      '= risksOfCommits({ ...checked, changes: [] }, workspace);',
    ],
    [
      ['forks/branch.test.ts', 'is what was committed inside'],
      ['forks/branch.test.ts', 'is nothing of any attack'],
    ],
  ),
  one(
    'the copy of a file in the base of a fork is not compared with its digest',
    [`${FORK}/base-copies.ts`, '  if (digestOf(whole) !== shared.sha256) return null;\n', ''],
    [[`${FORK}/base-copies.test.ts`, 'is none any more where']],
  ),
  one(
    'a file of the workspace is taken for what a fork began with whatever its digest',
    [
      `${FORK}/diff.ts`,
      "content === 'workspace' || hasDigest(file, size, content.sha256)",
      "content === 'workspace' || hasDigest !== undefined",
    ],
    [[`${FORK}/diff.test.ts`, 'is known by its digest']],
  ),
  one(
    'the base of a fork relies on files that a sandbox goes on writing',
    [
      `${FORK}/base.ts`,
      'if (!layerHasFile || this.#layer.isLive === true) return null;',
      'if (!layerHasFile) return null;',
    ],
    [[`${FORK}/diff.test.ts`, 'takes little space']],
  ),
  one(
    'allow-list: a repository over HTTPS stands for its whole host',
    [
      `${EGRESS}/rules.ts`,
      'requests: requestsOf(repository, push',
      "requests: [{ methods: ['GET', 'POST'], path: '/' }] ?? requestsOf(repository, push",
    ],
    [
      [`${EGRESS}/rules.test.ts`, 'for a repository over HTTPS'],
      ['egress/git-https.test.ts', 'clones, fetches and pushes'],
    ],
  ),
  one(
    'allow-list: a repository over HTTPS that is listed to be read can be pushed to',
    [`${EGRESS}/rules.ts`, "requestsOf(repository, push !== '')", 'requestsOf(repository, true)'],
    [
      [`${EGRESS}/rules.test.ts`, 'for a repository over HTTPS'],
      ['egress/git-https.test.ts', 'does not push'],
    ],
  ),
  one(
    'allow-list: a host without a rule is let through',
    [
      DECIDE,
      "const reason = ofHost.some(({ verdict }) => verdict === 'allow') ? 'other-port' : 'not-listed';",
      "if (rules[0]) return { allowed: true, host, rule: rules[0] };\n    const reason = 'not-listed';",
    ],
    [
      [LISTS, 'reaches the hosts of its list'],
      [FUZZ, 'reaches what the rules allow'],
    ],
  ),
  one(
    'allow-list: private addresses are dialled for every name',
    [
      DECIDE,
      'isOneOf(own, address, family)) return rule.private === true;',
      'isOneOf(own, address, family)) return true;',
    ],
    [[LISTS, 'a name with a private address is refused']],
  ),
  one(
    'allow-list: metadata addresses are dialled for names of the user’s file',
    [DECIDE, 'if (NEVER.check(address, family)) return false;', ''],
    [[`${EGRESS}/decide.test.ts`, 'is always refused']],
  ),
  one(
    'allow-list: the name is dialled and not the address that was checked',
    [
      `${EGRESS}/proxy/dial.ts`,
      'return await connectTo(address, port, signal);',
      "return await connectTo((await resolved(host, options))[0] ?? '', port, signal);",
    ],
    [[PROXY_TEST, 'resolves a name once']],
  ),
  one(
    'allow-list: the TLS server name may be another',
    [PROXY, "if (first.value.serverName?.toLowerCase() !== host) throw new Refused('sni-differs', rule.id);", ''],
    [
      [PROXY_TEST, 'refuses server name'],
      [FUZZ, 'reaches what the rules allow'],
    ],
  ),
  one(
    'allow-list: methods and paths are not enforced',
    [
      `${EGRESS}/proxy/http.ts`,
      'const isLent = this.#gate.decideRequest(rule, { method, target: path, host, port, headers });',
      'const isLent = false;',
    ],
    [
      [PROXY_TEST, 'enforces methods and paths'],
      [FUZZ, 'reaches what the rules allow'],
    ],
  ),
  one(
    'allow-list: a new plan leaves the connections of the old one',
    [PROXY, 'for (const use of this.#uses) if (!this.#isStillAllowed(use)) use.connection.close();', ''],
    [[PROXY_TEST, 'closes the connections that it does not allow']],
  ),
  one(
    'allow-list: a sandbox has as many connections as it likes',
    [PROXY, 'this.#isUsedUp() || this.#connections.size >= this.limits.connections', 'this.#isUsedUp()'],
    [[PROXY_TEST, 'closes a connection beyond the limit']],
  ),
  one(
    'allow-list: the proxy’s authority may sign any name',
    [`${EGRESS}/proxy/certificates.ts`, '      extension(OID.nameConstraints, true, constraints(names)),\n', ''],
    [[PROXY_TEST, 'makes an authority that is trusted for the inspected names only']],
  ),
  one(
    'allow-list: a sandbox names any listener',
    [
      `${EGRESS}/relay/control.ts`,
      'return this.#listeners.get(name) ?? null;',
      "const [address = '', port] = name.split(':');\n    return this.#listeners.get(name) ?? { address, port: Number(port), host: address };",
    ],
    [[`${EGRESS}/relay/relay.test.ts`, 'claim what is not theirs']],
  ),
  one(
    'allow-list: a forwarder that was replaced is mounted',
    [`${SRC}/isolation/egress.ts`, 'if (sha256(bytes) === hash) return;', 'if (hash !== path) return;'],
    [[FORWARDER, 'is refused when the forwarder on disk was replaced']],
  ),
  one(
    'credentials: another credential passes on a host that gets one',
    [DECIDE, 'pathFault(rule, asked) ??\n    credentialFault(rule, asked);', 'pathFault(rule, asked);'],
    [[CREDENTIALS, 'any other one is refused there']],
  ),
  one(
    'logins: a refresh that a sandbox asks for goes to the server',
    [
      `${EGRESS}/proxy/http.ts`,
      'if (tokens) await this.#answerTokens(request, response, { decided, tokens });\n      else await',
      'await',
    ],
    [[LOGINS, 'refreshed here and ended nowhere']],
  ),
  one(
    'logins: a sandbox may end them',
    [PROXY, "if (does === 'end') throw new Refused('login-kept', rule.id);", ''],
    [[LOGINS, 'refreshed here and ended nowhere']],
  ),
  one(
    'logins: a refresh with any refresh token is answered',
    [
      `${EGRESS}/credentials/login.ts`,
      "return token === refreshPlaceholder ? 'refresh' : 'foreign';",
      "return token === refreshPlaceholder || token !== '' ? 'refresh' : 'foreign';",
    ],
    [[`${EGRESS}/credentials/login.test.ts`, 'is for the placeholder']],
  ),
  one(
    'logins: everybody refreshes at the same time',
    [
      [
        LOGIN,
        'return await this.#options.locks.during(`login ${this.#file(name)}`, { deadlineMs: waitMs, signal }, work);',
        'return await work();',
      ],
      [REFRESHER, 'linkSync(draft, next);', 'renameSync(draft, next);'],
    ],
    [[LOGIN_TEST, 'is refreshed once']],
  ),
  one(
    'logins: the refresher dies with the one that asked',
    [
      LOGIN,
      "const leave = (): void => settle(null, 'it was cancelled');",
      "const leave = (): void => {\n      child.kill('SIGKILL');\n      settle(null, 'it was cancelled');\n    };",
    ],
    [[LOGIN_TEST, 'survives the death of who asked']],
  ),
  one(
    'logins: what a dead refresher had read is lost',
    [REFRESHER, 'const found = leftTokens(login);', 'const found = null;'],
    [[LOGIN_TEST, 'takes over what a dead refresher had read']],
  ),
  one(
    'logins: a refresh token goes to whatever server the configuration has',
    [LOGIN, 'if (login.tokenUrl !== definition.tokenUrl || login.clientId !== definition.clientId)', 'if (false)'],
    [[LOGIN_TEST, 'is not there for a file that others may read, another server']],
  ),
  one(
    'logins: a code of another login is taken',
    [
      `${EGRESS}/credentials/authorization.ts`,
      "if (query.get('state') !== state) throw new AuthorizationError('the answer is of another login: begin anew');",
      '',
    ],
    [[`${SRC}/host/logins.test.ts`, 'fails where a browser with another state comes']],
  ),
  one(
    'git over SSH: a rule for one repository allows every other of its host',
    [
      `${EGRESS}/repository.ts`,
      'asked === repository || asked === `/${repository}`;',
      "asked !== null && repository !== '';",
    ],
    [
      [GIT_SSH, 'refuses another repository'],
      [GIT_SSH_TEST, 'refuses another repository'],
    ],
  ),
  one(
    'git over SSH: a repository that may be read can be pushed to',
    [
      `${EGRESS}/repository.ts`,
      "if (!found.methods.includes(service)) return { allowed: false, reason: 'service', rule };",
      '',
    ],
    [
      [GIT_SSH, 'refuses another repository'],
      [GIT_SSH_TEST, 'refuses another repository'],
    ],
  ),
  one(
    'git over SSH: a server with an unknown key is believed',
    [`${EGRESS}/proxy/git.ts`, "'StrictHostKeyChecking=yes'", "'StrictHostKeyChecking=no'"],
    [[GIT_SSH, 'whose key is another or unknown']],
  ),
  one(
    'git over SSH: the server of a repository can be connected to for anything',
    [DECIDE, "return via === 'git' ? null : 'git-only';", 'return null;'],
    [
      [GIT_SSH, 'everything of the host besides Git'],
      [GIT_SSH_TEST, 'lead nowhere else'],
    ],
  ),
  one(
    'git over SSH: ssh outlives its sandbox',
    [`${EGRESS}/proxy/git.ts`, "client.once('close', kill);", ''],
    [[GIT_SSH, 'ends ssh when the sandbox ends']],
  ),
  requested(
    'allow-list: the engine gives the sandbox a network',
    [REQUEST, 'NetworkMode: facts.network,', "NetworkMode: 'bridge',"],
    [[FORWARDER, 'no packet leaves by another way']],
  ),
  one(
    'allow-list: a repository’s list widens that of the user',
    [
      `${SRC}/policy/network.ts`,
      "? narrowed(rules, repositoryList(repository, 'allow')) : rules;",
      "? [...rules, ...repositoryList(repository, 'allow')] : rules;",
    ],
    [[`${SRC}/policy/network.test.ts`, 'is narrowed by the repository’s file and never widened']],
  ),
  one(
    'allow-list: a model’s list may be any',
    [
      `${SRC}/policy/network.ts`,
      "askedBy === 'model' ? [...byRepository(own, layers), ...grantedRules(layers)] : null",
      "askedBy === 'model' && own.length > 99 ? own : null",
    ],
    [[`${SRC}/policy/network.test.ts`, 'of a model is in the list of the user’s file']],
  ),
  one(
    'allow-list: every service of this host can be listed by a request',
    [`${SRC}/policy/network.ts`, 'if (rules.some(({ host }) => host === HOST_SERVICE) && ', "if (entry === '' && "],
    [[LISTS, 'one service of this host is reached']],
  ),
  one(
    'services: one is not verified, and writes the file system of its image',
    [
      [`${DOCKER}/resources/services.ts`, '    await sandbox.verify(until);\n', ''],
      [REQUEST, 'ReadonlyRootfs: true,', 'ReadonlyRootfs: !isJoining(facts),'],
    ],
    [[SERVICES, 'has nothing of the command and no rights']],
  ),
  one(
    'services: one runs as root',
    [`${SRC}/run/services.ts`, 'if (isOrdinary(found)) return found;', "if (named !== 'nobody') return found;"],
    [[SERVICES, 'when they do not become ready']],
  ),
  one(
    'services: one has no limit of its own',
    [`${SRC}/run/services.ts`, 'Math.min(memoryBytes ?? MEMORY_BYTES, most)', 'most'],
    [[SERVICES, 'have limits of their own']],
  ),
  one(
    'services: one stays when its sandbox is gone',
    [
      `${DOCKER}/resources/services.ts`,
      'for (const making of beside.made) this.#options.keep(making.then(made => made[Symbol.asyncDispose](), ignore));',
      'for (const making of beside.made) making.catch(ignore);',
    ],
    [[SERVICES, 'are gone with a command']],
  ),
  one(
    'services: one has the network of the command',
    [
      `${SRC}/run/services.ts`,
      "if (network.value.kind === 'bridge' || network.value.kind === 'named')",
      "if (network.value.kind === 'named')",
    ],
    [[SERVICES, 'on a network that they would reach too']],
  ),
  one(
    'services: a file that is not trusted names them',
    [`${SRC}/policy/repository.ts`, "  { key: 'sandbox.services', read: c => unlessNone(c.sandbox?.services) },\n", ''],
    [[`${SRC}/policy/services.test.ts`, 'are those of a repository only once the user trusted']],
  ),
  one(
    'hooks: an answer that is not whole lets a command through',
    [
      `${HOOKS}/shim.ts`,
      "`case $acode_answer in '{\"hookSpecificOutput\":{'*'}}\\n${COMPLETE}') ` +",
      '`case $acode_answer in *) ` +',
    ],
    [[`${HOOKS}/shim.test.ts`, 'blocks the command with status 2']],
  ),
  one(
    'hooks: a hook that fails does not block',
    [`${HOOKS}/shim.ts`, '>&2; exit 2`', '>&2; exit 1`'],
    [[`${HOOKS}/shim.test.ts`, 'blocks the command with status 2']],
  ),
  one(
    'hooks: acode is started in the environment of the agent',
    [`${HOOKS}/shim.ts`, "[ENV, '-i', ...variables,", '[ENV, ...variables,'],
    [[`${HOOKS}/shim.test.ts`, 'starts acode with variables of its own']],
  ),
  one(
    'hooks: settings of the repository are not read',
    [`${HOOKS}/launch.ts`, '  if (!about.projectSettings) await refuseProject(agent, place);\n', ''],
    [[`${HOOKS}/settings.test.ts`, 'refuses a repository that sets']],
  ),
  one(
    'hooks: claude reads the settings of the repository',
    [
      `${HOOKS}/launch.ts`,
      "projectSettings ? 'user,project,local' : 'user'",
      "projectSettings ? 'user' : 'user,project,local'",
    ],
    [[`${HOOKS}/settings.test.ts`, 'gives claude settings above those of the repository']],
  ),
  one(
    'hooks: an agent is started with variables that load code',
    [`${HOOKS}/launch.ts`, 'value === undefined || LOADS_CODE.test(name)', 'value === undefined'],
    [[`${HOOKS}/settings.test.ts`, 'takes no variable that loads code']],
  ),
  one(
    'hooks: a line that a shell reads in another way is approved',
    [`${HOOKS}/auto-approve.ts`, '!PLAIN.test(given.command)', '!/\\S/.test(given.command)'],
    [[`${HOOKS}/auto-approve.test.ts`, 'is not for a directory outside of the workspace']],
  ),
  one(
    'hooks: calls of any program are approved',
    [
      `${HOOKS}/auto-approve.ts`,
      'if (fault !== null) return no(fault);',
      'if (fault === null && root === null) return no(fault);',
    ],
    [[`${HOOKS}/auto-approve.test.ts`, 'is not where']],
  ),
  one(
    'hooks: a call that is approved may have further options',
    [`${HOOKS}/auto-approve.ts`, 'pattern.length === words.length', 'pattern.length <= words.length'],
    [[`${HOOKS}/auto-approve.test.ts`, 'is not with another verb, option, or argument']],
  ),
  one(
    'hooks: an approval that is not recorded counts',
    [
      `${HOOKS}/auto-approve.ts`,
      '  await Acode.recordApproval({ command: words, workspace: placeOf(cwd).root });',
      '  void Acode.recordApproval({ command: words, workspace: placeOf(cwd).root }).catch(() => undefined);',
    ],
    [[`${HOOKS}/auto-approve.test.ts`, 'is not where it cannot be recorded']],
  ),
  one(
    'hooks: a program of the workspace is started as the agent',
    [
      `${HOOKS}/launch.ts`,
      'if (isProgram(file) && !isBelow(file, root)) return file;',
      'if (isProgram(file)) return file;',
    ],
    [[`${HOOKS}/settings.test.ts`, 'takes no variable that loads code']],
  ),
  one(
    'hooks: a directory outside of the session’s workspace becomes one',
    [`${HOOKS}/step.ts`, "if (way === '..' || way.startsWith(`..${sep}`))", "if (way === 'nowhere')"],
    [[`${HOOKS}/step.test.ts`, 'refuses a directory outside of the workspace']],
  ),
  one(
    'fleet: a task is run no matter who signed it',
    [
      `${FLEET}/tasks/signature.ts`,
      '  if (!found || !keys.includes(found.key)) return null;\n',
      '  if (!found) return null;\n',
    ],
    [[`${FLEET}/worker/admission.test.ts`, 'takes a task that a registered key']],
  ),
  one(
    'fleet: a signature is not verified',
    [
      `${FLEET}/tasks/signature.ts`,
      '  return isValid ? found.body : null;',
      '  return isValid === undefined ? null : found.body;',
    ],
    [[`${FLEET}/worker/admission.test.ts`, 'takes a task that a registered key']],
  ),
  one(
    'fleet: a signed task counts for another tenant, id or pool',
    [
      `${FLEET}/worker/admission.ts`,
      "  if (names.some(name => spec[name] !== task[name])) refuse('what was signed is another task');\n",
      '',
    ],
    [[`${FLEET}/worker/admission.test.ts`, 'takes a task that a registered key']],
  ),
  one(
    'swarm: a program of the workspace is told of events',
    [
      'packages/swarm/src/settings.ts',
      "if (fault !== null) throw swarmError('ACODE-SWM-011', { file, reason: fault });",
      "if (fault === '') throw swarmError('ACODE-SWM-011', { file, reason: fault });",
    ],
    [['packages/swarm/src/attention.test.ts', 'are refused where they are not the user']],
  ),
  {
    ...one(
      'swarm: text of a task drives the terminal of who is told',
      ['packages/swarm/src/notify.ts', 'detail: plainText(task.detail),', 'detail: task.detail,'],
      [['swarm/attention.test.ts', 'are shown and told of']],
    ),
    command: true,
  },
  one(
    'swarm: keys are in the environment of the program that is told',
    [
      'packages/swarm/src/notify.ts',
      '    this.#env = Object.fromEntries(\n      VARIABLES.flatMap(',
      '    this.#env = Object.fromEntries(\n      Object.keys(env).flatMap(',
    ],
    [['packages/swarm/src/attention.test.ts', 'is told by a program']],
  ),
  one(
    'swarm: the board shows what tasks print as it is',
    [
      'packages/cli/src/swarm/board-view.ts',
      'columns.map(({ cell }) => oneLine(cell(task)))',
      'columns.map(({ cell }) => cell(task))',
    ],
    [['packages/cli/src/swarm/board.test.ts', 'fits any screen']],
  ),
  one(
    'swarm: what is pasted presses keys of the board',
    [
      'packages/cli/src/terminal/row-screen.ts',
      "this.#isPasting = part === '\\u001b[200~';",
      'this.#isPasting = false;',
    ],
    [['packages/cli/src/swarm/board.test.ts', 'is none where it is pasted']],
  ),
  one(
    'swarm: events as JSON drive the terminal',
    ['packages/cli/src/swarm/follow.ts', '.replaceAll(DRIVING, escaped)', ''],
    [['packages/cli/src/swarm/board.test.ts', 'is JSON that drives no terminal']],
  ),
  one(
    'fleet: a signed task can be played again when its result is forgotten',
    [`${FLEET}/worker/admission.ts`, 'if (age > MAX_AGE_MS || age < -MAX_AHEAD_MS)', 'if (age === 0)'],
    [[`${FLEET}/worker/admission.test.ts`, 'takes a task that a registered key']],
  ),
  one(
    'fleet: a task may have fields of a policy that nobody listed',
    [`${FLEET}/tasks/spec.ts`, 'const policySchema = z.strictObject({', 'const policySchema = z.looseObject({'],
    [[`${FLEET}/worker/admission.test.ts`, 'refuses a task that names anything of its machine']],
  ),
  one(
    'fleet: a task may name any image of the worker',
    [`${FLEET}/worker/admission.ts`, 'if (!mayUseImage(file.images, image))', "if (image === 'none')"],
    [[`${FLEET}/worker/admission.test.ts`, 'refuses other images and weaker levels']],
  ),
  one(
    'fleet: a task may run below the level of the pool',
    [`${FLEET}/worker/admission.ts`, 'if (!isAtLeast(level, file.level))', "if (image === 'none')"],
    [[`${FLEET}/worker/admission.test.ts`, 'refuses other images and weaker levels']],
  ),
  one(
    'fleet: tenants share a kernel without a word of the operator',
    [
      `${FLEET}/worker/file.ts`,
      "level === 'docker' && shared_kernel !== true",
      "level === 'docker' && shared_kernel === null",
    ],
    [[`${FLEET}/worker/admission.test.ts`, 'lets tenants share a kernel only if it says so']],
  ),
  one(
    'fleet: a worker that lost its claim writes a result',
    [
      `${FLEET}/tasks/tasks.ts`,
      "if (state?.state === 'claimed' && state.claim === claim && state.attempt === attempt) return state;",
      'if (state && claim) return state;',
    ],
    [[`${FLEET}/tasks/state.test.ts`, 'until its lease is over; then nothing of the first one counts']],
  ),
  one(
    'fleet: a task is taken from a worker that has a lease',
    [`${FLEET}/tasks/state.ts`, "  if (found.state === 'claimed' && holderLives) return { step: 'wait' };\n", ''],
    [[`${FLEET}/tasks/state.test.ts`, 'leaves what a living worker has']],
  ),
  one(
    'e2b server: any key is a tenant’s',
    [
      `${FLEET}/e2b/server.ts`,
      '    if (tenant) return tenant;\n',
      "    if (tenant ?? true) return tenant ?? { name: 'acme', sandboxes: 9 };\n",
    ],
    [[`${FLEET}/e2b/e2b.test.ts`, 'answers nobody without a key']],
  ),
  one(
    'e2b server: a name that leads to it will do (DNS rebinding)',
    [
      `${FLEET}/e2b/server.ts`,
      '    return LOOPBACK.includes(host) || host === this.#options.host || isNamed(this.#certificate, host);\n',
      "    return LOOPBACK.includes(host) || host !== '' || isNamed(this.#certificate, host);\n",
    ],
    [[`${FLEET}/e2b/e2b.test.ts`, 'answers only for its own host']],
  ),
  one(
    'e2b server: a body may be as large as it likes',
    [
      `${FLEET}/e2b/wire.ts`,
      '    if (bytes > maxBytes) throw tooLarge(bytes, maxBytes);\n    count(piece.length);\n',
      '    count(piece.length);\n',
    ],
    [[`${FLEET}/e2b/e2b.test.ts`, 'reads no more of a body than it takes']],
  ),
  one(
    'e2b server: it listens to other machines without a certificate',
    [
      `${FLEET}/e2b/server.ts`,
      '    if (tls === null && !LOOPBACK.includes(host))\n',
      "    if (tls === null && host === 'nowhere')\n",
    ],
    [[`${FLEET}/e2b/e2b.test.ts`, 'listens on other addresses with a certificate only']],
  ),
  {
    ...one(
      'e2b server: a tenant has the sandboxes of another',
      [`${FLEET}/e2b/sandboxes.ts`, 'if (found?.tenant !== tenant.name) throw', 'if (!found) throw'],
      [['fleet/e2b.test.ts', 'reaches nothing of another tenant']],
    ),
    command: true,
  },
  {
    ...one(
      'e2b server: the token of one sandbox opens another',
      [`${FLEET}/e2b/sandboxes.ts`, '    if (!isSame(token, found.token))\n', "    if (token === '')\n"],
      [['fleet/e2b.test.ts', 'reaches nothing of another tenant']],
    ),
    command: true,
  },
  {
    ...one(
      'e2b server: a signature is good for any file',
      [
        `${FLEET}/e2b/sandboxes.ts`,
        "return isSame(given.signature, `v1_${hash.replace(/=+$/, '')}`);",
        'return given.signature !== hash;',
      ],
      [['fleet/e2b.test.ts', 'has files of its own']],
    ),
    command: true,
  },
  one(
    'fleet: names lead to other subjects and tenants',
    [`${FLEET}/engine/names.ts`, 'if (!pattern.test(value))', 'if (pattern.test(value) === null)'],
    [['fleet/conformance.test.ts', 'refuses names that would lead elsewhere']],
  ),
  {
    ...one(
      'fleet: a tenant’s user may publish and subscribe to everything',
      [
        `${FLEET}/engine/nats/accounts.ts`,
        "users: [ { nkey: ${user}, permissions: { publish: { allow: [${subjects.join(', ')}] }, subscribe: { allow: [${quoted(`${inboxPrefixOf(tenant)}.>`)}] } } } ]",
        'users: [ { nkey: ${user} } ]',
      ],
      [['fleet/tenancy.test.ts', 'cannot publish, claim, cancel, read, drain']],
    ),
    command: true,
  },
  {
    ...one(
      'fleet: a worker may manage streams and drain hosts',
      [
        `${FLEET}/engine/nats/accounts.ts`,
        'permissions: { publish: { deny: [${denied}] }, subscribe: { deny: [${quoted(`${gate}.>`)}] } }',
        'permissions: { subscribe: { deny: [${quoted(`${gate}.>`)}] } }',
      ],
      [['fleet/tenancy.test.ts', 'cannot publish, claim, cancel, read, drain']],
    ),
    command: true,
  },
  {
    ...one(
      'fleet: a gate may answer in the place of a sandbox',
      [
        `${FLEET}/engine/nats/accounts.ts`,
        'permissions: { publish: { deny: [${denied}] }, subscribe: { deny: [${quoted(`${exec}.>`)}] } }',
        'permissions: { publish: { deny: [${denied}] } }',
      ],
      [['fleet/sandbox.test.ts', 'takes no call that its tenant has not signed']],
    ),
    command: true,
  },
  one(
    'fleet: a sandbox takes calls no matter who signed them',
    [`${FLEET}/exec/protocol.ts`, "verified('exec', frame.envelope, keys)", 'unverified(frame.envelope)'],
    [
      [`${FLEET}/exec/protocol.test.ts`, 'is admitted if a key of its tenant'],
      [`${FLEET}/client/sandbox.test.ts`, 'takes only calls that a key of its tenant has signed'],
    ],
  ),
  one(
    'fleet: a signed call counts for another sandbox or tenant',
    [
      `${FLEET}/exec/protocol.ts`,
      "  if (body.tenant !== tenant || body.sandbox !== id) refuse('it was signed for another sandbox');\n",
      '',
    ],
    [[`${FLEET}/exec/protocol.test.ts`, 'is admitted if a key of its tenant']],
  ),
  one(
    'fleet: a signed call can be sent again for ever',
    [`${FLEET}/exec/protocol.ts`, '> MAX_AGE_MS)', '> Infinity)'],
    [[`${FLEET}/exec/protocol.test.ts`, 'is admitted if a key of its tenant']],
  ),
  one(
    'fleet: the answer of one call is taken for that of another',
    [
      `${FLEET}/exec/protocol.ts`,
      "  if (body.request !== hashOf(message)) refuse('it was signed for another call');\n",
      '',
    ],
    [[`${FLEET}/exec/protocol.test.ts`, 'is taken if a worker that is known']],
  ),
  one(
    'fleet: a gate queues what no key of the tenant has signed',
    [
      `${FLEET}/gate/service.ts`,
      '    admittedSpec({ tenants: new Map([[tenant, registered]]) }, task, Date.now());\n',
      '',
    ],
    [['fleet/tenancy.test.ts', 'submits nothing in the name of another']],
  ),
  one(
    'fleet: a tenant may fill the queue',
    [`${FLEET}/gate/service.ts`, 'if ((await this.#unfinished.count) + this.#reserved.size <= max)', 'if (max > 0)'],
    [['fleet/tenancy.test.ts', 'fills neither the queue']],
  ),
  one(
    'fleet: a gate grants beyond the quota of a tenant',
    [`${FLEET}/gate/fair-share.ts`, 'tenant.running < (tenant.share.quota ?? Infinity)', 'tenant.running >= 0'],
    [[`${FLEET}/gate/fair-share.test.ts`, 'counts what a gate of before had granted']],
  ),
  one(
    'fleet: servers of NATS elsewhere are reached without encryption',
    [`${FLEET}/engine/nats/connection.ts`, 'return unencrypted !== true &&', 'return unencrypted === false &&'],
    [['fleet/refused.test.ts', 'refuses one on another machine that does not encrypt']],
  ),
  one(
    'fleet: a server of NATS leads a connection to others without encryption',
    [
      `${FLEET}/engine/nats/connection.ts`,
      'ignoreClusterUpdates: unencrypted !== true',
      'ignoreClusterUpdates: unencrypted === false',
    ],
    [['fleet/refused.test.ts', 'goes on with no server that another one names']],
  ),
  one(
    'fleet: a database elsewhere is reached without encryption',
    [
      `${FLEET}/engine/postgres/engine.ts`,
      "ssl === 'none' && unencrypted !== true",
      "ssl === 'none' && unencrypted === false",
    ],
    [['fleet/refused.test.ts', 'is refused on another machine without encryption']],
  ),
  one(
    'fleet: a gate listens beyond this machine without a certificate',
    [`${FLEET}/engine/http/gate-link.ts`, 'if (!tls && !isLoopback(host))', 'if (!tls && host === "")'],
    [['fleet/http-gate.test.ts', 'are reached with a certificate only']],
  ),
  one(
    'fleet: a gate takes any token for a tenant over HTTP',
    [
      `${FLEET}/engine/http/gate-link.ts`,
      '(this.#options.tokens().get(digestOf(token)) ?? null)',
      '([...this.#options.tokens().values()][0] ?? null)',
    ],
    [['fleet/http-gate.test.ts', 'are refused without a token']],
  ),
  one(
    'fleet: a tenant may store workspaces without limit',
    [`${FLEET}/gate/service.ts`, 'if (!visitor.use.mayStore(size, performance.now()))', 'if (size < 0)'],
    [['fleet/tenancy.test.ts', 'fills neither the queue']],
  ),
  one(
    'fleet: results of unknown workers are taken',
    [
      `${FLEET}/client/task.ts`,
      "workers === undefined ? unverified(envelope) : verified('result', envelope, workers)",
      "verified('result', envelope, workers ?? []) ?? unverified(envelope)",
    ],
    [['fleet/worker.test.ts', 'streams its log, and signs the result']],
  ),
];
