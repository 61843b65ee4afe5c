// Scan hand-over: passes the scan of a workspace to a process that outlives the call, or to the server that runs it.

import { spawn } from 'node:child_process';
import { dirname } from 'node:path';
import type { ScanJob, ScanReport, ScanRoot } from '@acode/sandbox';
import type { OwnProgram } from '../own-program.ts';
import { tellCallers } from './pending.ts';
import { SCAN_COMMAND } from './directory.ts';
import { scanStored } from './scanner.ts';
import { ScanStore } from './store.ts';
import { terminalOf } from './terminal.ts';

// What the library reads to find its directories, and nothing else of the caller’s.
const PASSED_ON = ['HOME', 'XDG_CONFIG_HOME', 'XDG_RUNTIME_DIR', 'XDG_STATE_HOME', 'TMPDIR'];

/** The call that a scan is of. */
export interface ScannedCall {
  readonly uid: number;
  /** The process at the caller’s terminal, where there is one to notify. */
  readonly pid: number | null;
}

/** Writes down a scan that is to go on; null where that is not possible. */
export function storeJob(job: ScanJob, { uid, pid }: ScannedCall): ScanStore | null {
  const stored = { job, askedMs: Date.now(), terminal: pid === null ? null : terminalOf(pid, uid) };
  const add = (): ScanStore | null => {
    const store = ScanStore.make(job.workspace, uid);
    return store.add(stored) ? store : null;
  };
  try {
    return add();
  } catch {
    // A scanner that has ended removes the directory: this may have been the moment.
    return add();
  }
}

/**
 * Starts the process that scans: in a session of its own, so that neither Ctrl-C nor the end of the terminal reaches it, with
 * none of the caller’s files open, so that no reader of the caller’s output waits for it.
 */
function startScanner(entry: string, workspace: string, store: ScanStore | null): void {
  const own = PASSED_ON.flatMap(name => (process.env[name] === undefined ? [] : [[name, process.env[name]] as const]));
  const child = spawn(process.execPath, ['--', entry, SCAN_COMMAND, '--workspace', workspace], {
    detached: true,
    cwd: '/',
    env: { ...Object.fromEntries(own), PATH: dirname(process.execPath), ELECTRON_RUN_AS_NODE: '1' },
    stdio: 'ignore',
  });
  // The job remains on disk: the next command reports that it was not done.
  child.on('error', () => undefined);
  if (child.pid !== undefined) store?.started(child.pid);
  child.unref();
}

// A command that could write where acode is installed decides what would be started.
function mayStart(program: OwnProgram | undefined, written: readonly ScanRoot[]): program is OwnProgram {
  return program !== undefined && !program.isBelow(written.map(({ path }) => path));
}

/** Hands scans over to a process of their own; takes none on where there is no program to start. */
export function inOwnProcess(program: OwnProgram | undefined, pid: number | null): (job: ScanJob) => boolean {
  const uid = process.getuid?.();
  return job => {
    if (uid === undefined || !mayStart(program, job.directories)) return false;
    const store = storeJob(job, { uid, pid });
    if (!store) return false;
    startScanner(program.entry, job.workspace, store);
    return true;
  };
}

/** How scans are done in this process. */
export interface ScansHereParts {
  readonly uid: number;
  readonly scan: (jobs: readonly ScanJob[], signal: AbortSignal) => AsyncIterable<ScanReport>;
  /** Told of each scan that found something, besides the terminal and the next command. */
  readonly found?: (report: ScanReport) => void;
  /** The program that continues unfinished scans when this process ends. */
  readonly program: OwnProgram | undefined;
}

/** Scans in a process that lives on: written down like those of others, so that nothing is lost with the process. */
export class ScansHere implements AsyncDisposable {
  readonly #parts: ScansHereParts;
  readonly #ending = new AbortController();
  readonly #told = new Set<Promise<void>>();
  readonly #workspaces = new Set<string>();
  readonly #directories: ScanRoot[] = [];
  #work: Promise<void> | null = null;

  constructor(parts: ScansHereParts) {
    this.#parts = parts;
  }

  /** Takes a scan on. */
  take(job: ScanJob, pid: number | null): boolean {
    if (this.#ending.signal.aborted) return false;
    const store = storeJob(job, { uid: this.#parts.uid, pid });
    if (!store) return false;
    this.#workspaces.add(job.workspace);
    this.#directories.push(...job.directories);
    this.#work ??= this.#scan(store);
    return true;
  }

  /** Cancels the scans of this process; another process restarts them. */
  async [Symbol.asyncDispose](): Promise<void> {
    const isUnderWay = this.#work !== null;
    this.#ending.abort();
    await this.#work;
    const { program } = this.#parts;
    if (isUnderWay && mayStart(program, this.#directories))
      for (const workspace of this.#workspaces)
        startScanner(program.entry, workspace, ScanStore.of(workspace, this.#parts.uid));
    await Promise.all(this.#told);
  }

  async #scan(store: ScanStore): Promise<void> {
    const { scan, uid, program } = this.#parts;
    const { signal } = this.#ending;
    try {
      await scanStored(store, {
        scan,
        signal,
        handsOn: mayStart(program, this.#directories),
        found: (report, jobs) => {
          this.#parts.found?.(report);
          const telling: Promise<void> = tellCallers(report, jobs, uid, signal).finally(() =>
            this.#told.delete(telling),
          );
          this.#told.add(telling);
        },
      });
    } catch {
      // A scan that failed remains on disk, and the next command reports it.
    } finally {
      this.#work = null;
    }
  }
}
