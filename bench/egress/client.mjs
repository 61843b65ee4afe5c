// Client of the egress bench: the same program outside and in a sandbox. Reads what to do as JSON from its arguments, and prints the
// milliseconds of each request, or of the whole, as JSON. With an `address`, it connects to that
// and asks for no name.
// @ts-check

import { Agent, request } from 'node:https';

const { mode, host, address, port, count, bytes, key } = JSON.parse(process.argv[2] ?? '{}');
const PATH = bytes ? `/${bytes}` : '/';

/** @param {Agent} agent */
function ask(agent) {
  const options = {
    agent,
    host: address ?? host,
    port,
    servername: host,
    path: PATH,
    headers: { Host: `${host}:${port}`, ...(key ? { Authorization: `Bearer ${key}` } : {}) },
  };
  const began = performance.now();
  return new Promise((resolve, reject) => {
    const asked = request(options, answer => {
      let size = 0;
      answer.on('data', chunk => (size += chunk.length));
      answer.on('error', reject).on('end', () => {
        if (answer.statusCode !== 200) reject(new Error(`status ${answer.statusCode}`));
        else resolve({ ms: performance.now() - began, size });
      });
    });
    asked.on('error', reject).end();
  });
}

/** @returns {Promise<number[]>} The milliseconds until the name was known, then until TCP, then TLS, then the answer. */
function askInParts() {
  const agent = new Agent({ keepAlive: false, maxCachedSessions: 0 });
  const options = {
    agent,
    host: address ?? host,
    port,
    servername: host,
    path: PATH,
    headers: { Host: `${host}:${port}` },
  };
  const times = [performance.now()];
  const mark = () => void times.push(performance.now());
  return new Promise((resolve, reject) => {
    const asked = request(options, answer => {
      answer.resume().on('error', reject);
      answer.on('end', () => {
        mark();
        resolve(times.slice(1).map((time, at) => time - (times[at] ?? 0)));
      });
    });
    if (address) mark();
    asked.on('socket', socket => socket.on('lookup', mark).on('connect', mark).on('secureConnect', mark));
    asked.on('error', reject).end();
  });
}

const wholes = {
  // One connection, one request after another.
  async kept() {
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    const values = [];
    for (let at = -20; at < count; at += 1) {
      const { ms } = await ask(agent);
      if (at >= 0) values.push(ms);
    }
    agent.destroy();
    return values;
  },
  // A connection for each request, TLS included.
  async fresh() {
    const values = [];
    for (let at = -5; at < count; at += 1) {
      const { ms } = await ask(new Agent({ keepAlive: false, maxCachedSessions: 0 }));
      if (at >= 0) values.push(ms);
    }
    return values;
  },
  // The parts of a new connection, one after another: its name, TCP, TLS, the answer, and the same of the next one.
  async phases() {
    const values = [];
    for (let at = -5; at < count; at += 1) {
      const parts = await askInParts();
      if (at >= 0) values.push(...parts);
    }
    return values;
  },
  // One long answer, in MB a second.
  async stream() {
    const { ms, size } = await ask(new Agent({ keepAlive: false }));
    return [size / 1e6 / (ms / 1000)];
  },
  // Connections at once, each with requests of its own; the number of those that failed.
  async many() {
    const failed = await Promise.all(
      Array.from({ length: Number(count) }, async () => {
        const agent = new Agent({ keepAlive: true, maxSockets: 1 });
        try {
          for (let at = 0; at < 20; at += 1) await ask(agent);
          return 0;
        } catch {
          return 1;
        } finally {
          agent.destroy();
        }
      }),
    );
    return [failed.filter(one => one === 1).length];
  },
};

console.log(JSON.stringify(await wholes[/** @type {keyof typeof wholes} */ (mode)]()));
