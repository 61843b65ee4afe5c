// What a command leaves for host tools to execute is in its result, in the log, and complete: looked for after its end.

import { linkSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { Acode } from '@acode/sandbox';
import type { AcodeEvent, LogFields, ScanJob } from '@acode/sandbox';
import { TestHost, engines, images, mainEngine, makeWorkspace, withoutEngines } from '../support/engines.ts';
import { DEEP_HOOK, PLANT_HOOK, fillWorkspace } from '../support/full-workspace.ts';

describe.skipIf(withoutEngines).each(engines)('on $name', engine => {
  let host: TestHost;
  const lines: [string, LogFields][] = [];
  let onLine: (message: string) => void = () => undefined;
  beforeEach(async () => {
    lines.length = 0;
    onLine = () => undefined;
    const write = (fields: LogFields, message: string) => {
      lines.push([message, fields]);
      onLine(message);
    };
    host = await TestHost.open(engine, { logger: { debug: write, info: write, warn: write, error: write } });
  });
  afterEach(() => host[Symbol.asyncDispose]());

  it('what a background process would write after the end is not missed: it is dead before the look', async () => {
    const { riskyChanges } = await host.acode.run([
      'sh',
      '-c',
      '(for n in 1 2 3 4 5 6 7 8 9; do sleep 0.05; mkdir -p late$n/.git; done) >/dev/null 2>&1 & sleep 0.12',
    ]);
    // The kernel’s clock is given some leeway: what was written just before a run would be taken for its own.
    await delay(100);
    const { riskyChanges: later } = await host.acode.run(['sh', '-c', 'sleep 0.6; ls -d late*/ | wc -l > count']);
    const { stdout } = await host.acode.run(['cat', 'count']);
    expect(riskyChanges).toHaveLength(Number(stdout));
    expect(riskyChanges.length).toBeGreaterThan(0);
    expect(later).toEqual([]);
  });

  it('what is written while the sandbox is made is not missed: the shell that waits in it is the image’s', async () => {
    onLine = message => {
      if (message.startsWith('limits:')) writeFileSync(host.file('Makefile'), '');
    };
    const { riskyChanges, timings } = await host.acode.run(['true']);
    // Long enough for a look that begins at the hand-over to miss it.
    expect(timings.obtainMs).toBeGreaterThan(50);
    expect(riskyChanges).toMatchObject([{ kind: 'build-file', path: 'Makefile' }]);
  });

  it('what is hidden in a directory that cannot be listed, behind 30,000 files, or under another name is found', async () => {
    writeFileSync(host.file('notes.txt'), '');
    mkdirSync(host.file('kept'));
    linkSync(host.file('notes.txt'), host.file('kept/trusted'));
    await delay(100);
    const { riskyChanges, scan } = await host.acode.run([
      'sh',
      '-c',
      'echo x >> notes.txt; mkdir -p sub/.git .husky; chmod 311 sub; echo x > .husky/pre-commit; echo {} > package.json; seq 30000 | xargs touch',
    ]);
    expect(riskyChanges.map(({ kind, path }) => `${kind} ${path}`)).toEqual(
      expect.arrayContaining(['git-settings .husky/pre-commit', 'package-scripts package.json']),
    );
    expect(scan).toBe('continuing');
    await host.acode.run(['sh', '-c', 'seq 30000 | xargs rm']);
    await delay(100);
    const { riskyChanges: again } = await host.acode.run(['sh', '-c', 'echo x >> notes.txt; touch sub/.git/config']);
    expect(again.map(({ kind, path }) => `${kind} ${path}`)).toEqual([
      'hard-link kept/trusted',
      'hard-link notes.txt',
      'git-repository sub/.git',
      'scan-incomplete .',
    ]);
    expect(again.at(-1)?.reason).toBe('sub could not be looked into');
    await host.acode.run(['chmod', '755', 'sub']);
  });

  // The frame of the status line can be read from the memory of the shell that waits for the command.
  const FORGED = `
    open(my $maps, '<', '/proc/' . getppid() . '/maps'); open(my $memory, '<:raw', '/proc/' . getppid() . '/mem');
    my %found;
    for (<$maps>) {
      next unless /^([0-9a-f]+)-([0-9a-f]+) rw/ && hex($2) - hex($1) < 8 << 20;
      seek($memory, hex $1, 0); read($memory, my $data, hex($2) - hex($1)) or next;
      $found{$1}++ while $data =~ /([0-9a-f]{32})/g;
    }
    my ($nonce) = sort { $found{$b} <=> $found{$a} } keys %found;
    mkdir('closed') && chmod(0, 'closed');
    open(my $control, '>', 'control'); print $control $nonce; close $control;
    syswrite(STDOUT, "\\x1e$nonce missing\\n"); syswrite(STDERR, "\\x1e$nonce missing\\n");
    exit 127;`;

  it('a command that claims never to have started has a result, a record and the scan that did not reach everything', async () => {
    const image = { policy: { image: images.debian } };
    const result = await host.acode.run(['perl', '-e', FORGED], image);
    const nonce = readFileSync(host.file('control'), 'utf8');
    expect(nonce).toMatch(/^[0-9a-f]{32}$/);
    const unread = { kind: 'scan-incomplete', reason: expect.stringContaining('closed') };
    expect(result).toMatchObject({ exitCode: 127, riskyChanges: [unread], scan: 'incomplete', changed: { other: 1 } });
    expect(result.stdout).toBe(`\u001e${nonce} missing\n`);
    // What is written after the result comes in any order.
    const outcomes = async () =>
      (await host.acode.audit.find(result.correlationId)).filter(({ kind }) => kind === 'outcome');
    await expect.poll(async () => (await outcomes()).at(-1)).toMatchObject({ exitCode: 127 });
    const outcome = (await outcomes()).at(-1);
    expect(outcome).not.toHaveProperty('errorCode');
    await expect(host.acode.run(['no-such-program'], image)).rejects.toMatchObject({ code: 'ACODE-SBX-015' });
    await host.acode.run(['chmod', '755', 'closed']);
  });

  it('a read-only workspace has nothing to report, in an image without a shell neither', async () => {
    expect(await host.acode.run(['true'], { policy: { workspace: 'readonly' } })).toMatchObject({ riskyChanges: [] });
    expect(await host.acode.run(['/true'], { policy: { image: images.noshell } })).toMatchObject({ riskyChanges: [] });
  });
});

describe.skipIf(withoutEngines)('a scan that its run had no time for', () => {
  let host: TestHost;
  const scanned: AcodeEvent<'WorkspaceScanned'>[] = [];
  let workspace = '';
  beforeAll(() => {
    workspace = makeWorkspace();
    fillWorkspace(workspace);
  });
  afterAll(() => rmSync(workspace, { recursive: true }));
  beforeEach(async () => {
    scanned.length = 0;
    host = await TestHost.open(mainEngine, { workspace });
    host.acode.events.on('WorkspaceScanned', event => scanned.push(event));
  });
  afterEach(() => host.acode.close());

  const HOOK = `${PLANT_HOOK} && echo {} > package.json`;
  const scansOf = async (correlationId: string): Promise<AcodeEvent<'WorkspaceScanned'>> =>
    vi.waitFor(
      () => scanned.find(event => event.correlationId === correlationId) ?? Promise.reject(new Error('not yet')),
      { timeout: 90_000 },
    );

  it('goes on while the caller has the result, finds the hook among 4,000 directories, and is in the audit log', async () => {
    const { correlationId, riskyChanges, scan, sandboxId } = await host.acode.run(HOOK);
    expect(scan).toBe('continuing');
    expect(riskyChanges).toMatchObject([{ path: 'package.json' }]);
    const event = await scansOf(correlationId);
    expect(event).toMatchObject({ sandboxId, complete: true, changed: { configuration: 1, hidden: 1 } });
    expect(event.riskyChanges).toMatchObject([{ kind: 'git-settings', path: DEEP_HOOK }]);
    const recorded = await vi.waitFor(async () => {
      const found = (await host.acode.audit.find(correlationId)).find(({ operation }) => operation === 'scan');
      return found ?? Promise.reject(new Error('not yet'));
    }, 90_000);
    expect(recorded).toMatchObject({
      kind: 'event',
      scan: 'complete',
      sandboxIds: [sandboxId],
      riskyChanges: [{ path: DEEP_HOOK }],
    });
  });

  it('scans after a cancelled command too, and does not take what the user makes afterwards for its own', async () => {
    const stop = new AbortController();
    const onStdout = (): void => stop.abort();
    const rejected = await host.acode
      .run(`${HOOK}; echo done; sleep 60`, { signal: stop.signal, onStdout })
      .catch((error: unknown) => error);
    // Files are stamped by a clock that lags behind a little.
    await delay(100);
    writeFileSync(host.file('Makefile'), '');
    expect(rejected).toMatchObject({
      code: 'ACODE-SBX-014',
      context: { result: { scan: 'continuing', riskyChanges: [] } },
    });
    const [found] = await vi.waitFor(() => (scanned.length > 0 ? scanned : Promise.reject(new Error('not yet'))), {
      timeout: 90_000,
    });
    expect(found).toMatchObject({ complete: true });
    expect(found?.riskyChanges.map(({ path }) => path)).toEqual(['package.json', DEEP_HOOK]);
  });

  it('ends at close, and says that it did not see everything', async () => {
    const { scan } = await host.acode.run(HOOK);
    expect(scan).toBe('continuing');
    await host.acode.close();
    expect(scanned).toHaveLength(1);
    const [{ complete, riskyChanges } = { complete: true, riskyChanges: [] }] = scanned;
    // Either it was faster than that, or it says so.
    expect(riskyChanges.some(({ kind }) => kind === 'scan-incomplete')).toBe(!complete);
  });

  it('is the opener’s where it takes it over, and the result is incomplete where it does not', async () => {
    const jobs: ScanJob[] = [];
    const options = { workspace: host.workspace, engine: { socket: mainEngine.socket } };
    const config = { sandbox: { images: { default: images.busybox } } };
    let takes = true;
    const continueScan = (job: ScanJob): boolean => takes && jobs.push(JSON.parse(JSON.stringify(job)) as ScanJob) > 0;
    await using acode = await Acode.open({ ...options, config, continueScan });
    expect(await acode.run(HOOK)).toMatchObject({ scan: 'continuing' });
    const reports = [];
    for await (const report of Acode.scan(jobs)) reports.push(report);
    expect(reports).toMatchObject([{ complete: true, riskyChanges: [{ path: DEEP_HOOK }] }]);
    takes = false;
    const { scan, riskyChanges } = await acode.run('touch t/0/x');
    expect([scan, riskyChanges.map(({ kind }) => kind)]).toEqual(['incomplete', ['scan-incomplete']]);
  });
});
