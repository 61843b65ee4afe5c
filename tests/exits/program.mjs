// A program that uses the library, holds a sandbox, and then ends in the way its first word says.
// @ts-check

import { Acode } from '@acode/sandbox';

const [way, image, seconds = '0'] = process.argv.slice(2);

const acode = await Acode.open({ config: { sandbox: { images: { default: image } } } });
const command = await acode.spawn(['sh', '-c', 'echo up; exec sleep 600']);
for await (const chunk of command.stdout) {
  process.stdout.write(chunk);
  break;
}

/** @type {Record<string, () => unknown>} */
const ways = {
  throw: () =>
    setTimeout(() => {
      throw new Error('nobody catches this');
    }),
  reject: () => void Promise.reject(new Error('nobody hears this')),
  exit: () => process.exit(7),
  abort: () => process.abort(),
  // Nothing of JavaScript runs until the time is over: no timer, no answer to anybody.
  block: () => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, Number(seconds) * 1000),
  wait: () => undefined,
};
if (way === undefined || ways[way] === undefined) throw new Error(`no such way: ${way}`);
ways[way]();
// Nothing of the library keeps a process that has nothing else to do; this one waits to be ended.
setInterval(() => undefined, 1000);
