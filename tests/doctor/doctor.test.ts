// `acode doctor`: within two seconds whatever the engine does, and each bad state seen for what it is.

import { chmodSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Acode } from '@acode/sandbox';
import type { Check, DoctorReport } from '@acode/sandbox';
import { engineChecks } from '../../packages/sandbox/src/host/doctor/checks/engine.ts';
import type { EngineSurroundings, Examined } from '../../packages/sandbox/src/host/doctor/checks/engine.ts';
import {
  directoriesCheck,
  environmentCheck,
  socketCheck,
  userCheck,
} from '../../packages/sandbox/src/host/doctor/checks/machine.ts';
import { Bench } from '../cli/bench.ts';
import { reapersOf, sleeping } from '../ownership/victims.ts';
import { everyEngine, images, mainEngine, withoutEngines } from '../support/engines.ts';
import { EngineProxy } from '../support/proxy.ts';

let workspace: string;
beforeEach(() => {
  workspace = mkdtempSync('/var/tmp/acode-test-doctor-');
});
afterEach(() => {
  rmSync(workspace, { recursive: true, force: true });
});

async function examined(socket: string, path = workspace): Promise<DoctorReport> {
  await using observer = await Acode.observe({
    workspace: path,
    engine: { socket },
    config: { sandbox: { images: { default: images.busybox } } },
  });
  return await observer.doctor();
}

function find({ checks }: { readonly checks: readonly Check[] }, id: string): Check {
  const found = checks.find(check => check.id === id);
  if (!found) throw new Error(`no check ${id} in ${checks.map(check => check.id).join(', ')}`);
  return found;
}

describe.skipIf(withoutEngines)('the doctor', () => {
  it.each(everyEngine)('finds $name fit', async engine => {
    const report = await examined(engine.socket);
    expect(report.checks.filter(({ status }) => status === 'fail')).toEqual([]);
    expect(report.ok).toBe(true);
    expect(find(report, 'engine').seen).toContain(engine.socket);
    expect(find(report, 'engine-version').seen).toContain(engine.version);
    expect(find(report, 'runtimes').seen).toContain('runc (default)');
    expect(find(report, 'image').status).toBe('ok');
    expect(find(report, 'socket').seen).toMatch(/root on this machine/);
    for (const { remedy, status, id } of report.checks) if (status !== 'ok') expect(remedy, id).toMatch(/\S/);
  });

  it('says so where no engine is', async () => {
    const report = await examined('/nonexistent/docker.sock');
    expect(report.ok).toBe(false);
    expect(find(report, 'engine')).toMatchObject({ status: 'fail' });
    expect(find(report, 'user').status).toBe('ok');
    expect(find(report, 'workspace').status).toBe('ok');
  });

  it('says so where the engine hangs, at once or in the middle', async () => {
    await using proxy = await EngineProxy.start(mainEngine.socket);
    proxy.onRequest((_, path) => (path.endsWith('/info') ? 'hang' : undefined));
    const middle = await examined(proxy.socket);
    expect(find(middle, 'engine').status).toBe('fail');
    proxy.pause();
    const once = await examined(proxy.socket);
    expect(find(once, 'engine')).toMatchObject({
      status: 'fail',
      seen: expect.stringMatching(/did not answer within/),
    });
  });

  it('warns of what npm and shells on the host would run from the workspace', async () => {
    const clean = await examined(mainEngine.socket);
    expect([find(clean, 'npmrc').status, find(clean, 'shadows').status]).toEqual(['ok', 'ok']);
    writeFileSync(join(workspace, '.npmrc'), 'node-options=--require ./evil.js\n');
    mkdirSync(join(workspace, 'node_modules/.bin'), { recursive: true });
    writeFileSync(join(workspace, 'node_modules/.bin/docker'), '');
    const report = await examined(mainEngine.socket);
    expect(find(report, 'npmrc')).toMatchObject({ status: 'warn', seen: expect.stringContaining('node-options') });
    expect(find(report, 'shadows')).toMatchObject({ status: 'warn', seen: expect.stringContaining('docker') });
  });

  it('names the sandbox of a dead session as long as nobody has removed it', async () => {
    await using bench = await Bench.at(mainEngine);
    const leftovers = async (): Promise<Check> => {
      const { stdout } = await bench.call(['doctor', '--json']);
      return find(JSON.parse(stdout.toString()) as DoctorReport, 'leftovers');
    };
    const { child, ended } = await sleeping(bench, mainEngine, 'orphan');
    // The control: its session lives.
    expect(await leftovers()).toMatchObject({ status: 'ok' });
    for (const pid of reapersOf(bench)) process.kill(pid, 'SIGKILL');
    child.kill('SIGKILL');
    await ended;
    const remedy = expect.stringContaining('acode sandbox cleanup');
    expect(await leftovers()).toMatchObject({ status: 'warn', seen: expect.stringContaining('orphan'), remedy });
    expect((await bench.call(['sandbox', 'cleanup'])).status).toBe(0);
    expect(await leftovers()).toMatchObject({ status: 'ok' });
  });

  it('fails a workspace that no sandbox would be given', async () => {
    symlinkSync('/etc', join(workspace, '.git'));
    expect(find(await examined(mainEngine.socket), 'workspace').status).toBe('fail');
    expect(find(await examined(mainEngine.socket, '/etc'), 'workspace').status).toBe('fail');
  });

  it('fails a configuration that cannot be used, and looks at everything else all the same', async () => {
    const engine = { socket: mainEngine.socket };
    const configFile = join(workspace, 'own.yml');
    const file = (text: string, mode = 0o600): void => {
      writeFileSync(configFile, text);
      chmodSync(configFile, mode);
    };
    file('sandbox: [');
    const broken = await Acode.examine({ workspace, engine, configFile });
    expect(find(broken, 'configuration')).toMatchObject({
      status: 'fail',
      seen: expect.stringMatching(/own\.yml:1:\d+: is not valid YAML/),
      remedy: expect.stringMatching(/^Correct .*own\.yml/),
    });
    expect(broken.ok).toBe(false);
    for (const id of ['engine', 'kernel', 'workspace']) expect(find(broken, id).status).not.toBe('fail');
    // A command is not run without the configuration that was meant.
    await expect(Acode.open({ workspace, engine, configFile })).rejects.toMatchObject({ code: 'ACODE-SBX-013' });
    file('sandbox: {}', 0o666);
    expect(find(await Acode.examine({ workspace, engine, configFile }), 'configuration').status).toBe('warn');
    file('sandbox: {}');
    expect(find(await Acode.examine({ workspace, engine, configFile }), 'configuration').status).toBe('ok');
    mkdirSync(join(workspace, '.agent'));
    writeFileSync(join(workspace, '.agent', 'config.yml'), 'sandbox: { memroy: 1 }');
    const repository = await Acode.examine({ workspace, engine, configFile });
    expect(find(repository, 'configuration')).toMatchObject({
      status: 'fail',
      seen: expect.stringContaining('.agent/config.yml'),
    });
  });

  it('prints a list and one JSON object, and ends with 0 or 1', async () => {
    await using bench = await Bench.at(mainEngine);
    const text = await bench.call(['doctor']);
    expect([text.status, text.stderr]).toEqual([0, '']);
    expect(text.stdout.toString()).toMatch(/✔ Engine reachable[^]*checks, \d+ warned, 0 failed/);
    const json: unknown = JSON.parse((await bench.call(['doctor', '--json'])).stdout.toString());
    expect(json).toMatchObject({ schema: 'acode.doctor/1', ok: true });
    const none = await bench.call(['doctor', '--socket', '/nonexistent.sock']);
    expect([none.status, none.stdout.toString()]).toEqual([1, expect.stringContaining('✘ Engine reachable')]);
    expect((await bench.call(['doctor', '--runtime', 'runsc'])).status).toBe(2);
  });
});

const GOOD: Examined = {
  engine: {
    socket: '/s',
    source: 'option',
    version: '28.5.2',
    apiVersion: '1.51',
    operatingSystem: 'Linux',
    cpus: 2,
    memoryBytes: 1,
    runtimes: ['runc'],
    defaultRuntime: 'runc',
    cgroupVersion: '2',
    securityOptions: ['name=seccomp,profile=builtin'],
  },
  kernel: '6.1',
  architecture: 'x86_64',
  components: [{ name: 'runc', version: '1.3.6' }],
  rootDirectory: '/',
  limits: { memory: true, swap: true, pids: true, cpu: true },
  systemTime: new Date(1_000_000).toISOString(),
  warnings: [],
  sandboxes: [],
  networks: [],
  left: [],
  imagePresent: true,
};
const AROUND: EngineSurroundings = { image: 'node:20', now: 1_000_000, uid: 1001, identity: 'here', appArmor: false };
const mine = { 'acode.uid': '1001', 'acode.host': 'here', 'acode.expires': new Date(5).toISOString() };

describe('a check of the engine', () => {
  it('finds nothing wrong with a good one', () => {
    expect(engineChecks(GOOD, AROUND).filter(({ status }) => status !== 'ok')).toEqual([]);
  });

  it.each<[string, string, Partial<Examined>, Partial<EngineSurroundings>]>([
    ['engine-version', 'fail', { engine: { ...GOOD.engine, apiVersion: '1.40' } }, {}],
    ['seccomp', 'fail', { engine: { ...GOOD.engine, securityOptions: [] } }, {}],
    ['seccomp', 'fail', { engine: { ...GOOD.engine, securityOptions: ['name=seccomp,profile=unconfined'] } }, {}],
    ['limits', 'fail', { limits: { ...GOOD.limits, pids: false } }, {}],
    ['limits', 'warn', { limits: { ...GOOD.limits, swap: false } }, {}],
    ['apparmor', 'warn', {}, { appArmor: true }],
    ['known-bad', 'warn', { components: [{ name: 'runc', version: '1.1.5+ds1' }] }, {}],
    ['known-bad', 'warn', { components: [{ name: 'runc', version: '1.3.2' }] }, {}],
    ['clock', 'warn', {}, { now: 1_100_000 }],
    ['image', 'warn', { imagePresent: false }, {}],
    ['leftovers', 'warn', { networks: [{ name: 'acode-x-bridge', labels: mine }] }, {}],
  ])('sees a bad %s (%s)', (id, status, diagnosis, around) => {
    const bad = engineChecks({ ...GOOD, ...diagnosis }, { ...AROUND, ...around }).filter(
      check => check.status !== 'ok',
    );
    expect(bad).toEqual([expect.objectContaining({ id, status, remedy: expect.stringMatching(/\S/) })]);
  });

  it('leaves what belongs to others alone', () => {
    const networks = [{ name: 'other', labels: { ...mine, 'acode.uid': '1' } }];
    expect(find({ checks: engineChecks({ ...GOOD, networks }, AROUND) }, 'leftovers').status).toBe('ok');
  });
});

describe('a check of the machine', () => {
  it('fails root and says what to do', () => {
    expect(userCheck(0)).toMatchObject({ status: 'fail', remedy: expect.stringContaining('ordinary user') });
    expect(userCheck(1000).status).toBe('ok');
  });

  it('shows variables that point to another engine', () => {
    expect(environmentCheck({}).status).toBe('ok');
    expect(environmentCheck({ DOCKER_HOST: 'unix:///x' })).toMatchObject({
      status: 'warn',
      seen: 'DOCKER_HOST=unix:///x',
    });
  });

  it('fails directories that others can write', async () => {
    const own = {
      home: workspace,
      config: join(workspace, 'c'),
      state: join(workspace, 's'),
      runtime: join(workspace, 'r'),
    };
    mkdirSync(own.state, { mode: 0o700 });
    const uid = process.getuid?.() ?? 0;
    expect((await directoriesCheck(own, uid)).status).toBe('ok');
    chmodSync(own.state, 0o777);
    expect(await directoriesCheck(own, uid)).toMatchObject({ status: 'fail', seen: expect.stringContaining('777') });
    expect((await directoriesCheck(own, uid + 1)).status).toBe('fail');
  });

  it('fails a socket that is missing or everybody’s', async () => {
    const uid = process.getuid?.() ?? 0;
    expect((await socketCheck(join(workspace, 'none'), uid)).status).toBe('fail');
    const path = join(workspace, 'socket');
    writeFileSync(path, '', { mode: 0o600 });
    expect((await socketCheck(path, uid)).status).toBe(uid === 0 ? 'warn' : 'ok');
    chmodSync(path, 0o666);
    expect(await socketCheck(path, uid)).toMatchObject({ status: 'fail', seen: expect.stringContaining('everyone') });
  });
});
