// The schema of the configuration file: every key, strict, in the words of the file. Editors get it as JSON Schema.

import * as z from 'zod';
import { LEVELS, RISKS } from '../../contract/levels.ts';
import { labelFault } from '../../lifecycle/labels.ts';
import {
  absolutePath,
  address,
  cacheVolume,
  credentials,
  combinationFault,
  cpus,
  egressEntry,
  hostPattern,
  image,
  imagePattern,
  logins,
  maskPattern,
  megabytes,
  mount,
  networkName,
  openFiles,
  port,
  processes,
  runtimeName,
  seconds,
  service,
  serviceNameFault,
  size,
  time,
  sshFile,
  upstreamProxy,
  LEAST_MEMORY,
} from './values.ts';

const LEAST_TMPFS = 65_536;
const LEAST_FORK = 1024 ** 2;
const LEAST_RATE = 1024;
// A process that waits for the disk cannot be ended: with less, the end of a command would take seconds.
const LEAST_THROUGHPUT = 1024 ** 2;

const docker = z.strictObject({
  host: z.string().optional().describe('The engine’s unix socket, as unix:///path or an absolute path.'),
});

const defaults = z.strictObject({
  cpu_limit: cpus.optional().describe('CPUs of a sandbox.'),
  memory_mb: size(LEAST_MEMORY).optional().describe('Memory of a sandbox: megabytes, or text such as 512m or 1.5g.'),
  memory_swap_mb: megabytes.optional().describe('Swap beyond the memory, in megabytes.'),
  pids_limit: processes.optional().describe('Processes and threads at once.'),
  open_files: openFiles.optional().describe('Open files of each process.'),
  timeout_seconds: seconds.optional().describe('Time limit of a command.'),
  on_out_of_memory: z
    .enum(['report', 'end'])
    .optional()
    .describe('Whether a command goes on, or ends, when one of its processes is killed for lack of memory.'),
  blkio: z
    .strictObject({
      read_bps: size(LEAST_THROUGHPUT)
        .optional()
        .describe('Bytes a second that a sandbox may read from the disk of the workspace: megabytes, or 20m.'),
      write_bps: size(LEAST_THROUGHPUT)
        .optional()
        .describe('Bytes a second that a sandbox may write to the disk of the workspace: megabytes, or 20m.'),
    })
    .optional()
    .describe('Disk throughput. Needs runc on a Docker Engine, and a file system on a block device.'),
  network: z.boolean().optional().describe('true is sandbox.network.mode: bridge, false is none.'),
  user: z
    .union([z.literal('host'), z.string().regex(/^\d+:\d+$/, 'expected uid:gid or host')])
    .optional()
    .describe('The user inside: host is the calling user, else "uid:gid". Never root.'),
});

const network = z.strictObject({
  mode: z
    .union([z.enum(['none', 'allow', 'bridge']), networkName])
    .optional()
    .describe(
      'none, allow, bridge, or the name of a network from allowed_networks. With a list in allow, allow unless named.',
    ),
  allow: z
    .array(egressEntry('allow'))
    .max(200)
    .optional()
    .describe(
      'What sandboxes may reach: presets such as npm:install, hosts such as registry.npmjs.org, *.example.com or tcp:db.example:5432.',
    ),
  deny: z.array(egressEntry('deny')).max(200).optional().describe('Hosts that no list may reach.'),
  rate: size(LEAST_RATE)
    .optional()
    .describe('Bytes a second that the connections of an allow-list may take in each direction: megabytes, or 512k.'),
  max_bytes: size(1).optional().describe('Bytes that they may take in both directions together: megabytes, or 2g.'),
  upstream_proxy: upstreamProxy
    .optional()
    .describe(
      'The proxy through which the connections of an allow-list leave this host: http://proxy.example:3128. It resolves their names.',
    ),
  ssh: z
    .strictObject({
      known_hosts: sshFile.optional().describe('The file of known host keys, in place of your own and the machine’s.'),
      identity_file: sshFile.optional().describe('The private key, in place of those that ssh looks for.'),
    })
    .optional()
    .describe('How acode connects repositories over SSH. Only your own file names it.'),
  credentials: credentials
    .optional()
    .describe('Credentials that acode adds to requests of allowed hosts. Sandboxes never have their values.'),
  logins: logins
    .optional()
    .describe(
      'Servers that `acode login` logs in to. acode keeps and refreshes their tokens; sandboxes never have them.',
    ),
  allow_credentials: z
    .boolean()
    .optional()
    .describe('false: acode adds no credentials, and refuses a command whose allow-list needs one.'),
  private_hosts: z
    .array(hostPattern)
    .max(100)
    .optional()
    .describe('Allowed hosts that may have a private or loopback address. Only your own file names them.'),
  dns_servers: z
    .array(address)
    .max(3)
    .optional()
    .describe('Addresses of up to 3 name servers, where there is a network.'),
  ports: z.array(port).max(16).optional().describe('Ports published on 127.0.0.1, where there is a network.'),
  allowed_networks: z.array(networkName).optional().describe('Networks of the engine that sandboxes may join.'),
  timeout_seconds: seconds.optional().describe('How long the network remains connected.'),
  allow_bridge: z
    .boolean()
    .optional()
    .describe('Your consent to bridge: a sandbox on it reaches services of this host and the internet.'),
  allow_learning: z
    .boolean()
    .optional()
    .describe(
      'Your consent to `acode run --learn=open`, which lets a command reach every public host that it asks for.',
    ),
  ca_file: absolutePath
    .optional()
    .describe(
      'A complete bundle of CA certificates (PEM) for sandboxes with a network: mounted read-only and named in the variables that clients read.',
    ),
});

const images = z.strictObject({
  default: image
    .optional()
    .describe(
      'The image when a request names none and no language has one in the same file. Counts before the built-in images of languages.',
    ),
  node: image.optional().describe('The image of a workspace with a package.json.'),
  python: image.optional().describe('The image of a workspace with a pyproject.toml, requirements.txt or setup.py.'),
  dotnet: image.optional().describe('The image of a workspace with a *.sln, *.csproj or *.fsproj.'),
  go: image.optional().describe('The image of a workspace with a go.mod.'),
  rust: image.optional().describe('The image of a workspace with a Cargo.toml.'),
  combined: z
    .record(z.string(), image)
    .superRefine((named, context) => {
      for (const key of Object.keys(named)) {
        const reason = combinationFault(key, Object.keys(named));
        if (reason !== null) context.addIssue({ code: 'custom', path: [key], message: reason });
      }
    })
    .optional()
    .describe('Images of workspaces with several languages, named in any order: dotnet+node.'),
  pull_policy: z
    .enum(['missing', 'always', 'never'])
    .optional()
    .describe('When an image is pulled: where it is absent, before every run, or never.'),
  offline: z.boolean().optional().describe('Whether no registry is ever asked for anything.'),
});

const cacheVolumes = z.strictObject({
  enabled: z.boolean().optional().describe('Whether sandboxes get the caches of their package managers.'),
  npm: cacheVolume.optional().describe('The cache of npm: another name, or false for none.'),
  yarn: cacheVolume.optional().describe('The cache of yarn: another name, or false for none.'),
  pnpm: cacheVolume.optional().describe('The store of pnpm: another name, or false for none.'),
  pip: cacheVolume.optional().describe('The cache of pip: another name, or false for none.'),
  nuget: cacheVolume.optional().describe('The packages of NuGet: another name, or false for none.'),
  cargo: cacheVolume.optional().describe('The registry of cargo: another name, or false for none.'),
  go: cacheVolume.optional().describe('The modules of go: another name, or false for none.'),
});

const mounts = z.strictObject({
  workspace_mode: z.enum(['rw', 'ro']).optional().describe('Whether a command can write the workspace.'),
  workspace_path: z
    .union([z.literal('same'), absolutePath])
    .optional()
    .describe('Where the workspace is inside: an absolute path, or `same` for its own path on this machine.'),
  tmpfs_size: size(LEAST_TMPFS).optional().describe('Size of /tmp and of the home directory, which are in memory.'),
  fork_size: size(LEAST_FORK)
    .optional()
    .describe(
      'What a fork may take on disk. acode ends a command that reaches it, and watches: some overshoot is possible.',
    ),
  additional: z.array(mount).optional().describe('Further directories of the host.'),
  allowed_host_roots: z
    .array(absolutePath)
    .optional()
    .describe('Directories outside the workspace that mounts may come from.'),
});

const services = z
  .record(z.string(), service)
  .superRefine((named, context) => {
    for (const name of Object.keys(named)) {
      const reason = serviceNameFault(name);
      if (reason !== null) context.addIssue({ code: 'custom', path: [name], message: reason });
    }
  })
  .describe('Sandboxes beside every command, reached by name on its loopback: db: postgres:16.');

const containers = z.strictObject({
  name_prefix: z
    .string()
    .regex(/^[a-z0-9](?:[a-z0-9-]{0,18}[a-z0-9])?$/, 'expected up to 20 lower-case letters, digits and inner hyphens')
    .optional()
    .describe('Beginning of container names.'),
  labels: z
    .record(z.string(), z.string())
    .superRefine((named, context) => {
      for (const [name, value] of Object.entries(named)) {
        const reason = labelFault(name, value);
        if (reason !== null) context.addIssue({ code: 'custom', path: [name], message: reason });
      }
    })
    .optional()
    .describe('Labels of your own on every container; none begins with acode.'),
  create_timeout_seconds: seconds.optional().describe('How long the engine may take to create a container.'),
  pull_timeout_seconds: seconds.optional().describe('How long a pull of an image may take, with every try.'),
  stop_timeout_seconds: time(10, true)
    .optional()
    .describe('How long a command has between SIGTERM and SIGKILL at its time limit.'),
  max_concurrent: z.int().min(1).max(16).optional().describe('Sandboxes of one host at once.'),
  on_limit: z.enum(['queue', 'reject']).optional().describe('What happens to a run when all places are taken.'),
  queue_timeout_seconds: seconds.optional().describe('How long a run waits for a place.'),
  cleanup_orphans: z
    .boolean()
    .optional()
    .describe('Whether the first command of a session removes what dead sessions left behind.'),
});

const security = z.strictObject({
  trusted_images: z
    .array(imagePattern)
    .optional()
    .describe('Repositories whose images may be run, besides the built-in ones: ghcr.io/me/* for everything below.'),
  allow_untrusted_registries: z.boolean().optional().describe('Lets images from anywhere run.'),
  require_digest: z.boolean().optional().describe('Refuses images that are not named by digest.'),
  allowed_runtimes: z.array(runtimeName).optional().describe('Further runtimes of the engine that may be named.'),
  no_new_privileges: z.literal(true).optional().describe('Fixed: always true.'),
  capabilities_drop: z
    .tuple([z.literal('ALL')])
    .optional()
    .describe('Fixed: always [ALL].'),
  capabilities_add: z.array(z.never()).max(0).optional().describe('Fixed: always empty.'),
  seccomp_profile: z.literal('default').optional().describe('Fixed: acode’s own strict profile.'),
  readonly_rootfs: z.literal(true).optional().describe('Fixed: always true.'),
});

const ceilings = z.strictObject({
  cpu_limit: cpus.optional().describe('Most CPUs.'),
  memory_mb: size(LEAST_MEMORY).optional().describe('Most memory.'),
  memory_swap_mb: megabytes.optional().describe('Most swap, in megabytes.'),
  pids_limit: processes.optional().describe('Most processes and threads.'),
  open_files: openFiles.optional().describe('Most open files.'),
  timeout_seconds: seconds.optional().describe('Longest time of a command, and of its network.'),
  tmpfs_size: size(LEAST_TMPFS).optional().describe('Largest /tmp and home.'),
  output_bytes: z.int().nonnegative().optional().describe('Most bytes of each stream.'),
});

const mode = z
  .enum(['local-only', 'airgapped'])
  .optional()
  .describe('airgapped: no sandbox has a network, whatever else is set. local-only: no command goes to a fleet.');
const ownMode = z
  .enum(['local-only', 'airgapped', 'burst'])
  .optional()
  .describe(
    'airgapped: no sandbox has a network, whatever else is set. burst, in your own file: `acode run` sends a command to your fleet where this machine has no room.',
  );
const level = z
  .enum([...LEVELS, 'auto'])
  .optional()
  .describe('The isolation level; auto is the strongest there is.');

const serve = 'Whether acode keeps a background process with a warm sandbox for a workspace';

const requireFor = z
  .array(z.enum(RISKS))
  .optional()
  .describe(
    'The risks that need docker or stronger. What is left out may run at a weaker level; critical always needs it.',
  );

const riskRules = z
  .array(
    z.strictObject({
      match: z.string().min(1).max(1000).describe('The text of a command, with * for anything.'),
      risk: z.enum(RISKS).describe('The risk of what matches.'),
    }),
  )
  .max(200)
  .optional()
  .describe('Commands that are riskier than they look. A rule only raises the risk.');

const mask = z
  .array(maskPattern)
  .max(100)
  .optional()
  .describe(
    'Files and directories that are present and empty inside, besides the built-in ones: patterns relative to the workspace.',
  );

const sandbox = z
  .strictObject({
    level,
    serve: z
      .enum(['auto', 'never', 'always'])
      .optional()
      .describe(`${serve}: auto after the second command within ten minutes, always after the first, or never.`),
    require_for: requireFor,
    fallback: z
      .enum(['refuse', 'warn'])
      .optional()
      .describe('warn: bubblewrap stands in where there is no engine at all, for risks that require_for leaves out.'),
    risk_rules: riskRules,
    mask,
    unmask: z
      .array(maskPattern)
      .max(100)
      .optional()
      .describe('Files and directories that are not masked, though a rule says so. Only your own file unmasks.'),
    bubblewrap: z
      .strictObject({
        accept_process_limits: z
          .boolean()
          .optional()
          .describe('Lets bubblewrap run where memory can be limited for each process only, and not for all together.'),
      })
      .optional()
      .describe('Level bubblewrap.'),
    max_file_size_mb: z.int().positive().max(1_048_576).optional().describe('Largest file at level ulimit.'),
    max_cpu_seconds: z.int().positive().max(86_400).optional().describe('CPU time of each process at level ulimit.'),
    max_virtual_memory: z
      .union([z.literal('unlimited'), size(LEAST_MEMORY)])
      .optional()
      .describe('Address space of each process at level ulimit: a size, or unlimited.'),
    runtime: runtimeName.optional().describe('The engine’s runtime by name, such as runsc; its default unless named.'),
    docker: docker.optional().describe('The container engine.'),
    defaults: defaults.optional().describe('Limits and the user of a command whose request names none.'),
    network: network.optional().describe('The network of sandboxes.'),
    images: images.optional().describe('Images of commands that name none.'),
    cache_volumes: cacheVolumes.optional().describe('Caches of package managers.'),
    mounts: mounts.optional().describe('What of the host a sandbox is given.'),
    services: services.optional(),
    containers: containers.optional().describe('Names, times and number of sandboxes.'),
    cleanup: z
      .strictObject({ timeout_seconds: seconds.optional().describe('How long the removal of one container is tried.') })
      .optional()
      .describe('Removal of sandboxes.'),
    retry: z
      .strictObject({
        attempts: z.int().min(0).max(10).optional().describe('How often a call is repeated.'),
        base_ms: z.int().positive().max(10_000).optional().describe('The pause before the first repetition.'),
        factor: z.number().min(1).max(10).optional().describe('How much longer each further pause is.'),
      })
      .optional()
      .describe('Repetition of engine calls that failed for a moment.'),
    output: z
      .strictObject({
        max_bytes: z.int().nonnegative().optional().describe('How much of each stream is kept and passed on.'),
        save: z.boolean().optional().describe('Whether the output of runs is kept.'),
        retention_days: z.int().positive().max(365).optional().describe('After how many days it is removed.'),
      })
      .optional()
      .describe('Output of commands.'),
    terminal: z
      .strictObject({
        clipboard: z
          .enum(['never', 'write'])
          .optional()
          .describe(
            'write: programs with a terminal of yours may write text to its clipboard. None reads it. Only your own file says so.',
          ),
        mouse: z
          .boolean()
          .optional()
          .describe('Whether programs with a terminal of yours receive mouse events, as with --mouse.'),
      })
      .optional()
      .describe('What programs may do with your terminal besides drawing on it.'),
    security: security.optional().describe('Images and runtimes that are trusted.'),
    ceilings: ceilings.optional().describe('The most that anybody, a repository or a request, may ask for.'),
  })
  .refine(
    ({ defaults: { network: enabled } = {}, network: { mode: named } = {} }) =>
      enabled === undefined || named === undefined || enabled === (named !== 'none'),
    { path: ['network', 'mode'], message: 'contradicts sandbox.defaults.network' },
  );

/** The whole file. */
export const configSchema = z.strictObject({
  allow_root: z.boolean().optional().describe('Lets acode run as root; only in your own file.'),
  mode: ownMode,
  sandbox: sandbox.optional().describe('Everything about sandboxes.'),
});

/** The team’s defaults, for every user of a machine: what a command gets unless the user says otherwise, and consents. */
export const teamSchema = z.strictObject({
  mode,
  sandbox: z
    .strictObject({
      serve: z
        .enum(['auto', 'never'])
        .optional()
        .describe(`${serve}; never switches it off unless a user says otherwise.`),
      defaults: defaults.omit({ network: true, user: true }).optional(),
      network: network
        .pick({
          allow: true,
          deny: true,
          allow_bridge: true,
          allowed_networks: true,
          ca_file: true,
          dns_servers: true,
          timeout_seconds: true,
          rate: true,
          max_bytes: true,
          upstream_proxy: true,
        })
        .optional(),
      images: images.optional(),
      mounts: mounts.pick({ allowed_host_roots: true, tmpfs_size: true, fork_size: true }).optional(),
      containers: containers
        .pick({ labels: true, create_timeout_seconds: true, pull_timeout_seconds: true, max_concurrent: true })
        .optional(),
      security: security.pick({ trusted_images: true, require_digest: true, allowed_runtimes: true }).optional(),
    })
    .optional(),
});

/** The machine’s policy: what can narrow, and nothing else. */
export const machineSchema = z.strictObject({
  mode,
  sandbox: z
    .strictObject({
      level,
      serve: z.enum(['auto', 'never']).optional().describe(`${serve}; never switches it off for every user.`),
      require_for: requireFor,
      risk_rules: riskRules,
      mask,
      ceilings: ceilings.optional(),
      network: network
        .pick({
          allow: true,
          deny: true,
          allow_bridge: true,
          allowed_networks: true,
          ca_file: true,
          rate: true,
          max_bytes: true,
          upstream_proxy: true,
          allow_credentials: true,
        })
        .optional(),
      mounts: mounts.pick({ allowed_host_roots: true }).optional(),
      security: security.pick({ trusted_images: true, require_digest: true, allowed_runtimes: true }).optional(),
    })
    .optional(),
});

/** Configuration after parsing: sizes in bytes. */
export type Config = z.output<typeof configSchema>;

/** The machine’s policy after parsing. */
export type MachinePolicy = z.output<typeof machineSchema>;

/** The team’s defaults after parsing. */
export type TeamConfig = z.output<typeof teamSchema>;
