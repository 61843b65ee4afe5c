// Asks an engine what is left on it: containers of ours, volumes, networks beyond its own.

import { request } from 'node:http';

const socketPath = process.argv[2];

const get = path =>
  new Promise((resolve, reject) => {
    const call = request({ socketPath, path, timeout: 10_000 }, response => {
      let text = '';
      response.on('data', chunk => (text += chunk));
      response.on('end', () => resolve(JSON.parse(text)));
    });
    call.on('error', reject);
    call.on('timeout', () => call.destroy(new Error(`${path}: no answer`)));
    call.end();
  });

const containers = await get('/containers/json?all=true');
const { Volumes: volumes } = await get('/volumes');
const networks = (await get('/networks')).filter(({ Name }) => !['bridge', 'host', 'none', 'podman'].includes(Name));
for (const { Names, Labels } of containers) console.log(`left: container ${Names?.[0]} ${JSON.stringify(Labels)}`);
for (const { Name } of volumes ?? []) console.log(`left: volume ${Name}`);
for (const { Name } of networks) console.log(`left: network ${Name}`);
const left = containers.length + (volumes?.length ?? 0) + networks.length;
console.log(`${socketPath}: ${left} left`);
process.exitCode = left === 0 ? 0 : 1;
