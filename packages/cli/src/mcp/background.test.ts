// What a command in the background prints can be read in parts, within bounds, and waited for.

import type { RunResult } from '@acode/sandbox';
import { describe, expect, it } from 'vitest';
import { BackgroundCommand } from './background.ts';

const never = new AbortController().signal;

// A command whose output and end a test decides on.
function scripted(most?: number) {
  const queue: Uint8Array[] = [];
  let wake = (): void => undefined;
  let ended = false;
  async function* stdout(): AsyncGenerator<Uint8Array> {
    for (;;) {
      const next = queue.shift();
      if (next) yield next;
      else if (ended) return;
      else await new Promise<void>(resolve => (wake = resolve));
    }
  }
  async function* nothing(): AsyncGenerator<Uint8Array> {
    // Prints nothing.
  }
  let finish: (result: RunResult) => void = () => undefined;
  const result = new Promise<RunResult>(resolve => (finish = resolve));
  const handle = {
    stdout: stdout(),
    stderr: nothing(),
    write: async () => undefined,
    closeStdin: async () => undefined,
    kill: async () => undefined,
    result,
  };
  const command = new BackgroundCommand({ id: 'command-1', sandboxId: 's', ...(most ? { most } : {}) }, handle);
  return {
    command,
    print: (text: string | Uint8Array) => {
      queue.push(Buffer.from(text));
      wake();
    },
    end: (exitCode: number) => {
      ended = true;
      wake();
      finish({ exitCode, denials: [] } as unknown as RunResult);
    },
  };
}

describe('a background command', () => {
  it('is read from where the last reading ended, or from anywhere', async () => {
    const { command, print } = scripted();
    print('one ');
    await command.waitFor(undefined, 30_000, never);
    expect(command.read(100)).toEqual({ text: 'one ', from: 0, next: 4 });
    print('two');
    await command.waitFor(undefined, 30_000, never);
    expect(command.read(100)).toEqual({ text: 'two', from: 4, next: 7 });
    expect(command.read(3, 0)).toEqual({ text: 'one', from: 0, next: 3 });
  });

  it('waits for something new, for the end, and no longer than asked', async () => {
    const { command, end } = scripted();
    // Ends by its time alone: nothing is printed, and the command goes on.
    await command.waitFor(undefined, 50, never);
    expect(command.isRunning).toBe(true);
    setTimeout(() => end(3), 20);
    await command.waitFor(undefined, 30_000, never);
    expect(command.isRunning).toBe(false);
    expect(command.result?.exitCode).toBe(3);
  });

  it('keeps the newest of what it prints, and counts from the first', async () => {
    const { command, print, end } = scripted(10);
    for (let at = 0; at < 10; at++) print(String(at).repeat(10));
    end(0);
    await command.waitForEnd(30_000, never);
    const { text, from, next } = command.read(1000, 0);
    expect(next).toBe(100);
    expect(from + text.length).toBe(100);
    expect(text.length).toBeLessThanOrEqual(20);
    expect(text.endsWith('9999999999')).toBe(true);
  });

  it('puts characters together that came in two pieces', async () => {
    const { command, print, end } = scripted();
    const bytes = Buffer.from('€');
    print(bytes.subarray(0, 1));
    print(bytes.subarray(1));
    end(0);
    await command.waitForEnd(30_000, never);
    expect(command.read(10).text).toBe('€');
  });
});

it('refuses input beyond what a command that reads nothing may hold up', async () => {
  const bytes: number[] = [];
  const unread = new Promise<never>(() => undefined);
  async function* nothing(): AsyncGenerator<Uint8Array> {
    // Prints nothing.
  }
  const handle = {
    stdout: nothing(),
    stderr: nothing(),
    write: (data: Uint8Array | string) => {
      bytes.push(data.length);
      return unread;
    },
    closeStdin: async () => undefined,
    kill: async () => undefined,
    result: unread,
  };
  const command = new BackgroundCommand({ id: 'command-1', sandboxId: 's' }, handle);
  const text = 'x'.repeat(4_000_000);
  void command.write(text);
  void command.write(text);
  await expect(command.write(text)).rejects.toMatchObject({ code: 'ACODE-MCP-010' });
  expect(bytes).toEqual([4_000_000, 4_000_000]);
});
