// One canonical event per operation, one correlation id on every line, metrics by name, and no secret anywhere.

import { describe, expect, it } from 'vitest';
import type { LogFields, Logger, Metrics } from '@acode/sandbox';
import { TestHost, mainEngine, withoutEngines } from '../support/engines.ts';

interface Line {
  level: string;
  message: string;
  fields: LogFields;
}

function recorder(): { lines: Line[]; logger: Logger; counted: Map<string, number>; metrics: Metrics } {
  const lines: Line[] = [];
  const write = (level: string) => (fields: LogFields, message: string) => void lines.push({ level, message, fields });
  const counted = new Map<string, number>();
  const count = (name: string) => void counted.set(name, (counted.get(name) ?? 0) + 1);
  return {
    lines,
    logger: { debug: write('debug'), info: write('info'), warn: write('warn'), error: write('error') },
    counted,
    metrics: { increment: count, observe: count, gauge: count },
  };
}

describe.skipIf(withoutEngines)('a run', () => {
  it('is logged step by step at the right levels, under one correlation id, with its exit code', async () => {
    const { lines, logger } = recorder();
    await using host = await TestHost.open(mainEngine, { logger });
    const command = await host.acode.spawn(['sh', '-c', 'exit 3']);
    const { correlationId } = await command.result;
    await command[Symbol.asyncDispose]();
    const own = lines.filter(({ fields }) => fields['correlationId'] === correlationId);
    expect(own.map(({ level, message }) => `${level} ${message.replace(/:.*/, '')}`)).toEqual([
      'debug limits',
      'info container created',
      'info container started',
      'info container stopped',
      'info run ok',
      'debug container removed',
    ]);
    expect(own.find(({ message }) => message === 'run ok')?.fields).toMatchObject({
      exitCode: 3,
      outcome: 'ok',
      isolation: 'docker',
      session: host.session,
    });
    expect(own[0]?.message).toMatch(/memory=536870912, cpus=1, pids=256/);
  });

  it('that fails is one error event with its code, and the error carries the correlation id', async () => {
    const { lines, logger } = recorder();
    await using host = await TestHost.open(mainEngine, { logger });
    const error: unknown = await host.acode
      .run(['true'], { policy: { image: 'acode-test/none:1' } })
      .catch((caught: unknown) => caught);
    const failed = lines.filter(({ message }) => message === 'run error');
    expect(failed).toHaveLength(1);
    expect(failed[0]).toMatchObject({
      level: 'error',
      fields: { errorCode: 'ACODE-SBX-010', correlationId: (error as { correlationId: string }).correlationId },
    });
  });

  it('never writes a secret: not from the command, not from the environment', async () => {
    const { lines, logger } = recorder();
    await using host = await TestHost.open(mainEngine, { logger });
    await host.acode.run(['true', '--password', 'hunter2', 'API_KEY=hunter3'], { env: { MY_TOKEN: 'hunter4' } });
    await host.acode.run('curl -H "Authorization: Bearer hunter567890" || true');
    expect(JSON.stringify(lines)).not.toMatch(/hunter\d/);
    expect(JSON.stringify(lines)).toContain('[redacted]');
  });

  it('is measured', async () => {
    const { counted, metrics } = recorder();
    await using host = await TestHost.open(mainEngine, { metrics });
    await host.acode.run(['sh', '-c', 'yes | head -c 100'], { policy: { limits: { outputBytes: 10 } } });
    await host.acode.close();
    expect([...counted.keys()].sort()).toEqual([
      'acode_container_cleanup_ms',
      'acode_container_create_ms',
      'acode_container_exec_ms',
      'acode_container_ops_total',
      'acode_containers_active',
      'acode_containers_orphaned',
      'acode_limit_exceeded_total',
      'acode_removals_total',
      'acode_sandbox_provision_ms',
    ]);
  });

  it('goes on when a listener throws', async () => {
    const { lines, logger } = recorder();
    await using host = await TestHost.open(mainEngine, { logger });
    host.acode.events.on('ContainerStarted', () => {
      throw new Error('listener');
    });
    expect((await host.acode.run(['echo', 'hi'])).stdout).toBe('hi\n');
    expect(lines.some(({ message }) => message === 'an event listener failed')).toBe(true);
  });
});
