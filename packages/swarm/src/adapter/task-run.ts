// One task in a sandbox: its stories one after the other, each until its acceptance commands pass, each one commit.

import { MAX_ERROR_TEXT, MAX_ERRORS, MAX_REGIONS, MAX_TEXT, PROTOCOL_VERSION, ending } from '../protocol.ts';
import type { AdapterMessage, Completion, Story, StoryStatus, TaskRequest } from '../protocol.ts';
import { GitFailure, Repository, git, tryGit } from './git.ts';
import { Journal } from './journal.ts';
import { run } from './process.ts';

const LOOK_MS = 1500;
const PROMPT = '{prompt}';
const MAX_SHOWN = 1024 ** 2;
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

type StoryOutcome = { readonly ok: true; readonly commit: string } | { readonly ok: false; readonly reason: string };

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
    this.#hasSession = journal.hasSession();
    const { stories } = this.#request.payload.task;
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
    for (const story of stories) {
      if (done.has(story.id)) continue;
      const outcome = await this.#story(repository, journal, story);
      if (this.#io.signal.aborted) return this.#end(journal, 'stopped', ['it was asked to stop'], null);
      if (!outcome.ok) return this.#end(journal, 'failed', [`${story.id}: ${outcome.reason}`], null);
    }
    return this.#end(journal, 'completed', [], await git('rev-parse', 'HEAD'));
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
    await git('checkout', '-q', '-f', branchName);
    await git('reset', '-q', '--hard');
    await git('clean', '-fdq');
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
    let reason = 'it was not begun';
    for (let attempt = 1; attempt <= attempts && !this.#io.signal.aborted; attempt += 1) {
      await this.#say(story.id, 'in_progress', attempt === 1 ? story.title : ending(reason, MAX_TEXT), { attempt });
      const failed = await this.#attempt(repository, journal, story, { attempt, before: attempt === 1 ? '' : reason });
      if (failed === null && !this.#io.signal.aborted) {
        const commit = await this.#commit(story);
        journal.append({ event: 'story', story: story.id, status: 'completed', commit });
        const changes = await repository.changesSince(this.#request.payload.task.base, MAX_REGIONS);
        await this.#say(story.id, 'completed', story.title, { attempt, commit, changes });
        return { ok: true, commit };
      }
      reason = failed ?? 'it was asked to stop';
    }
    if (this.#io.signal.aborted) return { ok: false, reason };
    journal.append({ event: 'story', story: story.id, status: 'failed' });
    await this.#say(story.id, 'failed', ending(reason, MAX_TEXT), {});
    return { ok: false, reason };
  }

  // Null where agent and acceptance commands succeed.
  async #attempt(
    repository: Repository,
    journal: Journal,
    story: Story,
    { attempt, before }: { readonly attempt: number; readonly before: string },
  ): Promise<string | null> {
    const { envVars, task } = this.#request.payload;
    const prompt = promptOf(this.#request, story, before);
    const env = {
      ...envVars,
      ACODE_SWARM_TASK: task.id,
      ACODE_STORY_ID: story.id,
      ACODE_STORY_ATTEMPT: String(attempt),
    };
    const command = this.#hasSession ? (task.resume ?? task.command) : task.command;
    const argv = command.map(part => part.replaceAll(PROMPT, () => prompt));
    if (argv.some(part => Buffer.byteLength(part) > MAX_ARGUMENT))
      return 'the story is too long for an argument of its agent: 128 KiB';
    // Once is enough: some agents put what they read after their argument.
    const input = command.some(part => part.includes(PROMPT)) ? '' : prompt;
    const agent = await this.#watched(repository, story, argv, { env: { ...this.#io.agentEnv, ...env }, input });
    if (this.#io.signal.aborted) return 'it was asked to stop';
    this.#keepSession(journal, agent.status === 0);
    if (agent.status !== 0) return `the agent ended with status ${agent.status}: ${agent.output.trim()}`;
    for (const line of story.acceptance) {
      const { status, output } = await this.#watched(repository, story, ['sh', '-c', line], { env });
      if (status !== 0)
        return `acceptance command ${JSON.stringify(line)} ended with status ${status}: ${output.trim()}`;
      if (this.#io.signal.aborted) return 'it was asked to stop';
    }
    return null;
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
function promptOf({ payload: { task } }: TaskRequest, story: Story, before: string): string {
  const parts = [
    `# ${task.title}`,
    task.description,
    `## ${story.id}: ${story.title}`,
    story.description,
    story.acceptance.length === 0
      ? ''
      : `These commands must succeed:\n${story.acceptance.map(line => `- ${line}`).join('\n')}`,
    'Work in the current directory. Do not commit: that is done for you.',
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

function wait(ms: number): Promise<void> {
  return new Promise(resolve => void setTimeout(resolve, ms).unref());
}
