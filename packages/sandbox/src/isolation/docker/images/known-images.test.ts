// What is remembered of images, with a stand-in for the engine’s events: when it says nothing, and when it cannot be heard.

import { describe, expect, it } from 'vitest';
import type { ImageFacts } from '../../../contract/spec.ts';
import type { Engine } from '../engine/index.ts';
import { KnownImages } from './known-images.ts';

const settled = async (): Promise<void> => {
  for (let turn = 0; turn < 20; turn += 1) await Promise.resolve();
};

class TestImages {
  asked = 0;
  meaning: string | null = 'one';
  readonly known: KnownImages;
  #wake: (event: unknown) => void = () => undefined;
  #fail: (error: Error) => void = () => undefined;

  constructor(isPodman = false, remembers = true) {
    const events = async function* (this: TestImages): AsyncGenerator {
      for (;;)
        yield await new Promise((resolve, reject) => {
          this.#wake = resolve;
          this.#fail = reject;
        });
    }.call(this);
    const engine = { connection: { isPodman }, events: { subscribe: async () => events } };
    this.known = new KnownImages(engine as unknown as Engine, remembers);
  }

  async find(): Promise<string | undefined> {
    const found = await this.known.find('name', async () => {
      this.asked += 1;
      return this.meaning === null ? null : ({ id: this.meaning } as unknown as ImageFacts);
    });
    return found?.id;
  }

  async heard(): Promise<string | undefined> {
    const found = await this.find();
    await settled();
    return found;
  }

  async happens(): Promise<void> {
    this.#wake({ attributes: {} });
    await settled();
  }

  async ends(): Promise<void> {
    this.#fail(new Error('the engine went away'));
    await settled();
  }
}

describe('what a name means', () => {
  it('is asked for no more while no image changes, once the engine is heard', async () => {
    const images = new TestImages();
    for (let question = 0; question < 5; question += 1) expect(await images.heard()).toBe('one');
    expect(images.asked).toBe(3);
  });

  it('is asked for again when an image has changed', async () => {
    const images = new TestImages();
    for (let question = 0; question < 3; question += 1) await images.heard();
    images.meaning = 'other';
    expect(await images.find()).toBe('one');
    await images.happens();
    expect(await images.find()).toBe('other');
  });

  it('is asked for each time where the engine is not heard, is Podman, has no such image, or nothing waits', async () => {
    const images = new TestImages();
    for (let question = 0; question < 3; question += 1) await images.heard();
    await images.ends();
    images.meaning = 'other';
    expect(await images.find()).toBe('other');
    const podman = new TestImages(true);
    for (let question = 0; question < 3; question += 1) await podman.find();
    expect(podman.asked).toBe(3);
    const short = new TestImages(false, false);
    for (let question = 0; question < 3; question += 1) await short.find();
    expect(short.asked).toBe(3);
    const none = new TestImages();
    none.meaning = null;
    for (let question = 0; question < 3; question += 1) expect(await none.find()).toBeUndefined();
    expect(none.asked).toBe(3);
  });
});
