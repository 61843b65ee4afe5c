// Shows that a second process in a container gives its own output and its own exit code.
import { describe, expect, it } from 'vitest';
import { Bench, collect, engines, withoutEngines } from './engines.ts';

describe.skipIf(withoutEngines).each(engines)('an exec on $name', { concurrent: true }, engine => {
  it('gives output, separated, and an exit code', async () => {
    await using bench = await Bench.at(engine);
    const { containers, exec } = bench.engine;
    const id = await bench.container('sleep 60');
    await containers.start(id, bench);
    const argv = ['sh', '-c', 'pwd; echo $GREETING; id -u; echo err >&2; exit 9'];
    const spec = { argv, env: ['GREETING=hello'], user: '1000', workingDirectory: '/tmp' };
    const execId = await exec.create(id, spec, bench);
    await expect(exec.inspect(execId, bench)).resolves.toMatchObject({ running: false, exitCode: null });
    await expect(collect(await exec.start(execId, bench))).resolves.toEqual({
      stdout: '/tmp\nhello\n1000\n',
      stderr: 'err\n',
    });
    await expect(exec.inspect(execId, bench)).resolves.toMatchObject({ running: false, exitCode: 9 });
  });

  it('reads stdin until it is half closed', async () => {
    await using bench = await Bench.at(engine);
    const { containers, exec } = bench.engine;
    const id = await bench.container('sleep 60');
    await containers.start(id, bench);
    const execId = await exec.create(id, { argv: ['wc', '-c'], stdin: true }, bench);
    const stream = await exec.start(execId, bench);
    await stream.write(Buffer.alloc(300_000));
    await stream.closeWrite();
    expect((await collect(stream)).stdout.trim()).toBe('300000');
  });

  it('is refused in a container that does not run', async () => {
    await using bench = await Bench.at(engine);
    const id = await bench.container('true');
    await expect(bench.engine.exec.create(id, { argv: ['true'] }, bench)).rejects.toMatchObject({
      kind: 'status',
      status: 409,
    });
  });
});
