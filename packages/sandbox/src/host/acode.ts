// Acode, the host: opens what the pipe needs, and is the one place where it is all put together.

import { realpath } from 'node:fs/promises';
import { userInfo } from 'node:os';
import { join } from 'node:path';
import { checkConfig } from '../policy/config/check.ts';
import type { LoadedConfig } from '../policy/config/check.ts';
import { loadMachinePolicy, loadUserConfig, readAllowRoot } from '../policy/config/load.ts';
import { directoriesOf, homeOf, ownDirectories } from '../lifecycle/directories.ts';
import type { Directories } from '../lifecycle/directories.ts';
import { AuditLog } from '../records/audit/log.ts';
import { auditIn } from '../records/audit/read.ts';
import type { Audit } from '../contract/audit.ts';
import type { Command, RunRequest } from '../contract/command.ts';
import { AcodeError } from '../contract/errors.ts';
import type { EventBus } from '../contract/events.ts';
import type {
  CleanupOptions,
  CleanupReport,
  Explanation,
  KpiReport,
  SandboxDetails,
  SandboxInfo,
  SavedLog,
  SavedLogInfo,
  ServeSetting,
  Status,
  UninstallOptions,
  UninstallReport,
  WarmPool,
} from '../contract/host.ts';
import type { Images } from '../contract/images.ts';
import type { RunResult, RunningCommand } from '../contract/result.ts';
import type { CommandRunner, CreateRequest } from '../contract/sandbox.ts';
import type { ScanJob, ScanReport } from '../contract/scan.ts';
import { composeHost, loadLevels } from './compose.ts';
import type { ComposedHost } from './compose.ts';
import { imagesOf } from '../images/images.ts';
import type { Operate } from '../images/images.ts';
import { cleanup, statusOf, withImageNames, withLeases } from './inventory.ts';
import type { OpenFurther } from '../run/host.ts';
import type { AttackOptions, AttackReport, DoctorReport } from './doctor/report.ts';
import type { AcodeOptions } from './options.ts';
import { assertNotRoot } from '../policy/resolve.ts';
import { serveSettingOf, trustOf, workspaceOf } from '../run/repository.ts';
import type { Trust } from '../run/repository.ts';
import { explain, planFirst } from '../run/planning.ts';
import { start } from '../run/run.ts';
import { admitted } from '../run/admission.ts';
import type { Sandbox } from '../persistent/sandbox.ts';
import { scanRecord } from '../run/scanning.ts';
import { sweep } from './sweep.ts';
import { systemClock } from '../lifecycle/clock.ts';
import type { Operation } from '../records/telemetry/operation.ts';
import { poolReport, warmUp } from '../run/warm.ts';
import { scanJobs } from '../workspace/continued-scan.ts';
import { installationRoot, isWithin } from '../workspace/file-identity.ts';

/** A host that can be looked at and runs nothing. */
export type Observer = Pick<
  Acode,
  'status' | 'list' | 'inspect' | 'logs' | 'trust' | 'audit' | 'doctor' | 'serveSetting' | 'close'
> & {
  /** The images of the engine. */
  readonly images: Pick<Images, 'list' | 'isPresent'>;
} & AsyncDisposable;

/** The output of past runs that was kept. */
export interface Logs {
  /** The runs whose output is kept, newest first. */
  list(): Promise<SavedLogInfo[]>;
  /** The newest kept run with this container name or sandbox id. */
  find(reference: string): Promise<SavedLog>;
}

/**
 * Runs untrusted commands in fresh, hardened, single-use sandboxes on this host.
 *
 * @example
 * await using acode = await Acode.open();
 * const result = await acode.run(['npm', 'test'], { policy: { image: 'node:20-alpine' } });
 * console.log(result.exitCode, result.stdout);
 */
export class Acode implements CommandRunner, AsyncDisposable {
  /** What happens, as it happens. */
  readonly events: EventBus;
  /** The output of past runs that was kept. */
  readonly logs: Logs;
  /** The user’s trust in the configuration that came with the code. */
  readonly trust: Trust;
  /** What was run and refused, in a log that shows when it was changed. */
  readonly audit: Audit;
  /** The images of the engine. */
  readonly images: Images;
  readonly #host: ComposedHost;
  readonly #options: AcodeOptions;
  readonly #further: OpenFurther = ({ workspace, socket }) => openFurther(this.#options, workspace, socket);
  #swept = false;
  #closed: Promise<void> | null = null;

  private constructor(host: ComposedHost, options: AcodeOptions) {
    this.#host = host;
    this.#options = options;
    this.events = host.bus;
    this.logs = savedLogs(host);
    this.trust = trustOf(host);
    const operate: Operate = (name, work, signal) => {
      this.#assertOpen(`images.${name}`);
      return this.#operation(name, work, signal);
    };
    this.images = imagesOf(host, operate, this.#further);
    this.audit = auditIn(join(host.directories.state, 'audit'));
  }

  /** Opens the host. Refuses root before anything else; the engine is contacted at first use, or for what is to wait. */
  static async open(options: AcodeOptions = {}): Promise<Acode> {
    const uid = currentUid();
    assertNotRoot(uid, uid === 0 && (await readAllowRoot(join(userInfo().homedir, '.config', 'acode'), uid)));
    const host = await open(options, uid);
    if (uid === 0) await recordRoot(host);
    await loadAhead(host);
    if (host.pool) host.keep(warmUp(host, () => planFirst(host)));
    return new Acode(host, options);
  }

  /**
   * Looks at engine, machine, configuration and workspace as {@link Acode.doctor} does. A configuration that cannot be used
   * is a failed check, and the rest is looked at without it.
   *
   * @example
   * const { ok, checks } = await Acode.examine();
   * if (!ok) console.error(checks.filter(({ status }) => status === 'fail'));
   */
  static async examine(options: AcodeOptions = {}): Promise<DoctorReport> {
    const faults: AcodeError[] = [];
    const acode = new Acode(await open(options, currentUid(), faults), options);
    try {
      const { examineHost } = await import('./examine.ts');
      return await acode.#operation('doctor', () => examineHost(acode.#host, faults));
    } finally {
      await acode.close();
    }
  }

  /** Opens the host to look at it. Works for root too, since nothing can be run through it. */
  static async observe(options: AcodeOptions = {}): Promise<Observer> {
    const uid = currentUid();
    const acode = new Acode(await open(options, uid), options);
    return {
      status: () => acode.status(),
      list: () => acode.list(),
      inspect: reference => acode.inspect(reference),
      logs: acode.logs,
      trust: acode.trust,
      audit: acode.audit,
      images: { list: (...of) => acode.images.list(...of), isPresent: (...of) => acode.images.isPresent(...of) },
      doctor: () => acode.doctor(),
      serveSetting: () => acode.serveSetting(),
      close: () => acode.close(),
      [Symbol.asyncDispose]: () => acode.close(),
    };
  }

  /**
   * Does scans that {@link AcodeOptions.continueScan} took over, in this process or another of the same user. Each report is in
   * the audit log when it comes.
   *
   * @example
   * declare const jobs: ScanJob[];
   * for await (const { riskyChanges } of Acode.scan(jobs)) console.error(riskyChanges);
   */
  static async *scan(
    jobs: readonly ScanJob[],
    options: {
      /** Cancels the scan; the report then has `complete: false`. */
      readonly signal?: AbortSignal;
      /** How long to pause after each slice of work, in milliseconds; 0 by default. */
      readonly restMs?: number;
      /** How long the scan may take, in milliseconds; 60,000 by default. */
      readonly maxMs?: number;
    } = {},
  ): AsyncGenerator<ScanReport> {
    const uid = currentUid();
    const { state } = directoriesOf({ env: process.env, home: homeOf(process.env), uid });
    const audit = new AuditLog({ directory: join(state, 'audit'), uid, clock: systemClock });
    const failures: unknown[] = [];
    try {
      for await (const report of scanJobs(jobs, options)) {
        const [first] = report.jobs;
        // What was found is told even where it cannot be written down.
        if (first) await audit.append(scanRecord(report, first)).catch((error: unknown) => failures.push(error));
        yield report;
      }
    } finally {
      await audit.close();
    }
    if (failures.length > 0) throw failures[0];
  }

  /**
   * Runs one command in a fresh sandbox. Resolves once the command has started and ended, whatever its exit status,
   * timeout or lack of memory; rejects if it never started, and with ACODE-SBX-014 if it was cancelled.
   *
   * @example
   * const { exitCode, stdout } = await acode.run('ls | wc -l', { policy: { timeoutMs: 10_000 } });
   */
  async run(command: Command, request: RunRequest = {}): Promise<RunResult> {
    this.#assertOpen('run');
    const running = await this.#tracked(start(this.#host, command, request, false));
    return running.result;
  }

  /**
   * Starts one command in a fresh sandbox and returns a handle on it.
   *
   * @example
   * await using command = await acode.spawn(['npm', 'test']);
   * for await (const chunk of command.stdout) process.stdout.write(chunk);
   * const { exitCode } = await command.result;
   */
  async spawn(command: Command, request: RunRequest = {}): Promise<RunningCommand> {
    this.#assertOpen('spawn');
    return this.#tracked(start(this.#host, command, request, true));
  }

  /**
   * Creates a sandbox that stays: hardened and verified like that of a run, and ended with its time, this host or this
   * process; with `keep`, with its time alone.
   *
   * @example
   * await using sandbox = await acode.create({ expiresInMs: 600_000 });
   * await sandbox.commands.run('npm ci && npm test');
   */
  async create(request: CreateRequest = {}): Promise<Sandbox> {
    this.#assertOpen('create');
    const { createSandbox } = await import('../persistent/create.ts');
    return this.#tracked(createSandbox(this.#host, request));
  }

  /** A sandbox that was kept, made by whatever process of this user on this host, by its id or name. */
  async connect(
    reference: string,
    {
      signal: callers,
    }: {
      /** Cancels the call. */
      signal?: AbortSignal;
    } = {},
  ): Promise<Sandbox> {
    this.#assertOpen('connect');
    const { connectSandbox } = await import('../persistent/connect.ts');
    return this.#operation(
      'connect',
      (signal, operation) => connectSandbox(this.#host, reference, operation, signal),
      callers,
    );
  }

  /**
   * Ends a sandbox that was kept, by its id or name, also one that cannot be used any more because something has changed
   * since. Those of another process that lives are that process’s own.
   */
  async kill(
    reference: string,
    {
      signal: callers,
    }: {
      /** Cancels the call. */
      signal?: AbortSignal;
    } = {},
  ): Promise<SandboxInfo> {
    this.#assertOpen('kill');
    const { killSandbox } = await import('../persistent/connect.ts');
    return this.#operation(
      'kill',
      (signal, operation) => killSandbox(this.#host, reference, operation, signal),
      callers,
    );
  }

  /** What a command would come to: policy, where each value comes from, level and engine request. Runs nothing. */
  async explain(command: Command, request: RunRequest = {}): Promise<Explanation> {
    this.#assertOpen('explain');
    return this.#operation('explain', signal => explain(this.#host, command, request, signal), request.signal);
  }

  /** Whether sandboxes can be had here, and how many there are. Never rejects because of the engine. */
  async status(): Promise<Status> {
    this.#assertOpen('status');
    return statusOf(this.#host, this.#host.closing);
  }

  /**
   * Looks at engine, machine and workspace, with a remedy for each problem. Takes less than two seconds, runs nothing and
   * never rejects because of what it finds.
   */
  async doctor(): Promise<DoctorReport> {
    this.#assertOpen('doctor');
    return this.#operation('doctor', async () => (await import('./examine.ts')).examineHost(this.#host));
  }

  /** Key figures since this host was opened, such as how long sandboxes took to be ready. */
  kpis(): KpiReport {
    return this.#host.telemetry.kpis.report();
  }

  /** The warm pool of this host: how many sandboxes are ready, or why none is. */
  async warmPool(): Promise<WarmPool> {
    this.#assertOpen('warmPool');
    return poolReport(this.#host, () => planFirst(this.#host));
  }

  /** Whether acode may keep a background process for the workspace (`sandbox.serve`), by every layer of configuration. */
  async serveSetting(): Promise<ServeSetting> {
    this.#assertOpen('serveSetting');
    return serveSettingOf(this.#host);
  }

  /** The sandboxes that exist on the engine, asked now. */
  async list(): Promise<SandboxInfo[]> {
    this.#assertOpen('list');
    return this.#operation('list', async () => {
      const { pool, closing } = this.#host;
      const leased = await withLeases(this.#host, await (await this.#host.engine()).list(closing));
      const found = await withImageNames(this.#host, leased);
      return found.map(one => (pool?.holds(one.containerId) === true ? { ...one, waiting: true } : one));
    });
  }

  /** One sandbox by name or container id. */
  async inspect(reference: string): Promise<SandboxDetails> {
    this.#assertOpen('inspect');
    return this.#operation('inspect', async () => {
      const known = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$/.test(reference);
      const { inspectAny, withReference } = await import('../persistent/connect.ts');
      const found = known ? await inspectAny(await this.#host.engine(), reference, this.#host.closing) : null;
      const [details] = await withLeases(this.#host, found ? [found] : []);
      if (!details) throw new AcodeError('ACODE-CTN-012', { reference, what: 'sandbox' });
      return withReference(this.#host, details);
    });
  }

  /**
   * Attacks sandboxes of this host’s own with the corpus of docs/doctor.md, each attempt with its control, and writes a
   * report card. Takes up to a minute, works in a scratch directory and leaves nothing.
   *
   * @example
   * const { grade, probes } = await acode.attack();
   * for (const { id, observed } of probes.filter(({ verdict }) => verdict === 'fail')) console.error(id, observed);
   */
  async attack(options: AttackOptions = {}): Promise<AttackReport> {
    this.#assertOpen('attack');
    return this.#tracked(
      this.#operation(
        'attack',
        async () => (await import('./attack.ts')).attackHost(this.#host, this.#further, options),
        options.signal,
      ),
    );
  }

  /** Removes this user’s sandboxes that were left behind. */
  async cleanup(options: CleanupOptions = {}): Promise<CleanupReport> {
    this.#assertOpen('cleanup');
    return this.#operation(
      'cleanup',
      (signal, operation) => cleanup(this.#host, options, operation, signal),
      options.signal,
    );
  }

  /**
   * Reports every trace of acode on engine and disk; with `purge`, removes it too and closes the host. The audit log and
   * the user’s configuration are left unless `audit` and `config` ask for them. What is in repositories, such as
   * `.agent/config.yml`, is not acode’s and stays.
   */
  async uninstall(options: UninstallOptions = {}): Promise<UninstallReport> {
    this.#assertOpen('uninstall');
    const { removeDirectories, uninstallFromEngine } = await import('./uninstall.ts');
    const report = await this.#operation(
      'uninstall',
      (signal, operation) => uninstallFromEngine(this.#host, options, operation, signal),
      options.signal,
    );
    if (!report.purged) return report;
    // Last, since a host that is still open may write to its directories.
    await this.close();
    const left = await removeDirectories(report);
    return { ...report, left, purged: left.length === 0 };
  }

  /** Stops what runs, removes every sandbox of this host and lets go of the engine. A second call waits for the first. */
  async close(): Promise<void> {
    this.#closed ??= this.#host.close();
    await this.#closed;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #assertOpen(operation: string): void {
    if (this.#closed) throw new AcodeError('ACODE-SBX-019', { operation });
  }

  // Closing waits for what is still being started: it may be about to make a sandbox.
  #tracked<Value>(work: Promise<Value>): Promise<Value> {
    this.#host.keep(work);
    const begin = (): void => this.#sweepOnce();
    work.then(begin, begin);
    return work;
  }

  // When the first command is under way, so that it never waits for the remains of others.
  #sweepOnce(): void {
    if (this.#swept || !this.#host.settings.sweepsOrphans) return;
    this.#swept = true;
    this.#host.keep(sweep(this.#host));
  }

  async #operation<Value>(
    name: string,
    work: (signal: AbortSignal, operation: Operation) => Promise<Value>,
    callers?: AbortSignal,
  ): Promise<Value> {
    return admitted(this.#host, { name, signal: callers }, async ({ signal, operation }) => {
      const value = await work(signal, operation);
      operation.succeed();
      return value;
    });
  }
}

// Written down at each start, or there is none.
async function recordRoot(host: ComposedHost): Promise<void> {
  const event = 'opened by root, as allow_root in root’s own configuration says';
  host.telemetry.log('warn', event, {});
  await host.audit.append({ kind: 'event', operation: 'open', correlationId: host.session.owner, event });
}

async function open(options: AcodeOptions, uid: number, faults?: AcodeError[]): Promise<ComposedHost> {
  // Read before anything is awaited: what the program does to its environment afterwards is not meant for this host.
  const env = { ...process.env };
  const about = { env, home: homeOf(env), uid };
  const machine = await orFault(loadMachinePolicy(), null, faults);
  const places = directoriesOf(about);
  const unset = checkConfig({}, options.configFile ?? join(places.config, 'config.yml'));
  const config = await orFault(configOf(options, places), unset, faults);
  // Made only now: a configuration that is refused leaves nothing behind.
  const directories = await ownDirectories(about);
  return composeHost({ options, config, machine, directories, uid, clock: options.clock ?? systemClock });
}

// Where somebody collects what is wrong with a configuration, it is put there and the value without one is used. Only for
// looking: a command is never run without the configuration that was meant.
async function orFault<Value>(
  loading: Promise<Value>,
  otherwise: Value,
  faults: AcodeError[] | undefined,
): Promise<Value> {
  try {
    return await loading;
  } catch (error) {
    if (!faults || !(error instanceof AcodeError && (error.is('ACODE-SBX-013') || error.is('ACODE-SBX-016'))))
      throw error;
    faults.push(error);
    return otherwise;
  }
}

/** A host beside another: the same configuration, another workspace, an engine where one is needed, and nobody who listens. */
export async function openFurther(
  options: AcodeOptions,
  workspace: string,
  socket: string | null,
): Promise<ComposedHost> {
  const uid = currentUid();
  const { config, configFile, clock } = options;
  const own: AcodeOptions = {
    workspace,
    ...(socket === null ? {} : { engine: { socket } }),
    ...(config ? { config } : {}),
    ...(configFile === undefined ? {} : { configFile }),
    ...(clock ? { clock } : {}),
  };
  return open(own, uid);
}

async function configOf(options: AcodeOptions, directories: Directories): Promise<LoadedConfig> {
  if (!options.config && options.configFile === undefined) return loadUserConfig(directories.config);
  const source = options.configFile ?? 'AcodeOptions.config';
  const loaded = options.config
    ? checkConfig(options.config, source)
    : await loadUserConfig(directories.config, options.configFile);
  if (loaded.config.allow_root === undefined) return loaded;
  // Anybody can name a file; only the user’s own says whether they may be root.
  throw new AcodeError('ACODE-SBX-013', {
    source,
    key: 'allow_root',
    reason: 'counts only in the user’s own configuration file',
  });
}

// Where acode is installed in the workspace, what is otherwise loaded when it is needed is loaded now: later a sandbox may
// have put something else in its place.
async function loadAhead(host: ComposedHost): Promise<void> {
  const workspace = await workspaceOf(host);
  const root = await realpath(workspace).catch(() => workspace);
  if (!isWithin(await installationRoot(), root)) return;
  await Promise.all([
    import('../persistent/artifacts.ts'),
    import('./attack.ts'),
    import('../images/project/building.ts'),
    import('../policy/config/parse.ts'),
    import('../persistent/create.ts'),
    import('./examine.ts'),
    loadLevels(),
    import('../images/project/stage.ts'),
    import('../images/pull-once.ts'),
    import('../persistent/connect.ts'),
    import('./uninstall.ts'),
  ]);
}

// Windows has no uids; what runs there talks to an engine in a virtual machine whose ordinary user is 1000.
function currentUid(): number {
  return process.getuid?.() ?? 1000;
}

function savedLogs(host: ComposedHost): Logs {
  return {
    list: () => host.pastLogs.list(),
    find: async reference => {
      const log = await host.pastLogs.find(reference);
      if (!log) throw new AcodeError('ACODE-CTN-012', { reference, what: 'saved log' });
      return log;
    },
  };
}
