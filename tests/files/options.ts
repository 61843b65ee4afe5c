// What calls on files take besides paths, as node takes it.

import { Readable } from 'node:stream';

type Loose = (...words: readonly unknown[]) => Promise<unknown>;

/** Calls with whatever somebody writes who has not read what there is. */
export interface LooseFiles {
  readonly readFile: Loose;
  readonly writeFile: Loose;
  readonly appendFile: Loose;
  readonly mkdir: Loose;
  readonly access: Loose;
}

/** What node and a sandbox do alike with the same words. */
export const ALIKE: Readonly<Record<string, (files: LooseFiles, path: string) => Promise<unknown>>> = {
  'readFile as text': (files, path) => files.readFile(path, 'utf8'),
  'readFile as base64': (files, path) => files.readFile(path, { encoding: 'base64' }),
  'readFile with no encoding': (files, path) => files.readFile(path, null),
  'readFile with an encoding nobody has': (files, path) => files.readFile(path, 'utf9'),
  'readFile with a flag': (files, path) => files.readFile(path, { encoding: 'latin1', flag: 'r' }),
  'writeFile of base64': (files, path) => files.writeFile(path, 'aGk=', 'base64'),
  'writeFile of hex': (files, path) => files.writeFile(path, '6869', { encoding: 'hex' }),
  'writeFile of a stream of base64': (files, path) => files.writeFile(path, Readable.from(['aGk=', 'aGk=']), 'base64'),
  'writeFile with an encoding nobody has': (files, path) => files.writeFile(path, 'x', { encoding: 'utf9' }),
  'writeFile at the end': (files, path) => files.writeFile(path, ' and more', { flag: 'a' }),
  'writeFile of what must be new': (files, path) => files.writeFile(path, 'x', { flag: 'wx' }),
  'writeFile of what is new': (files, path) => files.writeFile(`${path}-new`, 'x', { flag: 'wx', mode: 0o600 }),
  'writeFile of much that is new': (files, path) => files.writeFile(`${path}-much`, 'x'.repeat(1e6), { flag: 'wx' }),
  'writeFile at the end of what must be new': (files, path) => files.writeFile(path, 'x', { flag: 'ax' }),
  'writeFile with a flag nobody has': (files, path) => files.writeFile(path, 'x', { flag: 'q' }),
  'writeFile with nothing said': (files, path) =>
    files.writeFile(path, 'x', { flag: undefined, mode: undefined, encoding: null }),
  'appendFile of base64': (files, path) => files.appendFile(path, 'aGk=', 'base64'),
  'appendFile with another flag': (files, path) => files.appendFile(path, 'x', { flag: 'w' }),
  'appendFile with a mode': (files, path) => files.appendFile(`${path}-appended`, 'x', { mode: 0o700 }),
  'mkdir with a mode': (files, path) => files.mkdir(`${path}-directory`, 0o700),
  'mkdir with what is no boolean': (files, path) => files.mkdir(`${path}-directory`, { recursive: 'yes' }),
  'access with what is no mode': (files, path) => files.access(path, 8),
};
