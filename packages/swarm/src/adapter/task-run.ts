// One task in a sandbox: its stories one after the other, each until its acceptance commands pass, each one commit.

import { lstatSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import {
  MAX_ERROR_TEXT,
  MAX_ERRORS,
  MAX_REGIONS,
  MAX_TEXT,
  NEEDS_INPUT,
  PROTOCOL_VERSION,
  ending,
} from '../protocol.ts';
import type { AdapterMessage, Completion, Story, StoryStatus, TaskRequest } from '../protocol.ts';
import { GitFailure, Repository, git, tryGit } from './git.ts';
import { Journal } from './journal.ts';
import { run } from './process.ts';

const LOOK_MS = 1500;
const PROMPT = '{prompt}';
const MAX_SHOWN = 1024 ** 2;
const MAX_QUESTION = 64 * 1024;
// What the kernel takes as one argument.
const MAX_ARGUMENT = 128 * 1024 - 1;
const TRAILER = 'Acode-Story';

/** Where a task writes to. */
export interface TaskIo {
  /** Writes a message, and resolves once there is room for the next. */
  readonly send: (message: AdapterMessage) => Promise<void>;
  /** Shows what programs print. */
  readonly show: (bytes: Uint8Array) => void;
  readonly signal: AbortSignal;
  /** Variables for the agent alone: with them it finds its settings. */
  readonly agentEnv?: Readonly<Record<string, string>>;
}

type StoryOutcome = { readonly ok: true; readonly commit: string } | (Failed & { readonly ok: false });

/** Why an attempt failed, and what its agent asks a person, if anything. */
interface Failed {
  readonly reason: string;
  readonly question?: string;
}

/** A task under way. */
export class TaskRun {
  readonly #request: TaskRequest;
  readonly #io: TaskIo;
  // Whether the agent has a session to go on with.
  #hasSession = false;

  constructor(request: TaskRequest, io: TaskIo) {
    this.#request = request;
    this.#io = io;
  }

  /** Does the task, and says how it ended. */
  async do(): Promise<void> {
    const repository = await Repository.open();
    const journal = new Journal(repository.own);
    const before = journal.result();
    const { stories } = this.#request.payload.task;
    this.#hasSession = journal.hasSession() || this.#isKeptSession;
    repository.removeLocks();
    const done = await this.#continue(repository, journal);
    if (before?.payload.status === 'completed' && stories.every(({ id }) => done.has(id))) {
      // It ended, and nobody heard of it.
      await this.#end(journal, 'completed', [], await git('rev-parse', 'HEAD'));
      return;
    }
    journal.removeResult();
    journal.append({ event: 'begin', containerId: this.#request.containerId });
    for (const story of stories)
      if (done.has(story.id)) await this.#say(story.id, 'completed', 'done before', { commit: done.get(story.id) });
    for (const story of stories) if (!done.has(story.id) && !(await this.#isDone(repository, journal, story))) return;
    await this.#end(journal, 'completed', [], await git('rev-parse', 'HEAD'));
  }

  // A person who worked with the agent has gone on with its session.
  get #isKeptSession(): boolean {
    const { keep, resume } = this.#request.payload.task;
    return keep === true && resume !== undefined;
  }

  // Ends the task where a story is not.
  async #isDone(repository: Repository, journal: Journal, story: Story): Promise<boolean> {
    const outcome = await this.#story(repository, journal, story);
    if (this.#io.signal.aborted) await this.#end(journal, 'stopped', ['it was asked to stop'], null);
    else if (!outcome.ok) {
      if (outcome.question !== undefined) await this.#ask(outcome.question);
      await this.#end(journal, 'failed', [`${story.id}: ${outcome.reason}`], null);
    } else return true;
    return false;
  }

  // The fork as its last commit has it, on the branch of the task. Returns the stories that are done.
  async #continue(repository: Repository, journal: Journal): Promise<Map<string, string>> {
    const { branchName, task } = this.#request.payload;
    const isNew = !journal.read().some(({ event }) => event === 'begin');
    if (isNew) {
      await repository.leaveOutUntracked();
      await git('checkout', '-q', '-f', '-B', branchName, task.base);
      for (const commit of task.merge) await this.#merge(commit);
      return new Map();
    }
    const isKept = task.keep === true && (await tryGit(['checkout', '-q', branchName])).status === 0;
    if (!isKept) {
      await git('checkout', '-q', '-f', branchName);
      await git('reset', '-q', '--hard');
      await git('clean', '-fdq');
    }
    return this.#done(journal);
  }

  // A commit says which story it is of, so that a kill between commit and journal loses none and repeats none.
  async #done(journal: Journal): Promise<Map<string, string>> {
    const { task } = this.#request.payload;
    const log = await git(
      'log',
      `--format=%H %(trailers:key=${TRAILER},valueonly,separator=%x20)`,
      `${task.base}..HEAD`,
    );
    const found = storiesIn(log);
    const written = journal.read().filter(({ event, status }) => event === 'story' && status === 'completed');
    for (const { story, commit } of written) {
      if (story === undefined || found.has(story)) continue;
      const isHere = (await tryGit(['merge-base', '--is-ancestor', commit ?? 'HEAD', 'HEAD'])).status === 0;
      if (isHere) found.set(story, commit ?? '');
    }
    return found;
  }

  async #merge(commit: string): Promise<void> {
    const { status, output } = await tryGit(['merge', '-q', '--no-edit', '-m', `Merge ${commit.slice(0, 12)}`, commit]);
    if (status !== 0)
      throw new GitFailure(`what this task depends on does not merge: ${output.trim().split('\n').at(-1) ?? ''}`);
  }

  async #story(repository: Repository, journal: Journal, story: Story): Promise<StoryOutcome> {
    const { attempts } = this.#request.payload.task;
    let failed: Failed = { reason: '' };
    for (let attempt = 1; attempt <= attempts && !this.#isOver(failed); attempt += 1) {
      const before = ending(failed.reason, MAX_TEXT);
      await this.#say(story.id, 'in_progress', before === '' ? story.title : before, { attempt });
      const isLast = attempt === attempts;
      const found = await this.#attempt(repository, journal, story, { attempt, before, isLast });
      if (found === null) return this.#accepted(repository, journal, story, attempt);
      failed = found;
    }
    if (this.#io.signal.aborted) return { ok: false, ...STOPPED };
    journal.append({ event: 'story', story: story.id, status: 'failed' });
    await this.#say(story.id, 'failed', ending(failed.reason, MAX_TEXT), {});
    return { ok: false, ...failed };
  }

  #isOver({ question }: Failed): boolean {
    return question !== undefined || this.#io.signal.aborted;
  }

  async #accepted(repository: Repository, journal: Journal, story: Story, attempt: number): Promise<StoryOutcome> {
    const commit = await this.#commit(story);
    journal.append({ event: 'story', story: story.id, status: 'completed', commit });
    const changes = await repository.changesSince(this.#request.payload.task.base, MAX_REGIONS);
    await this.#say(story.id, 'completed', story.title, { attempt, commit, changes });
    return { ok: true, commit };
  }

  // Null where agent and acceptance commands succeed.
  async #attempt(
    repository: Repository,
    journal: Journal,
    story: Story,
    { attempt, before, isLast }: { readonly attempt: number; readonly before: string; readonly isLast: boolean },
  ): Promise<Failed | null> {
    const { envVars, task } = this.#request.payload;
    const asked = join(repository.own, 'question');
    rmSync(asked, { force: true });
    const prompt = promptOf(this.#request, story, before, asked);
    const env = { ...envVars, ...variablesOf(task.id, story.id, attempt), ACODE_SWARM_QUESTION: asked };
    const { argv, input } = startOf(this.#hasSession ? (task.resume ?? task.command) : task.command, prompt);
    if (argv.some(part => Buffer.byteLength(part) > MAX_ARGUMENT))
      return { reason: 'the story is too long for an argument of its agent: 128 KiB' };
    const tip = await git('rev-parse', 'HEAD');
    const agent = await this.#watched(repository, story, argv, { env: { ...this.#io.agentEnv, ...env }, input });
    if (this.#io.signal.aborted) return STOPPED;
    const question = questionIn(asked);
    this.#keepSession(journal, agent.status === 0);
    if (question !== '') return { reason: 'its agent asks a question', question };
    if (agent.status !== 0) return { reason: `the agent ended with status ${agent.status}: ${agent.output.trim()}` };
    const reason = await this.#refused(repository, story, env);
    if (this.#io.signal.aborted) return STOPPED;
    return reason === null ? null : this.#doubted(reason, { tip, isLast, said: agent.output.trim() });
  }

  // An agent that was content, changed nothing and is not accepted has most likely asked something in its last words.
  async #doubted(
    reason: string,
    { tip, isLast, said }: { readonly tip: string; readonly isLast: boolean; readonly said: string },
  ): Promise<Failed> {
    const isAgent = this.#request.payload.task.resume !== undefined;
    if (!isAgent || !isLast || (await this.#hasChanged(tip))) return { reason };
    return { reason, question: said || 'It changed nothing, and said nothing.' };
  }

  // Null where the acceptance commands succeed.
  async #refused(repository: Repository, story: Story, env: Readonly<Record<string, string>>): Promise<string | null> {
    for (const line of story.acceptance) {
      const { status, output } = await this.#watched(repository, story, ['sh', '-c', line], { env });
      if (status !== 0)
        return `acceptance command ${JSON.stringify(line)} ended with status ${status}: ${output.trim()}`;
      if (this.#io.signal.aborted) return null;
    }
    return null;
  }

  async #hasChanged(tip: string): Promise<boolean> {
    return (
      (await git('rev-parse', 'HEAD')) !== tip || (await git('status', '--porcelain', '--ignore-submodules')) !== ''
    );
  }

  async #ask(question: string): Promise<void> {
    const payload = { code: NEEDS_INPUT, message: ending(question, MAX_TEXT) };
    await this.#io.send({ type: 'error', ...this.#envelope(), payload });
  }

  // After a failure of its own, an agent begins with a new session: the old one may be what fails.
  #keepSession(journal: Journal, isKept: boolean): void {
    if (this.#request.payload.task.resume === undefined || isKept === this.#hasSession) return;
    this.#hasSession = isKept;
    journal.append({ event: 'session', status: isKept ? 'kept' : 'lost' });
  }

  // Runs a program, and reports what it prints and changes while it does.
  async #watched(
    repository: Repository,
    story: Story,
    argv: readonly string[],
    { env, input }: { readonly env: Readonly<Record<string, string>>; readonly input?: string },
  ): Promise<{ readonly status: number; readonly output: string }> {
    let shown = 0;
    let tail = '';
    const show = (bytes: Uint8Array): void => {
      tail = (tail + Buffer.from(bytes).toString('utf8')).slice(-MAX_TEXT);
      if (shown < MAX_SHOWN) this.#io.show(bytes);
      shown += bytes.byteLength;
    };
    const { signal } = this.#io;
    const work = run(argv, { env, show, signal, maxStdout: 0, ...(input === undefined ? {} : { input }) });
    let isOver = false;
    const over = work.then(() => (isOver = true));
    let last = '';
    for (let pause = LOOK_MS; ;) {
      await Promise.race([over, wait(pause)]);
      if (isOver || signal.aborted) return work;
      const began = performance.now();
      const changes = await repository.changesSince(this.#request.payload.task.base, MAX_REGIONS);
      // Where git takes long it is asked less often: the agent needs the CPU more.
      pause = Math.max(LOOK_MS, (performance.now() - began) * 10);
      const seen = `${tail}\0${JSON.stringify(changes)}`;
      if (seen === last) continue;
      last = seen;
      await this.#say(story.id, 'in_progress', ending(tail, MAX_TEXT), { changes });
    }
  }

  // A story that the agent committed itself is written down in a commit without changes.
  async #commit(story: Story): Promise<string> {
    const { task } = this.#request.payload;
    await git('add', '-A');
    const message = `${task.title}: ${story.title}\n\nAcode-Task: ${task.id}\n${TRAILER}: ${story.id}\n`;
    await git('commit', '-q', '--no-verify', '--allow-empty', '-m', message);
    return git('rev-parse', 'HEAD');
  }

  async #say(
    storyId: string,
    status: StoryStatus,
    output: string,
    more: {
      readonly attempt?: number;
      readonly commit?: string | undefined;
      readonly changes?: { path: string; from: number; to: number }[];
    },
  ): Promise<void> {
    const { commit, ...rest } = more;
    const payload = { storyId, status, output: ending(output, MAX_TEXT), ...rest, ...(commit ? { commit } : {}) };
    await this.#io.send({ type: 'progress-update', ...this.#envelope(), payload });
  }

  async #end(
    journal: Journal,
    status: Completion['payload']['status'],
    errors: string[],
    commit: string | null,
  ): Promise<void> {
    const message = completionFor(this.#request, status, errors, commit);
    journal.append({ event: 'end', status });
    // Before it is sent: a listener that misses it finds it.
    journal.writeResult(message);
    await this.#io.send(message);
  }

  #envelope(): { version: typeof PROTOCOL_VERSION; timestamp: string; swarmId: string; containerId: string } {
    const { swarmId, containerId } = this.#request;
    return { version: PROTOCOL_VERSION, timestamp: new Date().toISOString(), swarmId, containerId };
  }
}

/** The last message of a task. */
export function completionFor(
  { swarmId, containerId }: Pick<TaskRequest, 'swarmId' | 'containerId'>,
  status: Completion['payload']['status'],
  errors: readonly string[],
  commit: string | null,
): Completion {
  return {
    type: 'completion',
    version: PROTOCOL_VERSION,
    timestamp: new Date().toISOString(),
    swarmId,
    containerId,
    payload: {
      status,
      prUrl: null,
      errors: errors.slice(0, MAX_ERRORS).map(text => ending(text, MAX_ERROR_TEXT)),
      commit,
    },
  };
}

// What the agent is asked to do. The end of what went wrong before comes last.
function promptOf({ payload: { task } }: TaskRequest, story: Story, before: string, asked: string): string {
  const parts = [
    `# ${task.title}`,
    task.description,
    `## ${story.id}: ${story.title}`,
    story.description,
    story.acceptance.length === 0
      ? ''
      : `These commands must succeed:\n${story.acceptance.map(line => `- ${line}`).join('\n')}`,
    'Work in the current directory. Do not commit: that is done for you.',
    `Nobody can answer you now. If you cannot go on without an answer of a person, write your question to the file ${asked} and end.`,
    before === '' ? '' : `Your last attempt was not accepted: ${before}`,
  ];
  return `${parts.filter(part => part.trim() !== '').join('\n\n')}\n`;
}

// Each line: a commit, and the stories that it names.
function storiesIn(log: string): Map<string, string> {
  const found = new Map<string, string>();
  for (const line of log.split('\n')) {
    const [commit = '', ...ids] = line.trim().split(' ');
    for (const id of ids) found.set(id, commit);
  }
  return found;
}

function variablesOf(task: string, story: string, attempt: number): Record<string, string> {
  return { ACODE_SWARM_TASK: task, ACODE_STORY_ID: story, ACODE_STORY_ATTEMPT: String(attempt) };
}

// Once is enough: some agents put what they read after their argument.
function startOf(command: readonly string[], prompt: string): { readonly argv: string[]; readonly input: string } {
  const argv = command.map(part => part.replaceAll(PROMPT, () => prompt));
  return { argv, input: command.some(part => part.includes(PROMPT)) ? '' : prompt };
}

const STOPPED: Failed = { reason: 'it was asked to stop' };

// A task can put anything in its place: only a file of a bounded size is read.
function questionIn(path: string): string {
  try {
    const found = lstatSync(path);
    return found.isFile() && found.size <= MAX_QUESTION ? readFileSync(path, 'utf8').trim() : '';
  } catch {
    return '';
  }
}

function wait(ms: number): Promise<void> {
  return new Promise(resolve => void setTimeout(resolve, ms).unref());
}
