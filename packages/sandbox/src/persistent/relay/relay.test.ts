import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { createConnection } from 'node:net';
import type { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { AcodeError } from '../../contract/errors.ts';
import type { LogEvent, SavedLog } from '../../contract/host.ts';
import type { RunResult } from '../../contract/result.ts';
import { offerSocketPath, offerSocketPaths, removeDeadSockets } from '../../lifecycle/ownership.ts';
import type { Host } from '../../run/host.ts';
import { Capture } from '../../run/output/capture.ts';
import { CommandsElsewhere } from './elsewhere.ts';
import { followLogs, runningLogs } from './follow.ts';
import { CommandsOffer, offerRun } from './offer.ts';
import type { Offered } from './offer.ts';
import { asking, line, packed, unpacked } from './wire.ts';

const SANDBOX = 'a1b2c3d4-0000-4000-8000-000000000000';
const RESULT: RunResult = {
  exitCode: 0,
  stdout: '',
  stderr: '',
  dropped: { stdout: 0, stderr: 0 },
  timedOut: false,
  oomKilled: false,
  denials: [],
  sandboxId: SANDBOX,
  level: 'docker',
  durationMs: 1,
  timings: { queueMs: 0, obtainMs: 0, runMs: 1 },
  warm: true,
  riskyChanges: [],
  changed: { executable: 0, hidden: 0, configuration: 0, source: 0, other: 0 },
  scan: 'complete',
  correlationId: 'b',
};

let runtime = '';
let offer: CommandsOffer;
let path = '';
let received: string[] = [];
let finish: (result: RunResult) => void = () => undefined;
let fail: (error: unknown) => void = () => undefined;
let read: () => void = () => undefined;
let stdout = new Capture(1024);
let reading = 0;
let offered: Offered;

async function* watched(head: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array, void, undefined> {
  reading += 1;
  try {
    yield* head;
  } finally {
    reading -= 1;
  }
}

beforeEach(async () => {
  runtime = await mkdtemp(join(tmpdir(), 'relay-'));
  path = offerSocketPath(runtime, SANDBOX);
  received = [];
  stdout = new Capture(1024);
  const stderr = new Capture(1024);
  const result = new Promise<RunResult>((resolve, reject) => {
    finish = ended => {
      stdout.end();
      stderr.end();
      resolve(ended);
    };
    fail = error => {
      stdout.end();
      stderr.end();
      reject(error);
    };
  });
  result.catch(() => undefined);
  const taken = new Promise<void>(resolve => (read = resolve));
  reading = 0;
  offered = {
    ports: [],
    result,
    heads: { stdout: gone => watched(stdout.head(gone)), stderr: gone => watched(stderr.head(gone)) },
    write: async data => {
      received.push(`write ${Buffer.from(data).toString()}`);
      await taken;
    },
    closeStdin: async () => void received.push('close'),
    kill: async signal => {
      received.push(`kill ${signal}`);
      if (signal === 'SIGSTOP') await new Promise(() => undefined);
      if (signal === 'NONE') throw new AcodeError('ACODE-SBX-017', { field: 'signal', reason: 'NONE is no signal' });
    },
  };
  offer = offerAt(path);
  await offer.begin();
});

function offerAt(place: string): CommandsOffer {
  return new CommandsOffer(place, {
    list: () => [{ pid: 7, command: ['sleep', '1'], cwd: '.', startedAt: 'now' }],
    find: pid => (pid === 7 ? offered : null),
  });
}

afterEach(async () => {
  vi.useRealTimers();
  await offer.end();
  await rm(runtime, { recursive: true });
});

function elsewhere(signal = new AbortController().signal): CommandsElsewhere {
  return new CommandsElsewhere(runtime, SANDBOX, signal);
}

// Replies of the other end to a hand-written client, until it disconnects.
async function answersTo(said: string): Promise<string> {
  const socket: Socket = createConnection(path);
  socket.on('error', () => undefined);
  socket.write(said);
  let text = '';
  socket.setEncoding('utf8').on('data', chunk => (text += chunk));
  await new Promise(resolve => void socket.once('close', resolve));
  return text;
}

describe('commands of another process', () => {
  it('are listed, but not to the process that has them', async () => {
    expect(await elsewhere().list(null)).toEqual([{ pid: 7, command: ['sleep', '1'], cwd: '.', startedAt: 'now' }]);
    expect(await elsewhere().list(path)).toEqual([]);
    expect(await elsewhere().connect(8, null)).toBeNull();
  });

  it('tell what was printed, and end with the same result', async () => {
    stdout.push(Buffer.from('early '));
    const command = await elsewhere().connect(7, null);
    stdout.push(Buffer.from('late'));
    finish(RESULT);
    expect(await command?.wait()).toEqual({ ...RESULT, stdout: 'early late' });
    const seen: Uint8Array[] = [];
    for await (const chunk of command?.stdout ?? []) seen.push(chunk);
    expect(Buffer.concat(seen).toString()).toBe('early late');
    await command?.write('too late');
    expect(received).toEqual([]);
  });

  it('end with the bytes of what is not text', async () => {
    const command = await elsewhere().connect(7, null);
    stdout.push(Buffer.of(65, 255));
    finish(RESULT);
    expect(await command?.wait()).toEqual({ ...RESULT, stdout: 'A\uFFFD', stdoutBytes: Uint8Array.of(65, 255) });
  });

  it('end with the same error', async () => {
    const command = await elsewhere().connect(7, null);
    fail(new AcodeError('ACODE-SBX-025', { sandbox: SANDBOX, reason: 'its lease expired' }));
    await expect(command?.result).rejects.toMatchObject({
      code: 'ACODE-SBX-025',
      context: { reason: 'its lease expired' },
    });
    await expect(command?.kill()).rejects.toMatchObject({ code: 'ACODE-SBX-025' });
  });

  it('end with what was printed until they were cancelled', async () => {
    const command = await elsewhere().connect(7, null);
    stdout.push(Buffer.from('half'));
    fail(new AcodeError('ACODE-SBX-014', { result: { ...RESULT, stdout: 'half' } }));
    await expect(command?.result).rejects.toMatchObject({ context: { result: { ...RESULT, stdout: 'half' } } });
  });

  it('are sent signals although they do not read, and input in its order', async () => {
    const command = await elsewhere().connect(7, null);
    const written = command?.write('a');
    const closed = command?.closeStdin();
    await command?.kill('SIGUSR1');
    expect(received).toEqual(['write a', 'kill SIGUSR1']);
    await expect(command?.kill('NONE')).rejects.toMatchObject({ code: 'ACODE-SBX-017' });
    read();
    await written;
    await closed;
    expect(received.slice(2)).toEqual(['kill NONE', 'close']);
  });

  it('have their input in the order of the calls, however much of it is not waited for', async () => {
    read();
    const command = await elsewhere().connect(7, null);
    const large = ['a', 'b'].map(letter => command?.write(letter.repeat(150_000)));
    const small = Array.from({ length: 100 }, () => command?.write('c'));
    await Promise.all([...large, ...small, command?.closeStdin()]);
    const order = received.map(what => (what === 'close' ? what : (what.at(-1) ?? '')));
    expect(order.join('')).toBe(`aaabbb${'c'.repeat(100)}close`);
  });

  it('are not waited for where the process that has them does not answer a signal', async () => {
    const command = await elsewhere().connect(7, null);
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    const killed = command?.kill('SIGSTOP');
    vi.advanceTimersByTime(15_000);
    await expect(killed).rejects.toMatchObject({ code: 'ACODE-SBX-026' });
  });

  it('are taken from one process where two say they have it, and the other is left', async () => {
    const second = offerAt(offerSocketPath(runtime, SANDBOX));
    await second.begin();
    const command = await elsewhere().connect(7, null);
    await expect.poll(() => reading).toBe(2);
    await command?.disconnect();
    await second.end();
  });

  it('are hung up on by both ends', async () => {
    const leaving = new AbortController();
    const [one, two, three] = [
      await elsewhere().connect(7, null),
      await elsewhere(leaving.signal).connect(7, null),
      await elsewhere().connect(7, null),
    ];
    await one?.disconnect();
    await expect(one?.result).rejects.toMatchObject({ code: 'ACODE-SBX-026' });
    leaving.abort();
    await expect(two?.result).rejects.toMatchObject({ code: 'ACODE-SBX-026' });
    await offer.end();
    await expect(three?.result).rejects.toMatchObject({ code: 'ACODE-SBX-026' });
    expect(await readdir(dirname(path))).toEqual([]);
  });
});

describe('an offer', () => {
  it.each([
    ['no JSON', 'hello\n'],
    ['nothing it knows', '{"version":1,"ask":"everything"}\n'],
    ['another version', '{"version":2,"ask":"list"}\n'],
    ['a line without end', 'x'.repeat(1_100_000)],
  ])('hangs up on %s', async (_, said) => {
    expect(await answersTo(said)).toBe('');
    // And is there for the next.
    expect(await answersTo(line(asking.list))).toContain('"pid":7');
  });

  it('disconnects a client that sends too many requests at once', async () => {
    const wishes = Array.from({ length: 65 }, (_, at) => line({ id: at + 1, do: 'write', data: 'YQ==' }));
    const answers = await answersTo(`${line(asking.connect(7))}${wishes.join('')}`);
    expect(answers).toContain('connected');
    expect(answers).not.toContain('done');
  });

  // A client that writes to a closed connection loses the unread part of its input: the result.
  it('does not disconnect a client that still sends when the command ends', async () => {
    const socket: Socket = createConnection({ path, allowHalfOpen: true });
    const failures: Error[] = [];
    socket.on('error', error => failures.push(error));
    let text = '';
    socket.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
    socket.write(line(asking.connect(7)));
    await expect.poll(() => text).toContain('connected');
    finish(RESULT);
    await expect.poll(() => text).toContain('"result"');
    await new Promise(resolve => void setTimeout(resolve, 100));
    socket.write(line({ id: 1, do: 'closeStdin' }));
    await new Promise(resolve => void setTimeout(resolve, 100));
    expect(failures).toEqual([]);
    socket.destroy();
  });

  // The next byte of a command may never come, and clients may connect often.
  it('keeps nothing of a client that disconnected', async () => {
    const command = await elsewhere().connect(7, null);
    await expect.poll(() => reading).toBe(2);
    await command?.disconnect();
    await expect.poll(() => reading).toBe(0);
  });

  it('limits the input that a command does not read, over all clients', async () => {
    const wishes = Array.from({ length: 64 }, (_, at) => line({ id: at + 1, do: 'write', data: 'YQ==' })).join('');
    const onceMore = line({ id: 65, do: 'kill', signal: 'NONE' });
    for (let count = 0; count < 4; count += 1) await answersTo(`${line(asking.connect(7))}${wishes}${onceMore}`);
    const command = await elsewhere().connect(7, null);
    await expect(command?.write('b')).rejects.toMatchObject({ code: 'ACODE-SBX-017' });
    await command?.kill();
    read();
    await vi.waitFor(() => command?.write('b'), 30_000);
  });

  it('disconnects a client that reads nothing', async () => {
    stdout = new Capture(4_000_000);
    stdout.push(Buffer.alloc(4_000_000));
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    const socket: Socket = createConnection(path).pause();
    socket.write(line(asking.connect(7)));
    await expect.poll(() => reading).toBe(2);
    await vi.waitFor(() => {
      vi.advanceTimersByTime(60_000);
      expect(reading).toBe(0);
    }, 30_000);
    socket.destroy();
  });

  it('says nothing twice: a result comes without what was printed', async () => {
    stdout.push(Buffer.from('printed'));
    finish({ ...RESULT, stdout: 'printed', stdoutBytes: Buffer.from('printed') });
    const socket: Socket = createConnection(path);
    let text = '';
    socket.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
    socket.write(line(asking.connect(7)));
    await expect.poll(() => text).toContain('"result"');
    expect(text).not.toContain('"printed"');
    expect(text.split(Buffer.from('printed').toString('base64'))).toHaveLength(2);
    socket.destroy();
  });

  it('has so many readers and no more', async () => {
    const all = await Promise.all(Array.from({ length: 40 }, () => elsewhere().connect(7, null)));
    expect(all.filter(one => one !== null)).toHaveLength(32);
    for (const one of all) await one?.disconnect();
  });
});

describe('places of offers', () => {
  it('are not searched where other users can put one', async () => {
    expect(await offerSocketPaths(runtime, SANDBOX)).toEqual([path]);
    const open = await mkdtemp(join(tmpdir(), 'relay-'));
    await mkdir(join(open, 'commands'), { mode: 0o755 });
    await writeFile(offerSocketPath(open, SANDBOX), '');
    expect(await offerSocketPaths(open, SANDBOX)).toEqual([]);
    await rm(open, { recursive: true });
  });

  it('are removed when their process has died, by the next client and by a sweep', async () => {
    for (const tidy of [() => elsewhere().list(null), () => removeDeadSockets(runtime)]) {
      const left = offerSocketPath(runtime, SANDBOX);
      // A file without a listener refuses like the socket of a killed process.
      await writeFile(left, '');
      await tidy();
      expect(await readdir(dirname(path))).toHaveLength(1);
    }
    expect(await elsewhere().list(null)).toHaveLength(1);
    // What cannot be removed blocks no one.
    await mkdir(offerSocketPath(runtime, SANDBOX));
    expect(await elsewhere().list(null)).toHaveLength(1);
  });
});

describe('an error on its way', () => {
  it('is unchanged if it is an error of acode, and otherwise its message', () => {
    const ours = unpacked(packed(new AcodeError('ACODE-SBX-017', { field: 'cwd', reason: 'is missing' })));
    expect(ours).toMatchObject({ code: 'ACODE-SBX-017', message: 'cwd: is missing.' });
    expect(unpacked(packed(new Error('broken'))).message).toBe('broken');
    expect(unpacked(packed('broken')).message).toBe('broken');
  });
});

describe('a run that is offered to other processes', () => {
  const host = (saved: readonly SavedLog[] = []): Host =>
    ({
      directories: { runtime },
      uid: 0,
      keep: (work: Promise<unknown>) => void work.catch(() => undefined),
      engine: () => Promise.reject(new Error('no engine')),
      pastLogs: { find: async () => saved[0] ?? null, since: async () => saved },
    }) as unknown as Host;
  const info = {
    pid: 7,
    command: ['curl', '-H', 'Authorization: Bearer abcdefghijklmnop'],
    cwd: '.',
    startedAt: 'now',
  };
  const never = new AbortController().signal;

  it('shows what it has printed so far, with secrets masked, and goes on', async () => {
    stdout.push(Buffer.from('one\n'));
    const { commands } = await runningLogs(host(), SANDBOX.slice(0, 8), never);
    expect(commands).toMatchObject([
      { command: 'sleep 1', stdout: 'one\n', stderr: '', dropped: { stdout: 0, stderr: 0 } },
    ]);
    offer = await offering(host());
    const masked = await runningLogs(host(), SANDBOX, never);
    expect(masked.commands[0]?.command).not.toContain('abcdefghijklmnop');
    expect(reading).toBe(0);
  });

  it('is followed from its first byte to its end', async () => {
    stdout.push(Buffer.from('one\n'));
    const events: LogEvent[] = [];
    for await (const event of followLogs(host(), SANDBOX, never)) {
      events.push(event);
      if (events.length === 2) {
        stdout.push(Buffer.from('two\n'));
        finish({ ...RESULT, exitCode: 3 });
        await offer.end();
      }
    }
    expect(events.map(({ kind }) => kind)).toEqual(['began', 'stdout', 'stdout', 'ended']);
    expect(events.at(-1)).toMatchObject({ exitCode: 3, dropped: 0 });
  });

  it('is not told again from its saved output, and what began and ended between two polls is', async () => {
    const past = { name: 'n', sandboxId: SANDBOX, endedAt: 'then', exitCode: 0, stderr: '', dropped: RESULT.dropped };
    const saved = [
      { ...past, command: 'short', stdout: 'short', correlationId: 'c' },
      { ...past, command: 'sleep 1', stdout: 'again', correlationId: RESULT.correlationId },
    ];
    finish(RESULT);
    const events: LogEvent[] = [];
    for await (const event of followLogs(host(saved), SANDBOX, never)) {
      events.push(event);
      if (event.kind === 'ended') await offer.end();
    }
    const said = events.flatMap(event => (event.kind === 'stdout' ? [Buffer.from(event.data).toString()] : []));
    expect(said).toEqual(['short']);
  });

  it('ends at the wish of its reader', async () => {
    const stop = new AbortController();
    const kinds: string[] = [];
    for await (const { kind } of followLogs(host(), SANDBOX, stop.signal)) {
      kinds.push(kind);
      stop.abort();
    }
    expect(kinds[0]).toBe('began');
    await vi.waitFor(() => expect(reading).toBe(0));
  });

  it('takes no input and no signal from another process', async () => {
    await offer.end();
    offer = await offering(host());
    const handle = await elsewhere().connect(7, null);
    for (const wish of [handle?.write('x'), handle?.kill(), handle?.closeStdin()])
      await expect(wish).rejects.toMatchObject({ code: 'ACODE-SBX-017' });
    expect(received).toEqual([]);
    await handle?.disconnect();
  });

  it('that has no sandbox any more is told from its saved output, or refused by name', async () => {
    const past = { name: 'gone', sandboxId: 'x', command: 'true', endedAt: '', exitCode: 0, stdout: 'o', stderr: '' };
    const engine = () => Promise.resolve({ list: async () => [] });
    const none = { ...host([{ ...past, dropped: RESULT.dropped }]), engine } as unknown as Host;
    const kinds: string[] = [];
    for await (const { kind } of followLogs(none, 'gone', never)) kinds.push(kind);
    expect(kinds).toEqual(['began', 'stdout', 'ended']);
    const nothing = followLogs({ ...host(), engine } as unknown as Host, 'nothing', never);
    await expect(nothing.next()).rejects.toMatchObject({ code: 'ACODE-CTN-012' });
  });

  async function offering(on: Host): Promise<CommandsOffer> {
    await offer.end();
    let begun: Promise<unknown> = Promise.resolve();
    offerRun({ ...on, keep: work => void (begun = work) }, { sandboxId: SANDBOX, info, running: offered });
    await begun;
    return offer;
  }
});
