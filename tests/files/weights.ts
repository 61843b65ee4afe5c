// Many files and large ones, moved in and out.

import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { expect } from 'vitest';
import type { Files } from '../../packages/sandbox/src/contract/sandbox.ts';

const MEBIBYTE = 1024 ** 2;

const TREE = { files: 10_000, directories: 100 };

/** Moves 10,000 small files in 100 directories in and out again; says how many came out, and how many there are inside. */
export async function moveMany(files: Files, place: string): Promise<readonly [out: number, inside: number]> {
  const host = mkdtempSync('/var/tmp/acode-test-many-');
  try {
    writeTree(join(host, 'source'));
    expect(await files.upload(join(host, 'source'), place)).toMatchObject(TREE);
    expect(await files.download(place, join(host, 'target'))).toMatchObject(TREE);
    const inside = await files.readdir(place, { recursive: true, withFileTypes: true });
    return [readdirSync(join(host, 'target'), { recursive: true }).length, inside.length];
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
