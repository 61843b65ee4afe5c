// Acode, the public API of a host: run, create and observe sandboxes.

import { randomUUID } from 'node:crypto';
import { userInfo } from 'node:os';
import { join } from 'node:path';
import { readAllowRoot } from '../policy/config/load.ts';
import { directoriesOf, homeOf } from '../lifecycle/directories.ts';
import { isOwn } from '../lifecycle/labels.ts';
import { auditIn } from '../records/audit/read.ts';
import type { Audit } from '../contract/audit.ts';
import type { Command, RunRequest } from '../contract/command.ts';
import type { Configuration } from '../contract/configuration.ts';
import { AcodeError } from '../contract/errors.ts';
import type { EventBus } from '../contract/events.ts';
import type {
  CleanupOptions,
  CleanupReport,
  Explanation,
  KpiReport,
  SandboxDetails,
  SandboxInfo,
  SandboxUsage,
  ServeSetting,
  Status,
  UninstallOptions,
  UninstallReport,
  WarmPool,
} from '../contract/host.ts';
import type { Forks } from '../contract/forks.ts';
import type { LoginsOfUser } from '../contract/logins.ts';
import type { Masks } from '../contract/masks.ts';
import type { NetworkAccess } from '../contract/network-access.ts';
import type { Programs } from '../contract/programs.ts';
import type { Images } from '../contract/images.ts';
import type { RunResult, RunningCommand } from '../contract/result.ts';
import type { CommandRunner, CreateRequest } from '../contract/sandbox.ts';
import type { Sourced } from '../contract/sourced.ts';
import type { ScanJob, ScanReport } from '../contract/scan.ts';
import type { ComposedHost } from './compose.ts';
import { forksOf } from './forks.ts';
import { loginsOf } from './logins.ts';
import { savedLogs } from './logs.ts';
import type { Logs } from './logs.ts';
import { assertNotRoot, currentUid, loadAhead, open, openFurther, ownAuditLog, recordRoot } from './open.ts';
import { masksOf } from './masks.ts';
import { networkAccessOf } from './network-access.ts';
import { imagesOf } from '../images/images.ts';
import type { Operate } from '../images/images.ts';
import { cleanup, statusOf, withImageNames, withImagesNamed, withLeases } from './inventory.ts';
import type { OpenFurther } from '../run/host.ts';
import type { AttackOptions, AttackReport, DoctorReport } from './doctor/report.ts';
import type { AcodeOptions } from './options.ts';
import { modeOf, serveSettingOf, trustOf, workspaceOf } from '../run/repository.ts';
import type { Trust } from '../run/repository.ts';
import { explain } from '../run/explain.ts';
import { planFirst } from '../run/planning.ts';
import { addProgram, hasProgram } from '../run/programs.ts';
import { removeState } from '../run/state.ts';
import { start, admitted } from '../run/run.ts';
import type { Sandbox } from '../persistent/sandbox.ts';
import { scanRecord } from '../run/scanning.ts';
import { fewAtOnce, sweep } from './sweep.ts';
import type { Operation } from '../records/telemetry.ts';
import { poolReport, warmUp } from '../run/warm.ts';
import { scanJobs, unfinishedScan } from '../workspace/continued-scan.ts';
import { validateWorkspace } from '../workspace/locate.ts';

/** A host that can be observed but cannot run commands. */
export type Observer = Pick<
  Acode,
  | 'status'
  | 'list'
  | 'usage'
  | 'inspect'
  | 'logs'
  | 'trust'
  | 'audit'
  | 'network'
  | 'doctor'
  | 'serveSetting'
  | 'mode'
  | 'close'
> & {
  /** The images of the engine. */
  readonly images: Pick<Images, 'list' | 'isPresent'>;
} & AsyncDisposable;

/** The parts of an {@link Acode} that were asked for. */
type Parts = Partial<
  Writable<Pick<Acode, 'audit' | 'forks' | 'images' | 'logins' | 'logs' | 'masks' | 'network' | 'programs' | 'trust'>>
>;

type Writable<Value> = { -readonly [Name in keyof Value]: Value[Name] };

/**
 * Runs untrusted commands in fresh, hardened, single-use sandboxes on this host.
 *
 * @example
 * await using acode = await Acode.open();
 * const result = await acode.run(['npm', 'test'], { policy: { image: 'node:20-alpine' } });
 * console.log(result.exitCode, result.stdout);
 */
export class Acode implements CommandRunner, AsyncDisposable {
  /** Events of this host, as they happen. */
  readonly events: EventBus;
  readonly #host: ComposedHost;
  readonly #options: AcodeOptions;
  readonly #parts: Parts = {};
  readonly #further: OpenFurther = ({ workspace, socket }) => openFurther(this.#options, workspace, socket);
  #swept = false;
  #cancelSweep: () => void = () => undefined;
  #closed: Promise<void> | null = null;

  private constructor(host: ComposedHost, options: AcodeOptions) {
    this.#host = host;
    this.#options = options;
    this.events = host.bus;
  }

  // Each part is built when it is first asked for: most hosts run commands and need none of them.

  /** The saved output of past runs. */
  get logs(): Logs {
    return (this.#parts.logs ??= savedLogs(this.#host));
  }

  /** The user’s trust in the configuration that came with the code. */
  get trust(): Trust {
    return (this.#parts.trust ??= trustOf(this.#host));
  }

  /** The audit log: a tamper-evident record of what was run and refused. */
  get audit(): Audit {
    return (this.#parts.audit ??= auditIn(join(this.#host.directories.state, 'audit')));
  }

  /** Access of sandboxes to hosts: presets, what an allow-list would decide, and what waits for a person. */
  get network(): NetworkAccess {
    return (this.#parts.network ??= networkAccessOf(this.#host, this.audit, name => this.#assertOpen(name)));
  }

  /** The images of the engine. */
  get images(): Images {
    const operate: Operate = (name, work, signal) => {
      this.#assertOpen(`images.${name}`);
      return this.#operation(name, work, signal);
    };
    return (this.#parts.images ??= imagesOf(this.#host, operate, this.#further));
  }

  /** The forks of this user’s workspaces. */
  get forks(): Forks {
    return (this.#parts.forks ??= forksOf(this.#host, name => this.#assertOpen(name)));
  }

  /** The user’s logins at servers, which acode keeps and refreshes. */
  get logins(): LoginsOfUser {
    return (this.#parts.logins ??= loginsOf(this.#host, name => this.#assertOpen(name)));
  }

  /** The files of the workspace that commands see empty, because they hold secrets. */
  get masks(): Masks {
    return (this.#parts.masks ??= masksOf(this.#host, name => this.#assertOpen(name)));
  }

  /** Programs that sandboxes can be given, whatever their image. */
  get programs(): Programs {
    return (this.#parts.programs ??= {
      has: id => hasProgram(this.#host, id),
      add: (id, fill, { signal } = {}) => {
        this.#assertOpen('programs.add');
        return this.#operation('add-program', within => addProgram(this.#host, id, fill, within), signal);
      },
    });
  }

  /**
   * Opens the host. First of all, refuses to run as root. Contacts the engine at first use, or at once to fill a warm
   * pool.
   */
  static async open(options: AcodeOptions = {}): Promise<Acode> {
    const uid = currentUid();
    assertNotRoot(uid, uid === 0 && (await readAllowRoot(join(userInfo().homedir, '.config', 'acode'), uid)));
    const host = await open(options, uid);
    if (uid === 0) await recordRoot(host);
    await loadAhead(host);
    if (host.pool) host.keep(warmUp(host, () => planFirst(host)));
    const acode = new Acode(host, options);
    acode.#sweepAgain();
    return acode;
  }

  /**
   * Checks engine, machine, configuration and workspace as {@link Acode.doctor} does. An invalid configuration is a
   * failed check; the other checks then run without it.
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

  /**
   * Reports whether sandboxes are available as {@link Acode.status} does. An invalid configuration makes them unavailable,
   * with the reason; the rest of the report is complete.
   */
  static async survey(options: AcodeOptions = {}): Promise<Status> {
    const faults: AcodeError[] = [];
    const acode = new Acode(await open(options, currentUid(), faults), options);
    try {
      const status = await acode.status();
      const [first] = faults;
      if (!first) return status;
      const configuration = faults.map(({ code, message, hint }) => ({ code, message, hint }));
      const { message: unavailableReason, hint } = first;
      return { ...status, available: false, level: null, unavailableReason, hint, configuration };
    } finally {
      await acode.close();
    }
  }

  /**
   * The configuration files of the user, the team, the machine and the workspace’s repository: shows, checks and changes
   * them. Works for root too, and without an engine.
   *
   * @example
   * const configuration = await Acode.configuration();
   * for (const { path, problems } of await configuration.check()) console.log(path, problems.length);
   */
  static async configuration(options: Pick<AcodeOptions, 'workspace' | 'configFile'> = {}): Promise<Configuration> {
    const uid = currentUid();
    const env = { ...process.env };
    const { configFile } = options;
    const about = { workspace: options.workspace ?? process.cwd(), workspaceNamed: options.workspace !== undefined };
    const { configurationIn } = await import('./configuration.ts');
    const directories = directoriesOf({ env, home: homeOf(env), uid });
    return configurationIn({ directories, configFile, workspace: await workspaceOf(about), uid });
  }

  /** Opens the host for observation only. Works for root too, since it cannot run commands. */
  static async observe(options: AcodeOptions = {}): Promise<Observer> {
    const uid = currentUid();
    const acode = new Acode(await open(options, uid), options);
    return {
      status: () => acode.status(),
      list: () => acode.list(),
      usage: () => acode.usage(),
      inspect: reference => acode.inspect(reference),
      logs: acode.logs,
      trust: acode.trust,
      audit: acode.audit,
      network: acode.network,
      images: { list: (...of) => acode.images.list(...of), isPresent: (...of) => acode.images.isPresent(...of) },
      doctor: () => acode.doctor(),
      serveSetting: () => acode.serveSetting(),
      mode: () => acode.mode(),
      close: () => acode.close(),
      [Symbol.asyncDispose]: () => acode.close(),
    };
  }

  /**
   * Performs scans that {@link AcodeOptions.continueScan} accepted, in this process or another of the same user. Each
   * report is already in the audit log when it is yielded.
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
    const audit = ownAuditLog();
    const failures: unknown[] = [];
    try {
      for await (const report of scanJobs(jobs, options)) {
        const [first] = report.jobs;
        // The findings are reported even if they cannot be written to the audit log.
        if (first) await audit.append(scanRecord(report, first)).catch((error: unknown) => failures.push(error));
        yield report;
      }
    } finally {
      await audit.close();
    }
    if (failures.length > 0) throw failures[0];
  }

  /**
   * Writes to the audit log that scans which {@link AcodeOptions.continueScan} accepted did not finish, for instance because
   * the process that did them was killed. Without it, the log has no end of these scans.
   *
   * @example
   * declare const jobs: ScanJob[];
   * await Acode.recordUnfinishedScan(jobs, 'its process was ended');
   */
  static async recordUnfinishedScan(jobs: readonly ScanJob[], reason: string): Promise<void> {
    const [first] = jobs;
    if (!first) return;
    const audit = ownAuditLog();
    try {
      await audit.append(scanRecord(unfinishedScan(jobs, reason), first));
    } finally {
      await audit.close();
    }
  }

  /**
   * Writes to the audit log that a command of acode may run without a question of an agent to its user. Rejects where it cannot be
   * written: then the agent must ask.
   *
   * @example
   * await Acode.recordApproval({ command: ['/usr/local/bin/acode', 'swarm', 'status'], workspace: '/home/me/project' });
   */
  static async recordApproval({
    command,
    workspace,
  }: {
    /** The argument vector. */
    readonly command: readonly string[];
    /** The workspace, as an absolute path. */
    readonly workspace: string;
  }): Promise<void> {
    const audit = ownAuditLog();
    try {
      const detail = { command: command.join(' ') };
      const event = 'call of acode approved without a question';
      await audit.append({
        kind: 'event',
        operation: 'approve',
        correlationId: randomUUID(),
        event,
        workspace,
        detail,
      });
    } finally {
      await audit.close();
    }
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
   * Creates a persistent sandbox, hardened and verified like that of a run. It is removed when it expires, when this
   * host is closed or when this process ends; with `keep`, only when it expires.
   *
   * @example
   * await using sandbox = await acode.create({ expiresInMs: 600_000 });
   * await sandbox.commands.run('npm ci && npm test');
   */
  async create(request: CreateRequest = {}): Promise<Sandbox> {
    this.#assertOpen('create');
    const { createSandbox } = await import('../persistent/create.ts');
    return this.#tracked(createSandbox(this.#host, request, this.forks));
  }

  /**
   * Connects to a persistent sandbox by its id or name. Any process of this user on this host may have created it with
   * `keep`.
   */
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
      (signal, operation) => connectSandbox(this.#host, reference, operation, { signal, forks: this.forks }),
      callers,
    );
  }

  /**
   * Removes the state directory of a name in the workspace, with everything that sandboxes kept in it. Rejects while a
   * sandbox has it.
   *
   * @example
   * await acode.removeState('notes');
   */
  async removeState(
    name: string,
    {
      signal: callers,
    }: {
      /** Cancels the call. */
      signal?: AbortSignal;
    } = {},
  ): Promise<void> {
    this.#assertOpen('removeState');
    return this.#operation(
      'remove-state',
      async signal => {
        const workspace = await validateWorkspace(await workspaceOf(this.#host), this.#host.directories);
        await removeState(this.#host, workspace, name, signal);
      },
      callers,
    );
  }

  /**
   * Removes a persistent sandbox that was created with `keep`, by its id or name, even if it can no longer be used
   * because something has changed since. Rejects for a sandbox without `keep`, which belongs to the process that
   * created it.
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

  /** Explains how a command would run: policy, origin of each value, level and engine request. Runs nothing. */
  async explain(command: Command, request: RunRequest = {}): Promise<Explanation> {
    this.#assertOpen('explain');
    return this.#operation('explain', signal => explain(this.#host, command, request, signal), request.signal);
  }

  /** Reports whether sandboxes are available here, and how many exist. Never rejects because of the engine. */
  async status(): Promise<Status> {
    this.#assertOpen('status');
    return statusOf(this.#host, this.#host.closing);
  }

  /**
   * Checks engine, machine and workspace, and names a remedy for each problem. Takes less than two seconds, runs
   * nothing and never rejects because of what it finds.
   */
  async doctor(): Promise<DoctorReport> {
    this.#assertOpen('doctor');
    return this.#operation('doctor', async () => (await import('./examine.ts')).examineHost(this.#host));
  }

  /** Key metrics since this host was opened, such as how long sandboxes took to become ready. */
  kpis(): KpiReport {
    return this.#host.telemetry.kpis.report();
  }

  /** The warm pool of this host: how many sandboxes are ready, or why none is. */
  async warmPool(): Promise<WarmPool> {
    this.#assertOpen('warmPool');
    return poolReport(this.#host, () => planFirst(this.#host));
  }

  /**
   * Whether acode may run a background process for the workspace (`sandbox.serve`), after all layers of configuration
   * are applied.
   */
  async serveSetting(): Promise<ServeSetting> {
    this.#assertOpen('serveSetting');
    return serveSettingOf(this.#host);
  }

  /** The mode that holds for the workspace: the strictest that machine, environment, user or repository set. */
  async mode(): Promise<Sourced<'local-only' | 'airgapped' | 'burst'>> {
    this.#assertOpen('mode');
    return modeOf(this.#host);
  }

  /** Lists the sandboxes that currently exist on the engine. */
  async list(): Promise<SandboxInfo[]> {
    this.#assertOpen('list');
    return this.#operation('list', async () => {
      const { pool, closing } = this.#host;
      const leased = await withLeases(this.#host, await (await this.#host.engine()).list(closing));
      const found = await withImageNames(this.#host, leased);
      return found.map(one => (pool?.holds(one.containerId) === true ? { ...one, waiting: true } : one));
    });
  }

  /**
   * What each running sandbox of this user uses now. Those at levels without an engine are not among them.
   *
   * @example
   * for (const { taskId, memoryBytes } of await acode.usage()) console.log(taskId, memoryBytes);
   */
  async usage(): Promise<SandboxUsage[]> {
    this.#assertOpen('usage');
    return this.#operation('usage', async () => {
      const { closing, uid } = this.#host;
      const engine = await this.#host.engine();
      const running = (await engine.list(closing)).filter(one => one.state === 'running' && isOwn(one, uid));
      const found = await fewAtOnce(running, async ({ containerId, sandboxId, taskId }) => {
        const used = await engine.usage(containerId, closing);
        return used === null ? [] : [{ sandboxId, taskId, ...used }];
      });
      return found.flat();
    });
  }

  /** One sandbox by name or container id. */
  async inspect(reference: string): Promise<SandboxDetails> {
    this.#assertOpen('inspect');
    return this.#operation('inspect', async () => {
      const known = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$/.test(reference);
      const { inspectAny, withReference } = await import('../persistent/connect.ts');
      const found = known
        ? await inspectAny(await this.#host.engine(), reference, this.#host.uid, this.#host.closing)
        : null;
      const [details] = await withLeases(this.#host, found ? [found] : []);
      if (!details) throw new AcodeError('ACODE-CTN-012', { reference, what: 'sandbox' });
      return withReference(this.#host, details);
    });
  }

  /**
   * Attacks sandboxes of its own with the probes of docs/doctor.md, each beside its control, and returns a report card.
   * Takes up to a minute, works in a scratch directory and leaves nothing behind.
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

  /** Removes this user’s sandboxes that earlier sessions left behind. */
  async cleanup(options: CleanupOptions = {}): Promise<CleanupReport> {
    this.#assertOpen('cleanup');
    return this.#operation(
      'cleanup',
      async (signal, operation) => withImagesNamed(this.#host, await cleanup(this.#host, options, operation, signal)),
      options.signal,
    );
  }

  /**
   * Reports every trace of acode on engine and disk; with `purge`, also removes them and closes the host. The audit log
   * and the user’s configuration remain unless `audit` and `config` request their removal. Files in repositories, such
   * as `.agent/config.yml`, are not acode’s and remain.
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
    // Closed last, since an open host may still write to its directories.
    await this.close();
    const left = await removeDirectories(report);
    return { ...report, left, purged: left.length === 0 };
  }

  /**
   * Stops all commands, removes every sandbox of this host and disconnects from the engine. A second call waits for the
   * first.
   */
  async close(): Promise<void> {
    this.#cancelSweep();
    this.#closed ??= this.#host.close();
    await this.#closed;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #assertOpen(operation: string): void {
    if (this.#closed) throw new AcodeError('ACODE-SBX-019', { operation });
  }

  // `close` waits for commands that are still starting: each may be about to create a sandbox.
  #tracked<Value>(work: Promise<Value>): Promise<Value> {
    this.#host.keep(work);
    const begin = (): void => this.#sweepOnce();
    work.then(begin, begin);
    return work;
  }

  // Starts once the first command has started, so that no command waits for the cleanup of other sessions.
  #sweepOnce(): void {
    if (this.#swept || !this.#host.settings.sweepsOrphans) return;
    this.#swept = true;
    this.#host.keep(sweep(this.#host));
  }

  // The next sweep is scheduled when this one has ended, so that two never overlap.
  #sweepAgain(): void {
    const { sweepEveryMs } = this.#options;
    if (sweepEveryMs === undefined || this.#closed || !this.#host.settings.sweepsOrphans) return;
    this.#cancelSweep = this.#host.telemetry.clock.after(sweepEveryMs, () => {
      this.#swept = true;
      this.#host.keep(sweep(this.#host).then(() => this.#sweepAgain()));
    });
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
