// Samples of both control group versions are read; an empty one is none.

import { describe, expect, it } from 'vitest';
import { usageFrom, usageOf } from './execution.ts';

describe('usageOf', () => {
  it('reads a sample', () => {
    const cpu_stats = { cpu_usage: { total_usage: 5_000_000 }, throttling_data: { throttled_time: 2_000_000 } };
    expect(usageOf({ memory_stats: { max_usage: 10, usage: 5 }, cpu_stats })).toEqual({
      peakMemoryBytes: 10,
      cpuMs: 5,
      throttledMs: 2,
    });
    expect(usageOf({ memory_stats: { usage: 5 }, cpu_stats: { cpu_usage: { total_usage: 0 } } })).toEqual({
      peakMemoryBytes: 5,
      cpuMs: 0,
      throttledMs: 0,
    });
  });

  it('has none of a container that is gone', () => {
    expect(usageOf({ memory_stats: {}, cpu_stats: { cpu_usage: { total_usage: 0 } } })).toBeNull();
    expect(usageOf({})).toBeNull();
  });
});

describe('the network', () => {
  const cpu_stats = { cpu_usage: { total_usage: 0 } };
  const counters = {
    oomKills: 0,
    pidsRefused: 0,
    peakMemoryBytes: 1,
    cpuMs: 2,
    throttledMs: undefined,
    rxBytes: 100,
    txBytes: 50,
  };
  const sampled = { peakMemoryBytes: 9, cpuMs: 9, throttledMs: 9, rxBytes: 70, txBytes: 80 };

  it('is summed over the interfaces of a sample', () => {
    const networks = { eth0: { rx_bytes: 3, tx_bytes: 4 }, eth1: { rx_bytes: 30, tx_bytes: 40 } };
    expect(usageOf({ memory_stats: { usage: 5 }, cpu_stats, networks })).toMatchObject({ rxBytes: 33, txBytes: 44 });
    expect(usageOf({ memory_stats: { usage: 5 }, cpu_stats, networks: {} })).not.toHaveProperty('rxBytes');
  });

  it('counts what the engine saw at the least, whatever the sandbox claims', () => {
    expect(usageFrom(counters, sampled, true)).toEqual({
      peakMemoryBytes: 1,
      cpuMs: 2,
      throttledMs: 0,
      rxBytes: 100,
      txBytes: 80,
    });
    expect(usageFrom(undefined, sampled, true)).toEqual(sampled);
    expect(usageFrom({ ...counters, rxBytes: undefined, txBytes: undefined }, undefined, true)).toMatchObject({
      rxBytes: 0,
      txBytes: 0,
    });
  });

  it('is not spoken of without one, nor without any account', () => {
    expect(usageFrom(counters, sampled, false)).toEqual({ peakMemoryBytes: 1, cpuMs: 2, throttledMs: 0 });
    expect(usageFrom(undefined, undefined, true)).toBeUndefined();
    expect(usageFrom({ ...counters, peakMemoryBytes: undefined }, undefined, true)).toBeUndefined();
  });
});
