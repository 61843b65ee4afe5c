// A third attachment beside networks and caches: acquired, verified and released by the same list, whatever becomes of the sandbox.

import { describe, expect, it } from 'vitest';
import type { SandboxSpec } from '../../packages/sandbox/src/contract/spec.ts';
import type { Attachment } from '../../packages/sandbox/src/isolation/docker/resources/owned.ts';
import type { EngineFacts } from '../../packages/sandbox/src/isolation/docker/request.ts';
import { BackendHost } from '../network/backend.ts';
import { mainEngine, withEngine, withoutEngines } from '../support/engines.ts';

class Notebook implements Attachment {
  readonly steps: string[] = [];
  readonly #fault: 'acquire' | 'created' | 'verify' | null;

  constructor(fault: 'acquire' | 'created' | 'verify' | null = null) {
    this.#fault = fault;
  }

  async acquire(): Promise<Partial<EngineFacts>> {
    this.#note('acquire');
    return {};
  }

  async created(): Promise<void> {
    this.#note('created');
  }

  verify(): readonly { violation: 'SpecMismatch'; detail: string }[] {
    this.steps.push('verify');
    return this.#fault === 'verify' ? [{ violation: 'SpecMismatch', detail: 'not what was attached' }] : [];
  }

  release(): void {
    if (this.steps.at(-1) !== 'release') this.steps.push('release');
  }

  async close(): Promise<[]> {
    this.steps.push('close');
    return [];
  }

  #note(step: 'acquire' | 'created'): void {
    this.steps.push(step);
    if (this.#fault === step) throw new Error(`${step} failed`);
  }
}

const BRIDGED: Partial<SandboxSpec> = { network: { kind: 'bridge' } };

async function left(session: string): Promise<number> {
  const terms = { labels: [`acode.session=${session}`], all: true, signal: AbortSignal.timeout(60_000) };
  return (await withEngine(mainEngine, engine => engine.containers.list(terms))).length;
}

describe.skipIf(withoutEngines)('an attachment of its own', () => {
  it('is acquired before the container, told of it, verified, and released with the sandbox', async () => {
    const notebook = new Notebook();
    {
      await using host = await BackendHost.open(mainEngine, [notebook]);
      expect((await host.run('echo fine', BRIDGED)).output).toBe('fine\n');
      expect(await left(host.session)).toBe(0);
    }
    expect(notebook.steps).toEqual(['acquire', 'created', 'verify', 'release', 'close']);
  });

  it.each([
    ['acquire', /acquire failed/, ['acquire', 'release']],
    ['created', /created failed/, ['acquire', 'created', 'release']],
    ['verify', /not what was attached/, ['acquire', 'created', 'verify', 'release']],
  ] as const)(
    'that fails to %s ends the sandbox before its command, and nothing is left',
    async (fault, reason, steps) => {
      const notebook = new Notebook(fault);
      await using host = await BackendHost.open(mainEngine, [notebook]);
      await expect(host.run('touch /workspace/ran', BRIDGED)).rejects.toThrow(reason);
      await host.settled();
      expect(await left(host.session)).toBe(0);
      expect(notebook.steps).toEqual(steps);
    },
  );
});
