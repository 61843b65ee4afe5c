// Image of a workspace by its language: the layer that decides, and the reason in the result.

import { describe, expect, it } from 'vitest';
import { parseConfig } from './config/parse.ts';
import { LANGUAGES } from '../contract/languages.ts';
import type { LanguageFound } from '../contract/languages.ts';
import { isListed, parseReference, chooseImage, refuseUndecided } from './images.ts';
import { NO_LAYERS } from './layers.ts';
import type { Layers } from './layers.ts';
import { AGENT_IMAGES, LANGUAGE_IMAGES, TRUSTED_REPOSITORIES } from './profiles.ts';

const NODE: LanguageFound = { language: 'node', file: 'package.json' };
const DOTNET: LanguageFound = { language: 'dotnet', file: 'App.sln' };

const layers = (said: { readonly user?: string; readonly repository?: string }): Layers => ({
  ...NO_LAYERS,
  user: parseConfig(said.user ?? '', 'user.yml'),
  repository:
    said.repository === undefined
      ? null
      : {
          ...parseConfig(said.repository, '.agent/config.yml'),
          root: '/repo',
          file: '/repo/.agent/config.yml',
          hash: 'sha256:x',
          trusted: false,
        },
});
const images = (text: string): string => `sandbox: { images: { ${text} } }`;

describe('the image of a workspace', () => {
  it.each<[string, { user?: string; repository?: string }, readonly LanguageFound[], string, string, string]>([
    ['nothing is known', {}, [], 'ubuntu:22.04', 'built-in', 'no file'],
    ['one language is built in', {}, [NODE], 'node:20-alpine', 'built-in', 'package.json says node'],
    [
      'your default before what is built in',
      { user: images('default: mine') },
      [NODE],
      'mine',
      'user',
      'sandbox.images.default is set (in your configuration), and sandbox.images.node is not',
    ],
    [
      'your image for the language before your default',
      { user: images('default: mine, node: "my-node:1"') },
      [NODE],
      'my-node:1',
      'user',
      'package.json says node',
    ],
    ['another language’s image is no answer', { user: images('python: p') }, [NODE], 'node:20-alpine', 'built-in', ''],
    [
      'the repository before you',
      { user: images('node: "my-node:1"'), repository: images('node: "its-node:1"') },
      [NODE],
      'its-node:1',
      'repository',
      'package.json',
    ],
    [
      'a repository without an answer leaves it to you',
      { user: images('node: "my-node:1"'), repository: images('python: p') },
      [NODE],
      'my-node:1',
      'user',
      '',
    ],
    [
      'the image for both languages',
      { user: images('default: mine, node: n, combined: { dotnet+node: "both:1" }') },
      [DOTNET, NODE],
      'both:1',
      'user',
      'App.sln says dotnet, package.json says node',
    ],
    [
      'the image for both languages, in whichever order they are named',
      { user: images('combined: { node+dotnet: "both:1" }') },
      [DOTNET, NODE],
      'both:1',
      'user',
      'App.sln says dotnet, package.json says node',
    ],
    ['the default for both languages', { user: images('default: mine, node: n') }, [DOTNET, NODE], 'mine', 'user', ''],
  ])('%s', (_, said, found, value, layer, reason) => {
    const { image, imageReason } = chooseImage(undefined, layers(said), found);
    expect(image).toMatchObject({ value, layer });
    expect(imageReason).toContain(reason);
    expect(() => refuseUndecided(image, found)).not.toThrow();
  });

  it.each([
    ['dotnet', 'mcr.microsoft.com/dotnet/sdk:8.0'],
    ['node', 'node:20-alpine'],
  ] as const)('of %s is %s unless a layer names another', (language, reference) => {
    const found = [{ language, file: 'x' }];
    expect(chooseImage(undefined, NO_LAYERS, found).image).toMatchObject({ value: reference, layer: 'built-in' });
    const said = layers({ user: images(`${language}: mine`) });
    expect(chooseImage(undefined, said, found).image).toMatchObject({ value: 'mine', layer: 'user' });
  });

  it('of a whole agent has git and bash, unless a layer names one', () => {
    const chosen = (said: Layers, ...found: readonly LanguageFound[]): string =>
      chooseImage(undefined, said, found, 'agent').image.value;
    expect(chosen(NO_LAYERS, NODE)).toBe('node:20-bookworm');
    expect(chosen(NO_LAYERS)).toBe('buildpack-deps:22.04-scm');
    expect(chosen(layers({ user: images('node: mine') }), NODE)).toBe('mine');
    for (const image of Object.values(AGENT_IMAGES)) {
      expect(image).not.toMatch(/alpine|slim/);
      expect(isListed(parseReference(image)?.repository ?? '', TRUSTED_REPOSITORIES)).toBe(true);
    }
  });

  it('is the one of the request, whatever the files say', () => {
    const said = layers({ user: images('node: n'), repository: images('node: r') });
    expect(chooseImage('asked:1', said, [NODE])).toEqual({
      image: { value: 'asked:1', layer: 'request', where: 'policy.image' },
      imageReason: 'it was asked for',
    });
  });

  it('says where in a file it stands', () => {
    expect(chooseImage(undefined, layers({ user: images('node: n') }), [NODE]).image.where).toMatch(
      /^user\.yml:1:\d+ \(sandbox\.images\.node\)$/,
    );
    const both = layers({ user: images('combined: { dotnet+node: b }') });
    expect(chooseImage(undefined, both, [DOTNET, NODE]).image.where).toContain('sandbox.images.combined.dotnet+node');
  });

  it('is not guessed for several languages: the error says which files, and which keys help', () => {
    const { image } = chooseImage(undefined, NO_LAYERS, [DOTNET, NODE]);
    expect(() => refuseUndecided(image, [DOTNET, NODE])).toThrow(
      expect.objectContaining({
        code: 'ACODE-SBX-017',
        message: expect.stringMatching(/several languages \(App\.sln says dotnet, package\.json says node\)/),
        hint: expect.stringMatching(/policy\.image.*acode config set sandbox\.images\.combined\.dotnet\+node /),
      }),
    );
  });

  it('is refused where it is no reference, also from a language’s key', () => {
    expect(() => chooseImage(undefined, layers({ repository: images('node: "a b"') }), [NODE])).toThrow(
      expect.objectContaining({ code: 'ACODE-SBX-017' }),
    );
  });

  it('does not print what a file’s name would do to a terminal', () => {
    const found: LanguageFound[] = [{ language: 'dotnet', file: '\u001b[2J.sln' }];
    expect(chooseImage(undefined, NO_LAYERS, found).imageReason).toBe('"\\u001b[2J.sln" says dotnet');
  });

  it('is a trusted one for every language that is built in', () => {
    for (const language of LANGUAGES)
      expect(isListed(parseReference(LANGUAGE_IMAGES[language])?.repository ?? '', TRUSTED_REPOSITORIES)).toBe(true);
  });
});
