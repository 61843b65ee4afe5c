// Many files and large ones, and what moving them costs.

import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { expect } from 'vitest';
import type { Files } from '../../packages/sandbox/src/contract/sandbox.ts';

const MEBIBYTE = 1024 ** 2;

/** How long each way took, and writing the same files without a sandbox. */
export interface Ways {
  readonly upMs: number;
  readonly downMs: number;
  readonly plainMs: number;
}

const TREE = { files: 10_000, directories: 100 };

/** Moves 10,000 small files in 100 directories in and out again, and looks that they are all there. */
export async function moveMany(files: Files, place: string): Promise<Ways> {
  const host = mkdtempSync('/var/tmp/acode-test-many-');
  try {
    const began = performance.now();
    writeTree(join(host, 'source'));
    const written = performance.now();
    expect(await files.upload(join(host, 'source'), place)).toMatchObject(TREE);
    const turned = performance.now();
    expect(await files.download(place, join(host, 'target'))).toMatchObject(TREE);
    const ended = performance.now();
    expect(readdirSync(join(host, 'target'), { recursive: true })).toHaveLength(10_100);
    expect(await files.readdir(place, { recursive: true, withFileTypes: true })).toHaveLength(10_100);
    // Before and after: how long the disk takes depends on the moment.
    const again = performance.now();
    writeTree(join(host, 'again'));
    const over = performance.now();
    const ms = (from: number, to: number): number => Math.round(to - from);
    const plainMs = Math.max(ms(began, written), ms(again, over));
    return { upMs: ms(written, turned), downMs: ms(turned, ended), plainMs };
  } finally {
    rmSync(host, { recursive: true, force: true });
  }
}

function writeTree(host: string): void {
  for (let directory = 0; directory < TREE.directories; directory++) {
    const path = join(host, `d${directory}`);
    mkdirSync(path, { recursive: true });
    for (let file = 0; file < 100; file++) writeFileSync(join(path, `f${file}`), `content ${file}`);
  }
}

/** Streams so many MiB in and out again, and tells by how much this process grew at most meanwhile. */
export async function streamLarge(files: Files, path: string, mebibytes: number): Promise<number> {
  const chunk = Buffer.alloc(MEBIBYTE, 'x');
  const before = process.memoryUsage.rss();
  let peak = before;
  const look = (): void => void (peak = Math.max(peak, process.memoryUsage.rss()));
  const timer = setInterval(look, 20);
  try {
    await files.writeFile(
      path,
      Readable.from(
        (function* () {
          for (let count = 0; count < mebibytes; count++) yield chunk;
        })(),
      ),
    );
    let bytes = 0;
    for await (const piece of files.createReadStream(path)) bytes += (piece as Buffer).length;
    expect(bytes).toBe(mebibytes * MEBIBYTE);
  } finally {
    clearInterval(timer);
  }
  look();
  return (peak - before) / MEBIBYTE;
}
