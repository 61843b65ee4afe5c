// A client of its own process, to be killed: keeps sandboxes waiting, says when they do, and then sleeps.
// Usage: node client.mjs <options of Acode.open as JSON>, in the workspace.
// @ts-check

import { Acode } from '../../packages/sandbox/dist/index.js';

const acode = await Acode.open({ workspace: process.cwd(), ...JSON.parse(process.argv[2] ?? '{}') });
while (!(await acode.explain(['true'])).warm) await new Promise(resolve => void setTimeout(resolve, 20));
console.log('waiting');
setInterval(() => undefined, 1000);
