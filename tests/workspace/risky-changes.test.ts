// What a command leaves for host tools to execute is in its result, in the log, and complete: looked for after its end.

import { linkSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { LogFields } from '@acode/sandbox';
import { TestHost, engines, images, withoutEngines } from '../support/engines.ts';

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

  it('C5–C13: traps are reported, and ordinary work is not', async () => {
    expect(await host.acode.run(['sh', '-c', 'echo x > notes.txt'])).toMatchObject({ riskyChanges: [] });
    const { riskyChanges, correlationId } = await host.acode.run([
      'sh',
      '-c',
      'mkdir -p sub/.git .git && echo x > sub/.git/config && ln -s /home/x/.ssh/id link && mkfifo .env && echo {} > package.json && cp /bin/sh sh; chmod 4755 sh',
    ]);
    expect(riskyChanges.map(({ kind, path }) => `${kind} ${path}`)).toEqual(
      expect.arrayContaining([
        'special-file .env',
        'git-repository .git',
        'symlink-out link',
        'package-scripts package.json',
        'git-repository sub/.git',
      ]),
    );
    // The filter on system calls may refuse it already; what got through is reported.
    const privileged = (statSync(host.file('sh')).mode & 0o6000) !== 0;
    expect(riskyChanges.some(({ kind }) => kind === 'privileged-file')).toBe(privileged);
    const ended = lines.find(([message, fields]) => message === 'run ok' && fields['correlationId'] === correlationId);
    expect(ended?.[1]['riskyChanges']).toBe(riskyChanges.length);
    expect(
      lines.some(([message, fields]) => message.includes('left things') && fields['count'] === riskyChanges.length),
    ).toBe(true);
  });

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
    const { riskyChanges } = await host.acode.run([
      'sh',
      '-c',
      'echo x >> notes.txt; mkdir -p sub/.git .husky; chmod 311 sub; echo x > .husky/pre-commit; echo {} > package.json; seq 30000 | xargs touch',
    ]);
    expect(riskyChanges.map(({ kind, path }) => `${kind} ${path}`)).toEqual(
      expect.arrayContaining(['git-settings .husky/pre-commit', 'package-scripts package.json', 'scan-incomplete .']),
    );
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
    open(my $trap, '>', '.envrc'); print $trap 'trap'; close $trap;
    open(my $control, '>', 'control'); print $control $nonce; close $control;
    syswrite(STDOUT, "\\x1e$nonce missing\\n"); syswrite(STDERR, "\\x1e$nonce missing\\n");
    exit 127;`;

  it('a command that claims never to have started is not believed when it left something', async () => {
    const result = await host.acode.run(['perl', '-e', FORGED], { policy: { image: images.debian } });
    expect(readFileSync(host.file('control'), 'utf8')).toMatch(/^[0-9a-f]{32}$/);
    expect(result).toMatchObject({ exitCode: 127, stdout: '', riskyChanges: [{ path: '.envrc' }] });
    await expect(host.acode.run(['no-such-program'], { policy: { image: images.debian } })).rejects.toMatchObject({
      code: 'ACODE-SBX-015',
    });
  });

  it('a read-only workspace has nothing to report, in an image without a shell neither', async () => {
    expect(await host.acode.run(['true'], { policy: { workspace: 'readonly' } })).toMatchObject({ riskyChanges: [] });
    expect(await host.acode.run(['/true'], { policy: { image: images.noshell } })).toMatchObject({ riskyChanges: [] });
  });
});
