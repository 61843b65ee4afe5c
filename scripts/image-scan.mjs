// Looks through the layer of an image for what must not be in it: setuid and setgid, file capabilities, devices, and paths
// that anybody can write to. Says each by name and fails; reads the archive itself, so nothing has to be run or unpacked.
// @ts-check

import { Buffer } from 'node:buffer';
import { createReadStream } from 'node:fs';

const BLOCK = 512;
const MAX_RECORD = 1024 * 1024;

/** @typedef {{ path: string, fault: string }} Finding */
/** @typedef {{ path: string, type: string, mode: number, size: number, attributes: readonly string[] }} Entry */

/** What no entry may have in its mode; a link has none of its own. */
const MODES = /** @type {const} */ ([
  [0o4000, 'is setuid'],
  [0o2000, 'is setgid'],
  [0o002, 'can be written to by anybody'],
]);
const LINKS = ['1', '2'];
const DEVICES = ['3', '4'];

/**
 * What is wrong with one entry.
 *
 * @param {Entry} entry
 * @returns {Finding[]}
 */
function faultsOf({ path, type, mode, attributes }) {
  const faults = LINKS.includes(type) ? [] : MODES.filter(([bits]) => (mode & bits) !== 0).map(([, fault]) => fault);
  const capable = attributes.some(name => name.includes('security.capability'));
  return [
    ...faults,
    ...(capable ? ['has capabilities of its own'] : []),
    ...(DEVICES.includes(type) ? ['is a device'] : []),
  ].map(fault => ({ path, fault }));
}

/**
 * The entries of a tar, with what an extended header says about each.
 *
 * @param {AsyncIterable<Buffer>} source
 * @returns {AsyncGenerator<Entry, void, undefined>}
 */
async function* entriesOf(source) {
  const reader = new Reader(source);
  /** @type {Map<string, string>} */
  let extended = new Map();
  for (let header = await reader.take(BLOCK); header && !isEnd(header); header = await reader.take(BLOCK)) {
    const { type, size } = kindOf(header);
    const padded = Math.ceil(size / BLOCK) * BLOCK;
    if (EXTENDED.includes(type)) extended = await extend(extended, type, size, reader);
    else await reader.skip(padded);
    // One for the whole archive says nothing about one file.
    if (type === 'g' || EXTENDED.includes(type)) continue;
    yield entryOf(header, type, size, extended);
    extended = new Map();
  }
}

// An extended header, and the two of GNU tar: a long name, and a long target of a link.
const EXTENDED = ['x', 'L', 'K'];

/** @param {Buffer} header */
function isEnd(header) {
  return header.every(byte => byte === 0);
}

/** @param {Buffer} header */
function kindOf(header) {
  const type = header.toString('latin1', 156, 157);
  const size = Number.parseInt(text(header, 124, 12) || '0', 8);
  if (header.toString('latin1', 257, 262) !== 'ustar' || !Number.isSafeInteger(size))
    throw new Error('this is not a tar that can be judged');
  return { type: type === '\0' ? '0' : type, size };
}

/**
 * @param {ReadonlyMap<string, string>} before
 * @param {string} type
 * @param {number} size
 * @param {Reader} reader
 */
async function extend(before, type, size, reader) {
  if (size > MAX_RECORD) throw new Error('an extended header is too large');
  const content = (await reader.take(Math.ceil(size / BLOCK) * BLOCK))?.subarray(0, size) ?? Buffer.alloc(0);
  if (type === 'x') return new Map([...before, ...records(content)]);
  const name = content.toString('utf8').replace(/\0.*$/s, '');
  return type === 'L' ? new Map([...before, ['path', name]]) : new Map(before);
}

/**
 * @param {Buffer} header
 * @param {string} type
 * @param {number} size
 * @param {ReadonlyMap<string, string>} extended
 * @returns {Entry}
 */
function entryOf(header, type, size, extended) {
  // GNU tar has times where others have the beginning of a long path.
  const prefix = header.toString('latin1', 257, 263) === 'ustar\0' ? text(header, 345, 155) : '';
  const path = `${prefix === '' ? '' : `${prefix}/`}${text(header, 0, 100)}`;
  const mode = Number.parseInt(text(header, 100, 8) || '0', 8);
  return { path: extended.get('path') ?? path, type, mode, size, attributes: [...extended.keys()] };
}

/**
 * @param {Buffer} header
 * @param {number} at
 * @param {number} length
 */
function text(header, at, length) {
  return header
    .toString('utf8', at, at + length)
    .replace(/\0.*$/s, '')
    .trim();
}

/**
 * The records of an extended header: `LENGTH key=value\n`.
 *
 * @param {Buffer} content
 * @returns {[string, string][]}
 */
function records(content) {
  /** @type {[string, string][]} */
  const found = [];
  let at = 0;
  while (at < content.length) {
    const space = content.indexOf(0x20, at);
    const length = Number(content.toString('latin1', at, space));
    if (space === -1 || !Number.isSafeInteger(length) || length < 5) throw new Error('an extended header is broken');
    const record = content.toString('latin1', space + 1, at + length - 1);
    const equals = record.indexOf('=');
    const value = Buffer.from(record.slice(equals + 1), 'latin1').toString('utf8');
    found.push([record.slice(0, equals), value]);
    at += length;
  }
  return found;
}

/** Bytes in the portions that are asked for. */
class Reader {
  #source;
  #held = Buffer.alloc(0);

  /** @param {AsyncIterable<Buffer>} source */
  constructor(source) {
    this.#source = source[Symbol.asyncIterator]();
  }

  /**
   * @param {number} length
   */
  async take(length) {
    while (this.#held.length < length) {
      const next = await this.#source.next();
      if (next.done) {
        if (this.#held.length > 0) throw new Error('the archive ends in the middle of an entry');
        return null;
      }
      this.#held = Buffer.concat([this.#held, next.value]);
    }
    const taken = this.#held.subarray(0, length);
    this.#held = this.#held.subarray(length);
    return taken;
  }

  /** @param {number} length */
  async skip(length) {
    let left = length;
    while (left > 0) {
      const part = Math.min(left, Math.max(this.#held.length, BLOCK));
      if ((await this.take(part)) === null) throw new Error('the archive ends in the middle of an entry');
      left -= part;
    }
  }
}

/** @param {string} file */
async function scan(file) {
  let entries = 0;
  /** @type {Finding[]} */
  const findings = [];
  for await (const entry of entriesOf(createReadStream(file))) {
    entries += 1;
    findings.push(...faultsOf(entry));
  }
  for (const { path, fault } of findings) console.error(`${path} ${fault}`);
  // An archive in which nothing was found because there is nothing in it proves nothing.
  if (entries === 0) throw new Error(`${file} is empty`);
  console.log(`${entries} entries, ${findings.length} findings`);
  return findings.length;
}

const [layer] = process.argv.slice(2);
if (layer === undefined) {
  console.error('usage: image-scan.mjs LAYER.tar');
  process.exitCode = 2;
} else if ((await scan(layer)) > 0) process.exitCode = 1;
