// Shows which API version is spoken with the real engines, and that the engines' own words about themselves are understood.
import { describe, expect, it } from 'vitest';
import { Bench, engines, withoutEngines } from './engines.ts';
import { EngineProxy } from '../support/proxy.ts';

describe.skipIf(withoutEngines).each(engines)('negotiating with $name', { concurrent: true }, engine => {
  it(`settles on ${engine.api} and uses it in every call`, async () => {
    await using proxy = await EngineProxy.start(engine.socket);
    await using bench = await Bench.at(engine, proxy.socket);
    const { connection, system } = bench.engine;
    expect(connection.apiVersion).toBe(engine.api);
    expect(connection.supports('1.41')).toBe(true);
    expect(connection.supports('1.44')).toBe(engine.api !== '1.41');
    await system.ping(bench);
    expect(proxy.requests.map(({ path }) => path)).toEqual(['/_ping', `/v${engine.api}/_ping`]);
  });

  it('understands version and info', async () => {
    await using bench = await Bench.at(engine);
    await expect(bench.engine.system.version(bench)).resolves.toMatchObject({ ApiVersion: engine.api });
    const info = await bench.engine.system.info(bench);
    expect(info.NCPU).toBeGreaterThan(0);
    expect(info.MemTotal).toBeGreaterThan(0);
    expect(Object.keys(info.Runtimes ?? {})).toContain('runc');
    expect(info.SecurityOptions?.join()).toContain('seccomp');
  });
});
