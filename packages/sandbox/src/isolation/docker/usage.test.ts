// Samples of both control group versions are read; an empty one is none.

import { describe, expect, it } from 'vitest';
import { usageOf } from './usage.ts';

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
