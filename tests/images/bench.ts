// A host that trusts one test registry, with everything it logs and writes down at hand.

import { readFileSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import type { Acode, AcodeEvent, AcodeOptions, AuditRecord, LogFields } from '@acode/sandbox';
import { TestHost } from '../support/engines.ts';
import type { TestRegistry } from './registry.ts';

type Sandbox = NonNullable<NonNullable<AcodeOptions['config']>['sandbox']>;

/** One line of a log. */
export interface Line {
  readonly level: string;
  readonly fields: LogFields;
  readonly message: string;
}

/** A host for pulls. */
export class PullBench implements AsyncDisposable {
  readonly acode: Acode;
  readonly lines: Line[] = [];
  readonly events: AcodeEvent[] = [];
  readonly #host: TestHost;

  private constructor(host: TestHost, lines: Line[]) {
    this.#host = host;
    this.acode = host.acode;
    this.lines = lines;
    for (const type of ['ImagePullProgress', 'ImagePulled', 'ContainerCreated'] as const)
      this.acode.events.on(type, event => void this.events.push(event));
  }

  /** Opens a host that trusts `trusted` of a registry; everything in it unless told otherwise. */
  static async open(
    registry: TestRegistry,
    sandbox: Sandbox = {},
    { trusted = '*', ...options }: AcodeOptions & { readonly trusted?: string } = {},
  ): Promise<PullBench> {
    const lines: Line[] = [];
    const write =
      (level: string) =>
      (fields: LogFields, message: string): void =>
        void lines.push({ level, fields, message });
    const logger = { debug: write('debug'), info: write('info'), warn: write('warn'), error: write('error') };
    const security = { trusted_images: [`${registry.address}/${trusted}`], ...sandbox.security };
    const config = { ...options.config, sandbox: { ...sandbox, security } };
    return new PullBench(await TestHost.open(registry.engine, { logger, ...options, config }), lines);
  }

  /** What the audit log says of this host’s pulls, oldest first. */
  async audited(): Promise<AuditRecord[]> {
    const records = await this.acode.audit.tail({ count: 200 });
    return records.filter(({ operation, sessionId }) => operation === 'pull' && sessionId === this.#host.session);
  }

  /** Everything that acode has written below its directories, and said to logger and listeners. */
  everythingSaid(): string {
    const home = process.env['XDG_STATE_HOME'] ?? '';
    return [JSON.stringify(this.lines), JSON.stringify(this.events), ...filesBelow(join(home, '..'))].join('\n');
  }

  get workspace(): string {
    return this.#host.workspace;
  }

  containers(): Promise<{ id: string; state: string }[]> {
    return this.#host.containers();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#host[Symbol.asyncDispose]();
  }
}

function filesBelow(directory: string): string[] {
  return readdirSync(directory, { recursive: true, encoding: 'utf8' }).flatMap(name => {
    const path = join(directory, name);
    const found = statSync(path, { throwIfNoEntry: false });
    return found?.isFile() ? [`${name}: ${readFileSync(path, 'latin1')}`] : [];
  });
}
