// What a host reads once when it is opened, and what a call of its own would read anew: by this a server knows that it is outdated.

import { createHash } from 'node:crypto';
import { lstat, open } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import * as z from 'zod';
import { homeDirectory, userConfigFile } from './identity.ts';

const MACHINE_POLICY = '/etc/acode/policy.yml';
// Far more than the library reads of any of them; what is larger is refused by it, and differs here by its size.
const MAX_BYTES = 4 * 1024 ** 2;

const dockerConfig = z.looseObject({ currentContext: z.string().optional() });

/** A mark of everything that stands in those files, who owns them and who may write them. */
export async function standingOf(
  env: Readonly<Record<string, string | undefined>>,
  configFile: string | undefined,
): Promise<string> {
  const docker = env['DOCKER_CONFIG'] || join(homeDirectory(env), '.docker');
  const paths = [
    MACHINE_POLICY,
    userConfigFile(env),
    ...(configFile === undefined ? [] : [configFile]),
    join(docker, 'config.json'),
  ];
  const context = env['DOCKER_CONTEXT'] || (await contextIn(join(docker, 'config.json')));
  if (context !== null) paths.push(join(docker, 'contexts', 'meta', digest(context), 'meta.json'));
  return digest(JSON.stringify([await owner(dirname(MACHINE_POLICY)), ...(await Promise.all(paths.map(markOf)))]));
}

// Read and not only looked at: two changes within one tick of the kernel’s clock have the same times.
async function markOf(path: string): Promise<unknown> {
  try {
    await using file = await open(path);
    const { uid, mode, size } = await file.stat();
    const { bytesRead, buffer } = await file.read(
      Buffer.alloc(Math.min(size, MAX_BYTES)),
      0,
      Math.min(size, MAX_BYTES),
      0,
    );
    return [uid, mode, size, digest(buffer.subarray(0, bytesRead))];
  } catch (error) {
    return error instanceof Error && 'code' in error ? error.code : 'unreadable';
  }
}

async function owner(path: string): Promise<unknown> {
  return lstat(path).then(
    ({ uid, mode }) => [uid, mode],
    () => null,
  );
}

async function contextIn(path: string): Promise<string | null> {
  try {
    await using file = await open(path);
    return dockerConfig.parse(JSON.parse(await file.readFile('utf8'))).currentContext ?? null;
  } catch {
    return null;
  }
}

function digest(data: string | Uint8Array): string {
  return createHash('sha256').update(data).digest('hex');
}
