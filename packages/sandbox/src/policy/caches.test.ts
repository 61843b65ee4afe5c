// Caches of a sandbox: by language, by request, and never by a repository’s configuration.

import { describe, expect, it } from 'vitest';
import { parseConfig } from './config/parse.ts';
import { CACHE_TOOLS } from '../contract/caches.ts';
import { LANGUAGES } from '../contract/languages.ts';
import type { Language } from '../contract/languages.ts';
import type { PolicyFields } from '../contract/policy.ts';
import { cacheSpec, resolveCaches } from './caches.ts';
import { NO_LAYERS } from './layers.ts';
import type { Layers } from './layers.ts';

const ME = { uid: 1001, gid: 1002 };

const layers = (user = '', repository?: string): Layers => ({
  ...NO_LAYERS,
  user: parseConfig(user === '' ? '' : `sandbox: { cache_volumes: { ${user} } }`, 'user.yml'),
  repository:
    repository === undefined
      ? null
      : {
          ...parseConfig(`sandbox: { cache_volumes: { ${repository} } }`, '.agent/config.yml'),
          root: '/repo',
          file: '/repo/.agent/config.yml',
          hash: 'sha256:x',
          trusted: false,
        },
});
const caches = (
  languages: readonly Language[],
  request?: PolicyFields['caches'],
  said: Layers = NO_LAYERS,
  user = ME,
) =>
  resolveCaches(request, said, {
    caller: ME,
    user,
    languages: languages.map(language => ({ language, file: 'x' })),
  });
const tools = (...of: Parameters<typeof caches>): string[] => caches(...of).value.volumes.map(({ tool }) => tool);

describe('the caches of a sandbox', () => {
  it('are those of the workspace’s languages', () => {
    expect(tools([])).toEqual([]);
    expect(tools(['node'])).toEqual(['npm', 'yarn', 'pnpm']);
    expect(tools(['dotnet', 'python'])).toEqual(['pip', 'nuget']);
    expect(tools([...LANGUAGES]).sort()).toEqual([...CACHE_TOOLS].sort());
  });

  it('are those that the request names, or none', () => {
    expect(tools(['node'], ['pip', 'pip'])).toEqual(['pip']);
    expect(tools(['node'], [])).toEqual([]);
    expect(caches(['node'], false)).toEqual({
      value: { volumes: [], fill: false },
      layer: 'request',
      where: 'policy.caches',
    });
  });

  it('are filled only by a request', () => {
    expect(caches(['node']).value.fill).toBe(false);
    expect(caches([], { fill: ['npm'] }).value).toEqual({
      volumes: [{ tool: 'npm', volume: 'acode-cache-npm-1001' }],
      fill: true,
    });
  });

  it('can be switched off by you and by the repository, as a whole and one by one', () => {
    expect(tools(['node'], undefined, layers('enabled: false'))).toEqual([]);
    expect(tools(['node'], undefined, layers('', 'enabled: false'))).toEqual([]);
    expect(caches(['node'], undefined, layers('', 'enabled: false'))).toMatchObject({ layer: 'repository' });
    expect(tools(['node'], undefined, layers('yarn: false', 'pnpm: false'))).toEqual(['npm']);
    expect(tools(['node'], ['yarn'], layers('', 'yarn: false'))).toEqual([]);
  });

  it('have names of their own for every user outside and inside', () => {
    const name = (user = ME, said = NO_LAYERS) => caches(['python'], undefined, said, user).value.volumes[0]?.volume;
    expect(name()).toBe('acode-cache-pip-1001');
    expect(name({ uid: 7, gid: 8 })).toBe('acode-cache-pip-1001-as-7-8');
    expect(name(ME, layers('pip: acode-cache-work'))).toBe('acode-cache-work-1001');
  });

  it.each(CACHE_TOOLS)('of %s lies outside home and workspace, and the tool is led there', tool => {
    const { target, environment } = cacheSpec({ tool, volume: 'v' }, false);
    expect(target).toBe(`/cache/${tool}`);
    const places = Object.values(environment);
    expect(places.length).toBeGreaterThan(0);
    for (const place of places) expect(place).toMatch(new RegExp(`^/cache/${tool}/data(?:/[a-z]+)?$`));
  });
});
