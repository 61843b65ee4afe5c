// The real engines of this machine, and hosts on them with a workspace and directories of their own.

import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import * as z from 'zod';
import { Acode } from '@acode/sandbox';
import type { AcodeOptions } from '@acode/sandbox';
import { Engine } from '../../packages/sandbox/src/isolation/docker/engine/index.ts';
import { everything } from './targets.ts';

const LIST = '/run/acode-engines/engines.json';

const engineSchema = z.looseObject({
  name: z.string(),
  socket: z.string(),
  api: z.string(),
  version: z.string(),
  pidfile: z.string(),
  runtimes: z.array(z.string()).optional(),
});

const listSchema = z.looseObject({
  engines: z.array(engineSchema),
  podman: engineSchema.nullish(),
  images: z.looseObject({ busybox: z.string(), debian: z.string(), noshell: z.string(), hostile: z.string() }),
});

const list = existsSync(LIST) ? listSchema.parse(JSON.parse(readFileSync(LIST, 'utf8'))) : null;
const wanted = process.env['ACODE_TEST_ENGINES']?.split(',');

/** An engine that is up. */
export type TestEngine = z.infer<typeof engineSchema>;

/**
 * Every engine that is up and asked for, for what can turn out differently on another engine. With none there is a
 * placeholder, so that skipped tests are seen and not missing.
 */
export const everyEngine: readonly TestEngine[] = list?.engines.filter(
  ({ name }) => !wanted || wanted.includes(name),
) ?? [{ name: 'no engine', socket: '/nonexistent', api: '', version: '', pidfile: '' }];

/** Podman, where it is up and asked for: not among {@link everyEngine}, since it is Docker in its answers alone. */
export const podman: TestEngine | null =
  list?.podman && (!wanted || wanted.includes(list.podman.name)) ? list.podman : null;

/** Whether this machine has no engines, or this process may not use a sandbox on them. */
export const withoutEngines = list === null || process.getuid?.() === 0;

/** The engine for everything that does not depend on the engine. */
export const mainEngine = everyEngine.at(-1) ?? {
  name: 'no engine',
  socket: '/nonexistent',
  api: '',
  version: '',
  pidfile: '',
};

/** The engines for a behaviour in which the engine has no part: one of them, and all of them in the long test suite. */
export const engines: readonly TestEngine[] = everything ? everyEngine : [mainEngine];

/** Images that every engine has. */
export const images = list?.images ?? { busybox: '', debian: '', noshell: '', hostile: '' };

/**
 * What hosts of tests are opened with besides: with ACODE_TEST_WARM each keeps sandboxes waiting, so that whatever is shown of
 * sandboxes is shown of those too. Tests that count sandboxes count what waits.
 */
export const warmth: Pick<AcodeOptions, 'pool'> = process.env['ACODE_TEST_WARM'] ? { pool: { min: 1, max: 2 } } : {};

/** Waits, where hosts keep sandboxes waiting, until one does; for a while only, since not every host can have one. */
export async function untilOneWaits(acode: Acode): Promise<void> {
  if (!warmth.pool) return;
  const end = performance.now() + 5000;
  const waits = async (): Promise<boolean> =>
    acode.explain(['true']).then(
      ({ warm }) => warm,
      () => true,
    );
  while (!(await waits()) && performance.now() < end) await new Promise(resolve => void setTimeout(resolve, 20));
}

/** A directory that every engine sees, of the user that runs the tests. */
export function makeWorkspace(): string {
  return mkdtempSync('/var/tmp/acode-test-');
}

/** An opened host with a workspace of its own; closing it removes both and fails if a sandbox is left. */
export class TestHost implements AsyncDisposable {
  readonly acode: Acode;
  readonly workspace: string;
  readonly engine: TestEngine;
  readonly session: string;

  private constructor(acode: Acode, workspace: string, engine: TestEngine, session: string) {
    this.acode = acode;
    this.workspace = workspace;
    this.engine = engine;
    this.session = session;
  }

  static async open(engine: TestEngine, options: AcodeOptions = {}): Promise<TestHost> {
    const workspace = options.workspace ?? makeWorkspace();
    const session = `test-${process.pid}-${Math.random().toString(36).slice(2, 10)}`;
    const config = { ...options.config, sandbox: { images: { default: images.busybox }, ...options.config?.sandbox } };
    const acode = await Acode.open({
      engine: { socket: engine.socket },
      sessionId: session,
      ...warmth,
      ...options,
      workspace,
      config,
    });
    await untilOneWaits(acode);
    return new TestHost(acode, workspace, engine, session);
  }

  /** What this host has on the engine now, asked past the library. */
  async containers(): Promise<{ id: string; state: string }[]> {
    return withEngine(this.engine, engine =>
      engine.containers.list({
        labels: [`acode.session=${this.session}`],
        all: true,
        signal: AbortSignal.timeout(60_000),
      }),
    );
  }

  file(name: string): string {
    return join(this.workspace, name);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.acode.close();
    const left = await this.containers();
    rmSync(this.workspace, { recursive: true, force: true });
    if (left.length > 0) throw new Error(`left behind: ${left.map(({ id, state }) => `${id} ${state}`).join(', ')}`);
  }
}

/** Uses the engine directly. */
export async function withEngine<Value>(
  { socket }: Pick<TestEngine, 'socket'>,
  use: (engine: Engine) => Promise<Value>,
): Promise<Value> {
  const engine = await Engine.open({ socketPath: socket, signal: AbortSignal.timeout(60_000) });
  try {
    return await use(engine);
  } finally {
    engine.close();
  }
}
