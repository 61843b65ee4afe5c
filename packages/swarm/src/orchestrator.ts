// Orchestrator: the process that has the sandboxes of a swarm. It begins tasks, hears their adapters, and is the only writer of the record.

import { setTimeout as pause } from 'node:timers/promises';
import type { Acode, AcodeError } from '@acode/sandbox';
import * as z from 'zod';
import type { AgentSurroundings } from './agents.ts';
import { AttentionWatch } from './attention.ts';
import { attempt } from './attempt.ts';
import type { AttemptEnd } from './attempt.ts';
import { bringBack } from './branches.ts';
import { listen } from './control.ts';
import type { ControlAnswer, ControlRequest } from './control.ts';
import { isAcodeError, swarmError } from './errors.ts';
import { branchProblem, touchTheSame } from './names.ts';
import { Notifier, noticeOf, stateOf } from './notify.ts';
import { NEEDS_INPUT } from './protocol.ts';
import type { AdapterMessage, Completion } from './protocol.ts';
import { forkOf } from './plan.ts';
import { reconcile } from './reconcile.ts';
import { again, goesOn, isTerminal, mayBecome, overlapsOf } from './record.ts';
import type { Attention, Reason, SwarmRecord, TaskRecord, TaskStatus } from './record.ts';
import { InquiryFailure, SwarmSandboxes } from './sandboxes.ts';
import { DEFAULT_SETTINGS } from './settings.ts';
import type { SwarmSettings } from './settings.ts';
import { taskIn } from './store.ts';
import type { SwarmStore } from './store.ts';

const MAX_FAULTS = 4;
const FAULT_PAUSE_MS = 1000;
const SNAPSHOT = 'ready';
const MAX_DETAIL = 2000;
const MAX_OVERLAPS = 200;
const FETCH_EVENT_MS = 5000;
const LOOK_MS = 2000;
const ATTACHED_MS = 500;
const DEADLINE = 'it reached its time limit';

const preparedSchema = z.looseObject({
  base: z.string().regex(/^[0-9a-f]{40}$/),
  branch: z.string().nullable(),
  changed: z.int(),
  refs: z.record(z.string(), z.string()),
});

/** What an orchestrator needs. */
export interface OrchestratorParts {
  readonly acode: Acode;
  readonly store: SwarmStore;
  readonly id: string;
  /** Whose agents run in it; those of this process’s environment by default. */
  readonly agents?: AgentSurroundings;
  /** Settings of the user; the defaults without them. */
  readonly settings?: SwarmSettings;
  /** Ends it: sandboxes of running tasks are removed, and `resume` continues them. */
  readonly signal: AbortSignal;
}

interface ActiveTask {
  readonly stop: AbortController;
  readonly done: Promise<void>;
}

/** One swarm while it runs. */
export class Orchestrator {
  readonly #parts: OrchestratorParts;
  readonly #active = new Map<string, ActiveTask>();
  #record: SwarmRecord;
  #sandboxes: SwarmSandboxes;
  readonly #watch: AttentionWatch;
  readonly #notifier: Notifier;
  // Tasks that a person works on at a terminal, or is about to.
  readonly #attached = new Set<string>();
  // What agents asked a person before they ended.
  readonly #questions = new Map<string, string>();
  #wake: () => void = () => undefined;
  #isPaused = false;

  private constructor(parts: OrchestratorParts, record: SwarmRecord) {
    this.#parts = parts;
    this.#record = record;
    this.#sandboxes = new SwarmSandboxes(parts.acode, record, parts.agents);
    const { notify, idleMs } = parts.settings ?? DEFAULT_SETTINGS;
    this.#watch = new AttentionWatch(parts.acode.network, idleMs);
    this.#notifier = new Notifier(notify, parts.agents?.env ?? process.env, (how, detail) =>
      parts.store.event(parts.id, 'not-told', { how, detail }),
    );
  }

  /**
   * Runs a swarm until each of its tasks has ended, or continues one whose orchestrator is gone. Refuses if another process is
   * its orchestrator.
   */
  static async run(parts: OrchestratorParts): Promise<SwarmRecord> {
    const { store, id } = parts;
    const record = await store.alone(id, async () => {
      const orchestrator = new Orchestrator(parts, store.read(id));
      const server = await listen(store.socketPath(id), request => orchestrator.#answer(request));
      try {
        await orchestrator.#run();
      } finally {
        server.close();
        await orchestrator.#notifier.close();
      }
      return store.read(id);
    });
    if (record) return record;
    throw swarmError('ACODE-SWM-008', {
      what: `Swarm ${id.slice(0, 8)}`,
      reason: 'another process is its orchestrator',
      remedy: '`acode swarm status` shows what it does.',
    });
  }

  async #run(): Promise<void> {
    const { store, id, signal } = this.#parts;
    store.event(id, 'orchestrator-started', {});
    try {
      if (this.#record.base === null) await this.#prepare();
      else await this.#reconcile();
      await this.#update(record => (record.state = 'running'));
      await this.#loop();
      if (signal.aborted) return;
      await this.#update(record => (record.state = 'finished'));
      const tasks = Object.fromEntries(this.#record.tasks.map(task => [task.id, task.status]));
      store.event(id, 'swarm-finished', { tasks });
      this.#notifier.tell({
        schema: 'acode.swarm-notice/1',
        at: new Date().toISOString(),
        swarm: id,
        workspace: this.#record.workspace,
        state: 'finished',
        tasks,
      });
    } catch (error) {
      if (signal.aborted) return;
      const detail = error instanceof Error ? error.message : String(error);
      store.event(
        id,
        'swarm-failed',
        isAcodeError(error) ? { code: error.code, detail, hint: error.hint } : { detail },
      );
      await this.#update(record => (record.state = 'finished'));
      throw error;
    }
  }

  // The setup runs once, in a fork; each task gets a fork of what it left.
  async #prepare(): Promise<void> {
    const { acode, store, id, signal } = this.#parts;
    const fork = forkOf(id);
    await this.#prepareAgents();
    store.event(id, 'preparing', { setup: this.#record.setup });
    const prepared = await this.#sandboxes
      .ask('prepare', { fork, ...limitsOf(this.#record) }, { setup: this.#record.setup }, preparedSchema, {
        signal,
        show: bytes => store.log(id, 'setup', bytes),
      })
      .catch((error: unknown) => {
        throw error instanceof InquiryFailure ? notPrepared(error) : error;
      });
    const taken = Object.keys(prepared.refs);
    for (const { id: task, branch } of this.#record.tasks) {
      const other = taken.find(
        name => name === branch || name.startsWith(`${branch}/`) || branch.startsWith(`${name}/`),
      );
      if (other !== undefined || branchProblem(branch) !== null)
        throw swarmError('ACODE-SWM-004', {
          what: 'branch',
          value: branch,
          reason: `the repository has ${other ?? 'no such kind of branch'}`,
          task,
        });
    }
    if (prepared.changed > 0)
      store.event(id, 'warning', {
        text: `${prepared.changed} files have changes that are not committed: tasks begin at commit ${prepared.base.slice(0, 12)}, without them.`,
      });
    // After a kill between snapshot and record, it is there.
    const forks = await acode.forks.list();
    if (forks.every(one => one.name !== fork || !(SNAPSHOT in one.snapshots)))
      await acode.forks.snapshot(SNAPSHOT, fork);
    await this.#update(record => {
      record.base = prepared.base;
      record.baseBranch = prepared.branch;
    });
    store.event(id, 'prepared', { base: prepared.base });
  }

  // A missing key, or an image that has no build of the agent, is a refusal of the swarm; and its program is fetched once.
  async #prepareAgents(): Promise<void> {
    const { store, id, signal } = this.#parts;
    const first = new Map(
      this.#record.tasks.flatMap(task => (task.agent === null ? [] : [[task.agent, task] as const])),
    );
    for (const [agent, task] of first) {
      let said = 0;
      await this.#sandboxes.agent(task, {
        signal,
        progress: ({ bytes, totalBytes = null }) => {
          if (Date.now() - said < FETCH_EVENT_MS) return;
          said = Date.now();
          store.event(id, 'fetching', { agent, bytes, totalBytes });
        },
      });
    }
  }

  async #reconcile(): Promise<void> {
    const { acode, store, id, signal } = this.#parts;
    const found = await reconcile({ acode, sandboxes: this.#sandboxes, record: this.#record, signal });
    for (const { task, finding, completion } of found) {
      store.event(id, 'reconciled', { task, finding });
      if (finding === 'silent-completion' && completion) await this.#complete(task, completion);
      else if (finding === 'silent-failure')
        await this.#become(task, 'failed', 'agent', completion?.payload.errors.join('; ') ?? '');
      // Its sandbox is gone, and its fork has all that was committed.
      else await this.#become(task, 'pending', finding === 'zombie' ? 'zombie' : 'interrupted', '');
    }
  }

  async #loop(): Promise<void> {
    const { signal } = this.#parts;
    const stopAll = (): void => this.#wake();
    signal.addEventListener('abort', stopAll);
    const over = new AbortController();
    const watching = this.#attend(AbortSignal.any([signal, over.signal]));
    try {
      for (;;) {
        if (!signal.aborted) this.#begin();
        if (this.#active.size === 0 && (signal.aborted || !this.#hasWork())) break;
        await new Promise<void>(resolve => {
          this.#wake = resolve;
          if (signal.aborted && this.#active.size > 0)
            void Promise.all([...this.#active.values()].map(({ done }) => done)).then(() => resolve());
        });
      }
    } finally {
      signal.removeEventListener('abort', stopAll);
      over.abort();
      await watching;
    }
  }

  // Which of the tasks that run need a person.
  async #attend(signal: AbortSignal): Promise<void> {
    const { store, id } = this.#parts;
    while (!signal.aborted) {
      await paused(LOOK_MS, signal);
      const running = this.#record.tasks.filter(task => task.status === 'running' && this.#active.has(task.id));
      if (signal.aborted || running.length === 0) continue;
      // What cannot be asked now is asked again.
      const needed = await this.#watch.look(running).catch(() => null);
      const isOther = ({ id: task, attention, waitsFor }: TaskRecord): boolean => {
        const now = needed?.get(task);
        return now !== undefined && (now.attention !== attention || now.waitsFor.length !== waitsFor.length);
      };
      const changed = new Set(running.filter(isOther).map(task => task.id));
      if (needed === null || changed.size === 0) continue;
      const record = await this.#update(now => {
        for (const task of now.tasks)
          if (changed.has(task.id) && task.status === 'running') Object.assign(task, needed.get(task.id));
      });
      for (const { id: task, attention, waitsFor } of record.tasks)
        if (changed.has(task)) store.event(id, 'attention', { task, attention, waitsFor });
    }
  }

  #hasWork(): boolean {
    return this.#isPaused || this.#record.tasks.some(task => task.status === 'pending');
  }

  // Begins what may begin: there is a slot, what it depends on is there, and nothing that runs touches the same paths.
  #begin(): void {
    for (const task of this.#record.tasks) {
      if (task.status !== 'pending' || this.#active.has(task.id)) continue;
      const lost = this.#lostDependency(task);
      if (lost !== null) {
        this.#start(
          task.id,
          async () => void (await this.#become(task.id, 'failed', 'dependency', `task ${lost} did not succeed`)),
        );
        continue;
      }
      if (this.#isPaused || this.#active.size >= this.#record.parallel || !this.#isFree(task)) continue;
      this.#start(task.id, stop => this.#task(task.id, stop));
    }
  }

  #start(id: string, work: (stop: AbortSignal) => Promise<void>): void {
    const { store, id: swarm } = this.#parts;
    const stop = new AbortController();
    const done = work(stop.signal)
      .catch(async (error: unknown) => {
        const detail = error instanceof Error ? error.message : String(error);
        store.event(swarm, 'fault', { task: id, detail });
        if (!this.#parts.signal.aborted) await this.#become(id, 'failed', 'infrastructure', detail);
      })
      .finally(() => {
        this.#active.delete(id);
        this.#wake();
      });
    this.#active.set(id, { stop, done });
  }

  #isFree(task: TaskRecord): boolean {
    const ready = task.dependsOn.every(id => taskIn(this.#record, id).status === 'completed');
    return (
      ready &&
      this.#record.tasks.every(other => !this.#active.has(other.id) || !touchTheSame(task.touches, other.touches))
    );
  }

  #lostDependency(task: TaskRecord): string | null {
    const isLost = (other: TaskRecord): boolean =>
      other.status === 'failed' ||
      other.status === 'stopped' ||
      (other.status === 'completed' && other.attention === 'needs-review');
    return task.dependsOn.find(id => isLost(taskIn(this.#record, id)) && !this.#active.has(id)) ?? null;
  }

  async #task(id: string, stop: AbortSignal): Promise<void> {
    const { store, id: swarm, signal } = this.#parts;
    await this.#ensureFork(taskIn(this.#record, id));
    const [base, ...merge] = this.#basesOf(id);
    await this.#update(record => {
      const task = taskIn(record, id);
      task.base ??= base ?? record.base;
      task.startedAt ??= new Date().toISOString();
    });
    for (;;) {
      const task = await this.#become(id, 'running', null, '');
      this.#watch.begins(id);
      const began = Date.now();
      const end = await attempt(
        this.#sandboxes,
        task,
        {
          start: { swarmId: swarm, base: task.base ?? '', merge },
          remainingMs: task.limits.timeoutMs - task.elapsedMs,
        },
        {
          stop,
          signal,
          onOutput: bytes => {
            this.#watch.heard(id);
            store.log(swarm, id, bytes);
          },
          onMessage: message => this.#message(id, message),
        },
      );
      // A person who ended it with the orchestrator finds it running, and continues it.
      if (signal.aborted) return;
      await this.#account(id, end, Date.now() - began);
      const isAgain = await this.#ended(id, end, stop);
      if (isAgain) continue;
      if (this.#attached.has(id)) await this.#whileAttached(id);
      return;
    }
  }

  // The person has the slot of the task. However the terminal ends, the task goes on without it.
  async #whileAttached(id: string): Promise<void> {
    const { store, id: swarm, signal } = this.#parts;
    try {
      if (taskIn(this.#record, id).status === 'completed') return;
      store.event(swarm, 'attached', { task: id });
      do await paused(ATTACHED_MS, signal);
      while (!signal.aborted && this.#attached.has(id) && (await store.isAttached(swarm, id)));
      await this.#update(record => goesOn(taskIn(record, id)));
      if (signal.aborted || !this.#attached.has(id)) return;
      await this.#become(id, 'pending', 'asked', '');
    } finally {
      this.#attached.delete(id);
    }
  }

  // Returns whether to try once more.
  async #ended(id: string, end: AttemptEnd, stop: AbortSignal): Promise<boolean> {
    const status = end.kind === 'completion' ? statusOf(end, stop.aborted) : null;
    if (end.kind === 'completion' && status !== null) {
      await this.#completed(id, end.message, status);
      return false;
    }
    const failure = stop.aborted ? null : failureOf(end);
    if (stop.aborted) await this.#become(id, 'stopped', this.#asked(id), 'it did not end in time');
    if (failure) await this.#become(id, 'failed', failure.reason, failure.detail);
    if (stop.aborted || failure) return false;
    return this.#afterFault(id, end, stop);
  }

  // Only faults of the engine and the machine are tried again, from the last commit.
  async #afterFault(id: string, end: AttemptEnd, stop: AbortSignal): Promise<boolean> {
    const { acode, store, id: swarm, signal } = this.#parts;
    if (end.kind === 'silent') {
      const [found] = await reconcile({ acode, sandboxes: this.#sandboxes, record: this.#record, only: id, signal });
      if (found?.completion && found.completion.payload.status !== 'stopped') {
        await this.#completed(id, found.completion, found.completion.payload.status);
        return false;
      }
      if (end.result.exitCode === 127)
        return this.#become(id, 'failed', 'refused', 'the image has no Node.js').then(() => false);
    }
    const detail = faultText(end);
    const record = await this.#update(now => (taskIn(now, id).faults += 1));
    const { faults } = taskIn(record, id);
    store.event(swarm, 'fault', { task: id, detail, faults });
    if (faults >= MAX_FAULTS) return this.#become(id, 'failed', 'infrastructure', detail).then(() => false);
    await paused(FAULT_PAUSE_MS * 2 ** (faults - 1), AbortSignal.any([signal, stop]));
    return !signal.aborted && !stop.aborted;
  }

  async #completed(id: string, message: Completion, status: Completion['payload']['status']): Promise<void> {
    const { errors } = message.payload;
    const question = this.#questions.get(id);
    this.#questions.delete(id);
    if (status === 'completed') await this.#complete(id, message);
    else if (status === 'failed' && question !== undefined)
      await this.#become(id, 'stopped', 'input', question, 'needs-input');
    else await this.#become(id, status, status === 'stopped' ? this.#asked(id) : 'agent', errors.join('; '));
  }

  #asked(id: string): Reason {
    return this.#attached.has(id) ? 'attached' : 'asked';
  }

  // The branch comes first: a record that says `completed` has it.
  async #complete(id: string, { payload: { commit } }: Completion): Promise<void> {
    const { acode, store, id: swarm, signal } = this.#parts;
    const task = taskIn(this.#record, id);
    await this.#update(record => {
      const now = taskIn(record, id);
      now.commit = commit ?? null;
      for (const story of now.stories) if (story.status !== 'skipped') story.status = 'completed';
    });
    const brought = await bringBack({
      acode,
      sandboxes: this.#sandboxes,
      task: { ...task, commit: commit ?? null },
      signal,
    });
    await this.#update(record => {
      const now = taskIn(record, id);
      now.branchCommit = brought.kind === 'made' ? brought.commit : now.branchCommit;
      now.riskyChanges = brought.kind === 'risky' ? [...brought.riskyChanges] : [];
      now.attention = brought.kind === 'risky' ? 'needs-review' : null;
    });
    if (brought.kind === 'refused') await this.#become(id, 'failed', 'branch', brought.detail);
    else await this.#become(id, 'completed', null, '');
    store.event(swarm, 'branch', { task: id, result: brought.kind, branch: task.branch });
  }

  async #message(id: string, message: AdapterMessage): Promise<void> {
    const { store, id: swarm } = this.#parts;
    this.#watch.heard(id);
    if (message.type === 'error' && message.payload.code === NEEDS_INPUT)
      this.#questions.set(id, message.payload.message);
    if (message.type === 'error') {
      store.event(swarm, 'adapter-error', { task: id, ...message.payload });
      return;
    }
    if (message.type === 'completion') return;
    const { storyId, status, output, commit, changes } = message.payload;
    const before = taskIn(this.#record, id).stories.find(story => story.id === storyId)?.status;
    await this.#update(record => {
      const task = taskIn(record, id);
      const story = task.stories.find(one => one.id === storyId);
      if (story) {
        story.status = status;
        story.commit = commit ?? story.commit;
      }
      task.lastLine = lastLineOf(output);
      if (changes) task.changes = [...changes];
      if (commit) task.commit = commit;
      if (commit) task.keepChanges = false;
    });
    if (before !== status)
      store.event(swarm, 'story', { task: id, story: storyId, status, ...(commit ? { commit } : {}) });
    if (changes) await this.#reportOverlaps(id);
  }

  // While tasks run: at the end it would be too late to stop one of them.
  async #reportOverlaps(id: string): Promise<void> {
    const { store, id: swarm } = this.#parts;
    const task = taskIn(this.#record, id);
    for (const other of this.#record.tasks) {
      if (other.id === id || other.changes.length === 0 || task.dependsOn.includes(other.id)) continue;
      const pair: [string, string] = id < other.id ? [id, other.id] : [other.id, id];
      const known = (path: string): boolean =>
        this.#record.overlaps.some(one => one.path === path && one.tasks[0] === pair[0] && one.tasks[1] === pair[1]);
      const found = overlapsOf(task.changes, other.changes).filter(({ path }) => !known(path));
      if (found.length === 0 || this.#record.overlaps.length >= MAX_OVERLAPS) continue;
      const at = new Date().toISOString();
      await this.#update(record => record.overlaps.push(...found.map(region => ({ tasks: pair, ...region, at }))));
      for (const region of found)
        store.event(swarm, 'overlap', { tasks: pair, ...region, running: this.#active.has(other.id) });
    }
  }

  async #ensureFork({ fork }: TaskRecord): Promise<void> {
    const { acode, id } = this.#parts;
    const forks = await acode.forks.list();
    if (forks.some(({ name }) => name === fork)) return;
    await acode.forks.create({ from: `${forkOf(id)}@${SNAPSHOT}`, name: fork });
  }

  // What a task builds on: the commit that the swarm began at, or the branches of what it depends on.
  #basesOf(id: string): string[] {
    const commits = taskIn(this.#record, id).dependsOn.flatMap(name => taskIn(this.#record, name).branchCommit ?? []);
    return commits.length > 0 ? commits : [this.#record.base ?? ''];
  }

  async #account(id: string, end: AttemptEnd, ms: number): Promise<void> {
    const result = 'result' in end ? end.result : null;
    await this.#update(record => {
      const task = taskIn(record, id);
      task.elapsedMs += ms;
      task.requests += (result?.network ?? []).reduce((sum, { count }) => sum + count, 0);
      const rules = (result?.denials ?? []).map(({ rule }) => rule);
      task.denials = [...new Set([...task.denials, ...rules])].slice(0, 50);
    });
  }

  async #become(
    id: string,
    status: TaskStatus,
    reason: Reason | null,
    detail: string,
    attention: Attention | null = null,
  ): Promise<TaskRecord> {
    const { store, id: swarm } = this.#parts;
    const before = taskIn(this.#record, id).status;
    const record = await this.#update(now => {
      const task = taskIn(now, id);
      if (!mayBecome(task.status, status)) return;
      task.status = status;
      task.reason = reason;
      task.detail = detail.slice(0, MAX_DETAIL);
      task.attention = attentionAt(status, attention, task);
      if (task.attention !== 'blocked-by-policy') task.waitsFor = [];
      task.updatedAt = new Date().toISOString();
      task.endedAt = isTerminal(status) ? task.updatedAt : null;
    });
    const task = taskIn(record, id);
    if (before !== task.status)
      store.event(swarm, 'task', { task: id, status: task.status, reason, detail: task.detail });
    return task;
  }

  async #update(change: (record: SwarmRecord) => void): Promise<SwarmRecord> {
    const before = new Map(this.#record.tasks.map(task => [task.id, stateOf(task)]));
    this.#record = await this.#parts.store.update(this.#parts.id, change);
    for (const task of this.#record.tasks) {
      const state = stateOf(task);
      if (state !== 'pending' && before.get(task.id) !== state)
        this.#notifier.tell(noticeOf(this.#record, task, state));
    }
    return this.#record;
  }

  #answer({ op, task }: ControlRequest): ControlAnswer {
    switch (op) {
      case 'ping':
        return { ok: true, detail: this.#record.state };
      case 'pause':
      case 'continue':
        return this.#pause(op === 'pause');
      case 'stop':
        return this.#stop(task);
      case 'retry':
        return this.#retry(task);
      case 'attach':
        return this.#attach(task);
      default:
        return { ok: false, detail: 'unknown' };
    }
  }

  // Tasks that run go on; no other begins.
  #pause(isPaused: boolean): ControlAnswer {
    this.#isPaused = isPaused;
    void this.#update(record => (record.state = isPaused ? 'paused' : 'running'));
    this.#wake();
    return { ok: true, detail: isPaused ? 'paused' : 'running' };
  }

  #stop(task: string | undefined): ControlAnswer {
    const known = this.#record.tasks.filter(one => task === undefined || one.id === task);
    if (known.length === 0) return { ok: false, detail: `there is no task ${task ?? ''}` };
    this.#isPaused = task === undefined ? false : this.#isPaused;
    for (const { id, status } of known) {
      this.#attached.delete(id);
      this.#active.get(id)?.stop.abort();
      if (status === 'pending' && !this.#active.has(id))
        this.#start(id, async () => void (await this.#become(id, 'stopped', 'asked', 'it was not begun')));
    }
    return { ok: true, detail: 'stopping' };
  }

  // Its sandbox ends, and the terminal gets one on the same fork. A task that has ended goes on after the terminal, too.
  #attach(task: string | undefined): ControlAnswer {
    const known = this.#record.tasks.find(one => one.id === task);
    if (!known) return { ok: false, detail: `there is no task ${task ?? ''}` };
    const { id, status, startedAt } = known;
    if (status === 'completed' || startedAt === null)
      return { ok: false, detail: `task ${id} ${startedAt === null ? 'has not begun' : 'is completed'}` };
    this.#attached.add(id);
    const active = this.#active.get(id);
    if (active) active.stop.abort();
    else this.#start(id, () => this.#whileAttached(id));
    return { ok: true, detail: 'attached' };
  }

  #retry(task: string | undefined): ControlAnswer {
    const known = this.#record.tasks.find(one => one.id === task);
    if (!known) return { ok: false, detail: `there is no task ${task ?? ''}` };
    if (!isTerminal(known.status)) return { ok: false, detail: `task ${known.id} is ${known.status}` };
    this.#start(known.id, async () => {
      await this.#update(record => again(taskIn(record, known.id)));
      await this.#become(known.id, 'pending', 'asked', '');
    });
    return { ok: true, detail: 'pending' };
  }
}

/**
 * How a task ended that had its last word; null where something else ended it. A signal reaches its agent and its adapter at once:
 * an adapter that sees the end of its agent first calls that a failure.
 */
export function statusOf(
  { message, result }: Extract<AttemptEnd, { kind: 'completion' }>,
  isStopped: boolean,
): Completion['payload']['status'] | null {
  const { status } = message.payload;
  if (status === 'completed') return status;
  if (isStopped) return 'stopped';
  return status === 'failed' && !result.timedOut ? status : null;
}

// Null for what may pass. At its time limit, and when its engine is restarted, an adapter stops as it does for a person.
function failureOf(end: AttemptEnd): { readonly reason: Reason; readonly detail: string } | null {
  switch (end.kind) {
    case 'completion':
      return end.result.timedOut ? { reason: 'deadline', detail: DEADLINE } : null;
    case 'deadline':
      return { reason: 'deadline', detail: DEADLINE };
    case 'violation':
      return { reason: 'protocol', detail: `${end.fault}: ${end.detail}` };
    case 'refused':
      return { reason: 'refused', detail: `${end.error.code}: ${end.error.message} ${end.error.hint}` };
    case 'silent':
    case 'fault':
      return null;
    default:
      return null;
  }
}

function faultText(end: AttemptEnd): string {
  if (end.kind === 'fault') return `${end.error.code}: ${end.error.message}`;
  return end.kind === 'completion'
    ? 'its engine, or a process of the task, asked its adapter to stop'
    : 'the sandbox ended without a word';
}

// What a task that failed was refused may be why, and can still be granted; what was noticed of one that ran is over with it.
function attentionAt(
  status: TaskStatus,
  given: Attention | null,
  { attention, waitsFor }: TaskRecord,
): Attention | null {
  if (given !== null) return given;
  if (status === 'completed') return attention === 'needs-review' ? attention : null;
  return status === 'failed' && waitsFor.length > 0 ? 'blocked-by-policy' : null;
}

function limitsOf({ tasks }: SwarmRecord): { limits?: TaskRecord['limits'] } {
  const [first] = tasks;
  return first ? { limits: { ...first.limits, allow: [...new Set(tasks.flatMap(({ limits }) => limits.allow))] } } : {};
}

function lastLineOf(output: string): string {
  return (output.trim().split('\n').at(-1) ?? '').slice(-200);
}

// Ends early where the signal is aborted, without an error.
async function paused(ms: number, signal: AbortSignal): Promise<void> {
  await pause(ms, undefined, { signal }).catch(() => undefined);
}

const UNPREPARED: Readonly<Record<string, (fields: Record<string, unknown>) => { what: string; remedy: string }>> = {
  'no-node': ({ image }) => ({
    what: `the image ${String(image)} has no Node.js`,
    remedy: 'Name an image that has git and Node.js 18 or newer: --image.',
  }),
  'no-git': ({ image }) => ({
    what: `the image ${String(image)} has no git`,
    remedy: 'Name an image that has git and Node.js 18 or newer: --image.',
  }),
  'no-repository': () => ({
    what: 'the workspace is not a git repository',
    remedy: 'Make it one: git init && git add -A && git commit.',
  }),
  'no-commit': () => ({
    what: 'the repository has no commit',
    remedy: 'Commit something first: tasks begin at a commit.',
  }),
  setup: ({ command, status, output }) => ({
    what: `the setup command ${JSON.stringify(command)} ended with status ${String(status)}: ${String(output).trim().slice(-300)}`,
    remedy: 'Correct it; `acode swarm logs setup` has all of its output.',
  }),
  timeout: () => ({ what: 'the setup took longer than an hour', remedy: 'Make it shorter.' }),
};

function notPrepared({ fields, message }: InquiryFailure): AcodeError {
  const found = UNPREPARED[message]?.(fields) ?? {
    what: `the fork could not be prepared: ${message}`,
    remedy: '`acode swarm logs setup` has what was printed.',
  };
  return swarmError('ACODE-SWM-001', { problems: [found] });
}
