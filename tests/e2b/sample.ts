// A program in the style of E2B’s documentation: nothing but the line of its import was changed. It is compiled, and run by
// program.test.ts.

import { CommandExitError, FileType, NotFoundError, Sandbox, TimeoutError } from '@acode/sandbox/e2b';
import type { CommandHandle, CommandResult, EntryInfo, SandboxInfo, SandboxOpts } from '@acode/sandbox/e2b';

/** Commands: their results, their failures, their output as it comes, and those that go on. */
export async function useCommands(options: SandboxOpts): Promise<string[]> {
  const sandbox = await Sandbox.create({ timeoutMs: 60_000, envs: { GREETING: 'hello' }, ...options });
  const said: string[] = [];
  try {
    const result: CommandResult = await sandbox.commands.run('echo $GREETING $NAME', { envs: { NAME: 'you' } });
    said.push(result.stdout.trim(), String(result.exitCode));
    await sandbox.commands.run('echo live', { onStdout: data => void said.push(data.trim()) });
    try {
      await sandbox.commands.run('echo no >&2; exit 3');
    } catch (error) {
      if (!(error instanceof CommandExitError)) throw error;
      said.push(`${error.exitCode} ${error.stderr.trim()}`);
    }
    try {
      await sandbox.commands.run('sleep 60', { timeoutMs: 300 });
    } catch (error) {
      if (error instanceof TimeoutError) said.push('too slow');
    }
    const background: CommandHandle = await sandbox.commands.run('cat', { background: true, stdin: true });
    await sandbox.commands.sendStdin(background.pid, 'typed\n');
    await background.closeStdin();
    said.push((await background.wait()).stdout.trim());
    const sleeper = await sandbox.commands.run('sleep 600', { background: true });
    said.push(String((await sandbox.commands.list()).some(({ pid }) => pid === sleeper.pid)));
    said.push(String(await sandbox.commands.kill(sleeper.pid)));
  } finally {
    await sandbox.kill();
  }
  said.push(String(await sandbox.isRunning()));
  return said;
}

/** Sandboxes: found again by their id, listed, kept longer, ended. */
export async function useSandboxes(options: SandboxOpts): Promise<string[]> {
  const { sandboxId } = await Sandbox.create(options);
  const same = await Sandbox.connect(sandboxId, options);
  await same.commands.run('echo kept > /tmp/note');
  const said = [(await same.commands.run('cat /tmp/note')).stdout.trim()];
  await same.setTimeout(120_000);
  const info: SandboxInfo = await same.getInfo();
  said.push(String(info.sandboxId === sandboxId), info.state);
  const paginator = Sandbox.list(options);
  const listed = await paginator.nextItems();
  said.push(String(listed.some(one => one.sandboxId === sandboxId)), String(paginator.hasNext));
  said.push(String(await Sandbox.kill(sandboxId, options)), String(await Sandbox.kill(sandboxId, options)));
  return said;
}

/** Files. */
export async function useFiles(sandbox: Sandbox): Promise<string[]> {
  await sandbox.files.write('notes/one.txt', 'one');
  await sandbox.files.write([
    { path: 'notes/two.txt', data: 'two' },
    { path: 'notes/three.bin', data: new Blob(['three']) },
  ]);
  const said = [await sandbox.files.read('notes/one.txt')];
  const bytes: Uint8Array = await sandbox.files.read('notes/two.txt', { format: 'bytes' });
  said.push(new TextDecoder().decode(bytes));
  const blob: Blob = await sandbox.files.read('notes/three.bin', { format: 'blob' });
  said.push(await blob.text());
  const entries: EntryInfo[] = await sandbox.files.list('notes');
  said.push(entries.map(({ name, type }) => `${name} ${type === FileType.FILE}`).join(', '));
  said.push(String(await sandbox.files.makeDir('notes/more')), String(await sandbox.files.makeDir('notes/more')));
  const renamed = await sandbox.files.rename('notes/one.txt', 'notes/first.txt');
  said.push(renamed.name, String(await sandbox.files.exists('notes/one.txt')));
  await sandbox.files.remove('notes');
  try {
    await sandbox.files.read('notes/first.txt');
  } catch (error) {
    if (error instanceof NotFoundError) said.push('gone');
  }
  const written = await sandbox.files.write('/home/user/app/main.txt', 'at its absolute path');
  const { stdout } = await sandbox.commands.run('pwd; cat main.txt', { cwd: '/home/user/app' });
  said.push(written.path, stdout.replace('\n', ' '));
  const { stdout: home } = await sandbox.commands.run('pwd && cat /home/user/app/main.txt');
  said.push(home.replace('\n', ' '));
  await sandbox.files.remove('/home/user/app');
  return said;
}

/** A terminal. */
export async function useTerminal(sandbox: Sandbox): Promise<string> {
  let seen = '';
  const terminal = await sandbox.pty.create({
    cols: 80,
    rows: 24,
    onData: data => void (seen += new TextDecoder().decode(data)),
  });
  await sandbox.pty.resize(terminal.pid, { cols: 100, rows: 30 });
  await sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode('stty size; exit 0\n'));
  await terminal.wait();
  return seen;
}
