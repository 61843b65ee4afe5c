// Shows what is measured for which words on the command line, and where.

import { describe, expect, it } from 'vitest';
import { SUITES, readArguments } from './arguments.mjs';
import { dockerRunWords } from './candidates/docker-run.mjs';
import { chosen, placesOf } from './places.mjs';

const LIST = {
  engines: [
    { name: 'docker20', socket: '/20.sock', runtimes: ['runc', 'runsc'] },
    { name: 'docker28', socket: '/28.sock', runtimes: ['runc'] },
  ],
  podman: { name: 'podman', socket: '/podman.sock' },
  images: { busybox: 'test/busybox:1' },
};

describe('readArguments', () => {
  it('measures everything everywhere unless told otherwise', () => {
    expect(readArguments([])).toEqual({
      quick: false,
      check: false,
      growth: false,
      help: false,
      suites: SUITES,
      places: [],
      json: null,
      engine: null,
    });
  });

  it.each([
    [['--only', 'burst', '--only', 'docker28']],
    [['--only', 'burst', 'docker28']],
    [['--only', 'docker28', 'burst']],
  ])('tells measurements and places apart in %j', words => {
    expect(readArguments(words)).toMatchObject({ suites: ['burst'], places: ['docker28'] });
  });

  it('takes all measurements where only places are named', () => {
    expect(readArguments(['--only', 'docker28'])).toMatchObject({ suites: SUITES, places: ['docker28'] });
  });

  it.each([
    [['burst'], 'unexpected: burst'],
    [['--fast'], "Unknown option '--fast'"],
    [['--socket', '/s'], 'go together'],
    [['--image', 'i'], 'go together'],
  ])('refuses %j', (words, reason) => {
    expect(() => readArguments(words)).toThrow(reason);
  });
});

describe('places', () => {
  it('are each engine at each level it has', () => {
    expect(placesOf(LIST).map(({ name, level, isHeld }) => [name, level, isHeld])).toEqual([
      ['docker20', 'docker', true],
      ['docker20 gvisor', 'gvisor', true],
      ['docker28', 'docker', true],
      ['podman', 'docker', false],
    ]);
  });

  it('are chosen by name, level or engine; Podman only by its name', () => {
    const all = placesOf(LIST);
    const names = (...of: string[]) => chosen(all, of).map(({ name }) => name);
    expect(names()).toEqual(['docker20', 'docker20 gvisor', 'docker28']);
    expect(names('docker20')).toEqual(['docker20', 'docker20 gvisor']);
    expect(names('gvisor')).toEqual(['docker20 gvisor']);
    expect(names('podman')).toEqual(['podman']);
    expect(() => names('dokcer20')).toThrow('dokcer20');
  });
});

describe('dockerRunWords', () => {
  const request = {
    Image: 'sha256:abc',
    User: '1000:1000',
    WorkingDir: '/workspace',
    Hostname: 'sandbox',
    Env: ['HOME=/home/sandbox', 'REMOVED'],
    HostConfig: {
      SecurityOpt: ['no-new-privileges', 'seccomp={"a":1}'],
      NetworkMode: 'none',
      Mounts: [
        { Type: 'bind', Source: '/w', Target: '/workspace', ReadOnly: false },
        { Type: 'bind', Source: '/w/.git', Target: '/workspace/.git', ReadOnly: true },
      ],
      Tmpfs: { '/tmp': 'rw,size=1' },
      ShmSize: 1,
      Memory: 2,
      MemorySwap: 2,
      NanoCpus: 5e8,
      PidsLimit: 3,
      OomScoreAdj: 500,
      Ulimits: [{ Name: 'core', Soft: 0, Hard: 0 }],
    },
  };
  const files: string[] = [];
  const words = dockerRunWords(request, {
    labels: { 'acode-bench.run': 'x' },
    seccompFile: text => {
      files.push(text);
      return '/s.json';
    },
  });
  const line = ` ${words.join(' ')} `;

  it.each([
    '--rm',
    '--read-only',
    '--cap-drop ALL',
    '--network none',
    '--user 1000:1000',
    '--cpus 0.5',
    '--security-opt no-new-privileges',
    '--security-opt seccomp=/s.json',
    '--mount type=bind,source=/w,target=/workspace',
    '--mount type=bind,source=/w/.git,target=/workspace/.git,readonly',
    '--tmpfs /tmp:rw,size=1',
    '--ulimit core=0:0',
    '--env REMOVED',
    '--label acode-bench.run=x',
  ])('asks for the same container: %s', flag => {
    expect(line).toContain(` ${flag} `);
  });

  it('ends with the image, so that the command can follow, and hands the filter over in a file', () => {
    expect(words.at(-1)).toBe('sha256:abc');
    expect(files).toEqual(['{"a":1}']);
    expect(words).not.toContain('--runtime');
  });

  it('refuses a request that is none', () => {
    expect(() => dockerRunWords({}, { labels: {}, seccompFile: () => '' })).toThrow('Image');
  });
});
